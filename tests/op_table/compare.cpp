#include <cmath>
#include <sstream>

#include "op_table/driver.h"

namespace athanor::op_table {

namespace {

struct Tolerance {
  double relative, absolute, greatest;
};

Tolerance tolerance_of(DType t) {
  switch (t) {
    case kDouble:
      return {2e-12, 1e-13, 1.7e308};
    case kFloat:
      return {3e-6, 1e-6, 3.4e38};
    case kHalf:
      return {2e-3, 1e-3, 65504};
    case kBFloat16:
      return {1.6e-2, 1e-2, 3.38e38};
    default:
      return {0, 0, 0};
  }
}

bool agrees(double a, double e, const Tolerance& t, double relative, double absolute) {
  if (std::isnan(e)) return std::isnan(a);
  if (std::isinf(e) || a == e) return a == e;
  if (std::isinf(a)) return std::fabs(e) >= t.greatest * (1 - t.relative) && std::signbit(a) == std::signbit(e);
  return std::fabs(a - e) <= t.absolute * absolute + t.relative * relative * std::fabs(e);
}

/// The reference in the result's integer dtype: integers wrap.
double as_integer(double v, DType t) {
  const auto i = static_cast<std::int64_t>(v);
  switch (t) {
    case kByte:
      return static_cast<double>(static_cast<std::uint8_t>(i));
    case kChar:
      return static_cast<double>(static_cast<std::int8_t>(i));
    case kShort:
      return static_cast<double>(static_cast<std::int16_t>(i));
    case kInt:
      return static_cast<double>(static_cast<std::int32_t>(i));
    case kBool:
      return v != 0;
    default:
      return static_cast<double>(i);
  }
}

}  // namespace

std::string compare(const Tensor& actual, const Array& expected, double relative, double absolute) {
  std::ostringstream text;
  if (actual.sizes().vec() != expected.shape)
    return detail::str("shape ", actual.sizes(), ", expected ", IntArrayRef(expected.shape));
  const Array a = to_array(actual);
  const Tolerance t = tolerance_of(actual.dtype());
  std::int64_t bad = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double e = is_floating_point(actual.dtype()) ? expected[i] : as_integer(expected[i], actual.dtype());
    if (agrees(a[i], e, t, relative, absolute)) continue;
    if (bad++ == 0) text << "element " << i << " is " << a[i] << ", expected " << e;
  }
  if (bad == 0) return {};
  text << " (" << bad << " of " << a.numel() << " differ)";
  return text.str();
}

std::string compare_bits(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) return detail::str("shape ", a.sizes(), ", expected ", b.sizes());
  if (a.dtype() != b.dtype()) return detail::str("dtype ", a.dtype(), ", expected ", b.dtype());
  const Array x = to_array(a), y = to_array(b);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (x[i] != y[i] || std::signbit(x[i]) != std::signbit(y[i]))
      return detail::str("element ", i, " is ", x[i], ", expected the same bits as ", y[i]);
  }
  return {};
}

}  // namespace athanor::op_table
