#pragma once
/// Views that kernels make for themselves: another geometry of an operand, or a row-major copy of it.

#include <cstdint>
#include <vector>

#include "athanor/ops/kernels/copy.h"
#include "athanor/tensor/view.h"

namespace athanor::cpu {

/// A view that holds its own sizes and strides. Not copyable: the view points into it.
class OwnedGeometry {
 public:
  OwnedGeometry(void* data, DType t, DimVector sizes, DimVector strides)
      : sizes_(std::move(sizes)), strides_(std::move(strides)) {
    view_.data = data;
    view_.dtype = t;
    view_.ndim = static_cast<std::int8_t>(sizes_.size());
    view_.sizes = sizes_.data();
    view_.strides = strides_.data();
    view_.numel = 1;
    view_.contiguous = true;
    std::int64_t step = 1;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      if (sizes_[d] != 1 && strides_[d] != step) view_.contiguous = false;
      step *= sizes_[d];
    }
    view_.numel = step;
  }
  OwnedGeometry(const OwnedGeometry&) = delete;
  OwnedGeometry& operator=(const OwnedGeometry&) = delete;
  const View& view() const { return view_; }

 private:
  DimVector sizes_, strides_;
  View view_;
};

inline DimVector row_major_strides(IntArrayRef sizes) {
  DimVector strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= sizes[d];
  }
  return strides;
}

/// The elements of a view in row-major order without gaps, broadcast to `shape`: its own memory where that is so
/// already, else a copy.
class Dense {
 public:
  Dense(const View& v, IntArrayRef shape) : data_(static_cast<char*>(v.data)) {
    std::int64_t numel = 1;
    for (const std::int64_t n : shape) numel *= n;
    if (v.contiguous && v.numel == numel) return;
    // Elements of 8 bytes keep the copy aligned for every dtype.
    copy_.resize((static_cast<std::size_t>(numel) * v.item_size() + 7) / 8);
    data_ = reinterpret_cast<char*>(copy_.data());
    const OwnedGeometry to(data_, v.dtype, DimVector(shape), row_major_strides(shape));
    copy_kernel.get(DeviceType::CPU)(to.view(), v);
  }
  explicit Dense(const View& v) : Dense(v, v.shape()) {}
  const char* bytes() const { return data_; }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  char* writable() { return data_; }
  bool is_copy() const { return !copy_.empty(); }

 private:
  std::vector<std::uint64_t> copy_;
  char* data_;
};

}  // namespace athanor::cpu
