#include "athanor/device/cpu/strided_loop.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/copy_run.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/strided_tiles.h"
#include "athanor/device/cpu/walk_order.h"
#include "athanor/device/cpu/wide_vectors.h"

namespace athanor::cpu {
namespace {

/// True if dim `a` should be inside dim `b`'s place, that is: a's elements lie further apart than b's.
bool is_outer(const LoopPlan& p, int a, int b) {
  for (int i = 0; i < p.operands; ++i) {
    const std::int64_t sa = p.strides[i][a], sb = p.strides[i][b];
    if (sa == 0 || sb == 0 || sa == sb) continue;
    return sa > sb;
  }
  return false;
}

void swap_dims(LoopPlan& p, int a, int b) {
  std::swap(p.sizes[a], p.sizes[b]);
  for (int i = 0; i < p.operands; ++i) std::swap(p.strides[i][a], p.strides[i][b]);
}

void sort_dims(LoopPlan& p) {
  for (int d = 1; d < p.ndim; ++d)
    for (int e = d; e > 0 && is_outer(p, e - 1, e); --e) swap_dims(p, e - 1, e);
}

void merge_dims(LoopPlan& p) {
  int last = 0;
  for (int d = 1; d < p.ndim; ++d) {
    bool joins = true;
    for (int i = 0; i < p.operands && joins; ++i) joins = p.strides[i][d] == p.strides[i][last] * p.sizes[last];
    if (joins) {
      p.sizes[last] *= p.sizes[d];
    } else if (++last != d) {
      p.sizes[last] = p.sizes[d];
      for (int i = 0; i < p.operands; ++i) p.strides[i][last] = p.strides[i][d];
    }
  }
  p.ndim = last + 1;
}

/// How far ahead inputs are asked for, in bytes, where results leave from registers and one page is walked at a time.
constexpr std::int64_t kStreamAhead = 2048;
/// Bytes of an input that comes round again, at most, and times that it does, at least, for it to be found in a cache.
constexpr std::int64_t kFoundAgain = 4 << 20, kRounds = 16;

/// A block of each operand, on the stack. The odd spacing keeps equal offsets of two blocks off the same cache set, and
/// leaves room for what spread() writes too much.
struct Blocks {
  static constexpr std::int64_t kSpacing = kBlock * 8 + 192;
  alignas(64) char room[kMaxOperands * kSpacing];
  alignas(64) std::uint16_t halves[kBlock + 32];
  char* of(int operand) { return room + operand * kSpacing; }
};

/// Position in a plan's space: coordinates, innermost first.
struct Position {
  std::int64_t at[kMaxLoopDims];

  Position() = default;
  Position(const LoopPlan& p, std::int64_t linear) {
    for (int d = 0; d < p.ndim; ++d) {
      at[d] = linear % p.sizes[d];
      linear /= p.sizes[d];
    }
  }
  void advance(const LoopPlan& p, std::int64_t n) {
    at[0] += n;
    for (int d = 0; d + 1 < p.ndim && at[d] >= p.sizes[d]; ++d) {
      at[d + 1] += at[d] / p.sizes[d];
      at[d] %= p.sizes[d];
    }
  }
  std::int64_t offset(const LoopPlan& p, int operand) const {
    std::int64_t sum = 0;
    for (int d = 0; d < p.ndim; ++d) sum += at[d] * p.strides[operand][d];
    return sum;
  }
};

/// n copies of the element at `from`, and up to 63 bytes beyond: whole cache lines are written, without a loop for the
/// rest.
template <class U>
void spread(char* to, const char* from, std::int64_t n) {
  constexpr std::int64_t kUnit = 64 / sizeof(U);
  U value;
  std::memcpy(&value, from, sizeof value);
  auto* out = reinterpret_cast<typename Unaligned<U>::type*>(to);
  for (std::int64_t i = 0; i < n; i += kUnit)
    for (std::int64_t k = 0; k < kUnit; ++k) out[i + k] = value;
}

/// Moves n elements of an operand, from `start` on in iteration order, to (or from) dense memory.
template <class U, bool kGather>
void move_block(const LoopPlan& p, int operand, const Position& start, char* dense, std::int64_t n) {
  const std::int64_t* strides = p.strides[operand];
  std::int64_t at[kMaxLoopDims];
  std::copy(start.at, start.at + p.ndim, at);
  char* place = p.data[operand] + start.offset(p, operand);
  while (n > 0) {
    const std::int64_t m = std::min(n, p.sizes[0] - at[0]);
    if constexpr (!kGather)
      move_run<U>(place, strides[0], dense, sizeof(U), m);
    else if (strides[0] == 0)
      spread<U>(dense, place, m);
    else
      move_run<U>(dense, sizeof(U), place, strides[0], m);
    dense += m * static_cast<std::int64_t>(sizeof(U));
    n -= m;
    place -= at[0] * strides[0];
    at[0] = 0;
    for (int d = 1; d < p.ndim; ++d) {
      place += strides[d];
      if (++at[d] < p.sizes[d]) break;
      place -= at[d] * strides[d];
      at[d] = 0;
    }
  }
}

template <bool kGather>
void move_block(std::size_t size, const LoopPlan& p, int operand, const Position& at, char* dense, std::int64_t n) {
  switch (size) {
    case 1:
      return move_block<std::uint8_t, kGather>(p, operand, at, dense, n);
    case 2:
      return move_block<std::uint16_t, kGather>(p, operand, at, dense, n);
    case 4:
      return move_block<std::uint32_t, kGather>(p, operand, at, dense, n);
    default:
      return move_block<std::uint64_t, kGather>(p, operand, at, dense, n);
  }
}

/// One thread's walk over [begin, end) of the iteration space. It goes by rows, straight through memory where it can,
/// or by flat blocks, which serve short rows: there an operand is dense, constant, periodic (rows that repeat, such as
/// a bias), spread (one element a row) or gathered.
class Walk {
 public:
  Walk(const LoopSpec& spec, const LoopPlan& plan, bool stream) : s_(spec), p_(plan) {
    for (int i = 0; i < p_.operands; ++i) size_[i] = static_cast<std::int64_t>(item_size(s_.storage[i]));
    stream_ = stream;
    // Streaming likes whole cache lines, which rows may cut.
    if (p_.ndim > 1 && (stream || p_.sizes[0] < kLongRow) && classify(false)) return;
    stream_ = stream;
    rows_ = p_.ndim == 1 || p_.sizes[0] >= kGatherRow || (p_.sizes[0] >= kShortRow && classify(true));
    classify(rows_);
  }

  void run(std::int64_t begin, std::int64_t end) {
    for (int i = 1; i < p_.operands; ++i)
      if (kind_[i] == Kind::Periodic && periods_[i].data() == nullptr) fill_period(i);
    if (stream_ && inputs_stream())
      run_stream(begin, end);
    else if (rows_ && !any_staged_)
      run_rows(begin, end);
    else
      run_blocks(begin, end);
    if (stream_) block_ops().stream_fence();
  }

 private:
  const LoopSpec& s_;
  const LoopPlan& p_;

  static constexpr std::int64_t kLongRow = 256;    ///< rows this long are worth a call each
  static constexpr std::int64_t kGatherRow = 128;  ///< and these, if something must pass through a block
  static constexpr std::int64_t kShortRow = 24;    ///< and these, if nothing must
  static constexpr std::int64_t kLongPeriod = 4096;

  enum class Kind { Direct, Repeat, Periodic, Spread, Staged };

  /// Decides how each operand reaches the loop; true if none has to be copied block by block.
  bool classify(bool rows) {
    any_staged_ = spreads_ = false;
    for (int i = 0; i < p_.operands; ++i) {
      const std::int64_t* strides = p_.strides[i];
      dense_[i] = rows ? strides[0] == size_[i] : is_linear(i);
      const bool repeats =
          i > 0 && s_.takes_scalars && !s_.widen[i] &&
          (rows ? strides[0] == 0 : std::all_of(strides, strides + p_.ndim, [](auto s) { return s == 0; }));
      kind_[i] = repeats ? Kind::Repeat : Kind::Staged;
      if (dense_[i] && !s_.widen[i] && !(i == 0 && stream_)) kind_[i] = Kind::Direct;
      if (kind_[i] == Kind::Staged && i > 0 && !rows && !dense_[i] && is_periodic(i)) kind_[i] = Kind::Periodic;
      if (kind_[i] == Kind::Staged && i > 0 && !rows && p_.strides[i][0] == 0 && p_.sizes[0] < kLongRow && !s_.widen[i])
        kind_[i] = Kind::Spread;
      inner_[i] = repeats ? 0 : s_.widen[i] ? 4 : size_[i];
      streamed_[i] = i == 0 ? -ask_ahead() : stream_ && comes_round(i) ? -inner_[i] : inner_[i];
      any_staged_ |= is_copied(i);
      spreads_ |= kind_[i] == Kind::Spread;
    }
    if (!dense_[0]) stream_ = false;
    return !any_staged_ || (!rows && all_inputs_flow());
  }
  /// Inputs that are near already, so that asking for them holds up the others: by a seventh of the time of x + row.
  /// (Not found out for lanes walked in step.)
  bool comes_round(int i) const {
    if (lanes_ > 1 || kind_[i] == Kind::Repeat || p_.strides[i][p_.ndim - 1] != 0) return false;
    std::int64_t bytes = size_[i];
    for (int d = 0; d < p_.ndim; ++d)
      if (p_.strides[i][d] != 0) bytes *= p_.sizes[d];
    return bytes <= kFoundAgain && kRounds * bytes <= p_.numel * size_[i];
  }
  bool is_copied(int i) const { return kind_[i] == Kind::Staged || kind_[i] == Kind::Spread; }
  /// Flat blocks suit the inputs; the output is dense and at most converted or streamed.
  bool all_inputs_flow() const {
    for (int i = 0; i < p_.operands; ++i)
      if (kind_[i] == Kind::Staged && !dense_[i]) return false;
    return true;
  }

  bool is_linear(int i) const {
    std::int64_t expected = size_[i];
    for (int d = 0; d < p_.ndim; ++d) {
      if (p_.strides[i][d] != expected) return false;
      expected *= p_.sizes[d];
    }
    return true;
  }
  bool is_periodic(int i) {
    int outer = p_.ndim;
    while (outer > 0 && p_.strides[i][outer - 1] == 0) --outer;
    period_[i] = 1;
    for (int d = 0; d < outer; ++d) period_[i] *= p_.sizes[d];
    return period_[i] <= kLongPeriod && p_.numel >= 4 * (period_[i] + kBlock);
  }

  void run_rows(std::int64_t begin, std::int64_t end) {
    Position at(p_, begin);
    char* ptrs[kMaxOperands];
    for (int i = 0; i < p_.operands; ++i) ptrs[i] = p_.data[i] + at.offset(p_, i);
    while (true) {
      const std::int64_t n = std::min(end - begin, p_.sizes[0] - at.at[0]);
      s_.fn(ptrs, inner_, n, s_.params);
      begin += n;
      if (begin >= end) return;
      for (int i = 0; i < p_.operands; ++i) ptrs[i] -= at.at[0] * p_.strides[i][0];
      at.at[0] = 0;
      for (int d = 1; d < p_.ndim; ++d) {
        for (int i = 0; i < p_.operands; ++i) ptrs[i] += p_.strides[i][d];
        if (++at.at[d] < p_.sizes[d]) break;
        for (int i = 0; i < p_.operands; ++i) ptrs[i] -= at.at[d] * p_.strides[i][d];
        at.at[d] = 0;
      }
    }
  }

  void run_blocks(std::int64_t begin, std::int64_t end) {
    Position at(p_, begin);
    char* ptrs[kMaxOperands];
    while (begin < end) {
      std::int64_t n = std::min(end - begin, kBlock);
      if (rows_) n = std::min(n, p_.sizes[0] - at.at[0]);
      for (int i = 0; i < p_.operands; ++i) {
        if (is_copied(i))
          ptrs[i] = blocks_.of(i);
        else if (kind_[i] == Kind::Periodic)
          ptrs[i] = periods_[i].data() + begin % period_[i] * inner_[i];
        else
          ptrs[i] = p_.data[i] + at.offset(p_, i);
      }
      for (int i = 1; i < p_.operands; ++i)
        if (is_copied(i)) load(i, at, n, blocks_.of(i));
      s_.fn(ptrs, inner_, n, s_.params);
      if (kind_[0] == Kind::Staged) store(at, n);
      begin += n;
      if (begin < end) at.advance(p_, n);
    }
  }

  /// True if no input has to be converted or gathered block by block.
  bool inputs_stream() const {
    for (int i = 1; i < p_.operands; ++i)
      if (kind_[i] == Kind::Staged) return false;
    return true;
  }

  /// A stretch of the iteration space along which the inputs are dense, repeated, periodic or spread.
  struct Lane {
    char* ptrs[kMaxOperands];
    std::int64_t left;
    Position at;  ///< where there are inputs to spread
  };
  /// Lanes walked in step. The hardware fetches ahead within a page only, so that one lane after the other waits for
  /// memory at the start of each page; four at once where results leave from registers, else two, and fetching the same
  /// pieces of the next as many, keep it busy. Where a line takes two stores, and where the hardware needs no help, one
  /// lane in longer pieces is faster.
  static constexpr int kLanes = 4;
  const int lanes_ = !walks_pages_in_step() ? 1 : s_.streams ? kLanes : 2;
  const bool one_wide_ = fetches_across_pages();
  /// Elements of a lane, or of a block where results do not stream.
  std::int64_t lane_length() const { return stream_ && s_.streams && lanes_ == 1 ? 8 * kBlock : kBlock; }
  const std::int64_t piece_bytes_ = lanes_ > 1 ? 512 : s_.streams ? 4096 : one_wide_ ? 2048 : 1024;
  const std::int64_t ahead_ = one_wide_ ? kBlock / 2 : lanes_ * kBlock;  // elements
  /// The same where results leave from registers, in bytes.
  std::int64_t ask_ahead() const { return lanes_ > 1 ? lanes_ * kBlock * size_[0] : kStreamAhead; }

  void run_stream(std::int64_t begin, std::int64_t end) {
    Lane lanes[kLanes];
    Position at(p_, begin);
    while (begin < end) {
      int count = 0;
      for (; count < lanes_ && begin < end; ++count) {
        Lane& lane = lanes[count];
        lane.left = std::min(end - begin, lane_length());
        if (rows_) lane.left = std::min(lane.left, p_.sizes[0] - at.at[0]);
        for (int i = 0; i < p_.operands; ++i)
          lane.ptrs[i] = kind_[i] == Kind::Periodic ? periods_[i].data() + begin % period_[i] * inner_[i]
                                                    : p_.data[i] + at.offset(p_, i);
        if (spreads_) std::copy_n(at.at, p_.ndim, lane.at.at);  // not all 512 bytes
        begin += lane.left;
        if (begin < end) at.advance(p_, lane.left);
      }
      stream_lanes(lanes, count);
    }
  }

  /// Brings the next n elements of inputs of one element a row to where lane.ptrs has them then.
  void spread_piece(Lane& lane, std::int64_t n) {
    for (int i = 1; i < p_.operands; ++i)
      if (kind_[i] == Kind::Spread) load(i, lane.at, n, lane.ptrs[i] = blocks_.of(i));
    lane.at.advance(p_, n);
  }

  /// Fetches n elements of each operand that lie where this lane will be after the others have been walked. Always
  /// inlined: the compiler takes a function that only fetches ahead for one without effect.
  [[gnu::always_inline]] void fetch_next(const Lane& lane, std::int64_t n) const {
    for (int i = 1; i < p_.operands; ++i)
      if (kind_[i] == Kind::Direct)
        for (std::int64_t at = 0; at < n * inner_[i]; at += 64)
          __builtin_prefetch(lane.ptrs[i] + ahead_ * inner_[i] + at);
  }

  /// Little at a time: results leave while the next operands arrive.
  void stream_lanes(Lane* lanes, int count) {
    constexpr std::int64_t kLine = 64, kLongPiece = 2048;
    const std::int64_t size = size_[0], piece = std::max<std::int64_t>(piece_bytes_ / size, 128);
    for (bool more = true; more;) {
      more = false;
      for (int k = 0; k < count; ++k) {
        Lane& lane = lanes[k];
        if (lane.left == 0) continue;
        // The first piece ends with a cache line of the result, as do those that follow.
        const auto place = reinterpret_cast<std::uintptr_t>(lane.ptrs[0]);
        const std::int64_t before = static_cast<std::int64_t>(place % kLine) / size;
        std::int64_t n = std::min(lane.left, piece - before);
        // What leaves from registers are whole lines: of a long piece the ends are pieces of their own.
        if (s_.streams && n * size >= kLongPiece) n = before > 0 ? kLine / size - before : n - n % (kLine / size);
        if (spreads_) spread_piece(lane, n);
        if (s_.streams && place % kLine == 0 && n * size % kLine == 0) {
          s_.fn(lane.ptrs, streamed_, n, s_.params);
        } else {
          char* ptrs[kMaxOperands];
          std::copy(lane.ptrs, lane.ptrs + p_.operands, ptrs);
          ptrs[0] = blocks_.of(0);
          fetch_next(lane, n);
          s_.fn(ptrs, inner_, n, s_.params);
          store_dense(lane.ptrs[0], n);
        }
        for (int i = 1; i < p_.operands; ++i) lane.ptrs[i] += n * inner_[i];
        lane.ptrs[0] += n * size;
        lane.left -= n;
        more |= lane.left > 0;
      }
    }
  }

  /// One period and a lane or block more, so that such can start anywhere in it.
  void fill_period(int i) {
    const std::int64_t total = period_[i] + lane_length();
    periods_[i] = HostBuffer<char>(total * inner_[i] + 64);  // spread() may write that much beyond
    Position at(p_, 0);
    for (std::int64_t k = 0; k < total; k += kBlock) {
      const std::int64_t n = std::min(kBlock, total - k);
      load(i, at, n, periods_[i].data() + k * inner_[i]);
      at.advance(p_, n);
    }
  }

  void load(int i, const Position& at, std::int64_t n, char* to) {
    if (!s_.widen[i]) return move_block<true>(static_cast<std::size_t>(size_[i]), p_, i, at, to, n);
    const auto widen = s_.storage[i] == DType::Half ? block_ops().half_to_float : block_ops().bfloat16_to_float;
    const void* from = p_.data[i] + at.offset(p_, i);
    if (!dense_[i]) {
      move_block<true>(2, p_, i, at, reinterpret_cast<char*>(blocks_.halves), n);
      from = blocks_.halves;
    }
    widen(reinterpret_cast<float*>(to), static_cast<const std::uint16_t*>(from), n);
  }

  void store(const Position& at, std::int64_t n) {
    char* to = p_.data[0] + at.offset(p_, 0);
    if (dense_[0]) return store_dense(to, n);
    char* from = blocks_.of(0);
    if (s_.widen[0]) {
      narrow(blocks_.halves, from, n);
      from = reinterpret_cast<char*>(blocks_.halves);
    }
    move_block<false>(static_cast<std::size_t>(size_[0]), p_, 0, at, from, n);
  }
  /// The block of results to n elements side by side at `to`.
  void store_dense(char* to, std::int64_t n) {
    const char* from = blocks_.of(0);
    if (s_.widen[0]) {
      narrow(stream_ ? blocks_.halves : reinterpret_cast<std::uint16_t*>(to), from, n);
      if (!stream_) return;
      from = reinterpret_cast<const char*>(blocks_.halves);
    }
    if (stream_)
      block_ops().stream(to, from, n * size_[0]);
    else
      std::memcpy(to, from, static_cast<std::size_t>(n * size_[0]));
  }
  void narrow(std::uint16_t* to, const char* from, std::int64_t n) const {
    const auto convert = s_.storage[0] == DType::Half ? block_ops().float_to_half : block_ops().float_to_bfloat16;
    convert(to, reinterpret_cast<const float*>(from), n);
  }

  bool rows_ = false, any_staged_ = false, spreads_ = false, stream_ = false;
  bool dense_[kMaxOperands] = {};
  Kind kind_[kMaxOperands] = {};
  std::int64_t size_[kMaxOperands] = {}, inner_[kMaxOperands] = {}, streamed_[kMaxOperands] = {},
               period_[kMaxOperands] = {};
  HostBuffer<char> periods_[kMaxOperands];
  Blocks blocks_;
};

/// Bytes of the operands, but of those that repeat along the outermost dim.
std::int64_t bytes_of(const LoopSpec& spec, const LoopPlan& p) {
  std::int64_t bytes = 0;
  for (int i = 0; i < p.operands; ++i)
    if (p.strides[i][p.ndim - 1] != 0) bytes += p.numel * static_cast<std::int64_t>(item_size(spec.storage[i]));
  return bytes;
}
std::int64_t stretch(const LoopSpec& spec) {
  return kStretchBytes / static_cast<std::int64_t>(item_size(spec.storage[0]));
}

/// One element of an input for each row of the other and of the output, rows that are whole cache lines and follow each
/// other without a gap: by LoopSpec::row_fn. Not results that leave where pages are walked in step. False if not done.
bool run_row_loop(const LoopSpec& spec, const LoopPlan& p, bool stream) {
  constexpr std::int64_t kLine = 64;
  if (!spec.row_fn || p.operands != 3 || p.ndim != 2 || (stream && walks_pages_in_step())) return false;
  const auto size = static_cast<std::int64_t>(item_size(spec.storage[0]));
  const std::int64_t row = p.sizes[0] * size;
  int repeated = 0;
  for (int i = 0; i < p.operands; ++i) {
    if (i > 0 && repeated == 0 && p.strides[i][0] == 0 && p.strides[i][1] == size)
      repeated = i;
    else if (p.strides[i][0] != size || p.strides[i][1] != row)
      return false;
  }
  if (repeated == 0 || row % kLine != 0 || (stream && reinterpret_cast<std::uintptr_t>(p.data[0]) % kLine != 0))
    return false;
  std::int64_t strides[] = {stream ? -kStreamAhead : size, size, size};
  strides[repeated] = -row;
  const std::int64_t steps[] = {row, repeated == 1 ? size : row, repeated == 2 ? size : row};
  const bool backwards = !stream && begins_at_end(bytes_of(spec, p));
  const std::int64_t grain = std::max<std::int64_t>(spec.grain / p.sizes[0], 1);
  parallel_for(0, p.sizes[1], grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t rows = std::max<std::int64_t>(kStretchBytes / row, 1);
    walk_stretches(begin, end, rows, backwards, [&](std::int64_t b, std::int64_t e) {
      char* ptrs[3];
      for (int i = 0; i < 3; ++i) ptrs[i] = p.data[i] + b * steps[i];
      spec.row_fn(ptrs, strides, (e - b) * p.sizes[0], spec.params);
    });
    if (stream) block_ops().stream_fence();
  });
  return true;
}

bool writes_over_input(const LoopPlan& p) {
  for (int i = 1; i < p.operands; ++i)
    if (p.data[i] == p.data[0]) return true;
  return false;
}

}  // namespace

void plan_loop(LoopPlan& p, const View* const* views, int operands) {
  const View& out = *views[0];
  ATHANOR_CHECK(out.ndim <= kMaxLoopDims, "expected at most ", kMaxLoopDims, " dimensions, got ", int{out.ndim});
  p.operands = operands;
  p.numel = out.numel;
  p.ndim = 0;
  for (int i = 0; i < operands; ++i) p.data[i] = static_cast<char*>(views[i]->data);
  for (int d = out.ndim - 1; d >= 0; --d) {
    const std::int64_t size = out.sizes[d];
    for (int i = 0; i < operands; ++i) {
      const View& v = *views[i];
      const int own = d - (out.ndim - v.ndim);
      const bool repeats = own < 0 || v.sizes[own] == 1;
      ATHANOR_CHECK(repeats || v.sizes[own] == size, "The size of tensor ", i, " (", v.shape(),
                    ") does not broadcast to ", out.shape(), " at dimension ", d);
      p.strides[i][p.ndim] = repeats ? 0 : v.strides[own] * static_cast<std::int64_t>(v.item_size());
    }
    if (size == 1) continue;
    p.sizes[p.ndim++] = size;
  }
  if (p.ndim == 0) {
    p.ndim = 1;
    p.sizes[0] = 1;
    for (int i = 0; i < operands; ++i) p.strides[i][0] = static_cast<std::int64_t>(views[i]->item_size());
    return;
  }
  sort_dims(p);
  merge_dims(p);
}

void run_loop(const LoopSpec& spec, const LoopPlan& plan) {
  if (plan.numel == 0) return;
  const bool stream =
      plan.numel * static_cast<std::int64_t>(item_size(spec.storage[0])) >= kStreamBytes && !writes_over_input(plan);
  if (run_tiles(spec, plan, stream) || run_row_loop(spec, plan, stream)) return;
  const bool backwards = !stream && begins_at_end(bytes_of(spec, plan));
  parallel_blocks(plan.numel, spec.grain, [&](std::int64_t begin, std::int64_t end) {
    Walk walk(spec, plan, stream);
    walk_stretches(begin, end, stretch(spec), backwards, [&](std::int64_t b, std::int64_t e) { walk.run(b, e); });
  });
}

void run_dense_loop(const LoopSpec& spec, char* const* data, const bool* repeats, int operands, std::int64_t numel) {
  bool direct = numel * static_cast<std::int64_t>(item_size(spec.storage[0])) < kStreamBytes;
  std::int64_t strides[kMaxOperands];
  for (int i = 0; i < operands; ++i) {
    direct = direct && !spec.widen[i] && (!repeats[i] || spec.takes_scalars);
    strides[i] = repeats[i] ? 0 : static_cast<std::int64_t>(item_size(spec.storage[i]));
  }
  if (direct) {
    std::int64_t bytes = 0;
    for (int i = 0; i < operands; ++i) bytes += numel * strides[i];
    const bool backwards = begins_at_end(bytes);
    const std::int64_t size = strides[0];
    // Arithmetic leaves the hardware too little time to fetch far enough ahead.
    if (spec.streams && bytes >= kTurnBytes && walks_pages_in_step()) strides[0] = kAskAhead;
    parallel_blocks(numel, spec.grain, [&](std::int64_t begin, std::int64_t end) {
      walk_stretches(begin, end, stretch(spec), backwards, [&](std::int64_t b, std::int64_t e) {
        char* ptrs[kMaxOperands] = {data[0] + b * size};
        for (int i = 1; i < operands; ++i) ptrs[i] = data[i] + b * strides[i];
        spec.fn(ptrs, strides, e - b, spec.params);
      });
    });
    return;
  }
  LoopPlan plan;
  plan.operands = operands;
  plan.numel = numel;
  plan.ndim = 1;
  plan.sizes[0] = numel;
  for (int i = 0; i < operands; ++i) {
    plan.data[i] = data[i];
    plan.strides[i][0] = strides[i];
  }
  run_loop(spec, plan);
}

void run_views(const LoopSpec& spec, const View* const* views, int operands) {
  const View& out = *views[0];
  if (out.numel == 0) return;
  bool dense = out.contiguous;
  bool repeats[kMaxOperands] = {};
  char* data[kMaxOperands];
  for (int i = 0; i < operands; ++i) {
    const View& v = *views[i];
    data[i] = static_cast<char*>(v.data);
    repeats[i] = v.numel == 1 && out.numel != 1;
    dense = dense && v.ndim <= out.ndim && (repeats[i] || (v.contiguous && v.numel == out.numel));
  }
  if (dense) return run_dense_loop(spec, data, repeats, operands, out.numel);
  LoopPlan plan;
  plan_loop(plan, views, operands);
  run_loop(spec, plan);
}

}  // namespace athanor::cpu
