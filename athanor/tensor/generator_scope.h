#pragma once
/// GeneratorScope: a default generator of one thread's own. Not part of the interface.

#include "athanor/tensor/generator.h"

namespace athanor::detail {

/// While it lives default_generator() is, in this thread, a copy of the one before: what is drawn or seeded here leaves
/// others' numbers alone. Scopes end in the reverse of the order in which they began, on the thread that made them.
class GeneratorScope {
 public:
  GeneratorScope();
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  Generator own_;
  Generator* const before_;
};

}  // namespace athanor::detail
