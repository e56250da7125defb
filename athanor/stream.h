#pragma once
/// How sizes, dtypes, devices and options look in a stream, as libtorch prints them: `std::cout << x.sizes() <<
/// x.dtype()`.

#include <ostream>

#include "athanor/tensor/options.h"

namespace athanor {

/// "[2, 3]", as libtorch prints sizes.
template <class T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> values) {
  out << "[";
  for (std::size_t i = 0; i < values.size(); ++i) out << (i ? ", " : "") << values[i];
  return out << "]";
}
inline std::ostream& operator<<(std::ostream& out, DType t) { return out << dtype_libtorch_name(t); }
inline std::ostream& operator<<(std::ostream& out, Device d) { return out << d.str(); }
inline std::ostream& operator<<(std::ostream& out, DeviceType t) { return out << Device(t).str(); }
inline std::ostream& operator<<(std::ostream& out, Layout) { return out << "Strided"; }
inline std::ostream& operator<<(std::ostream& out, MemoryFormat f) {
  constexpr const char* kNames[] = {"Contiguous", "Preserve", "ChannelsLast", "ChannelsLast3d"};
  return out << kNames[static_cast<int>(f)];
}
inline std::ostream& operator<<(std::ostream& out, const Scalar& s) {
  if (s.isFloatingPoint()) return out << s.toDouble();
  return s.isBoolean() ? out << (s.toBool() ? "true" : "false") : out << s.toLong();
}
inline std::ostream& operator<<(std::ostream& out, const TensorOptions& o) {
  return out << "TensorOptions(dtype=" << o.dtype() << ", device=" << o.device() << ", layout=" << o.layout()
             << ", requires_grad=" << (o.requires_grad() ? "true" : "false") << ")";
}

}  // namespace athanor
