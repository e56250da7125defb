#include "athanor/ops/kernels/matmul.h"

#include "athanor/device/cpu/gemm.h"

namespace athanor {
namespace {

/// Operands of a product from views whose last two dimensions are the matrices.
GemmProblem problem_of(const View& out, const View& a, const View& b, const View& bias) {
  GemmProblem g;
  g.dtype = out.dtype;
  g.m = out.size(-2);
  g.n = out.size(-1);
  g.k = a.size(-1);
  g.a = a.data;
  g.a_row = a.stride(-2);
  g.a_col = a.stride(-1);
  g.b = b.data;
  g.b_row = b.stride(-2);
  g.b_col = b.stride(-1);
  g.c = out.data;
  g.c_row = out.stride(-2);
  g.c_col = out.stride(-1);
  if (bias.defined()) {
    g.bias = bias.data;
    g.bias_row = bias.stride(-2);
    g.bias_col = bias.stride(-1);
  }
  return g;
}

void gemm_cpu(const View& out, const View& a, const View& b, const View& bias, Scalar alpha, Scalar beta) {
  GemmProblem g = problem_of(out, a, b, bias);
  g.alpha = alpha;
  g.beta = beta;
  gemm(g);
}

void bmm_cpu(const View& out, const View& a, const View& b, const View& bias, Scalar alpha, Scalar beta) {
  GemmProblem g = problem_of(out, a, b, bias);
  g.alpha = alpha;
  g.beta = beta;
  gemm(g, {out.size(0), a.stride(0), b.stride(0), out.stride(0), bias.defined() ? bias.stride(0) : 0});
}

void linear_cpu(const View& out, const View& in, const View& weight, const View& bias, Epilogue epilogue) {
  GemmProblem g;
  g.dtype = out.dtype;
  g.m = out.size(0);
  g.n = out.size(1);
  g.k = in.size(1);
  g.a = in.data;
  g.a_row = in.stride(0);
  g.a_col = in.stride(1);
  g.b = weight.data;
  g.b_row = weight.stride(1);
  g.b_col = weight.stride(0);
  g.c = out.data;
  g.c_row = out.stride(0);
  g.c_col = out.stride(1);
  if (bias.defined()) {
    g.bias = bias.data;
    g.bias_col = bias.stride(0);
    g.beta = 1;
  }
  g.epilogue = epilogue;
  gemm(g);
}

ATHANOR_REGISTER_KERNEL(gemm_kernel, CPU, &gemm_cpu);
ATHANOR_REGISTER_KERNEL(bmm_kernel, CPU, &bmm_cpu);
ATHANOR_REGISTER_KERNEL(linear_kernel, CPU, &linear_cpu);

}  // namespace
}  // namespace athanor
