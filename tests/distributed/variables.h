#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "athanor/base/env.h"

namespace athanor::distributed {

/// An environment variable, set for a scope; afterwards it is what it was.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name), before_(env::text(name)) {
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace athanor::distributed
