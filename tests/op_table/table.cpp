#include "op_table/table.h"

#include <stdexcept>

namespace athanor::op_table {

DTypes operator+(const DTypes& a, const DTypes& b) {
  DTypes out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

DType same_type(DType t, std::size_t) { return t; }
DType float_type(DType t, std::size_t) { return is_floating_point(t) ? t : kFloat; }
DType bool_type(DType, std::size_t) { return kBool; }
DType long_type(DType, std::size_t) { return kLong; }
DType sum_type(DType t, std::size_t) { return is_floating_point(t) ? t : kLong; }
DType value_and_index(DType t, std::size_t i) { return i == 0 ? t : kLong; }

namespace {

std::vector<Row>& rows() {
  static std::vector<Row> list;
  return list;
}

}  // namespace

const std::vector<Row>& all_rows() { return rows(); }

void add_row(const Row& row) {
  for (const Row& r : rows())
    if (r.name == row.name && r.overload == row.overload)
      throw std::logic_error("op table: two rows for " + row.name + "." + row.overload);
  rows().push_back(row);
}

Tensor to_tensor(const Array& a, DType dtype) {
  const Tensor t = empty(a.shape, kDouble);
  double* out = t.data_ptr<double>();
  for (const double v : a.values) *out++ = v;
  return t.to(dtype);
}

Array to_array(const Tensor& t) {
  const Tensor flat = t.detach().to(TensorOptions(Device())).to(kDouble).contiguous();
  Array a(t.sizes().vec());
  const double* in = flat.numel() ? flat.data_ptr<double>() : nullptr;
  for (double& v : a.values) v = *in++;
  // int64 and bool lose nothing that samples use; larger integers are compared by the driver itself.
  return a;
}

namespace {

/// Dtypes of the samples that are large enough to be cut into several tasks. Not a variable: rows are made while
/// variables of other files have no value yet.
DTypes large_dtypes() { return {kFloat, kBFloat16, kLong}; }

}  // namespace

std::vector<Sample> unary_samples(double low, double high, bool with_special) {
  std::vector<Sample> out;
  unsigned seed = 1;
  for (const Shape& s : {Shape{}, Shape{5}, Shape{2, 3}, Shape{2, 3, 2}})
    out.push_back({{uniform(s, low, high, seed++)}});
  for (const Shape& s : {Shape{0}, Shape{2, 0, 3}, Shape{67}, Shape{3, 37}, Shape{4, 3, 5, 2}, Shape{40001}})
    out.push_back({{uniform(s, low, high, seed++)}, false, s == Shape{40001} ? large_dtypes() : DTypes{}});
  if (with_special) out.push_back({{special()}, false, kFloats});
  return out;
}

std::vector<Sample> binary_samples(double low, double high, double low2, double high2, bool with_special) {
  std::vector<Sample> out;
  unsigned seed = 1;
  auto add = [&](const Shape& a, const Shape& b, bool gradient) {
    out.push_back({{uniform(a, low, high, seed), uniform(b, low2, high2, seed + 1)}, gradient});
    seed += 2;
  };
  add({}, {}, true);
  add({5}, {5}, true);
  add({2, 3}, {2, 3}, true);
  add({2, 3}, {3}, true);
  add({2, 1}, {1, 3}, true);
  add({3}, {}, true);
  add({}, {3}, false);
  add({0}, {0}, false);
  add({2, 0, 3}, {1, 3}, false);
  add({3, 37}, {37}, false);
  add({3, 37}, {3, 1}, false);
  add({4, 3, 5, 2}, {3, 1, 2}, false);
  add({20001}, {20001}, false);
  out.back().only = large_dtypes();
  if (with_special) {
    const Array s = special();
    const std::int64_t n = s.numel();
    Array column = s;
    column.shape = {n, 1};
    out.push_back({{column, s}, false, kFloats});
  }
  return out;
}

}  // namespace athanor::op_table
