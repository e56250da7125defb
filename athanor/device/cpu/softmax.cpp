// softmax, log_softmax and their gradients.
#include "athanor/ops/kernels/softmax.h"

#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/softmax_simd.h"

namespace athanor::cpu {
namespace {

void run(SoftmaxKind kind, const char* name, const View& out, const View& a, const View& b, std::int64_t dim) {
  ATHANOR_CHECK_TYPE(TypeError, is_floating_point(out.dtype) && is_floating_point(a.dtype), name,
                     ": expected floating dtypes, got ", dtype_name(a.dtype), " to ", dtype_name(out.dtype));
  const DType compute = out.dtype == DType::Double || a.dtype == DType::Double ? DType::Double : DType::Float;
  run_lines(softmax_fns(kind, compute), compute, out, a, b, dim);
}

void softmax_cpu(const View& out, const View& in, std::int64_t dim) {
  run(SoftmaxKind::Softmax, "softmax", out, in, View{}, dim);
}
void log_softmax_cpu(const View& out, const View& in, std::int64_t dim) {
  run(SoftmaxKind::LogSoftmax, "log_softmax", out, in, View{}, dim);
}
void softmax_backward_cpu(const View& din, const View& grad, const View& output, std::int64_t dim) {
  run(SoftmaxKind::SoftmaxBackward, "softmax_backward", din, grad, output, dim);
}
void log_softmax_backward_cpu(const View& din, const View& grad, const View& output, std::int64_t dim) {
  run(SoftmaxKind::LogSoftmaxBackward, "log_softmax_backward", din, grad, output, dim);
}

}  // namespace

ATHANOR_REGISTER_KERNEL(softmax_kernel, CPU, &softmax_cpu);
ATHANOR_REGISTER_KERNEL(log_softmax_kernel, CPU, &log_softmax_cpu);
ATHANOR_REGISTER_KERNEL(softmax_backward_kernel, CPU, &softmax_backward_cpu);
ATHANOR_REGISTER_KERNEL(log_softmax_backward_kernel, CPU, &log_softmax_backward_cpu);

}  // namespace athanor::cpu
