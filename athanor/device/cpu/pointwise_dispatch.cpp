#include <array>
#include <cmath>
#include <initializer_list>

#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/pointwise_tables.h"
#include "athanor/ops/kernels/copy.h"
#include "hwy/targets.h"

namespace athanor::cpu {
namespace {

PointwiseTables make_tables() {
  PointwiseTables t;
  for (auto* add : {&add_unary_any, &add_unary_math, &add_unary_activations, &add_unary_special, &add_binary_float,
                    &add_binary_math, &add_binary_integer, &add_binary_number, &add_binary_compare,
                    &add_binary_backward, &add_ternary})
    add(t);
  return t;
}

PointwiseTables& mutable_tables() {
  static PointwiseTables tables = make_tables();
  return tables;
}

/// Elements below which a second thread does not pay: arithmetic runs at the speed of memory, functions do not.
constexpr std::int64_t kCheapGrain = 32768;
constexpr std::int64_t kCostlyGrain = 8192;

[[noreturn, gnu::cold, gnu::noinline]] void refuse(const char* op, DType t) {
  ATHANOR_THROW(NotImplementedError, op, ": not implemented for ", t, " tensors; convert them to another dtype first");
}

/// A bool is a byte: arithmetic on it is logic.
BinaryOp on_bool(BinaryOp op) {
  switch (op) {
    case BinaryOp::Add:
    case BinaryOp::Maximum:
    case BinaryOp::Fmax:
      return BinaryOp::BitwiseOr;
    case BinaryOp::Mul:
    case BinaryOp::Minimum:
    case BinaryOp::Fmin:
      return BinaryOp::BitwiseAnd;
    default:
      return op;
  }
}

/// The loop of a table row for dtype t; `widen`: it works on float32 where the operands are t.
LoopFn find(const LoopFn (&row)[kNumDTypes], DType t, const char* op, bool& widen) {
  LoopFn fn = row[static_cast<int>(t)];
  widen = !fn && is_half(t);
  if (widen) fn = row[static_cast<int>(DType::Float)];
  if (!fn) refuse(op, t);
  return fn;
}

bool is_costly(BinaryOp op) {
  return op >= BinaryOp::DivFloor && op <= BinaryOp::Pow ? true : op >= BinaryOp::Atan2 && op <= BinaryOp::LogAddExp2;
}

void set_storage(LoopSpec& spec, int operand, DType t, bool widen) {
  spec.storage[operand] = t;
  spec.widen[operand] = widen && is_half(t);
}

/// Whether the loop of a unary or binary operation is one of unary_vectors or binary_vectors, which can stream, or one
/// that makes nothing of strides.
bool makes_vectors(const View& out, const View& in) {
  return out.dtype == in.dtype && (out.dtype == DType::Float || out.dtype == DType::Double);
}

bool is_nan(const Scalar& s) { return s.isFloatingPoint() && std::isnan(s.to<double>()); }

/// x to the powers that have an operation of their own, with PyTorch's choice of them.
UnaryOp simpler_power(const Scalar& exponent) {
  const double e = exponent.toDouble();
  return e == 2      ? UnaryOp::Square
         : e == 0.5  ? UnaryOp::Sqrt
         : e == -0.5 ? UnaryOp::Rsqrt
         : e == -1   ? UnaryOp::Reciprocal
                     : UnaryOp::PowScalar;
}

void unary_cpu(UnaryOp op, const View& out, const View& in, Scalar p0, Scalar p1) {
  const bool clamps = op == UnaryOp::Clamp || op == UnaryOp::ClampMin || op == UnaryOp::ClampMax;
  if (clamps && is_floating_point(in.dtype) && (is_nan(p0) || (op == UnaryOp::Clamp && is_nan(p1))))
    return fill_kernel.get(DeviceType::CPU)(out, std::nan(""));
  if (op == UnaryOp::PowScalar) op = simpler_power(p0);
  LoopSpec spec;
  bool widen = false;
  spec.fn = find(pointwise_tables().unary[static_cast<int>(op)], in.dtype, name(op), widen);
  const LoopParameters params(p0, p1);
  spec.params = &params;
  set_storage(spec, 0, out.dtype, widen);
  set_storage(spec, 1, in.dtype, widen);
  spec.grain = op >= UnaryOp::Frac && op <= UnaryOp::PowScalar ? kCostlyGrain : kCheapGrain;
  spec.streams = makes_vectors(out, in);
  const View* views[] = {&out, &in};
  run_views(spec, views, 2);
}

void nan_to_num_cpu(const View& out, const View& in, double nan, double posinf, double neginf) {
  LoopSpec spec;
  bool widen = false;
  spec.fn = find(pointwise_tables().nan_to_num, in.dtype, "nan_to_num", widen);
  const LoopParameters params(nan, posinf, neginf);
  spec.params = &params;
  set_storage(spec, 0, out.dtype, widen);
  set_storage(spec, 1, in.dtype, widen);
  const View* views[] = {&out, &in};
  run_views(spec, views, 2);
}

void binary_cpu(BinaryOp op, const View& out, const View& a, const View& b, Scalar p0, Scalar p1) {
  if (a.dtype == DType::Bool) op = on_bool(op);
  bool widen = false;
  const bool mixed = a.dtype != b.dtype;  // a half and a number of float32
  const LoopFn fn =
      find(pointwise_tables().binary[static_cast<int>(op)], mixed ? DType::Float : a.dtype, name(op), widen);
  widen = widen || mixed;
  const LoopParameters params(p0, p1);
  if (out.contiguous && a.contiguous && b.contiguous && a.numel == out.numel && b.numel == out.numel &&
      out.numel <= kCostlyGrain && !widen) {
    // The common small case, with nothing to set up.
    char* const ptrs[] = {out.ptr<char>(), a.ptr<char>(), b.ptr<char>()};
    const auto size = static_cast<std::int64_t>(a.item_size());
    const std::int64_t strides[] = {static_cast<std::int64_t>(out.item_size()), size, size};
    return fn(ptrs, strides, out.numel, &params);
  }
  LoopSpec spec;
  spec.fn = fn;
  spec.params = &params;
  set_storage(spec, 0, out.dtype, widen);
  set_storage(spec, 1, a.dtype, widen);
  set_storage(spec, 2, b.dtype, widen);
  spec.takes_scalars = true;
  spec.grain = is_costly(op) ? kCostlyGrain : kCheapGrain;
  spec.streams = makes_vectors(out, a);
  if (spec.streams) spec.row_fn = pointwise_tables().rows[static_cast<int>(op)][static_cast<int>(a.dtype)];
  const View* views[] = {&out, &a, &b};
  run_views(spec, views, 3);
}

/// The dtype that a number has beside x: halves are multiplied and divided by the number as it is, not by its half.
DType type_beside(BinaryOp op, DType x, const Scalar& s) {
  if (!is_half(x) || (op != BinaryOp::Mul && op != BinaryOp::Div)) return x;
  const auto exact = s.to<float>();
  const float rounded = x == DType::Half ? float{Half(exact)} : float{BFloat16(exact)};
  return rounded == exact ? x : DType::Float;
}

void binary_scalar_cpu(BinaryOp op, const View& out, const View& x, Scalar s, bool scalar_first, Scalar p0, Scalar p1) {
  View scalar;
  scalar.dtype = type_beside(op, x.dtype, s);
  alignas(8) std::array<char, 8> value = element_bytes(s, scalar.dtype);
  scalar.data = value.data();
  scalar.numel = 1;
  if (scalar_first)
    binary_cpu(op, out, scalar, x, p0, p1);
  else
    binary_cpu(op, out, x, scalar, p0, p1);
}

void ternary_cpu(TernaryOp op, const View& out, const View& a, const View& b, const View& c, Scalar p0) {
  LoopSpec spec;
  bool widen = false;
  spec.fn = find(pointwise_tables().ternary[static_cast<int>(op)], b.dtype, name(op), widen);
  const LoopParameters params(p0, Scalar());
  spec.params = &params;
  const View* views[] = {&out, &a, &b, &c};
  for (int i = 0; i < 4; ++i) set_storage(spec, i, views[i]->dtype, widen);
  spec.takes_scalars = true;
  run_views(spec, views, 4);
}

}  // namespace

void refuse_zero_divisor(BinaryOp op) {
  ATHANOR_THROW(Error, name(op), ": ZeroDivisionError: a whole number was divided by 0");
}

const PointwiseTables& pointwise_tables() { return mutable_tables(); }

bool use_simd_target(int n) {
  hwy::SetSupportedTargetsForTest(0);
  std::int64_t targets = hwy::SupportedTargets() & (HWY_SSE4 | HWY_AVX2 | HWY_AVX3);
  for (int i = 0; i < n; ++i) targets &= targets - 1;  // the best ones are the lowest bits
  if (targets == 0) return false;
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  mutable_tables() = make_tables();
  reload_block_ops();
  return true;
}

}  // namespace athanor::cpu

namespace athanor {
ATHANOR_REGISTER_KERNEL(unary_kernel, CPU, &cpu::unary_cpu);
ATHANOR_REGISTER_KERNEL(binary_kernel, CPU, &cpu::binary_cpu);
ATHANOR_REGISTER_KERNEL(binary_scalar_kernel, CPU, &cpu::binary_scalar_cpu);
ATHANOR_REGISTER_KERNEL(ternary_kernel, CPU, &cpu::ternary_cpu);
ATHANOR_REGISTER_KERNEL(nan_to_num_kernel, CPU, &cpu::nan_to_num_cpu);
}  // namespace athanor
