#include "athanor/tensor/dtype.h"

#include <atomic>

namespace athanor {
namespace {

constexpr const char* kNames[] = {"uint8",   "int8",    "int16", "int32",    "int64",    "float16",
                                  "float32", "float64", "bool",  "bfloat16", "undefined"};
constexpr const char* kLibtorchNames[] = {"Byte",  "Char",   "Short", "Int",      "Long",     "Half",
                                          "Float", "Double", "Bool",  "BFloat16", "Undefined"};
std::atomic<DType> default_dtype{DType::Float};

}  // namespace

const char* dtype_name(DType t) { return kNames[static_cast<int>(t)]; }
const char* dtype_libtorch_name(DType t) { return kLibtorchNames[static_cast<int>(t)]; }

DType dtype_from_name(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (name == kNames[i]) return static_cast<DType>(i);
  if (name == "half") return DType::Half;
  if (name == "float") return DType::Float;
  if (name == "double") return DType::Double;
  if (name == "int") return DType::Int;
  if (name == "long") return DType::Long;
  std::string known;
  for (int i = 0; i < kNumDTypes; ++i) known += (i ? ", " : "") + std::string(kNames[i]);
  ATHANOR_THROW(TypeError, "unknown dtype '", name, "'; known: ", known);
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::Undefined || b == DType::Undefined) return DType::Undefined;
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  const bool fa = is_floating_point(a), fb = is_floating_point(b);
  if (fa != fb) return fa ? a : b;
  if (fa) {
    if (a == DType::Double || b == DType::Double) return DType::Double;
    return DType::Float;  // float with a half, or the two halves together
  }
  // Integers: Byte is the only unsigned one, and with a signed type of its size it needs the next size.
  if (a == DType::Byte || b == DType::Byte) {
    const DType other = a == DType::Byte ? b : a;
    return other == DType::Char ? DType::Short : other;
  }
  return a > b ? a : b;
}

bool can_cast(DType from, DType to) {
  if (is_floating_point(from) && !is_floating_point(to)) return false;
  return !(to == DType::Bool && from != DType::Bool);
}

DType get_default_dtype() { return default_dtype.load(std::memory_order_relaxed); }

void set_default_dtype(DType t) {
  ATHANOR_CHECK_TYPE(TypeError, is_floating_point(t), "set_default_dtype: expected a floating dtype, got ", t);
  default_dtype = t;
}

}  // namespace athanor
