// Recurrent layers with packed weights: for each step one product with the state, and the gates' arithmetic while its
// result is in the first cache. Compiled once per SIMD target; included by kernel files after hwy/highway.h.
//
// Hidden units are cut into groups, the columns of a panel; a thread takes the same groups in every step, so that its
// part of the weights, of the cells' states and of what backward needs stays with it. What the input contributes is
// made some steps ahead, for as many rows as use the weights well while the result stays in the second cache. Backward,
// the gradients of the gates of some steps are kept as panels, the right operand of the products that give the weights'
// gradients, transposed; the left operands, inputs and states, are a quarter of their size.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_RNN_PACKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_RNN_PACKED_INL_H_
#undef ATHANOR_DEVICE_CPU_RNN_PACKED_INL_H_
#else
#define ATHANOR_DEVICE_CPU_RNN_PACKED_INL_H_
#endif
// clang-format on

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/rnn_cell-inl.h"
#include "athanor/device/cpu/rnn_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

/// What both passes share.
template <class T>
class PackedLayer {
 protected:
  explicit PackedLayer(const cpu::RnnLayer& l)
      : mode_(l.mode),
        steps_(*l.steps),
        gates_(rnn_gates(l.mode)),
        inputs_(l.inputs),
        hidden_(l.hidden),
        padded_(padded_columns<T>(l.hidden)),
        groups_((l.hidden + kCols - 1) / kCols),
        input_(static_cast<const T*>(l.input)),
        w_ih_(static_cast<const T*>(l.w_ih)),
        w_hh_(static_cast<const T*>(l.w_hh)) {}

  static constexpr std::int64_t kCols = kTileCols<T>;

  /// Units [u, u + n) of a group; its panels are w wide.
  struct Group {
    std::int64_t u, n;
    int w;
  };
  Group group(std::int64_t i) const {
    const std::int64_t u = i * kCols;
    const int w = panel_width<T>(hidden_, u);
    return {u, std::min<std::int64_t>(w, hidden_ - u), w};
  }
  /// Threads that pay where a group is `work` multiply-adds for each row of a step, at most ours.
  int team_for(std::int64_t work) const {
    const std::int64_t grain = rnn_grain(steps_.batch * work), threads = in_parallel_region() ? 1 : get_num_threads();
    return static_cast<int>(std::min((groups_ + grain - 1) / grain, threads));
  }
  /// Groups [first, second) that a member of a team takes in every step.
  std::pair<std::int64_t, std::int64_t> share(const Team& team, int member) const {
    const std::int64_t each = (groups_ + team.size() - 1) / team.size();
    return {std::min(member * each, groups_), std::min((member + 1) * each, groups_)};
  }
  /// Units of the group after i, of those below `end`.
  std::int64_t units_after(std::int64_t i, std::int64_t end) const { return i + 1 < end ? group(i + 1).n : 0; }
  /// What backward needs of the rows from `first` on of a group: (row, gates, units) without gaps, group after group.
  template <class P>
  GateRows<P> work_rows(P* work, const Group& g, std::int64_t first) const {
    if (!work) return {};
    const std::int64_t slots = rnn_work_columns(mode_, 1, 0);
    return {work + g.u * slots * steps_.total + first * slots * g.n, slots * g.n, g.n};
  }
  /// The states before, (row, unit), which follow.
  template <class P>
  P* work_states(P* work) const {
    return work + rnn_work_columns(mode_, hidden_, 0) * steps_.total;
  }

  const RnnMode mode_;
  const cpu::RnnSteps& steps_;
  const std::int64_t gates_, inputs_, hidden_, padded_, groups_;
  const T *input_, *w_ih_, *w_hh_;
};

// ---- forward ----

template <class T>
class PackedForward : PackedLayer<T> {
 public:
  [[gnu::cold]] explicit PackedForward(const cpu::RnnForward& f)
      : PackedLayer<T>(f),
        h_(static_cast<T*>(f.h)),
        c_(static_cast<T*>(f.c)),
        output_(static_cast<T*>(f.output)),
        work_(static_cast<T*>(f.work)),
        packed_ih_(gates_ * padded_ * inputs_ + kVector<T>),
        packed_hh_(gates_ * padded_ * hidden_ + kVector<T>),
        bias_(pad(f.bias)),
        bias_hh_(pad(f.b_hh)),
        given_rows_(std::min(steps_.total, kGivenRows - 1 + steps_.batch)),
        given_(gates_ * padded_ * given_rows_),
        team_(this->team_for(kCols * gates_ * hidden_)),
        left_(packed_a_size<T>(steps_.batch, hidden_), team_ > 1, 2) {}

  void run() {
    pack_weights();
    pack_tiles<T>(h_, hidden_, hidden_, Tiles<T>(steps_.rows[0]), left_.at(0));
    parallel_team(team_, [&](Team& team, int member) {
      const auto [begin, end] = this->share(team, member);
      Ahead ahead;
      for (std::size_t k = 0; k < steps_.count(); ++k) {
        if (k == ahead.end) {
          look_ahead(ahead);
          give(ahead, begin, end);
        }
        team.await(static_cast<std::int64_t>(k));
        step(k, ahead, begin, end);
        team.pass(member, static_cast<std::int64_t>(k) + 1);
      }
    });
  }

 private:
  using Base = PackedLayer<T>;
  using Base::gates_, Base::groups_, Base::hidden_, Base::input_, Base::inputs_, Base::kCols, Base::mode_,
      Base::padded_, Base::steps_, Base::w_hh_, Base::w_ih_;
  using typename Base::Group;

  /// A bias gate by gate, padded like the panels.
  cpu::HostBuffer<T> pad(const void* bias) const {
    cpu::HostBuffer<T> out(bias ? gates_ * padded_ : 0);
    if (bias) std::fill_n(out.data(), gates_ * padded_, T(0));
    for (std::int64_t g = 0; bias && g < gates_; ++g)
      std::copy_n(static_cast<const T*>(bias) + g * hidden_, hidden_, out.data() + g * padded_);
    return out;
  }

  void pack_weights() {
    parallel_for(0, groups_, rnn_grain(kCols * gates_ * (inputs_ + hidden_)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const Group u = this->group(i);
                     for (std::int64_t g = 0; g < gates_; ++g) {
                       const auto pack = [&](const T* w, std::int64_t k, T* to) {
                         pack_b<T>(w + (g * hidden_ + u.u) * k, 1, k, k, static_cast<int>(u.n), u.w,
                                   to + (g * padded_ + u.u) * k);
                       };
                       pack(w_ih_, inputs_, packed_ih_.data());
                       pack(w_hh_, hidden_, packed_hh_.data());
                     }
                   }
                 });
  }

  /// Steps whose given part has been made: those before `end` of the rows [low, low + rows).
  struct Ahead {
    std::size_t end = 0;
    std::int64_t low = 0, rows = 0;
  };

  /// Chooses the steps whose given part is made next.
  void look_ahead(Ahead& a) const {
    a.rows = 0;
    a.low = steps_.first[a.end];
    while (a.end < steps_.count() && a.rows < kGivenRows) {
      a.low = std::min(a.low, steps_.first[a.end]);
      a.rows += steps_.rows[a.end++];
    }
  }

  T* given(std::int64_t gate, const Group& g, std::int64_t row) const {
    return given_.data() + (gate * padded_ + g.u) * given_rows_ + row * g.w;
  }

  /// w_ih x + bias of the steps ahead.
  void give(const Ahead& ahead, std::int64_t begin, std::int64_t end) const {
    const Tiles<T> tiles(ahead.rows);
    const std::int64_t size = packed_a_size<T>(ahead.rows, inputs_);
    const bool large = size > kKeptSize;
    const cpu::HostBuffer<T> own(large ? size : 0);
    T* const left = large ? own.data() : rnn_scratch<T>(kRnnLeft, size);
    pack_tiles<T>(input_ + ahead.low * inputs_, inputs_, inputs_, tiles, left);
    for (std::int64_t i = begin; i < end; ++i) {
      const Group u = this->group(i);
      for (std::int64_t g = 0; g < gates_; ++g) {
        const std::int64_t panel = g * padded_ + u.u;
        const TileEnd<T> end_of{nullptr, bias_.data() + panel, false};
        for (std::int64_t t = 0; t < tiles.count; ++t)
          tiles.multiply(t, inputs_, left + tiles.begin(t) * inputs_, packed_ih_.data() + panel * inputs_, u.w, nullptr,
                         given(g, u, tiles.begin(t)), u.w, bias_.data() ? &end_of : nullptr);
      }
    }
  }

  void step(std::size_t k, const Ahead& ahead, std::int64_t begin, std::int64_t end) const {
    const Tiles<T> tiles(steps_.rows[k]), next(k + 1 < steps_.count() ? steps_.rows[k + 1] : 0);
    T* const product = rnn_scratch<T>(kRnnProduct, 4 * kGateStep);
    const T* const left = left_.at(k);
    for (std::int64_t i = begin; i < end; ++i) {
      const Group u = this->group(i);
      for (std::int64_t t = 0; t < tiles.count; t += kRnnTiles) {
        const std::int64_t t1 = std::min(t + kRnnTiles, tiles.count);
        multiply(k, ahead.low, u, tiles, t, t1, left, product);
        cells(k, ahead.low, u, tiles.begin(t), product).run(tiles.begin(t1) - tiles.begin(t), u.n);
      }
      pack_steps<T>(h_ + u.u, hidden_, next, 0, next.count, u.n, hidden_, u.u, this->units_after(i, end),
                    left_.at(k + 1));
    }
  }

  static constexpr std::int64_t kGateStep = kRnnTiles * kTileRows * kTileCols<T>;

  /// w_hh h of tiles [t0, t1), what was given included.
  void multiply(std::size_t k, std::int64_t low, const Group& u, const Tiles<T>& tiles, std::int64_t t0,
                std::int64_t t1, const T* left, T* product) const {
    const std::int64_t offset = steps_.first[k] - low;
    for (std::int64_t g = 0; g < gates_; ++g) {
      const bool apart = mode_ == RnnMode::Gru && g == 2;
      const std::int64_t panel = g * padded_ + u.u;
      const TileEnd<T> end{nullptr, bias_hh_.data() + panel, false};
      for (std::int64_t t = t0; t < t1; ++t) {
        const std::int64_t row = tiles.begin(t);
        ask_for_cells(k, u, row, tiles.height(t), g);
        tiles.multiply(t, hidden_, left + row * hidden_, packed_hh_.data() + panel * hidden_, u.w,
                       apart ? nullptr : given(g, u, offset + row),
                       product + g * kGateStep + (row - tiles.begin(t0)) * u.w, u.w, bias_hh_.data() ? &end : nullptr);
      }
    }
  }

  /// Asks for what the cells of some rows will write, a part with each gate's product. Inline, since the compiler drops
  /// calls of functions that do nothing else.
  HWY_INLINE void ask_for_cells(std::size_t k, const Group& u, std::int64_t row, std::int64_t rows,
                                std::int64_t gate) const {
    const std::int64_t first = steps_.first[k] + row, at = first * hidden_ + u.u;
    if (gate == 0) ask_for_rows(output_ + at, hidden_, rows, u.n);
    if (!work_) return;
    const auto work = this->work_rows(work_, u, first);
    ask_for(work.p, rows * work.row, gate, gates_);
    if (gate == gates_ - 1) ask_for_rows(this->work_states(work_) + at, hidden_, rows, u.n);
  }

  /// Those of the rows of a step from `row` on.
  ForwardCells<T> cells(std::size_t k, std::int64_t low, const Group& u, std::int64_t row, T* product) const {
    const std::int64_t first = steps_.first[k] + row, at = row * hidden_ + u.u;
    ForwardCells<T> c;
    c.mode = mode_;
    c.sums = {product, u.w, kGateStep};
    if (mode_ == RnnMode::Gru) c.given = {given(0, u, first - low), u.w, padded_ * given_rows_};
    c.hidden = hidden_;
    c.h = c.h_next = h_ + at;
    c.c = c_ ? c_ + at : nullptr;
    c.output = output_ + first * hidden_ + u.u;
    c.work = this->work_rows(work_, u, first);
    if (work_) c.before = {this->work_states(work_) + first * hidden_ + u.u, hidden_};
    return c;
  }

  T *const h_, *const c_, *const output_, *const work_;
  const cpu::HostBuffer<T> packed_ih_, packed_hh_, bias_, bias_hh_;
  const std::int64_t given_rows_;
  const cpu::HostBuffer<T> given_;  ///< for each gate and group (row, width)
  const int team_;
  const Turns<T> left_;  ///< states of this step and the next, packed
};

// ---- backward ----

template <class T>
class PackedBackward : PackedLayer<T> {
 public:
  [[gnu::cold]] explicit PackedBackward(const cpu::RnnBackward& b)
      : PackedLayer<T>(b),
        b_(b),
        work_(static_cast<const T*>(b.work)),
        slots_(mode_ == RnnMode::Gru ? 4 : gates_),
        columns_(gates_ * hidden_),
        rows_(std::min(steps_.total, kGradientRows - 1 + steps_.batch)),
        packed_hh_(padded_ * columns_ + kVector<T>),
        packed_ih_(b.dinput ? padded_columns<T>(inputs_) * columns_ + kVector<T> : 0),
        dh_(padded_ * steps_.batch),
        sums_(slots_ * padded_),
        team_(this->team_for(kCols * columns_)),
        left_(packed_a_size<T>(steps_.batch, columns_), team_ > 1, 2),
        dgates_(slots_ * padded_ * rows_ + kVector<T>, team_ > 1, 1),
        weights_{{input_, b.dw_ih ? inputs_ : 0, b.dw_ih, false},
                 {this->work_states(work_), b.dw_hh ? hidden_ : 0, b.dw_hh, true}} {
    for (Weight& w : weights_) {
      w.left = Turns<T>(packed_a_size<T>(w.columns, rows_), team_ > 1, 1);
      w.sums = cpu::HostBuffer<T>(gates_ * padded_ * w.columns);
    }
  }

  void run() {
    pack_weights();
    start();
    std::int64_t after = 0;
    std::size_t turn = 1;
    for (std::size_t end = steps_.count(); end > 0;) {
      const std::size_t begin = block_before(end);
      parallel_team(team_, [&](Team& team, int member) {
        const auto [b, e] = this->share(team, member);
        std::int64_t rows = after;
        for (std::size_t k = end; k-- > begin; rows = steps_.rows[k]) {
          const auto passed = static_cast<std::int64_t>(end - 1 - k);
          team.await(passed);
          step(k, rows, turn + static_cast<std::size_t>(passed), b, e);
          team.pass(member, passed + 1);
        }
      });
      after = steps_.rows[begin];
      turn += end - begin;
      if (b_.dinput) input_gradient();
      if (b_.dw_ih || b_.dw_hh) weight_gradients(end == steps_.count());
      end = begin;
      ++block_;
    }
    finish(after, turn);
  }

 private:
  using Base = PackedLayer<T>;
  using Base::gates_, Base::groups_, Base::hidden_, Base::input_, Base::inputs_, Base::kCols, Base::mode_,
      Base::padded_, Base::steps_, Base::w_hh_, Base::w_ih_;
  using typename Base::Group;

  /// A weight's gradient: that of the gates, transposed, by rows of the input or of the states. No columns: unwanted.
  struct Weight {
    Weight(const T* rows, std::int64_t columns, void* out, bool of_state)
        : rows(rows), columns(columns), tiles(columns), out(static_cast<T*>(out)), of_state(of_state) {}
    const T* rows;
    std::int64_t columns;
    Tiles<T> tiles;
    T* out;
    bool of_state;
    Turns<T> left;            ///< columns of the block's rows, packed
    cpu::HostBuffer<T> sums;  ///< for each gate and group (column, width)
  };

  /// Where gate g lies among the panels; GRU's third belongs to the input, its fourth to the state.
  std::int64_t slot(std::int64_t g, bool of_state) const { return of_state && mode_ == RnnMode::Gru && g == 2 ? 3 : g; }
  T* panel(std::int64_t slot, const Group& u) const { return dgates_.at(block_) + (slot * padded_ + u.u) * rows_; }

  void pack_weights() {
    const auto pack = [&](const T* w, std::int64_t columns, const cpu::HostBuffer<T>& to) {
      const std::int64_t panels = (columns + kCols - 1) / kCols;
      parallel_for(0, panels, rnn_grain(kCols * columns_), [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t q = begin * kCols;
        pack_b_panels<T>(w + q, columns, 1, columns_, std::min(end * kCols, columns) - q, to.data() + q * columns_);
      });
    };
    pack(w_hh_, hidden_, packed_hh_);
    if (b_.dinput) pack(w_ih_, inputs_, packed_ih_);
  }

  void start() {
    std::fill_n(sums_.data(), slots_ * padded_, T(0));
    // Products read the last group's panels whole: what lies beside its units should at least be quick to multiply.
    const Group end = this->group(groups_ - 1);
    for (block_ = 0; end.n < end.w && block_ < dgates_.count(); ++block_)
      for (std::int64_t s = 0; s < slots_; ++s) std::fill_n(panel(s, end), rows_ * end.w, T(0));
    block_ = 0;
    std::fill_n(dh_.data(), padded_ * steps_.batch, T(0));
    if (!b_.dhy) return;
    each_state(
        [&](T* panel, std::int64_t at, std::int64_t n) { std::copy_n(static_cast<const T*>(b_.dhy) + at, n, panel); });
  }

  /// fn(address in dh_, offset in (B, H), units) for each group of each row.
  template <class F>
  void each_state(const F& fn) const {
    for (std::int64_t i = 0; i < groups_; ++i) {
      const Group u = this->group(i);
      for (std::int64_t r = 0; r < steps_.batch; ++r)
        fn(dh_.data() + u.u * steps_.batch + r * u.w, r * hidden_ + u.u, u.n);
    }
  }

  /// Where the block of steps that ends at `end` begins.
  std::size_t block_before(std::size_t end) {
    low_rows_ = 0;
    low_ = steps_.first[end - 1];
    std::size_t begin = end;
    while (begin > 0 && low_rows_ < kGradientRows) {
      low_rows_ += steps_.rows[--begin];
      low_ = std::min(low_, steps_.first[begin]);
    }
    return begin;
  }

  /// dh += slopes of the step after @ w_hh.
  void multiply(const Group& u, std::int64_t rows, const T* left, const BackwardCells<T>* cells) const {
    const Tiles<T> tiles(rows);
    T* const dh = dh_.data() + u.u * steps_.batch;
    for (std::int64_t t = 0; t < tiles.count; ++t) {
      if (cells) ask_for_cells(*cells, u, tiles.begin(t), tiles.height(t));
      T* const to = dh + tiles.begin(t) * u.w;
      tiles.multiply(t, columns_, left + tiles.begin(t) * columns_, packed_hh_.data() + u.u * columns_, u.w, to, to,
                     u.w);
    }
  }
  /// Asks for what the cells of some rows will read. Inline, since the compiler drops calls of functions that
  /// do nothing else.
  HWY_INLINE void ask_for_cells(const BackwardCells<T>& cells, const Group& u, std::int64_t row,
                                std::int64_t rows) const {
    ask_for(cells.work.at(row), rows * cells.work.row);
    if (cells.doutput) ask_for_rows(cells.doutput + row * hidden_, hidden_, rows, u.n);
  }

  void step(std::size_t k, std::int64_t after, std::size_t turn, std::int64_t begin, std::int64_t end) {
    const std::int64_t rows = steps_.rows[k], row = steps_.first[k] - low_;
    const Tiles<T> tiles(rows);
    T* const left = left_.at(turn);
    for (std::int64_t i = begin; i < end; ++i) {
      const Group u = this->group(i);
      const BackwardCells<T> cells = this->cells(k, u);
      multiply(u, after, left_.at(turn - 1), &cells);
      cells.run(rows, u.n);
      for (std::int64_t s = 0; s < slots_; ++s)
        add_rows(panel(s, u) + row * u.w, rows, u, sums_.data() + s * padded_ + u.u);
      for (std::int64_t g = 0; g < gates_; ++g)
        pack_steps<T>(panel(slot(g, true), u) + row * u.w, u.w, tiles, 0, tiles.count, u.n, columns_, g * hidden_ + u.u,
                      this->units_after(i, end), left);
    }
  }

  BackwardCells<T> cells(std::size_t k, const Group& u) const {
    const std::int64_t first = steps_.first[k], row = first - low_;
    BackwardCells<T> c;
    c.mode = mode_;
    c.work = this->work_rows(work_, u, first);
    c.before = {this->work_states(work_) + first * hidden_ + u.u, hidden_};
    c.hidden = hidden_;
    c.doutput = b_.doutput ? static_cast<const T*>(b_.doutput) + first * hidden_ + u.u : nullptr;
    c.dc = b_.dc ? static_cast<T*>(b_.dc) + u.u : nullptr;
    c.dh = {dh_.data() + u.u * steps_.batch, u.w};
    c.dgates = {panel(0, u) + row * u.w, u.w, padded_ * rows_};
    if (slots_ > gates_) c.third = {panel(3, u) + row * u.w, u.w};
    return c;
  }

  /// to += the sum of the rows of a panel.
  static void add_rows(const T* from, std::int64_t rows, const Group& u, T* to) {
    const hn::ScalableTag<T> d;
    for (int j = 0; j < u.w; j += kVector<T>) {
      auto sum = hn::Zero(d);
      for (std::int64_t i = 0; i < rows; ++i) sum = hn::Add(sum, hn::LoadU(d, from + i * u.w + j));
      hn::StoreU(hn::Add(sum, hn::LoadU(d, to + j)), d, to + j);
    }
  }

  /// dinput = dgates @ w_ih for the rows of the block.
  void input_gradient() {
    const Tiles<T> tiles(low_rows_);
    const std::int64_t at_once = std::clamp<std::int64_t>(kLeftSize / columns_ / kTileRows, 1, 48 / kTileRows);
    const std::int64_t grain = std::max(at_once, rnn_grain(kTileRows * columns_ * inputs_));
    parallel_for(0, tiles.count, grain, [&](std::int64_t begin, std::int64_t end) {
      T* const left = rnn_scratch<T>(kRnnLeft, packed_a_size<T>(at_once * kTileRows, columns_));
      for (std::int64_t t = begin; t < end; t += at_once) input_gradient(tiles, t, std::min(t + at_once, end), left);
    });
  }
  void input_gradient(const Tiles<T>& tiles, std::int64_t t0, std::int64_t t1, T* left) const {
    const std::int64_t row = tiles.begin(t0);
    for (std::int64_t i = 0; i < groups_; ++i) {
      const Group u = this->group(i);
      for (std::int64_t g = 0; g < gates_; ++g)
        pack_steps<T>(panel(g, u) + row * u.w, u.w, tiles, t0, t1, u.n, columns_, g * hidden_ + u.u,
                      this->units_after(i, groups_), left);
    }
    HWY_ALIGN T edge[kTileRows * kTileCols<T>];
    for (std::int64_t q = 0; q < inputs_; q += kCols) {
      const int w = panel_width<T>(inputs_, q);
      for (std::int64_t t = t0; t < t1; ++t) {
        const int m = tiles.height(t);
        T* const out = static_cast<T*>(b_.dinput) + (low_ + tiles.begin(t)) * inputs_ + q;
        const bool whole = inputs_ - q >= w;
        tiles.multiply(t, columns_, left + (tiles.begin(t) - row) * columns_, packed_ih_.data() + q * columns_, w,
                       nullptr, whole ? out : edge, whole ? inputs_ : w);
        for (int r = 0; !whole && r < m; ++r) std::copy_n(edge + r * w, inputs_ - q, out + r * inputs_);
      }
    }
  }

  /// Adds what the rows of the block contribute.
  void weight_gradients(bool first) {
    for (Weight& w : weights_) {
      const auto begin = [&](std::int64_t t) { return w.tiles.begin(t); };
      parallel_for(0, w.tiles.count, rnn_grain(kTileRows * low_rows_), [&](std::int64_t t0, std::int64_t t1) {
        pack_a_panels<T>(w.rows + low_ * w.columns + begin(t0), 1, w.columns, low_rows_, t0, t1, begin,
                         w.left.at(block_) + begin(t0) * low_rows_);
      });
    }
    parallel_for(0, groups_, rnn_grain(kCols * columns_ * low_rows_), [&](std::int64_t begin, std::int64_t end) {
      for (const Weight& w : weights_)
        for (std::int64_t i = begin; i < end; ++i)
          for (std::int64_t g = 0; g < gates_; ++g) add_gradient(w, g, this->group(i), first);
    });
  }
  void add_gradient(const Weight& w, std::int64_t g, const Group& u, bool first) const {
    const T* const right = panel(slot(g, w.of_state), u);
    T* const sums = w.sums.data() + (g * padded_ + u.u) * w.columns;
    w.tiles.add_products(low_rows_, w.left.at(block_), right, u.w, first, sums);
  }

  /// The gradients of the first state, of the weights and of the biases.
  void finish(std::int64_t after, std::size_t turn) {
    parallel_for(0, groups_, rnn_grain(kCols * columns_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Group u = this->group(i);
        if (b_.dhx) multiply(u, after, left_.at(turn - 1), nullptr);
        for (std::int64_t g = 0; g < gates_; ++g) {
          for (const Weight& w : weights_)
            turn_over<T>(w.sums.data() + (g * padded_ + u.u) * w.columns, u.w, w.columns, u.n,
                         w.out + (g * hidden_ + u.u) * w.columns);
          const auto bias = [&](void* to, bool of_state) {
            if (to)
              std::copy_n(sums_.data() + slot(g, of_state) * padded_ + u.u, u.n,
                          static_cast<T*>(to) + g * hidden_ + u.u);
          };
          bias(b_.db_ih, false);
          bias(b_.db_hh, true);
        }
      }
    });
    if (!b_.dhx) return;
    each_state(
        [&](const T* panel, std::int64_t at, std::int64_t n) { std::copy_n(panel, n, static_cast<T*>(b_.dhx) + at); });
  }

  const cpu::RnnBackward& b_;
  const T* const work_;
  const std::int64_t slots_, columns_;
  const std::int64_t rows_;  ///< most rows of a block
  const cpu::HostBuffer<T> packed_hh_, packed_ih_;
  const cpu::HostBuffer<T> dh_;    ///< for each group (sequence, width): gradient of the state
  const cpu::HostBuffer<T> sums_;  ///< of the rows of dgates_
  const int team_;
  const Turns<T> left_;    ///< slopes of this step and the one after, packed
  const Turns<T> dgates_;  ///< for each slot and group (row, width): of the rows of the block
  Weight weights_[2];
  std::int64_t low_ = 0, low_rows_ = 0;  ///< the block's rows
  std::int64_t block_ = 0;               ///< its number
};

template <class T>
void rnn_forward_packed(const cpu::RnnForward& layer) {
  PackedForward<T>(layer).run();
}
template <class T>
void rnn_backward_packed(const cpu::RnnBackward& layer) {
  PackedBackward<T>(layer).run();
}

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
