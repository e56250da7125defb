#pragma once
/// How tensors and the tape refer to each other: which node made a tensor, where its gradient goes, and what in-place
/// changes do to both.

#include "athanor/tape/autograd_meta.h"
#include "athanor/tape/grad_mode.h"
#include "athanor/tape/saved_tensor.h"

namespace athanor {

/// The node that made `t`, or null for leaves. A view whose base was changed in place gets a fresh one.
IntrusivePtr<Node> grad_fn(const TensorBase& t);
/// Where the gradient of `t` goes; an invalid edge if it does not require grad.
Edge gradient_edge(const TensorBase& t);
/// Makes `t` result `nr` of `node`.
void set_history(const TensorBase& t, IntrusivePtr<Node> node);
/// After an in-place op: `t` is now the result of `node` (through its base, if it is a view).
void rebase_history(const TensorBase& t, const IntrusivePtr<Node>& node);
/// Throws as PyTorch does if `t` may not be changed in place in the present grad mode.
void check_inplace(const TensorBase& t, const char* op);
/// Makes `view` a view of `base` for in-place bookkeeping.
void note_view(const TensorBase& view, const TensorBase& base, ViewOrigin origin = ViewOrigin::Ordinary);

bool is_leaf(const TensorBase& t);
/// Throws Error for a non-floating tensor, or when turning it off on a non-leaf.
void set_requires_grad(const TensorBase& t, bool on);
const TensorBase& grad_of(const TensorBase& t);
/// Why `t` has no gradient and backward() will not give it one, as a warning's text; null unless it is so.
const char* why_no_grad(const TensorBase& t);
/// Throws Error if shape, dtype or device do not fit.
void set_grad(const TensorBase& t, const TensorBase& grad);

/// Of the tensors that share the storage of `t`, those that nobody but its holder can reach: `t` itself and, if it is a
/// view, its base. 0 if somebody else holds one of them.
std::int64_t sole_holders(const TensorBase& t);
/// The tensor whose parts along dim the first `count` gradients are, one beside the other, if nobody else holds one of
/// them and they need no history; it fills its storage. Undefined
/// otherwise.
TensorBase joined_again(const GradList& parts, std::size_t count, std::int64_t dim);

/// The leaf end of the tape: adds what arrives to `variable().grad`.
class AccumulateGrad final : public Node, public FreeList<AccumulateGrad> {
 public:
  explicit AccumulateGrad(TensorBase variable);
  ~AccumulateGrad() override;
  void apply(const GradList& in, GradList& out) override;
  std::string name() const override { return "AccumulateGrad"; }
  TensorImpl* variable() const override { return variable_.impl(); }

 private:
  TensorBase variable_;
};

}  // namespace athanor

namespace athanor::ops {
/// The node that reads `base` in the given geometry, not yet attached to a result.
IntrusivePtr<Node> make_as_strided_node(const TensorBase& base, IntArrayRef size, IntArrayRef stride,
                                        std::int64_t offset);
}  // namespace athanor::ops
