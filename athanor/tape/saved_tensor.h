#pragma once
/// SavedTensor: a tensor that backward will need, together with its version: reading it after an in-place change
/// throws.

#include "athanor/tape/node.h"

namespace athanor {

class SavedTensor {
 public:
  SavedTensor() = default;
  /// Saves an input, or anything that is not a result of the node itself.
  explicit SavedTensor(const TensorBase& t) { save(t); }
  void save(const TensorBase& t);
  /// Saves result `nr` of `node`. The tensor's own link to the node is left out: it would keep both alive for ever.
  void save_result(const TensorBase& t, Node* node);
  bool defined() const { return tensor_.defined(); }
  /// The tensor; `node` is the node that saved it. Throws Error naming versions if it was changed since.
  TensorBase get(Node* node) const;
  void reset() { tensor_.reset(); }

 private:
  TensorBase tensor_;
  std::uint32_t version_ = 0;
  bool is_result_ = false;
  std::uint32_t result_nr_ = 0;
};

}  // namespace athanor
