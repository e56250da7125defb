#pragma once
/// Staged: the contiguous host memory through which a tensor takes part in a call or message. That is its own memory
/// where it can be, else a copy. Collectives go through CallTensor (call_tensors.h). Not part of the interface.

#include "athanor/distributed/backend.h"
#include "athanor/ops/tensor.h"
#include "athanor/tape/grad_mode.h"

namespace athanor::distributed {

class Staged {
 public:
  enum Use { In = 1, Out = 2, InOut = 3 };

  Staged() = default;
  /// `tensor` has to outlive this. For In and InOut the memory holds its values.
  Staged(const Tensor& tensor, Use use) : tensor_(&tensor), use_(use) {
    if (!direct(tensor)) copy();
  }
  /// After the call: puts what it wrote into the tensor, if that has not happened in place.
  void write_back() {
    if (!copy_.defined() || !(use_ & Out)) return;
    const NoGradGuard no_grad;
    tensor_->data().copy_(copy_);
  }
  Span span() const {
    const Tensor& t = copy_.defined() ? copy_ : *tensor_;
    if (use_ & Out) t.storage()->note_address();  // written when the call runs, which may be later
    return {athanor::detail::view_of(t).data, t.numel(), t.dtype()};
  }
  static bool direct(const Tensor& t) { return t.device().is_host() && t.is_contiguous(); }

 private:
  void copy() {
    const NoGradGuard no_grad;
    if (use_ & In)
      copy_ = tensor_->data().to(TensorOptions(Device())).contiguous();
    else
      copy_ = Tensor(athanor::detail::empty_tensor(tensor_->sizes(), tensor_->dtype(), Device()));
  }

  const Tensor* tensor_ = nullptr;
  Tensor copy_;
  Use use_ = InOut;
};

}  // namespace athanor::distributed
