#pragma once
/// Watching which tensors a program's ops use, for checks that the program asks for. Without a watcher a call of an op
/// costs what it did before.

#include <atomic>

#include "athanor/tensor/tensor_base.h"

namespace athanor::detail {

/// Told of a tensor whose elements the op named (a name or a schema) is about to read or to change, in the calling
/// thread. Views, which look at no element, are left out; so is what out= writes.
using UseWatcher = void (*)(const char* op, const TensorBase& tensor) noexcept;

/// From now on `watcher` is told, by all threads; null: nobody. One at a time. Calls under way may still tell the one
/// before.
void watch_uses(UseWatcher watcher);

extern std::atomic<UseWatcher> use_watcher;
inline void note_use(const char* op, const TensorBase& tensor) noexcept {
  if (const UseWatcher watcher = use_watcher.load(std::memory_order_acquire)) watcher(op, tensor);
}

}  // namespace athanor::detail
