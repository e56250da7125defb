#pragma once
/// What the normalisations share: elements of half types pass through small buffers of float32.

#include <algorithm>
#include <vector>

#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/dense_line.h"

namespace athanor::cpu {

inline DType norm_dtype(const View& activations, const char* op) {
  ATHANOR_CHECK_TYPE(TypeError, is_floating_point(activations.dtype), op, ": expected a floating dtype, got ",
                     dtype_name(activations.dtype));
  return activations.dtype == DType::Double ? DType::Double : DType::Float;
}

/// Dense elements [start, start + n) of `v` in dtype t: in place, or converted into `room`.
inline const void* dense_input(const View& v, std::int64_t start, std::int64_t n, DType t, void* room) {
  const void* p = element(v.data, start, v.item_size());
  if (v.dtype == t) return p;
  convert_line(room, t, p, v.dtype, n);
  return room;
}
inline void* dense_output(const View& v, std::int64_t start, DType t, void* room) {
  return v.dtype == t ? element(v.data, start, v.item_size()) : room;
}
/// Brings what was written to dense_output to its place.
inline void finish_output(const View& v, std::int64_t start, std::int64_t n, DType t, const void* room) {
  if (v.dtype != t) convert_line(element(v.data, start, v.item_size()), v.dtype, room, t, n);
}

/// A vector of parameters in the computing dtype; null if absent.
class Parameters {
 public:
  Parameters(const View& v, DType t) {
    if (!v.defined()) return;
    pointer_ = v.data;
    if (v.dtype == t && v.contiguous) return;
    room_.resize(static_cast<std::size_t>(v.numel));
    load_range(room_.data(), t, v, 0, v.numel);
    pointer_ = room_.data();
  }
  const void* get() const { return pointer_; }

 private:
  std::vector<double> room_;
  const void* pointer_ = nullptr;
};

inline bool is_large_output(const View& out, const View& in) {
  return out.numel * static_cast<std::int64_t>(out.item_size()) > kStreamBytes && out.data != in.data;
}

/// Elements that a half-precision buffer holds.
inline constexpr std::int64_t kNormPiece = 2048;

}  // namespace athanor::cpu
