// Creation: tensors made from sizes and values.
#include "athanor/ops/create.h"

#include <cmath>

#include "athanor/ops/binary.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/diagonal.h"
#include "athanor/ops/kept_strides.h"
#include "athanor/ops/kernels/create.h"
#include "athanor/ops/op.h"

namespace athanor::ops {

namespace {

Tensor make(IntArrayRef size, const TensorOptions& options) {
  const MemoryFormat format = options.memory_format_opt().value_or(MemoryFormat::Contiguous);
  DimVector strides;
  if (format != MemoryFormat::Contiguous && format != MemoryFormat::Preserve)
    strides = detail::strides_for(size, format);
  return detail::empty_tensor(size, options.dtype(), resolve(options.device()), strides);
}

Tensor finish(Tensor t, const TensorOptions& options) {
  mark_inference(t);
  if (options.requires_grad()) set_requires_grad(t, true);
  return t;
}

TensorOptions like(const Tensor& self, const TensorOptions& options) {
  TensorOptions o = options;
  if (!o.has_dtype()) o = o.dtype(self.dtype());
  if (!o.has_device()) o = o.device(self.device());
  return o;
}

TensorOptions with_format(const TensorOptions& options, std::optional<MemoryFormat> format) {
  ATHANOR_CHECK(!format || !options.memory_format_opt() || *format == *options.memory_format_opt(),
                "empty_like: the memory format was given twice and differs; give it in options or as an argument");
  return format ? options.memory_format(format) : options;
}

}  // namespace

/// Uninitialized values.
ATHANOR_FUNCTION("empty(int[] size, TensorOptions options={}) -> Tensor | out unset");
Tensor empty(IntArrayRef size, const TensorOptions& options) { return finish(make(size, options), options); }

/// Uninitialized values in the layout given by strides (in elements, not negative).
ATHANOR_FUNCTION("empty_strided(int[] size, int[] stride, TensorOptions options={}) -> Tensor");
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, const TensorOptions& options) {
  ATHANOR_CHECK(size.size() == stride.size(), "empty_strided: got ", size.size(), " sizes and ", stride.size(),
                " strides; expected as many of both");
  if (checked_numel(size, "empty_strided") > 0) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < size.size(); ++d) {
      std::int64_t reach = 0;
      ATHANOR_CHECK(stride[d] >= 0, "empty_strided: negative strides are not supported, got ", stride);
      ATHANOR_CHECK(!__builtin_mul_overflow(size[d] - 1, stride[d], &reach) &&
                        !__builtin_add_overflow(last, reach, &last) && last < (std::int64_t{1} << 58),
                    "empty_strided: sizes ", size, " with strides ", stride, " need more memory than can be addressed");
    }
  }
  return finish(detail::empty_tensor(size, options.dtype(), resolve(options.device()), stride), options);
}

/// Uninitialized values whose dims lie in memory in the order `physical_layout`, outermost first.
ATHANOR_FUNCTION("empty_permuted(int[] size, int[] physical_layout, TensorOptions options={}) -> Tensor");
Tensor empty_permuted(IntArrayRef size, IntArrayRef physical_layout, const TensorOptions& options) {
  const std::size_t n = size.size();
  ATHANOR_CHECK(
      physical_layout.size() == n, "empty_permuted: Number of dimensions in size does not match the length of ",
      "the physical_layout; i.e. len(size) = ", n, " is not equal to len(physical_layout) = ", physical_layout.size());
  DimVector strides(n);
  std::uint64_t seen = 0, step = 1;  // steps of sizes that empty_strided refuses wrap
  for (std::size_t i = n; i-- > 0;) {
    const std::int64_t d = physical_layout[i];
    ATHANOR_CHECK(d >= 0 && d < static_cast<std::int64_t>(n), "empty_permuted: Dimension out of range (expected to be ",
                  "between 0 and ", static_cast<std::int64_t>(n) - 1, ", but got ", d, " at index ", i, ")");
    ATHANOR_CHECK(!(seen >> d & 1), "empty_permuted: Duplicate dim not allowed: ", d, " in ", physical_layout);
    seen |= std::uint64_t{1} << d;
    strides[static_cast<std::size_t>(d)] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(std::max<std::int64_t>(size[static_cast<std::size_t>(d)], 1));
  }
  return empty_strided(size, strides, options);
}

namespace {

/// Not counted as a change: a new tensor has version 0.
void fill_new(const Tensor& t, const Scalar& value) {
  t.impl()->own_version = true;
  fill_(t, value);
  t.impl()->own_version = false;
}

}  // namespace

/// A tensor of the given size filled with fill_value, whose type decides the dtype unless one is given.
ATHANOR_FUNCTION("full(int[] size, Scalar fill_value, TensorOptions options={}) -> Tensor | out");
Tensor full(IntArrayRef size, const Scalar& fill_value, const TensorOptions& options) {
  TensorOptions o = options;
  if (!o.has_dtype() && !fill_value.isFloatingPoint()) o = o.dtype(fill_value.type());
  Tensor t = make(size, o);
  fill_new(t, fill_value);
  return finish(std::move(t), options);
}

/// A tensor of zeros.
ATHANOR_FUNCTION("zeros(int[] size, TensorOptions options={}) -> Tensor | out");
Tensor zeros(IntArrayRef size, const TensorOptions& options) {
  Tensor t = make(size, options);
  fill_new(t, 0);
  return finish(std::move(t), options);
}

/// A tensor of ones.
ATHANOR_FUNCTION("ones(int[] size, TensorOptions options={}) -> Tensor | out");
Tensor ones(IntArrayRef size, const TensorOptions& options) {
  Tensor t = make(size, options);
  fill_new(t, 1);
  return finish(std::move(t), options);
}

/// A tensor of self's shape; dense strides are kept unless a memory format is asked for.
ATHANOR_FUNCTION(
    "empty_like(Tensor self, TensorOptions options={}, MemoryFormat? memory_format=None) -> Tensor | function");
Tensor empty_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  const TensorOptions o = like(given("empty_like", self), with_format(options, memory_format));
  const bool preserve = o.memory_format_opt().value_or(MemoryFormat::Preserve) == MemoryFormat::Preserve;
  if (preserve && !self.is_contiguous())
    if (const DimVector strides = kept_strides(self); !strides.empty())
      return finish(detail::empty_tensor(self.sizes(), o.dtype(), resolve(o.device()), strides), options);
  return finish(make(self.sizes(), o), options);
}

/// A tensor filled with fill_value of the input's shape, and of its dtype and device unless others are given.
ATHANOR_FUNCTION(
    "full_like(Tensor self, Scalar fill_value, TensorOptions options={}, MemoryFormat? memory_format=None) -> Tensor | "
    "function");
Tensor full_like(const Tensor& self, const Scalar& fill_value, const TensorOptions& options,
                 std::optional<MemoryFormat> memory_format) {
  Tensor t = empty_like(self, options.requires_grad(false), memory_format);
  fill_new(t, fill_value);
  return finish(std::move(t), options);
}

/// A tensor of zeros of the input's shape, and of its dtype and device unless others are given.
ATHANOR_FUNCTION(
    "zeros_like(Tensor self, TensorOptions options={}, MemoryFormat? memory_format=None) -> Tensor | function");
Tensor zeros_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  return full_like(self, 0, options, memory_format);
}

/// A tensor of ones of the input's shape, and of its dtype and device unless others are given.
ATHANOR_FUNCTION(
    "ones_like(Tensor self, TensorOptions options={}, MemoryFormat? memory_format=None) -> Tensor | function");
Tensor ones_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  return full_like(self, 1, options, memory_format);
}

/// A tensor of the given size with any values, with this one's dtype and device unless others are given.
ATHANOR_FUNCTION("new_empty(Tensor self, int[] size, TensorOptions options={}) -> Tensor | method");
Tensor new_empty(const Tensor& self, IntArrayRef size, const TensorOptions& options) {
  return empty(size, like(self, options));
}

/// A tensor of the given size and strides with any values, with this one's dtype and device unless others are given.
ATHANOR_FUNCTION(
    "new_empty_strided(Tensor self, int[] size, int[] stride, TensorOptions options={}) -> Tensor | method");
Tensor new_empty_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride, const TensorOptions& options) {
  return empty_strided(size, stride, like(self, options));
}

/// A tensor of the given size of zeros, with this one's dtype and device unless others are given.
ATHANOR_FUNCTION("new_zeros(Tensor self, int[] size, TensorOptions options={}) -> Tensor | method");
Tensor new_zeros(const Tensor& self, IntArrayRef size, const TensorOptions& options) {
  return zeros(size, like(self, options));
}

/// A tensor of the given size of ones, with this one's dtype and device unless others are given.
ATHANOR_FUNCTION("new_ones(Tensor self, int[] size, TensorOptions options={}) -> Tensor | method");
Tensor new_ones(const Tensor& self, IntArrayRef size, const TensorOptions& options) {
  return ones(size, like(self, options));
}

/// A tensor of the given size filled with fill_value, with this one's dtype and device unless others are given.
ATHANOR_FUNCTION("new_full(Tensor self, int[] size, Scalar fill_value, TensorOptions options={}) -> Tensor | method");
Tensor new_full(const Tensor& self, IntArrayRef size, const Scalar& fill_value, const TensorOptions& options) {
  return full(size, fill_value, like(self, options));
}

/// A 0-d tensor of the scalar's dtype (float values: the default dtype, or the one in options).
ATHANOR_FUNCTION("scalar_tensor(Scalar s, TensorOptions options={}) -> Tensor");
Tensor scalar_tensor(const Scalar& s, const TensorOptions& options) {
  return full({}, s, options.has_dtype() ? options : options.dtype(get_default_dtype()));
}

namespace {

/// s truncated to an integer that dtype t holds.
std::int64_t whole(const char* op, const char* what, const Scalar& s, DType t) {
  const double v = s.toDouble();
  const bool unsigned_byte = t == DType::Byte;
  const int bits = static_cast<int>(8 * item_size(t)) - (unsigned_byte ? 0 : 1);
  const double top = std::ldexp(1.0, bits), bottom = unsigned_byte ? -1.0 : -top - (bits < 53 ? 1 : 0);
  const bool fits = s.isFloatingPoint() ? v < top && (bits < 53 ? v > bottom : v >= bottom)
                                        : t == DType::Long || (v < top && v > bottom);
  ATHANOR_CHECK(fits, op, ": ", what, " ", s, " cannot be converted to ", t, " without overflow; give another dtype");
  return s.toLong();
}

/// Elements of an arange by PyTorch's rule: exact for integers, else the ceiling of the quotient in float64.
std::int64_t arange_size(const Scalar& start, const Scalar& end, const Scalar& step) {
  const double a = start.toDouble(), b = end.toDouble(), s = step.toDouble();
  ATHANOR_CHECK(s != 0, "arange: step must be nonzero");
  ATHANOR_CHECK(std::isfinite(a) && std::isfinite(b), "arange: unsupported range: ", start, " -> ", end,
                "; both ends must be finite");
  ATHANOR_CHECK(std::isfinite(s), "arange: step must be finite but got ", step);
  if (start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true)) {
    __extension__ using Wide = __int128;
    const Wide from = start.toLong(), to = end.toLong(), by = step.toLong();
    ATHANOR_CHECK(by > 0 ? to >= from : to <= from,
                  "arange: upper bound and lower bound inconsistent with step sign: ", start, " -> ", end, " by ",
                  step);
    const Wide size = (to - from + by - (by > 0 ? 1 : -1)) / by;
    ATHANOR_CHECK(size <= INT64_MAX, "arange: invalid size, possible overflow? ", start, " -> ", end, " by ", step);
    return static_cast<std::int64_t>(size);
  }
  ATHANOR_CHECK(s > 0 ? b >= a : b <= a, "arange: upper bound and lower bound inconsistent with step sign: ", start,
                " -> ", end, " by ", step);
  const double size = std::ceil((b - a) / s);
  ATHANOR_CHECK(size < 0x1p62, "arange: invalid size, possible overflow? ", start, " -> ", end, " by ", step);
  return static_cast<std::int64_t>(size);
}

void check_not_bool(const char* op, DType t) {
  ATHANOR_CHECK_TYPE(NotImplementedError, t != DType::Bool, '"', op,
                     "\" not implemented for 'Bool'; expected an "
                     "integer or floating dtype");
}

void check_steps(const char* op, std::int64_t steps) {
  ATHANOR_CHECK(steps >= 0, op, ": number of steps must be non-negative, got ", steps);
}

}  // namespace

/// start, start + step, … before end. int64 if all three are integers, else the default dtype.
ATHANOR_FUNCTION(
    "arange.start_step(Scalar start, Scalar end, Scalar step, TensorOptions options={}) -> Tensor | out any_shape");
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options) {
  const CallScope scope("arange", profiler::detail::Form::Plain);
  TensorOptions o = options;
  if (!o.has_dtype() && start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true)) o = o.dtype(kLong);
  check_not_bool("arange", o.dtype());
  const std::int64_t n = arange_size(start, end, step);
  Tensor t = make({n}, o);
  const bool floats = is_floating_point(o.dtype());
  const Scalar from = floats ? start : Scalar(whole("arange", "start", start, kLong));
  const Scalar by = floats ? step : Scalar(whole("arange", "step", step, kLong));
  launch(arange_kernel, t, from, by);
  return finish(std::move(t), options);
}
ATHANOR_FUNCTION("arange.start(Scalar start, Scalar end, TensorOptions options={}) -> Tensor | out any_shape");
Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options) {
  return arange(start, end, 1, options);
}
ATHANOR_FUNCTION("arange(Scalar end, TensorOptions options={}) -> Tensor | out any_shape");
Tensor arange(const Scalar& end, const TensorOptions& options) { return arange(0, end, 1, options); }

/// `steps` evenly spaced values, start and end included.
ATHANOR_FUNCTION("linspace(Scalar start, Scalar end, int steps, TensorOptions options={}) -> Tensor | out any_shape");
Tensor linspace(const Scalar& start, const Scalar& end, std::int64_t steps, const TensorOptions& options) {
  const CallScope scope("linspace", profiler::detail::Form::Plain);
  check_steps("linspace", steps);
  const DType type = options.dtype();
  check_not_bool("linspace", type);
  const bool floats = is_floating_point(type);
  const Scalar a = floats ? start : Scalar(whole("linspace", "start", start, type));
  const Scalar b = floats ? end : Scalar(whole("linspace", "end", end, type));
  Tensor t = make({steps}, options);
  launch(linspace_kernel, t, a, b);
  return finish(std::move(t), options);
}

/// base to the powers linspace(start, end, steps).
ATHANOR_FUNCTION(
    "logspace(Scalar start, Scalar end, int steps, float base=10.0, TensorOptions options={}) -> Tensor | out "
    "any_shape");
Tensor logspace(const Scalar& start, const Scalar& end, std::int64_t steps, double base, const TensorOptions& options) {
  check_steps("logspace", steps);
  const DType type = options.dtype();
  check_not_bool("logspace", type);
  const bool floats = is_floating_point(type);
  const Scalar a = floats ? start : Scalar(whole("logspace", "start", start, type));
  const Scalar b = floats ? end : Scalar(whole("logspace", "end", end, type));
  const NoGradGuard guard;
  const Tensor powers = pow(base, linspace(a, b, steps, TensorOptions(kDouble).device(options.device_opt())));
  Tensor t = type == kDouble ? powers : to_dtype(powers, type);
  return finish(std::move(t), options);
}

/// Ones on the main diagonal of an n by m matrix, zeros elsewhere.
ATHANOR_FUNCTION("eye.m(int n, int m, TensorOptions options={}) -> Tensor | out");
Tensor eye(std::int64_t n, std::int64_t m, const TensorOptions& options) {
  ATHANOR_CHECK(n >= 0, "eye: n must be greater or equal to 0, got ", n);
  ATHANOR_CHECK(m >= 0, "eye: m must be greater or equal to 0, got ", m);
  const NoGradGuard guard;
  Tensor t = zeros({n, m}, options.requires_grad(false));
  fill_(diagonal(t), 1);
  return finish(std::move(t), options);
}
ATHANOR_FUNCTION("eye(int n, TensorOptions options={}) -> Tensor | out");
Tensor eye(std::int64_t n, const TensorOptions& options) { return eye(n, n, options); }

namespace {

Tensor triangle_indices(const char* op, std::int64_t row, std::int64_t col, std::int64_t offset, bool upper,
                        const TensorOptions& options) {
  ATHANOR_CHECK(row >= 0, op, ": row must be non-negative, got ", row);
  ATHANOR_CHECK(col >= 0, op, ": col must be non-negative, got ", col);
  const DType type = options.dtype_opt().value_or(kLong);
  ATHANOR_CHECK_TYPE(NotImplementedError, type == kLong || type == kInt, '"', op, "\" not implemented for '",
                     dtype_libtorch_name(type), "'; expected int64 or int32");
  Tensor t = make({2, triangle_size(row, col, offset, upper)}, options.dtype(type));
  launch(triangle_indices_kernel, t, row, col, offset, upper);
  mark_inference(t);
  return t;
}

}  // namespace

/// Rows and columns, as a [2, n] tensor, of the elements on or below diagonal `offset` of a row by col matrix.
ATHANOR_FUNCTION("tril_indices(int row, int col, int offset=0, TensorOptions options={}) -> Tensor");
Tensor tril_indices(std::int64_t row, std::int64_t col, std::int64_t offset, const TensorOptions& options) {
  return triangle_indices("tril_indices", row, col, offset, false, options);
}
/// The same for the elements on or above diagonal `offset`.
ATHANOR_FUNCTION("triu_indices(int row, int col, int offset=0, TensorOptions options={}) -> Tensor");
Tensor triu_indices(std::int64_t row, std::int64_t col, std::int64_t offset, const TensorOptions& options) {
  return triangle_indices("triu_indices", row, col, offset, true, options);
}

}  // namespace athanor::ops

#include "athanor/ops/create.glue.inc"
