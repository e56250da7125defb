#pragma once
/// Hooks that put something else in the place of the tensors that backward will need: a copy in another memory, a file.

#include <memory>

#include "athanor/tape/node.h"

namespace athanor {

/// What a tensor was packed into.
class PackedTensor {
 public:
  PackedTensor() = default;
  virtual ~PackedTensor() = default;
  PackedTensor(const PackedTensor&) = delete;
  PackedTensor& operator=(const PackedTensor&) = delete;
  /// The tensor again: shape, dtype, device and contiguity are those of what was packed, else backward throws Error.
  /// Called by every backward that needs it.
  virtual TensorBase unpack() = 0;
};

/// While it lives, this thread's calls hand over what they save for backward; of several, the latest counts. Destroyed
/// in the thread and in the reverse of the order in which they were made.
class SavedTensorHooks {
 public:
  SavedTensorHooks();
  virtual ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;
  /// Runs without recording. `t` is an input of the call, or a result without its history. What is kept of it is not
  /// checked for changes in place. Throws reach the caller of the op; a change of `t` in place is an Error.
  virtual std::unique_ptr<PackedTensor> pack(const TensorBase& t) = 0;
  /// The latest of this thread, or null.
  static SavedTensorHooks* current();

 private:
  SavedTensorHooks* outer_;
};

namespace detail {
// initial-exec, as tape_state: saving asks for it every time.
extern thread_local SavedTensorHooks* saved_tensor_hooks __attribute__((tls_model("initial-exec")));
/// A tensor of no elements that stands for `t` as the hooks packed it.
TensorBase pack_saved(const TensorBase& t, bool is_result);
/// Whether `t` is one of these.
bool is_packed(const TensorBase& t);
/// What was packed, with the history it had: that of an input, or result `nr` of `node`.
TensorBase unpack_saved(const TensorBase& t, Node* node, std::uint32_t nr);
}  // namespace detail

}  // namespace athanor
