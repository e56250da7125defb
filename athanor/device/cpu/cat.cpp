#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/index_mask_loops.h"
#include "athanor/device/cpu/index_space.h"
#include "athanor/device/cpu/owned_view.h"
#include "athanor/ops/kernels/index.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrainBytes = 1 << 16;

std::int64_t item_of(const View& v) { return static_cast<std::int64_t>(v.item_size()); }

DimVector sizes_of(const View& v) { return DimVector(v.shape()); }
DimVector strides_of(const View& v) { return DimVector(v.strides, v.strides + v.ndim); }

void copy(const View& out, const View& in) { copy_kernel.get(DeviceType::CPU)(out, in); }

/// The part of `v` from `begin` on along `dim`, of `size` entries.
View slice_data(const View& v, std::int64_t dim, std::int64_t begin) {
  View part = v;
  part.data = v.ptr<char>() + begin * v.strides[dim] * item_of(v);
  return part;
}

// ---- cat
// -------------------------------------------------------------------------------------------------------------

/// Where an input's share of each row of the result comes from and goes to, in bytes.
struct Share {
  const char* from;
  std::int64_t bytes;
  std::int64_t at;
};

bool all_dense(const View& out, const std::vector<const View*>& inputs) {
  return out.contiguous && std::all_of(inputs.begin(), inputs.end(),
                                       [&](const View* v) { return v->contiguous && v->dtype == out.dtype; });
}

template <class U>
void copy_column(char* out, std::int64_t row_bytes, const Share& s, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r)
    std::memcpy(out + r * row_bytes + s.at, s.from + r * static_cast<std::int64_t>(sizeof(U)), sizeof(U));
}

/// Rows that consist of one element of each of kShares inputs.
template <class U, int kShares>
void interleave(char* out, const std::vector<Share>& shares, std::int64_t begin, std::int64_t end) {
  const char* from[kShares];
  for (int k = 0; k < kShares; ++k) from[k] = shares[static_cast<std::size_t>(k)].from;
  U* __restrict to = reinterpret_cast<U*>(out);
  for (std::int64_t r = begin; r < end; ++r)
    for (int k = 0; k < kShares; ++k) to[(r - begin) * kShares + k] = reinterpret_cast<const U*>(from[k])[r];
}

template <class U>
bool interleave(char* out, const std::vector<Share>& shares, std::int64_t begin, std::int64_t end) {
  switch (shares.size()) {
    case 2:
      interleave<U, 2>(out, shares, begin, end);
      return true;
    case 3:
      interleave<U, 3>(out, shares, begin, end);
      return true;
    case 4:
      interleave<U, 4>(out, shares, begin, end);
      return true;
    default:
      return false;
  }
}

bool interleave(char* out, std::int64_t row_bytes, const std::vector<Share>& shares, std::int64_t begin,
                std::int64_t end) {
  const std::int64_t bytes = shares[0].bytes;
  if (row_bytes != bytes * static_cast<std::int64_t>(shares.size())) return false;
  for (const Share& s : shares)
    if (s.bytes != bytes || reinterpret_cast<std::uintptr_t>(s.from) % static_cast<std::uintptr_t>(bytes) != 0)
      return false;
  if (reinterpret_cast<std::uintptr_t>(out) % static_cast<std::uintptr_t>(bytes) != 0) return false;
  switch (bytes) {
    case 1:
      return interleave<std::uint8_t>(out, shares, begin, end);
    case 2:
      return interleave<std::uint16_t>(out, shares, begin, end);
    case 4:
      return interleave<std::uint32_t>(out, shares, begin, end);
    case 8:
      return interleave<std::uint64_t>(out, shares, begin, end);
    default:
      return false;
  }
}

/// Rows [begin, end), to `out`, which is where row `begin` goes.
void copy_rows(char* out, std::int64_t row_bytes, const std::vector<Share>& shares, std::int64_t begin,
               std::int64_t end) {
  if (interleave(out, row_bytes, shares, begin, end)) return;
  const bool wide = std::all_of(shares.begin(), shares.end(), [](const Share& s) { return s.bytes >= 64; });
  if (wide) {
    for (std::int64_t i = begin; i < end; ++i, out += row_bytes)
      for (const Share& s : shares) std::memcpy(out + s.at, s.from + i * s.bytes, static_cast<std::size_t>(s.bytes));
    return;
  }
  out -= begin * row_bytes;
  for (const Share& s : shares) {
    switch (s.bytes) {
      case 1:
        copy_column<std::uint8_t>(out, row_bytes, s, begin, end);
        break;
      case 2:
        copy_column<std::uint16_t>(out, row_bytes, s, begin, end);
        break;
      case 4:
        copy_column<std::uint32_t>(out, row_bytes, s, begin, end);
        break;
      case 8:
        copy_column<std::uint64_t>(out, row_bytes, s, begin, end);
        break;
      default:
        for (std::int64_t i = begin; i < end; ++i)
          std::memcpy(out + i * row_bytes + s.at, s.from + i * s.bytes, static_cast<std::size_t>(s.bytes));
    }
  }
}

constexpr std::int64_t kRowBlock = 16384;  // bytes

/// Many short rows: blocks of them are put together in the cache; large results then leave by streaming stores.
void cat_short_rows(char* out, std::int64_t row_bytes, const std::vector<Share>& shares, std::int64_t rows) {
  const std::int64_t block = std::max<std::int64_t>(1, kRowBlock / row_bytes);
  const bool stream = rows * row_bytes >= kStreamBytes;
  parallel_for(0, (rows + block - 1) / block, std::max<std::int64_t>(1, kGrainBytes / kRowBlock),
               [&](std::int64_t first, std::int64_t last) {
                 alignas(64) char room[kRowBlock];
                 for (std::int64_t k = first; k < last; ++k) {
                   const std::int64_t begin = k * block, end = std::min(rows, begin + block);
                   copy_rows(stream ? room : out + begin * row_bytes, row_bytes, shares, begin, end);
                   if (stream) block_ops().stream(out + begin * row_bytes, room, (end - begin) * row_bytes);
                 }
                 if (stream) block_ops().stream_fence();
               });
}

/// Copies bytes [begin, end) of the result, rows cut anywhere.
void copy_range(char* out, std::int64_t row_bytes, const std::vector<Share>& shares, std::int64_t begin,
                std::int64_t end, bool stream) {
  std::int64_t row = begin / row_bytes, at = begin % row_bytes;
  auto share = std::upper_bound(shares.begin(), shares.end(), at,
                                [](std::int64_t value, const Share& s) { return value < s.at + s.bytes; });
  while (begin < end) {
    const std::int64_t inside = at - share->at;
    const std::int64_t n = std::min(share->bytes - inside, end - begin);
    const char* from = share->from + row * share->bytes + inside;
    if (stream && n >= 4096)
      block_ops().stream(out + begin, from, n);
    else
      std::memcpy(out + begin, from, static_cast<std::size_t>(n));
    begin += n;
    at += n;
    if (at == row_bytes) {
      at = 0;
      ++row;
      share = shares.begin();
    } else if (n + inside == share->bytes) {
      ++share;
    }
  }
  if (stream) block_ops().stream_fence();
}

void cat_dense(const View& out, const std::vector<const View*>& inputs, std::int64_t dim) {
  std::int64_t inner = item_of(out);
  for (int d = static_cast<int>(dim) + 1; d < out.ndim; ++d) inner *= out.sizes[d];
  const std::int64_t row_bytes = inner * out.sizes[dim], total = out.numel * item_of(out);
  std::vector<Share> shares;
  shares.reserve(inputs.size());
  std::int64_t at = 0;
  for (const View* v : inputs) {
    const std::int64_t bytes = inner * v->sizes[dim];
    if (bytes > 0) shares.push_back({v->ptr<const char>(), bytes, at});
    at += bytes;
  }
  auto* to = out.ptr<char>();
  if (row_bytes <= kRowBlock) return cat_short_rows(to, row_bytes, shares, total / row_bytes);
  const bool stream = total >= kStreamBytes;
  constexpr std::int64_t kUnit = 4096;
  parallel_for(0, (total + kUnit - 1) / kUnit, kGrainBytes / kUnit, [&](std::int64_t b, std::int64_t e) {
    copy_range(to, row_bytes, shares, b * kUnit, std::min(e * kUnit, total), stream);
  });
}

void cat_cpu(const View& out, ArrayRef<View> inputs, std::int64_t dim) {
  std::vector<const View*> used;
  used.reserve(inputs.size());
  std::int64_t length = 0;
  for (const View& v : inputs) {
    if (v.ndim == 1 && v.numel == 0) continue;
    ATHANOR_CHECK(v.ndim == out.ndim, "cat: expected inputs of ", static_cast<int>(out.ndim), " dims, got shape ",
                  v.shape());
    for (int d = 0; d < v.ndim; ++d)
      ATHANOR_CHECK(d == dim || v.sizes[d] == out.sizes[d], "cat: sizes must match except in dimension ", dim, ": got ",
                    v.shape(), " for a result of shape ", out.shape());
    length += v.sizes[dim];
    used.push_back(&v);
  }
  if (used.empty()) return;
  ATHANOR_CHECK(length == out.sizes[dim], "cat: inputs have ", length, " entries along dimension ", dim,
                ", the result has ", out.sizes[dim]);
  if (out.numel == 0) return;
  if (all_dense(out, used)) return cat_dense(out, used, dim);
  std::int64_t at = 0;
  for (const View* v : used) {
    const OwnedGeometry part(slice_data(out, dim, at).data, out.dtype, sizes_of(*v), strides_of(out));
    copy(part.view(), *v);
    at += v->sizes[dim];
  }
}

// ---- flip, roll, repeat
// ----------------------------------------------------------------------------------------------

void flip_cpu(const View& out, const View& in, IntArrayRef dims) {
  if (out.numel == 0) return;
  DimVector strides = strides_of(in);
  auto* data = in.ptr<char>();
  for (const std::int64_t d : dims) {
    auto& stride = strides[static_cast<std::size_t>(d)];
    data += (in.sizes[d] - 1) * stride * item_of(in);
    stride = -stride;
  }
  const int last = in.ndim - 1;
  const bool reverses_rows = out.contiguous && out.dtype == in.dtype && last >= 0 &&
                             strides[static_cast<std::size_t>(last)] == -1 && in.sizes[last] >= 16;
  if (!reverses_rows) {
    const OwnedGeometry flipped(data, in.dtype, sizes_of(in), strides);
    return copy(out, flipped.view());
  }
  const std::int64_t width = in.sizes[last], item = item_of(in);
  const auto reverse = mask_loops().reverse[std::countr_zero(static_cast<std::uint64_t>(item))];
  const std::int64_t piece = std::min(width, kGrainBytes / item), pieces = (width + piece - 1) / piece;
  parallel_for(0, out.numel / width * pieces, std::max<std::int64_t>(1, kGrainBytes / (piece * item)),
               [&](std::int64_t b, std::int64_t e) {
                 for (std::int64_t t = b; t < e; ++t) {
                   const std::int64_t r = t / pieces, begin = t % pieces * piece, end = std::min(width, begin + piece);
                   std::int64_t rest = r, offset = 0;
                   for (int d = last - 1; d >= 0; --d) {
                     offset += rest % in.sizes[d] * strides[static_cast<std::size_t>(d)];
                     rest /= in.sizes[d];
                   }
                   reverse(out.ptr<char>() + (r * width + begin) * item, data + (offset - (end - 1)) * item,
                           end - begin);
                 }
               });
}

/// Copies the blocks into which the shifts cut the tensor.
void roll_blocks(const View& out, const View& in, const DimVector& shift, int dim) {
  while (dim < out.ndim && shift[static_cast<std::size_t>(dim)] == 0) ++dim;
  if (dim >= out.ndim) return copy(out, in);
  const std::int64_t size = out.sizes[dim], k = shift[static_cast<std::size_t>(dim)];
  const auto part = [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    DimVector sizes = sizes_of(out);
    sizes[static_cast<std::size_t>(dim)] = count;
    const OwnedGeometry o(slice_data(out, dim, to).data, out.dtype, sizes, strides_of(out));
    const OwnedGeometry i(slice_data(in, dim, from).data, in.dtype, sizes, strides_of(in));
    roll_blocks(o.view(), i.view(), shift, dim + 1);
  };
  part(k, 0, size - k);
  part(0, size - k, k);
}

/// Copies `bytes` bytes that do not overlap, from the end on, each block loaded before it is stored. Where `to` lies a
/// little beyond `from` in its page, as in a roll of page-aligned tensors, going forward makes each load wait for the
/// store before it.
void copy_backwards(char* to, const char* from, std::int64_t bytes) {
  constexpr std::int64_t kBlockBytes = 128;
  for (; bytes >= kBlockBytes; bytes -= kBlockBytes) {
    char block[kBlockBytes];
    std::memcpy(block, from + bytes - kBlockBytes, kBlockBytes);
    std::memcpy(to + bytes - kBlockBytes, block, kBlockBytes);
  }
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// One dim rolled by little: all is copied as if it were one row, then what wraps around in each row is put right.
/// False if that would not pay.
bool roll_dense(const View& out, const View& in, const DimVector& shift) {
  if (!out.contiguous || !in.contiguous || out.dtype != in.dtype || out.numel * item_of(out) >= kStreamBytes)
    return false;
  int dim = -1;
  for (int d = 0; d < out.ndim; ++d) {
    if (shift[static_cast<std::size_t>(d)] == 0) continue;
    if (dim >= 0) return false;
    dim = d;
  }
  if (dim < 0) return false;
  std::int64_t inner = 1;
  for (int d = dim + 1; d < out.ndim; ++d) inner *= out.sizes[d];
  const std::int64_t size = out.sizes[dim], k = shift[static_cast<std::size_t>(dim)];
  const std::int64_t row = size * inner, rows = out.numel / row;
  const std::int64_t wraps = std::min(k, size - k);  // entries of each row that the one long row would get wrong
  constexpr std::int64_t kShortRow = 4096;           // bytes; moving such rows one by one costs more
  if (rows == 1 || (row * item_of(out) > kShortRow && wraps * 8 > size)) return false;
  const bool up = k == wraps;
  const std::int64_t item = item_of(out), moved = wraps * inner * item, bytes = out.numel * item - moved;
  char* const to = out.ptr<char>() + (up ? moved : 0);
  const char* const from = in.ptr<char>() + (up ? 0 : moved);
  parallel_for(0, (bytes + kGrainBytes - 1) / kGrainBytes, 1, [&](std::int64_t b, std::int64_t e) {
    const std::int64_t begin = b * kGrainBytes, n = std::min(e * kGrainBytes, bytes) - begin;
    copy_backwards(to + begin, from + begin, n);
  });
  const DimVector sizes{rows, wraps * inner}, strides{row, 1};
  const std::int64_t rest = (row - wraps * inner) * item;
  const OwnedGeometry o(out.ptr<char>() + (up ? 0 : rest), out.dtype, sizes, strides);
  const OwnedGeometry i(in.ptr<char>() + (up ? rest : 0), in.dtype, sizes, strides);
  copy(o.view(), i.view());
  return true;
}

void roll_cpu(const View& out, const View& in, IntArrayRef shifts, IntArrayRef dims) {
  if (out.numel == 0) return;
  DimVector shift(static_cast<std::size_t>(out.ndim), 0);
  for (std::size_t k = 0; k < dims.size(); ++k) {
    const std::int64_t size = out.sizes[dims[k]];
    auto& s = shift[static_cast<std::size_t>(dims[k])];
    s = (s + shifts[k] % size + size) % size;
  }
  if (!roll_dense(out, in, shift)) roll_blocks(out, in, shift, 0);
}

void repeat_cpu(const View& out, const View& in) {
  if (out.numel == 0) return;
  DimVector sizes, to, from;  // each dim of the result is a dim of repeats and one of the input
  for (int d = 0; d < out.ndim; ++d) {
    const int e = d - (out.ndim - in.ndim);
    const std::int64_t size = e < 0 ? 1 : in.sizes[e];
    ATHANOR_CHECK(size > 0 && out.sizes[d] % size == 0, "repeat: shape ", out.shape(), " is not made of ", in.shape());
    sizes.push_back(out.sizes[d] / size);
    to.push_back(out.strides[d] * size);
    from.push_back(0);
    sizes.push_back(size);
    to.push_back(out.strides[d]);
    from.push_back(e < 0 ? 0 : in.strides[e]);
  }
  const OwnedGeometry tiles(out.data, out.dtype, sizes, to), source(in.data, in.dtype, sizes, from);
  copy(tiles.view(), source.view());
}

void repeat_interleave_cpu(const View& out, const View& in, const View& repeats, std::int64_t dim) {
  ATHANOR_CHECK(repeats.dtype == DType::Long || repeats.dtype == DType::Int,
                "repeat_interleave: expected repeats of dtype int64 or int32, got ", repeats.dtype);
  const Dense counts_memory(repeats);
  const std::int64_t size = in.ndim == 0 ? 1 : in.sizes[dim];
  const auto count = [&](std::int64_t i) -> std::int64_t {
    const std::int64_t k = repeats.numel == 1 ? 0 : i;
    return repeats.dtype == DType::Long ? counts_memory.as<std::int64_t>()[k] : counts_memory.as<std::int32_t>()[k];
  };
  ATHANOR_CHECK_VALUE(repeats.numel == 1 || repeats.numel == size, "repeat_interleave: repeats has ", repeats.numel,
                      " entries, dimension ", dim, " has ", size);
  const std::int64_t length = out.ndim == 0 ? 1 : out.sizes[dim];
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    ATHANOR_CHECK_VALUE(count(i) >= 0, "repeat_interleave: repeats cannot be negative, got ", count(i));
    ATHANOR_CHECK_VALUE(count(i) <= length - total, "repeat_interleave: repeats add up to more than the ", length,
                        " entries of the result");
    total += count(i);
  }
  ATHANOR_CHECK_VALUE(total == length, "repeat_interleave: repeats add up to ", total, ", the result has ", length,
                      " entries");
  if (out.numel == 0) return;
  std::vector<std::int64_t> index;
  index.reserve(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < size; ++i) index.insert(index.end(), static_cast<std::size_t>(count(i)), i);
  const OwnedGeometry view(index.data(), DType::Long, {length}, {1});
  run_read(space_along("repeat_interleave: ", in, out, view.view(), dim), read_action(item_of(in)));
}

// ---- triangles
// -------------------------------------------------------------------------------------------------------

/// out's row: columns [keep_from, keep_to) of in's, zero elsewhere.
struct TriangleRow {
  const View& out;
  const View& in;
  std::int64_t item;
  const IndexAction& move;

  void zero(char* to, std::int64_t begin, std::int64_t end) const {
    static constexpr std::uint64_t kZero = 0;
    if (begin >= end) return;
    const std::int64_t stride = out.stride(-1) * item;
    if (stride == item)
      std::memset(to + begin * item, 0, static_cast<std::size_t>((end - begin) * item));
    else
      move.row(to + begin * stride, stride, reinterpret_cast<char*>(const_cast<std::uint64_t*>(&kZero)), 0, end - begin,
               nullptr);
  }
  void fill(char* to, char* from, std::int64_t keep_from, std::int64_t keep_to) const {
    const std::int64_t width = out.size(-1);
    keep_from = std::clamp<std::int64_t>(keep_from, 0, width);
    keep_to = std::clamp<std::int64_t>(keep_to, keep_from, width);
    const std::int64_t out_stride = out.stride(-1) * item, in_stride = in.stride(-1) * item;
    zero(to, 0, keep_from);
    if (to != from && keep_from < keep_to)
      move.row(to + keep_from * out_stride, out_stride, from + keep_from * in_stride, in_stride, keep_to - keep_from,
               nullptr);
    zero(to, keep_to, width);
  }
};

void triangle(const char* op, const View& out, const View& in, std::int64_t diagonal, bool lower) {
  ATHANOR_CHECK(out.ndim >= 2, op, ": expected a tensor of at least 2 dimensions, got shape ", out.shape());
  if (out.numel == 0) return;
  const std::int64_t width = out.size(-1), height = out.size(-2), item = item_of(out);
  // Wide enough for any diagonal without overflow below.
  diagonal = std::clamp(diagonal, -height - 1, width + 1);
  const TriangleRow row{out, in, item, write_action(item)};
  parallel_for(0, out.numel / width, std::max<std::int64_t>(1, kGrainBytes / (width * item)),
               [&](std::int64_t b, std::int64_t e) {
                 for (std::int64_t r = b; r < e; ++r) {
                   std::int64_t rest = r, to = 0, from = 0;
                   for (int d = out.ndim - 2; d >= 0; --d) {
                     const std::int64_t at = rest % out.sizes[d];
                     rest /= out.sizes[d];
                     to += at * out.strides[d];
                     from += at * in.strides[d];
                   }
                   const std::int64_t i = r % height;
                   row.fill(out.ptr<char>() + to * item, in.ptr<char>() + from * item, lower ? 0 : i + diagonal,
                            lower ? i + diagonal + 1 : width);
                 }
               });
}

void tril_cpu(const View& out, const View& in, std::int64_t diagonal) { triangle("tril", out, in, diagonal, true); }
void triu_cpu(const View& out, const View& in, std::int64_t diagonal) { triangle("triu", out, in, diagonal, false); }

ATHANOR_REGISTER_KERNEL(cat_kernel, CPU, &cat_cpu);
ATHANOR_REGISTER_KERNEL(flip_kernel, CPU, &flip_cpu);
ATHANOR_REGISTER_KERNEL(roll_kernel, CPU, &roll_cpu);
ATHANOR_REGISTER_KERNEL(repeat_kernel, CPU, &repeat_cpu);
ATHANOR_REGISTER_KERNEL(repeat_interleave_kernel, CPU, &repeat_interleave_cpu);
ATHANOR_REGISTER_KERNEL(tril_kernel, CPU, &tril_cpu);
ATHANOR_REGISTER_KERNEL(triu_kernel, CPU, &triu_cpu);

}  // namespace
}  // namespace athanor::cpu
