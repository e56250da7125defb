#include "athanor/device/cpu/order_lines.h"

#include <bit>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/host_buffer.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 32768;       // simple steps for which a second thread pays
constexpr std::int64_t kStripBytes = 65536;  // of neighbouring lines that are turned around together
constexpr std::int64_t kMostStrip = 32;

/// Neighbouring lines, each strided in memory, to and from dense lines.
struct Strip {
  const Lines& lines;
  int operand;
  DType type;
  char* base;
  std::int64_t length;

  bool dense() const { return lines.line_stride[operand] == 1 || length == 1; }
  char* at(std::int64_t line) const { return element(base, lines.offset(operand, line), item_size(type)); }
  std::int64_t step() const { return lines.ndim ? lines.strides[operand][0] : 1; }
  auto* transpose() const { return block_ops().transpose[std::countr_zero(item_size(type))]; }

  void load(void* to, std::int64_t line, std::int64_t count) const {
    if (count > 1 && step() == 1)
      return transpose()(to, length, at(line), lines.line_stride[operand], length, count, false);
    for (std::int64_t k = 0; k < count; ++k)
      load_line(element(to, k * length, item_size(type)), type, at(line + k), type, lines.line_stride[operand], length);
  }
  void store(const void* from, std::int64_t line, std::int64_t count) const {
    if (count > 1 && step() == 1)
      return transpose()(at(line), lines.line_stride[operand], from, length, count, length, false);
    for (std::int64_t k = 0; k < count; ++k)
      store_line(at(line + k), type, lines.line_stride[operand],
                 element(const_cast<void*>(from), k * length, item_size(type)), type, length);
  }
};

}  // namespace

void run_order_lines(const View& in, const View& values, const View& indices, std::int64_t dim, std::int64_t cost,
                     OrderLineFn fn, const void* context) {
  const View* views[] = {&in, &values, &indices};
  const Lines lines(views, 3, dim);
  if (lines.count == 0 || in.numel == 0) return;
  const auto length_of = [&](const View& v) { return v.defined() && v.ndim > 0 ? v.size(static_cast<int>(dim)) : 1; };
  const Strip from{lines, 0, in.dtype, in.ptr<char>(), lines.length};
  const Strip to{lines, 1, values.dtype, values.ptr<char>(), length_of(values)};
  const Strip places{lines, 2, indices.dtype, indices.ptr<char>(), length_of(indices)};
  const bool stage_in = !from.dense(), stage_values = values.defined() && !to.dense(),
             stage_indices = indices.defined() && !places.dense();
  const std::int64_t inner = lines.ndim ? lines.sizes[0] : 1;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(kStripBytes / (8 * std::max<std::int64_t>(1, lines.length)), 1, kMostStrip);
  const std::int64_t width = stage_in || stage_values || stage_indices ? std::min(inner, wanted) : 1;
  const std::int64_t strips = (inner + width - 1) / width, items = lines.count / inner * strips;
  const std::int64_t work = std::max<std::int64_t>(1, lines.length * width * cost);
  const auto run = [&](std::int64_t b, std::int64_t e) {
    const auto room = [&](const Strip& s, bool staged) {
      return HostBuffer<char>(staged ? s.length * width * static_cast<std::int64_t>(item_size(s.type)) : 0);
    };
    const HostBuffer<char> in_room = room(from, stage_in), value_room = room(to, stage_values),
                           index_room = room(places, stage_indices);
    for (; b < e; ++b) {
      const std::int64_t first = b / strips * inner + b % strips * width;
      const std::int64_t m = std::min(width, inner - b % strips * width);
      if (stage_in) from.load(in_room.data(), first, m);
      for (std::int64_t k = 0; k < m; ++k) {
        const auto line = [&](const Strip& s, const HostBuffer<char>& staged, bool is_staged) {
          return is_staged ? element(staged.data(), k * s.length, item_size(s.type)) : s.at(first + k);
        };
        fn(context, line(from, in_room, stage_in), values.defined() ? line(to, value_room, stage_values) : nullptr,
           indices.defined() ? reinterpret_cast<std::int64_t*>(line(places, index_room, stage_indices)) : nullptr);
      }
      if (stage_values) to.store(value_room.data(), first, m);
      if (stage_indices) places.store(index_room.data(), first, m);
    }
  };
  if (items == 1 || (items < get_num_threads() && work >= kGrain)) return run(0, items);
  parallel_for(0, items, std::max<std::int64_t>(1, kGrain / work), run);
}

}  // namespace athanor::cpu
