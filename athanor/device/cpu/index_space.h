#pragma once
/// The iteration space that all indexing kernels share. Each point of it pairs an element of `flat` (the result of a
/// read, the source of a write) with one of `base` (the tensor that is indexed). Base addresses are linear in the
/// coordinates plus, per index operand, index value times stride. Gather, advanced indexing, index_select and embedding
/// differ only in which coordinates are linear.

#include <cstdint>
#include <cstring>

#include "athanor/base/array_ref.h"
#include "athanor/ops/kernels/index.h"
#include "athanor/tensor/view.h"

namespace athanor::cpu {

inline constexpr int kMaxIndexDims = 64;
/// Points whose base offsets are computed at a time.
inline constexpr std::int64_t kIndexBlock = 512;

template <class T>
inline T load(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <class T>
inline void store(void* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

/// One index tensor. Strides of `strides` are in bytes of the index, `stride` in bytes of base per unit of index value.
struct IndexOperand {
  const char* data = nullptr;
  bool is_long = true;
  bool wrap = false;  ///< negative values count from the end
  std::int64_t numel = 0;
  std::int64_t size = 0;  ///< values must be below
  std::int64_t stride = 0;
  std::int64_t dim = 0;         ///< for messages; -1: a flat index into the whole tensor
  const View* shape = nullptr;  ///< set for a flat index into a tensor that is not contiguous
  std::int64_t strides[kMaxIndexDims];
};

struct IndexSpace {
  const char* op = "";       ///< prefix of messages, such as "gather: "
  bool unread = false;       ///< where there are no points, indices are not looked at
  bool plain_error = false;  ///< an index out of bounds is an Error, not an IndexError: PyTorch's classes
  char* flat = nullptr;
  char* base = nullptr;
  std::int64_t item = 0;
  int ndim = 0;
  std::int64_t sizes[kMaxIndexDims];         ///< row-major: the last dim is innermost
  std::int64_t flat_strides[kMaxIndexDims];  ///< in bytes
  std::int64_t base_strides[kMaxIndexDims];
  SmallVector<IndexOperand, 2> operands;

  void add_dim(std::int64_t size, std::int64_t flat_stride, std::int64_t base_stride) {
    sizes[ndim] = size;
    flat_strides[ndim] = flat_stride;
    base_strides[ndim] = base_stride;
    for (auto& o : operands) o.strides[ndim] = 0;
    ++ndim;
  }
  std::int64_t numel() const;
  /// Drops dims of size 1 and merges neighbours.
  void simplify();
  /// The part [begin, end) of one dim.
  IndexSpace narrow(int dim, std::int64_t begin, std::int64_t end) const;
};

/// Points in rows and columns; strides and steps are in bytes.
struct IndexGrid {
  const char* data = nullptr;  ///< the first index value
  std::int64_t data_stride = 0, data_row_stride = 0;
  std::int64_t rows = 1, columns = 0;
  std::int64_t start = 0, step = 0, row_step = 0;  ///< the linear share of base offsets
};

/// What is done at the points. base addresses are base + offsets[j] or base + j * base_stride.
struct IndexAction {
  void (*elements)(char* base, const std::int64_t* offsets, char* flat, std::int64_t flat_stride, std::int64_t n,
                   const void* params) = nullptr;
  void (*row)(char* base, std::int64_t base_stride, char* flat, std::int64_t flat_stride, std::int64_t n,
              const void* params) = nullptr;
  /// Optional: n dense rows of `bytes` each, row j of flat at flat + j * flat_stride.
  void (*rows)(char* base, const std::int64_t* offsets, char* flat, std::int64_t flat_stride, std::int64_t n,
               std::int64_t bytes) = nullptr;
  /// Optional: the points of a grid of one operand, without computing offsets first; false once an index is out of
  /// range.
  bool (*direct)(char* base, const IndexGrid& grid, const IndexOperand& operand, char* flat, std::int64_t flat_stride,
                 std::int64_t flat_row_stride, const void* params) = nullptr;
  const void* params = nullptr;
};

/// index_select, index_add and their kin: `index` runs along `dim` of base.
IndexSpace space_along(const char* op, const View& base, const View& flat, const View& index, std::int64_t dim,
                       bool wrap = false);
/// gather and scatter: `index` has a value per point.
IndexSpace space_pointwise(const char* op, const View& base, const View& flat, const View& index, std::int64_t dim);
/// Advanced indexing; `flat` broadcasts against index_shape.
IndexSpace space_advanced(const char* op, const View& base, const View& flat, ArrayRef<View> indices);
/// take and put: one flat index into base; `flat` has index's number of elements.
IndexSpace space_flat(const char* op, const View& base, const View& flat, const View& index);

/// Throws IndexError naming the first index out of range, unless there is none.
void check_bounds(const IndexSpace& space);
/// Every point of flat is written, by several threads; bounds are checked on the way.
void run_read(IndexSpace space, const IndexAction& action);
/// Checks all bounds, then applies `action`; points that share a base element come in row-major order.
void run_write(IndexSpace space, const IndexAction& action);

/// Copies from base to flat, or from flat to base, of elements of `item` bytes.
const IndexAction& read_action(std::int64_t item);
const IndexAction& write_action(std::int64_t item);

/// One element in memory, as the `flat` of a space.
struct ElementBytes {
  alignas(8) char bytes[8];
  ElementBytes(Scalar value, DType t);
};

/// offsets[r * columns + c] = start + r * row_step + c * step + value * operand.stride or, with `add`, += value *
/// stride. True if a value is out of range; offsets are then worthless.
bool index_offsets(std::int64_t* offsets, const IndexGrid& grid, const IndexOperand& operand, bool add);
/// True if one of n values is out of range.
bool index_outside(const IndexOperand& operand, const char* data, std::int64_t data_stride, std::int64_t n);

/// Walks dims in row-major order, keeping byte offsets for several sets of strides.
class IndexWalk {
 public:
  IndexWalk(int ndim, const std::int64_t* sizes) : ndim_(ndim), sizes_(sizes), at_(static_cast<std::size_t>(ndim)) {}
  void add(const std::int64_t* strides) {
    strides_.push_back(strides);
    offsets_.push_back(0);
  }
  std::int64_t operator[](std::size_t i) const { return offsets_[i]; }
  /// False once all positions have been seen.
  bool next() {
    for (int d = ndim_ - 1; d >= 0; --d) {
      auto& at = at_[static_cast<std::size_t>(d)];
      if (++at < sizes_[d]) {
        for (std::size_t i = 0; i < strides_.size(); ++i) offsets_[i] += strides_[i][d];
        return true;
      }
      for (std::size_t i = 0; i < strides_.size(); ++i) offsets_[i] -= strides_[i][d] * (sizes_[d] - 1);
      at = 0;
    }
    return false;
  }

 private:
  int ndim_;
  const std::int64_t* sizes_;
  DimVector at_;
  SmallVector<const std::int64_t*, 4> strides_;
  DimVector offsets_;
};

}  // namespace athanor::cpu
