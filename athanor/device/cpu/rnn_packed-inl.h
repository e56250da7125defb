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

#include "athanor/device/cpu/rnn_layer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

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
    pack_tiles<T>(h_, hidden_, hidden_, Tiles<T>(steps_.rows[0]), left_.at(0));
    parallel_team(team_, [&](Team& team, int member) {
      pack_weights(team, member);
      Ahead ahead;
      for (std::size_t k = 0; k < steps_.count(); ++k) {
        if (k == ahead.end) {
          look_ahead(ahead);
          give(ahead, team, member);
        }
        step(k, ahead, Progress(team, member, k, steps_.rows[k], k > 0 ? steps_.rows[k - 1] : 0));
      }
    });
  }

 private:
  using Base = PackedLayer<T>;
  using Base::gates_, Base::groups_, Base::hidden_, Base::input_, Base::inputs_, Base::kCols, Base::mode_,
      Base::padded_, Base::steps_, Base::w_hh_, Base::w_ih_;
  using typename Base::Group;
  using typename Base::Progress;

  /// A bias gate by gate, padded like the panels.
  cpu::HostBuffer<T> pad(const void* bias) const {
    cpu::HostBuffer<T> out(bias ? gates_ * padded_ : 0);
    if (bias) std::fill_n(out.data(), gates_ * padded_, T(0));
    for (std::int64_t g = 0; bias && g < gates_; ++g)
      std::copy_n(static_cast<const T*>(bias) + g * hidden_, hidden_, out.data() + g * padded_);
    return out;
  }

  void pack_weights(const Team& team, int member) const {
    this->each_group(team, member, rnn_grain(kCols * gates_ * (inputs_ + hidden_)),
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
  HWY_NOINLINE void give(const Ahead& ahead, const Team& team, int member) const {
    const auto [begin, end] = this->share(team, member);
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

  void step(std::size_t k, const Ahead& ahead, const Progress& progress) const {
    const auto [begin, end] = this->share(progress.team(), progress.member());
    const Tiles<T> tiles(steps_.rows[k]), next(k + 1 < steps_.count() ? steps_.rows[k + 1] : 0);
    const T* const left = left_.at(k);
    for (std::int64_t t0 = 0, t1 = 0; t0 < tiles.count; t0 = t1) {
      t1 = progress.next(t0);
      for (std::int64_t i = begin; i < end; ++i) {
        const Group u = this->group(i);
        for (std::int64_t t = t0; t < t1; t += kRnnTiles)
          part(k, ahead.low, u, tiles, t, std::min(t + kRnnTiles, t1), left);
        const std::int64_t open = this->units_after(i, end);
        if (next.rows == tiles.rows)
          pack_state(u, next, t0, t1, open, k + 1);
        else if (t1 == tiles.count)
          pack_state(u, next, 0, next.count, open, k + 1);
      }
      progress.done(t1);
    }
  }
  void part(std::size_t k, std::int64_t low, const Group& u, const Tiles<T>& tiles, std::int64_t t0, std::int64_t t1,
            const T* left) const {
    T* const product = rnn_scratch<T>(kRnnProduct, 4 * kGateStep);
    multiply(k, low, u, tiles, t0, t1, left, product);
    cells(k, low, u, tiles.begin(t0), product).run(tiles.begin(t1) - tiles.begin(t0), u.n);
  }
  void pack_state(const Group& u, const Tiles<T>& tiles, std::int64_t t0, std::int64_t t1, std::int64_t open,
                  std::size_t turn) const {
    const std::int64_t row = tiles.begin(t0) * hidden_;
    pack_steps<T>(h_ + row + u.u, hidden_, tiles, t0, t1, u.n, hidden_, u.u, open, left_.at(turn) + row);
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
    parallel_team(team_, [&](Team& team, int member) {
      start(team, member);
      std::int64_t after = 0;
      std::size_t turn = 1;
      for (Block block = block_before(steps_.count(), 0); block.end > 0;
           block = block_before(block.begin, block.number + 1)) {
        const auto point = [&] { return turn - 1 + block.number; };  // the team's: one for each step and each block
        for (std::size_t k = block.end; k-- > block.begin; ++turn) {
          const std::int64_t rows = steps_.rows[k];
          step(block, k, after, turn, Progress(team, member, point(), rows, after));
          after = rows;
        }
        pack_left(block, team, member);
        Progress(team, member, point(), 0, 0).meet();
        if (b_.dinput) input_gradient(block, team, member);
        if (b_.dw_ih || b_.dw_hh) weight_gradients(block, team, member);
      }
      finish(team, member, after, turn);
    });
  }

 private:
  using Base = PackedLayer<T>;
  using Base::gates_, Base::groups_, Base::hidden_, Base::input_, Base::inputs_, Base::kCols, Base::mode_,
      Base::padded_, Base::steps_, Base::w_hh_, Base::w_ih_;
  using typename Base::Group;
  using typename Base::Progress;

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

  /// Steps [begin, end), whose rows are [low, low + rows).
  struct Block {
    std::size_t begin = 0, end = 0, number = 0;
    std::int64_t low = 0, rows = 0;
  };

  /// Where gate g lies among the panels; GRU's third belongs to the input, its fourth to the state.
  std::int64_t slot(std::int64_t g, bool of_state) const { return of_state && mode_ == RnnMode::Gru && g == 2 ? 3 : g; }
  T* panel(const Block& block, std::int64_t slot, const Group& u) const {
    return dgates_.at(block.number) + (slot * padded_ + u.u) * rows_;
  }

  /// Packs panels [begin, end) of a weight of so many columns.
  HWY_NOINLINE void pack(const T* w, std::int64_t columns, const cpu::HostBuffer<T>& to, std::int64_t begin,
                         std::int64_t end) const {
    const std::int64_t q = begin * kCols;
    pack_b_panels<T>(w + q, columns, 1, columns_, std::min(end * kCols, columns) - q, to.data() + q * columns_);
  }
  /// Packs the weights, and sets what grows from block to block.
  void start(const Team& team, int member) {
    const std::int64_t work = rnn_grain(kCols * columns_), panels = (inputs_ + kCols - 1) / kCols;
    if (b_.dinput)
      this->each_of(team, member, panels, work,
                    [&](std::int64_t begin, std::int64_t end) { pack(w_ih_, inputs_, packed_ih_, begin, end); });
    this->each_group(team, member, work, [&](std::int64_t begin, std::int64_t end) {
      pack(w_hh_, hidden_, packed_hh_, begin, end);
      for (std::int64_t i = begin; i < end; ++i) start(this->group(i));
    });
  }
  HWY_NOINLINE void start(const Group& u) {
    for (std::int64_t s = 0; s < slots_; ++s) std::fill_n(sums_.data() + s * padded_ + u.u, u.w, T(0));
    // Products read the last group's panels whole: what lies beside its units should at least be quick to multiply.
    Block block;
    for (; u.n < u.w && block.number < static_cast<std::size_t>(dgates_.count()); ++block.number)
      for (std::int64_t s = 0; s < slots_; ++s) std::fill_n(panel(block, s, u), rows_ * u.w, T(0));
    std::fill_n(dh_.data() + u.u * steps_.batch, u.w * steps_.batch, T(0));
    if (b_.dhy)
      each_state(u, [&](T* panel, std::int64_t at) { std::copy_n(static_cast<const T*>(b_.dhy) + at, u.n, panel); });
  }
  /// fn(address in dh_, offset in (B, H)) for the units of a group in each row.
  template <class F>
  void each_state(const Group& u, const F& fn) const {
    for (std::int64_t r = 0; r < steps_.batch; ++r) fn(dh_.data() + u.u * steps_.batch + r * u.w, r * hidden_ + u.u);
  }

  /// The block of steps that ends at `end`; an empty one at the start.
  Block block_before(std::size_t end, std::size_t number) const {
    Block block;
    block.number = number;
    block.begin = block.end = end;
    if (end > 0) block.low = steps_.first[end - 1];
    while (block.begin > 0 && block.rows < kGradientRows) {
      block.rows += steps_.rows[--block.begin];
      block.low = std::min(block.low, steps_.first[block.begin]);
    }
    return block;
  }

  /// dh += slopes of the step after @ w_hh, for tiles [t0, t1).
  void multiply(const Group& u, const Tiles<T>& tiles, std::int64_t t0, std::int64_t t1, const T* left,
                const BackwardCells<T>* cells) const {
    T* const dh = dh_.data() + u.u * steps_.batch;
    for (std::int64_t t = t0; t < t1; ++t) {
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

  void step(const Block& block, std::size_t k, std::int64_t rows_after, std::size_t turn, const Progress& progress) {
    const Tiles<T> tiles(steps_.rows[k]), after(rows_after);
    const auto [begin, end] = this->share(progress.team(), progress.member());
    for (std::int64_t t0 = 0, t1 = 0; t0 < tiles.count; t0 = t1) {
      t1 = progress.next(t0);
      const bool last = t1 == tiles.count;
      for (std::int64_t i = begin; i < end; ++i) {
        const Group u = this->group(i);
        const BackwardCells<T> cells = this->cells(block, k, u);
        multiply(u, after, t0, last ? after.count : t1, left_.at(turn - 1), &cells);
        cells.run(tiles.begin(t0), tiles.begin(t1), u.n);
        const std::int64_t open = this->units_after(i, end), row = steps_.first[k] - block.low;
        for (std::int64_t s = 0; last && s < slots_; ++s)
          add_rows(panel(block, s, u) + row * u.w, tiles.rows, u, sums_.data() + s * padded_ + u.u);
        for (std::int64_t g = 0; g < gates_; ++g)
          pack_steps<T>(panel(block, slot(g, true), u) + (row + tiles.begin(t0)) * u.w, u.w, tiles, t0, t1, u.n,
                        columns_, g * hidden_ + u.u, open, left_.at(turn) + tiles.begin(t0) * columns_);
      }
      progress.done(t1);
    }
  }

  BackwardCells<T> cells(const Block& block, std::size_t k, const Group& u) const {
    const std::int64_t first = steps_.first[k], row = first - block.low;
    BackwardCells<T> c;
    c.mode = mode_;
    c.work = this->work_rows(work_, u, first);
    c.before = {this->work_states(work_) + first * hidden_ + u.u, hidden_};
    c.hidden = hidden_;
    c.doutput = b_.doutput ? static_cast<const T*>(b_.doutput) + first * hidden_ + u.u : nullptr;
    c.dc = b_.dc ? static_cast<T*>(b_.dc) + u.u : nullptr;
    c.dh = {dh_.data() + u.u * steps_.batch, u.w};
    c.dgates = {panel(block, 0, u) + row * u.w, u.w, padded_ * rows_};
    if (slots_ > gates_) c.third = {panel(block, 3, u) + row * u.w, u.w};
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
  void input_gradient(const Block& block, const Team& team, int member) const {
    const std::int64_t at_once = std::clamp<std::int64_t>(kLeftSize / columns_ / kTileRows, 1, 48 / kTileRows);
    const std::int64_t grain = kTileRows * std::max(at_once, rnn_grain(kTileRows * columns_ * inputs_));
    this->each_of(team, member, block.rows, grain, [&](std::int64_t begin, std::int64_t end) {
      T* const left = rnn_scratch<T>(kRnnLeft, packed_a_size<T>(at_once * kTileRows, columns_));
      const Tiles<T> tiles(end - begin);
      for (std::int64_t t = 0; t < tiles.count; t += at_once)
        input_gradient(block, begin, tiles, t, std::min(t + at_once, tiles.count), left);
    });
  }
  /// Of tiles [t0, t1) of the rows from `first` on.
  void input_gradient(const Block& block, std::int64_t first, const Tiles<T>& tiles, std::int64_t t0, std::int64_t t1,
                      T* left) const {
    const std::int64_t row = tiles.begin(t0);
    for (std::int64_t i = 0; i < groups_; ++i) {
      const Group u = this->group(i);
      for (std::int64_t g = 0; g < gates_; ++g)
        pack_steps<T>(panel(block, g, u) + (first + row) * u.w, u.w, tiles, t0, t1, u.n, columns_, g * hidden_ + u.u,
                      this->units_after(i, groups_), left);
    }
    HWY_ALIGN T edge[kTileRows * kTileCols<T>];
    for (std::int64_t q = 0; q < inputs_; q += kCols) {
      const int w = panel_width<T>(inputs_, q);
      for (std::int64_t t = t0; t < t1; ++t) {
        const int m = tiles.height(t);
        T* const out = static_cast<T*>(b_.dinput) + (block.low + first + tiles.begin(t)) * inputs_ + q;
        const bool whole = inputs_ - q >= w;
        tiles.multiply(t, columns_, left + (tiles.begin(t) - row) * columns_, packed_ih_.data() + q * columns_, w,
                       nullptr, whole ? out : edge, whole ? inputs_ : w);
        for (int r = 0; !whole && r < m; ++r) std::copy_n(edge + r * w, inputs_ - q, out + r * inputs_);
      }
    }
  }

  /// Packs the left operands of the products that give the weights' gradients.
  void pack_left(const Block& block, const Team& team, int member) const {
    for (const Weight& w : weights_) {
      const auto begin = [&](std::int64_t t) { return w.tiles.begin(t); };
      const std::int64_t grain = rnn_grain(kTileRows * block.rows);
      this->each_of(team, member, w.tiles.count, grain, [&](std::int64_t t0, std::int64_t t1) {
        pack_a_panels<T>(w.rows + block.low * w.columns + begin(t0), 1, w.columns, block.rows, t0, t1, begin,
                         w.left.at(block.number) + begin(t0) * block.rows);
      });
    }
  }
  /// Adds what the rows of the block contribute.
  void weight_gradients(const Block& block, const Team& team, int member) const {
    const std::int64_t grain = rnn_grain(kCols * columns_ * block.rows);
    this->each_group(team, member, grain, [&](std::int64_t begin, std::int64_t end) {
      for (const Weight& w : weights_)
        for (std::int64_t i = begin; i < end; ++i)
          for (std::int64_t g = 0; g < gates_; ++g) add_gradient(block, w, g, this->group(i));
    });
  }
  HWY_NOINLINE void add_gradient(const Block& block, const Weight& w, std::int64_t g, const Group& u) const {
    const T* const right = panel(block, slot(g, w.of_state), u);
    T* const sums = w.sums.data() + (g * padded_ + u.u) * w.columns;
    w.tiles.add_products(block.rows, w.left.at(block.number), right, u.w, block.number == 0, sums);
  }

  /// The gradients of the first state, of the weights and of the biases.
  void finish(const Team& team, int member, std::int64_t after, std::size_t turn) const {
    this->each_group(team, member, rnn_grain(kCols * columns_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) finish(this->group(i), Tiles<T>(after), left_.at(turn - 1));
    });
  }
  HWY_NOINLINE void finish(const Group& u, const Tiles<T>& after, const T* left) const {
    if (b_.dhx) {
      multiply(u, after, 0, after.count, left, nullptr);
      each_state(u, [&](const T* panel, std::int64_t at) { std::copy_n(panel, u.n, static_cast<T*>(b_.dhx) + at); });
    }
    for (std::int64_t g = 0; g < gates_; ++g) {
      for (const Weight& w : weights_)
        turn_over<T>(w.sums.data() + (g * padded_ + u.u) * w.columns, u.w, w.columns, u.n,
                     w.out + (g * hidden_ + u.u) * w.columns);
      const auto bias = [&](void* to, bool of_state) {
        if (to)
          std::copy_n(sums_.data() + slot(g, of_state) * padded_ + u.u, u.n, static_cast<T*>(to) + g * hidden_ + u.u);
      };
      bias(b_.db_ih, false);
      bias(b_.db_hh, true);
    }
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
