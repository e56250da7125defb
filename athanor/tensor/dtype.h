#pragma once
/// Element types and the rules by which they combine.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "athanor/base/error.h"
#include "athanor/base/half.h"

namespace athanor {

/// Element type of a tensor. libtorch's name is ScalarType; both work.
enum class ScalarType : std::int8_t { Byte, Char, Short, Int, Long, Half, Float, Double, Bool, BFloat16, Undefined };
using DType = ScalarType;

inline constexpr DType kByte = DType::Byte, kUInt8 = DType::Byte, kChar = DType::Char, kInt8 = DType::Char,
                       kShort = DType::Short, kInt16 = DType::Short, kInt = DType::Int, kInt32 = DType::Int,
                       kLong = DType::Long, kInt64 = DType::Long, kHalf = DType::Half, kFloat16 = DType::Half,
                       kFloat = DType::Float, kFloat32 = DType::Float, kDouble = DType::Double,
                       kFloat64 = DType::Double, kBool = DType::Bool, kBFloat16 = DType::BFloat16;

/// Number of real dtypes; they are numbered 0 … kNumDTypes - 1.
inline constexpr int kNumDTypes = 10;

namespace detail {
inline constexpr std::uint8_t kItemSize[] = {1, 1, 2, 4, 8, 2, 4, 8, 1, 2, 0};
}
inline constexpr std::size_t item_size(DType t) { return detail::kItemSize[static_cast<int>(t)]; }
inline constexpr std::size_t elementSize(DType t) { return item_size(t); }
inline constexpr bool is_floating_point(DType t) {
  return t == DType::Half || t == DType::Float || t == DType::Double || t == DType::BFloat16;
}
inline constexpr bool is_half(DType t) { return t == DType::Half || t == DType::BFloat16; }
/// Integers without bool, unless `include_bool`.
inline constexpr bool is_integral(DType t, bool include_bool = false) {
  return t <= DType::Long || (include_bool && t == DType::Bool);
}
inline constexpr bool is_signed(DType t) { return t != DType::Byte && t != DType::Bool; }

/// "float32", "int64", "bool" …
const char* dtype_name(DType t);
/// libtorch's spelling: "Float", "Long", "Bool" …
const char* dtype_libtorch_name(DType t);
/// The dtype with that name; throws TypeError naming the known ones.
DType dtype_from_name(std::string_view name);

/// The dtype that holds both, by PyTorch's table (integers with floats give the float, half with bfloat16 float32).
DType promote_types(DType a, DType b);
/// True if a result of type `from` may be written to `to` (float to integer and anything to bool may not).
bool can_cast(DType from, DType to);

/// Dtype of new floating tensors when none is given; float32 unless changed.
DType get_default_dtype();
/// Throws TypeError unless `t` is a floating dtype.
void set_default_dtype(DType t);

inline void append(std::string& out, DType t) { out += dtype_name(t); }

template <class T>
struct dtype_of;
// clang-format off
#define ATHANOR_FORALL_DTYPES(X)                                                                                        \
  X(std::uint8_t, Byte) X(std::int8_t, Char) X(std::int16_t, Short) X(std::int32_t, Int) X(std::int64_t, Long)         \
  X(::athanor::Half, Half) X(float, Float) X(double, Double) X(bool, Bool) X(::athanor::BFloat16, BFloat16)
// clang-format on
#define ATHANOR_DTYPE_OF(type, name)            \
  template <>                                   \
  struct dtype_of<type> {                       \
    static constexpr DType value = DType::name; \
  };
ATHANOR_FORALL_DTYPES(ATHANOR_DTYPE_OF)
#undef ATHANOR_DTYPE_OF
/// The dtype of a C++ element type.
template <class T>
inline constexpr DType dtype_of_v = dtype_of<T>::value;

template <class T>
struct TypeTag {
  using type = T;
};

/// Calls fn(TypeTag<T>{}) with the C++ type of `t`; one instance of fn per dtype is compiled.
template <class F>
decltype(auto) dispatch_all(DType t, F&& fn) {
  switch (t) {
#define ATHANOR_CASE(type, name) \
  case DType::name:              \
    return fn(TypeTag<type>{});
    ATHANOR_FORALL_DTYPES(ATHANOR_CASE)
#undef ATHANOR_CASE
    default:
      break;
  }
  ATHANOR_THROW(TypeError, "undefined dtype");
}
/// The same for the four floating dtypes; others throw TypeError naming `op`.
template <class F>
decltype(auto) dispatch_floating(DType t, const char* op, F&& fn) {
  switch (t) {
    case DType::Float:
      return fn(TypeTag<float>{});
    case DType::Double:
      return fn(TypeTag<double>{});
    case DType::Half:
      return fn(TypeTag<Half>{});
    case DType::BFloat16:
      return fn(TypeTag<BFloat16>{});
    default:
      break;
  }
  ATHANOR_THROW(TypeError, op, ": expected a floating dtype, got ", dtype_name(t));
}

}  // namespace athanor
