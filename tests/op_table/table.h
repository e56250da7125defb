#pragma once
/// The op test table: one Row per op and overload. A row says how the op is called, what it should give (naive float64
/// loops), on which dtypes and samples, and which forms it has; check_row (driver.h) tries everything that an op must
/// stand: every dtype, memory layouts, empty and 0-d inputs, in-place and out forms, the queued device, gradients to
/// second order, refusals.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "athanor/ops/tensor.h"
#include "op_table/array.h"

namespace athanor::op_table {

using Tensors = std::vector<Tensor>;
using DTypes = std::vector<DType>;

inline const DTypes kFloats = {kFloat, kDouble, kHalf, kBFloat16};
inline const DTypes kIntegers = {kByte, kChar, kShort, kInt, kLong};
inline const DTypes kSigned = {kChar, kShort, kInt, kLong};
inline const DTypes kOnlyBool = {kBool};
DTypes operator+(const DTypes& a, const DTypes& b);
inline const DTypes kNumbers = kFloats + kIntegers;
inline const DTypes kAll = kNumbers + kOnlyBool;

/// An input: its values, converted to the dtype under test unless it has its own.
struct Input {
  Array array;
  std::optional<DType> own = std::nullopt;
  Input(Array a) : array(std::move(a)) {}
  Input(Array a, DType t) : array(std::move(a)), own(t) {}
};

struct Sample {
  std::vector<Input> inputs;
  /// Used for gradients (float64, finite differences): keep it small and away from kinks.
  bool gradient = true;
  /// Restricts the sample to some dtypes.
  DTypes only = {};
};

using Call = std::function<Tensors(const Tensors&)>;
using Reference = std::function<Arrays(const Arrays&)>;

/// One way of calling the op: certain parameters.
struct Case {
  std::string name;
  std::vector<Sample> samples;
  Call call;
  Reference reference;
  std::function<void(Tensor& self, const Tensors&)> inplace;  ///< the inputs' first is self
  std::function<void(Tensor& out, const Tensors&)> out;
  std::function<void(Tensor& first, Tensor& second, const Tensors&)> outs = {};  ///< of an op with two results
};

struct Refusal {
  std::string what;
  std::function<void()> call;
  std::string message;  ///< must occur in what()
};

/// Whether an error's text names the op that refused ("name" or "name.overload"), or begins with the name of one that
/// it consists of: "mul: …" of ldexp.
bool names_op(const std::string& text, std::string op);

/// dtype of result i for inputs of dtype t.
using ResultType = std::function<DType(DType t, std::size_t i)>;
DType same_type(DType t, std::size_t i);
DType float_type(DType t, std::size_t i);
DType bool_type(DType t, std::size_t i);
DType long_type(DType t, std::size_t i);
/// Integers and bool give int64.
DType sum_type(DType t, std::size_t i);
/// Values and then indices.
DType value_and_index(DType t, std::size_t i);

struct Row {
  std::string name, overload;
  DTypes dtypes = kFloats;
  ResultType result = same_type;
  std::vector<Case> cases = {};
  std::vector<Refusal> refusals = {};
  bool gradient = false;
  bool second_gradient = true;
  double tolerance = 1;        ///< multiplies the dtype's relative tolerance
  double absolute = 1;         ///< multiplies the dtype's absolute tolerance
  bool refuses_others = true;  ///< dtypes that are not listed throw
  bool exact_layouts = true;   ///< results have the same bits whatever the strides
  bool is_view = false;
};

/// All rows, gathered from the rows_*.cpp files.
const std::vector<Row>& all_rows();
void add_row(const Row& row);

/// Ops without a row of their own, and why.
struct Exemption {
  std::string op;  ///< "name" or "name.overload"
  std::string reason;
};
const std::vector<Exemption>& exemptions();

Tensor to_tensor(const Array& a, DType dtype);
Array to_array(const Tensor& t);

/// The usual shapes of element-wise ops: 0-d, empty, odd, three dims, past the vector width; values in [low, high].
std::vector<Sample> unary_samples(double low, double high, bool with_special = true);
/// Pairs of shapes that broadcast, a 0-d and an empty one among them; a in [low, high], b in [low2, high2].
std::vector<Sample> binary_samples(double low, double high, double low2, double high2, bool with_special = true);

}  // namespace athanor::op_table
