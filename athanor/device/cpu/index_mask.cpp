#include <algorithm>
#include <bit>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/device/cpu/index_mask_loops.h"
#include "athanor/device/cpu/index_space.h"
#include "athanor/device/cpu/owned_view.h"
#include "athanor/ops/kernels/index.h"

namespace athanor::cpu {
namespace {

/// Elements between the places where a running count is known: pieces are counted, then filled, independently.
constexpr std::int64_t kPiece = 1 << 16;

std::int64_t item_of(const View& v) { return static_cast<std::int64_t>(v.item_size()); }
std::size_t log_size(const View& v) { return static_cast<std::size_t>(std::countr_zero(v.item_size())); }

void masked_fill_cpu(const View& out, const View& in, const View& mask, Scalar value) {
  if (out.numel == 0) return;
  ATHANOR_CHECK_TYPE(TypeError, mask.dtype == DType::Bool, "masked_fill: expected a mask of dtype bool, got ",
                     mask.dtype);
  const ElementBytes element(value, out.dtype);
  LoopSpec spec;
  spec.fn = mask_loops().masked_fill[log_size(out)];
  spec.params = element.bytes;
  spec.takes_scalars = true;
  spec.storage[0] = spec.storage[1] = out.dtype;
  spec.storage[2] = DType::Bool;
  const View* views[] = {&out, &in, &mask};
  LoopPlan plan;
  plan_loop(plan, views, 3);
  run_loop(spec, plan);
}

/// Blocks of mask bytes of a dense tensor of any dtype.
class MaskBlocks {
 public:
  MaskBlocks(const char* data, DType t) : data_(data), item_(static_cast<std::int64_t>(item_size(t))), dtype_(t) {}
  /// Bytes for elements [begin, begin + n), n <= kMaskBlock; `room` is used unless they are there already.
  const std::uint8_t* at(std::int64_t begin, std::int64_t n, std::uint8_t* room) const {
    const char* from = data_ + begin * item_;
    if (item_ == 1) return reinterpret_cast<const std::uint8_t*>(from);
    mask_loops().test[static_cast<int>(dtype_)](room, from, n);
    return room;
  }
  std::int64_t count(std::int64_t begin, std::int64_t end) const {
    std::uint8_t room[kMaskBlock];
    if (item_ == 1) return mask_loops().count(at(begin, 0, room), end - begin);
    std::int64_t total = 0;
    for (; begin < end; begin += kMaskBlock) {
      const std::int64_t n = std::min(kMaskBlock, end - begin);
      total += mask_loops().count(at(begin, n, room), n);
    }
    return total;
  }

 private:
  const char* data_;
  std::int64_t item_;
  DType dtype_;
};

/// For each piece of [0, numel), how many elements before it are set; one more entry holds the total.
std::vector<std::int64_t> running_counts(const MaskBlocks& mask, std::int64_t numel) {
  const std::int64_t pieces = (numel + kPiece - 1) / kPiece;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(pieces) + 1, 0);
  parallel_for(0, pieces, 1, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t p = b; p < e; ++p)
      counts[static_cast<std::size_t>(p) + 1] = mask.count(p * kPiece, std::min(numel, (p + 1) * kPiece));
  });
  for (std::size_t p = 1; p < counts.size(); ++p) counts[p] += counts[p - 1];
  return counts;
}

/// Calls body(begin, n, set_before) on blocks of at most kMaskBlock elements; body returns how many of them are set.
template <class F>
void for_blocks(std::int64_t numel, const std::vector<std::int64_t>& counts, F&& body) {
  parallel_for(0, static_cast<std::int64_t>(counts.size()) - 1, 1, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t p = b; p < e; ++p) {
      std::int64_t before = counts[static_cast<std::size_t>(p)];
      const std::int64_t end = std::min(numel, (p + 1) * kPiece);
      for (std::int64_t i = p * kPiece; i < end; i += kMaskBlock)
        before += body(i, std::min(kMaskBlock, end - i), before);
    }
  });
}

DimVector broadcast_shape(const View& a, const View& b) {
  const View& longer = a.ndim >= b.ndim ? a : b;
  const View& shorter = a.ndim >= b.ndim ? b : a;
  DimVector shape(longer.shape());
  const std::size_t lead = shape.size() - shorter.shape().size();
  for (int d = 0; d < shorter.ndim; ++d) {
    std::int64_t& size = shape[lead + static_cast<std::size_t>(d)];
    ATHANOR_CHECK(size == shorter.sizes[d] || size == 1 || shorter.sizes[d] == 1, "masked_select: shapes ", a.shape(),
                  " and ", b.shape(), " do not broadcast");
    if (size == 1) size = shorter.sizes[d];
  }
  return shape;
}

void masked_select_cpu(const View& out, const View& in, const View& mask) {
  ATHANOR_CHECK_TYPE(TypeError, mask.dtype == DType::Bool, "masked_select: expected a mask of dtype bool, got ",
                     mask.dtype);
  const DimVector shape = broadcast_shape(in, mask);
  const Dense from(in, shape), chosen(mask, shape);
  std::int64_t numel = 1;
  for (const std::int64_t n : shape) numel *= n;
  const MaskBlocks blocks(chosen.bytes(), DType::Bool);
  const auto counts = running_counts(blocks, numel);
  ATHANOR_CHECK(counts.back() == out.numel, "masked_select: the result has ", out.numel, " elements, the mask selects ",
                counts.back());
  const std::int64_t item = item_of(in);
  const std::int64_t stride = out.ndim == 0 ? item : out.strides[0] * item;
  const auto compress = mask_loops().compress[log_size(in)];
  const IndexAction& move = write_action(item);
  for_blocks(numel, counts, [&](std::int64_t begin, std::int64_t n, std::int64_t before) {
    alignas(64) char room[(kMaskBlock + kCompressSlack) * 8];
    const std::int64_t m = compress(room, from.bytes() + begin * item, chosen.as<std::uint8_t>() + begin, n);
    move.row(out.ptr<char>() + before * stride, stride, room, item, m, nullptr);
    return m;
  });
}

template <class U>
std::int64_t scatter_block(char* out, const char* source, const std::uint8_t* mask, std::int64_t n) {
  std::int64_t m = 0;
  for (std::int64_t i = 0; i < n; ++i)
    if (mask[i] != 0)
      std::memcpy(out + i * static_cast<std::int64_t>(sizeof(U)), source + m++ * static_cast<std::int64_t>(sizeof(U)),
                  sizeof(U));
  return m;
}

void masked_scatter_cpu(const View& out, const View& mask, const View& source) {
  ATHANOR_CHECK_TYPE(TypeError, mask.dtype == DType::Bool, "masked_scatter: expected a mask of dtype bool, got ",
                     mask.dtype);
  const Dense chosen(mask, out.shape()), from(source);
  const MaskBlocks blocks(chosen.bytes(), DType::Bool);
  const auto counts = running_counts(blocks, out.numel);
  ATHANOR_CHECK(counts.back() <= source.numel, "masked_scatter: the mask has ", counts.back(),
                " true elements but source has only ", source.numel);
  Dense to(out);
  const std::int64_t item = item_of(out);
  for_blocks(out.numel, counts, [&](std::int64_t begin, std::int64_t n, std::int64_t before) {
    char* at = to.writable() + begin * item;
    const char* values = from.bytes() + before * item;
    const std::uint8_t* bytes = chosen.as<std::uint8_t>() + begin;
    switch (item) {
      case 1:
        return scatter_block<std::uint8_t>(at, values, bytes, n);
      case 2:
        return scatter_block<std::uint16_t>(at, values, bytes, n);
      case 4:
        return scatter_block<std::uint32_t>(at, values, bytes, n);
      default:
        return scatter_block<std::uint64_t>(at, values, bytes, n);
    }
  });
  if (!to.is_copy()) return;
  const OwnedGeometry dense(to.writable(), out.dtype, DimVector(out.shape()), row_major_strides(out.shape()));
  copy_kernel.get(DeviceType::CPU)(out, dense.view());
}

void nonzero_count_cpu(const View& count, const View& in) {
  ATHANOR_CHECK(count.dtype == DType::Long && count.numel == 1, "nonzero_count: expected one int64 to write to");
  const Dense from(in);
  *count.ptr<std::int64_t>() = running_counts(MaskBlocks(from.bytes(), in.dtype), in.numel).back();
}

/// Writes coordinates of the given flat positions, which ascend.
class Coordinates {
 public:
  Coordinates(const View& in, const View& out)
      : ndim_(in.ndim), sizes_(in.sizes), row_(out.strides[0]), col_(ndim_ > 0 ? out.strides[1] : 0) {}
  void write(const std::int64_t* flat, std::int64_t n, std::int64_t* to) const {
    const std::int64_t width = sizes_[ndim_ - 1];
    std::int64_t lead[kMaxIndexDims], row_begin = 0, row_end = -1;
    for (std::int64_t k = 0; k < n; ++k, to += row_) {
      if (flat[k] >= row_end) {
        std::int64_t rest = flat[k] / width;
        row_begin = rest * width;
        row_end = row_begin + width;
        for (int d = ndim_ - 2; d >= 0; --d) {
          lead[d] = rest % sizes_[d];
          rest /= sizes_[d];
        }
      }
      for (int d = 0; d < ndim_ - 1; ++d) to[d * col_] = lead[d];
      to[(ndim_ - 1) * col_] = flat[k] - row_begin;
    }
  }

 private:
  int ndim_;
  const std::int64_t* sizes_;
  std::int64_t row_, col_;
};

void nonzero_cpu(const View& out, const View& in) {
  ATHANOR_CHECK(out.dtype == DType::Long && out.ndim == 2, "nonzero: expected an int64 matrix to write to");
  const Dense from(in);
  const MaskBlocks blocks(from.bytes(), in.dtype);
  const auto counts = running_counts(blocks, in.numel);
  ATHANOR_CHECK(counts.back() == out.sizes[0], "nonzero: the result has ", out.sizes[0], " rows, but ", counts.back(),
                " elements are not zero");
  if (in.ndim == 0) return;
  const Coordinates coordinates(in, out);
  for_blocks(in.numel, counts, [&](std::int64_t begin, std::int64_t n, std::int64_t before) {
    std::uint8_t bytes[kMaskBlock];
    std::int64_t flat[kMaskBlock + kCompressSlack];
    const std::int64_t m = mask_loops().positions(flat, blocks.at(begin, n, bytes), n, begin);
    std::int64_t* to = out.ptr<std::int64_t>() + before * out.strides[0];
    if (in.ndim == 1 && out.strides[0] == 1)
      std::copy_n(flat, m, to);
    else
      coordinates.write(flat, m, to);
    return m;
  });
}

ATHANOR_REGISTER_KERNEL(masked_fill_kernel, CPU, &masked_fill_cpu);
ATHANOR_REGISTER_KERNEL(masked_select_kernel, CPU, &masked_select_cpu);
ATHANOR_REGISTER_KERNEL(masked_scatter_kernel, CPU, &masked_scatter_cpu);
ATHANOR_REGISTER_KERNEL(nonzero_count_kernel, CPU, &nonzero_count_cpu);
ATHANOR_REGISTER_KERNEL(nonzero_kernel, CPU, &nonzero_cpu);

}  // namespace
}  // namespace athanor::cpu
