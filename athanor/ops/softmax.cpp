// softmax and log_softmax.
#include "athanor/ops/softmax.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/kernels/softmax.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/unary.h"

namespace athanor::ops {

namespace {

/// The kernels take half types in and float32 out in one pass; other conversions are made before.
bool widens(DType from, DType to) { return is_half(from) && to == DType::Float; }

/// Sum along dim, kept.
Tensor line_sum(const Tensor& t, std::int64_t dim) {
  return t.dim() == 0 ? t : sum(t, IntArrayRef(dim), true, std::nullopt);
}

Meta softmax_meta(const char* op, const Tensor& self, std::int64_t& dim, std::optional<DType> dtype) {
  const DType t = dtype.value_or(self.dtype());
  ATHANOR_CHECK_TYPE(NotImplementedError, is_floating_point(t), op, ": not implemented for ", dtype_name(t),
                     "; pass a floating dtype=");
  dim = wrap_dim(dim, self.dim(), op);
  return {DimVector(self.sizes()), t, self.device(), {}};
}

}  // namespace

/// din = output * (grad - sum(grad * output)).
struct SoftmaxBackwardData {
  ATHANOR_OP(
      "_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor | "
      "function");
  std::int64_t dim;
  DType input_dtype;
  SavedTensor grad_output, output;
  Meta infer(const Tensor& grad, const Tensor&) { return {DimVector(grad.sizes()), input_dtype, grad.device(), {}}; }
  void run(const Tensor& out, const Tensor& grad, const Tensor& y) {
    launch(softmax_backward_kernel, out, grad, y, dim);
  }
  void save(const Node&, const Tensor& grad, const Tensor& y) {
    grad_output.save(grad);
    output.save(y);
  }
  void grad(GradCall& g) {
    const Tensor up = cast(g.grad(), g.get(output).dtype()), y = g.get(output), d = g.get(grad_output);
    if (g.needs(0)) g.set(0, _softmax_backward_data(up, y, dim, y.dtype()));
    if (g.needs(1)) {
      // din_i = y_i (d_i - s), s = sum d y.
      const Tensor s = line_sum(mul(d, y), dim), t = line_sum(mul(up, y), dim);
      g.set(1, sub(mul(up, sub(d, s)), mul(d, t)));
    }
  }
};

struct SoftmaxOp {
  ATHANOR_OP("_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor | function out");
  static constexpr const char* grad_name = "SoftmaxBackward0";
  std::int64_t dim;
  std::optional<DType> dtype;
  DType from;
  SavedTensor y;
  void prepare(Tensor& self) {
    AutocastOnCuda<AutocastTo::Float32>::prepare(self);
    ATHANOR_CHECK(self.defined(), "softmax: expected a tensor, got an undefined one");
    if (dtype && !widens(self.dtype(), *dtype)) self = cast(self, *dtype);
    from = self.dtype();
  }
  Meta infer(const Tensor& self) { return softmax_meta("softmax", self, dim, dtype); }
  void run(const Tensor& out, const Tensor& self) { launch(softmax_kernel, out, self, dim); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) { g.set(0, _softmax_backward_data(g.grad(), g.get(y), dim, from)); }
};

/// exp(self) / sum(exp(self)) along dim, in dtype if given.
ATHANOR_FUNCTION("softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor | out");
Tensor softmax(const Tensor& self, std::int64_t dim, std::optional<DType> dtype) { return _softmax(self, dim, dtype); }

/// din = grad - exp(output) * sum(grad).
struct LogSoftmaxBackwardData {
  ATHANOR_OP(
      "_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor | "
      "function");
  std::int64_t dim;
  DType input_dtype;
  SavedTensor grad_output, output;
  Meta infer(const Tensor& grad, const Tensor&) { return {DimVector(grad.sizes()), input_dtype, grad.device(), {}}; }
  void run(const Tensor& out, const Tensor& grad, const Tensor& y) {
    launch(log_softmax_backward_kernel, out, grad, y, dim);
  }
  void save(const Node& n, const Tensor& grad, const Tensor& y) {
    if (n.needs(1)) grad_output.save(grad);
    output.save(y);
  }
  void grad(GradCall& g) {
    const Tensor y = g.get(output), up = cast(g.grad(), y.dtype()), p = exp(y);
    if (g.needs(0)) g.set(0, sub(up, line_sum(mul(up, p), dim)));
    if (g.needs(1)) g.set(1, neg(mul(mul(up, p), line_sum(g.get(grad_output), dim))));
  }
};

struct LogSoftmaxOp {
  ATHANOR_OP("_log_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor | function out");
  static constexpr const char* grad_name = "LogSoftmaxBackward0";
  std::int64_t dim;
  std::optional<DType> dtype;
  DType from;
  SavedTensor y;
  void prepare(Tensor& self) {
    AutocastOnCuda<AutocastTo::Float32>::prepare(self);
    ATHANOR_CHECK(self.defined(), "log_softmax: expected a tensor, got an undefined one");
    if (dtype && !widens(self.dtype(), *dtype)) self = cast(self, *dtype);
    from = self.dtype();
  }
  Meta infer(const Tensor& self) { return softmax_meta("log_softmax", self, dim, dtype); }
  void run(const Tensor& out, const Tensor& self) { launch(log_softmax_kernel, out, self, dim); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) { g.set(0, _log_softmax_backward_data(g.grad(), g.get(y), dim, from)); }
};

/// log(softmax(self)) along dim, in dtype if given.
ATHANOR_FUNCTION("log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor | out");
Tensor log_softmax(const Tensor& self, std::int64_t dim, std::optional<DType> dtype) {
  return _log_softmax(self, dim, dtype);
}

/// softmax(-self).
ATHANOR_FUNCTION("softmin(Tensor self, int dim, ScalarType? dtype=None) -> Tensor | function");
Tensor softmin(const Tensor& self, std::int64_t dim, std::optional<DType> dtype) {
  return _softmax(neg(self), dim, dtype);
}

}  // namespace athanor::ops

#include "athanor/ops/softmax.glue.inc"
