#include "athanor/device/cpu/rnn.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/gemm.h"
#include "athanor/device/cpu/host_buffer.h"

namespace athanor {
namespace {

using cpu::HostBuffer;
using cpu::RnnFns;
using cpu::RnnStep;

const RnnFns& fns_for(DType t) {
  static const RnnFns f32 = cpu::rnn_f32(), f64 = cpu::rnn_f64();
  return t == DType::Double ? f64 : f32;
}

/// Below, packing the weights costs more than it gains.
constexpr std::int64_t kRowsToPack = 16;
/// Multiply-adds that pay for waking a thread.
constexpr std::int64_t kWorkPerTask = 60000;

/// The steps in the order in which the layer takes them.
struct Steps {
  Steps(IntArrayRef batch_sizes, bool reverse) {
    for (const std::int64_t n : batch_sizes) {
      rows.push_back(n);
      first.push_back(total);
      total += n;
    }
    if (!reverse) return;
    std::reverse(rows.begin(), rows.end());
    std::reverse(first.begin(), first.end());
  }
  std::size_t count() const { return rows.size(); }
  std::vector<std::int64_t> rows, first;
  std::int64_t total = 0;
};

std::int64_t grain(std::int64_t work) {
  return std::max<std::int64_t>(1, kWorkPerTask / std::max<std::int64_t>(work, 1));
}

template <class T>
constexpr DType dtype_of = std::is_same_v<T, double> ? DType::Double : DType::Float;

/// c (m × n) = a @ b, or c += a @ b; rows `a_row`, `b_row` apart unless a step along the inner dim is given for a or b.
template <class T>
struct Product {
  std::int64_t m, n, k;
  const T* a;
  std::int64_t a_row, a_col;
  const T* b;
  std::int64_t b_row, b_col;
  T* c;
  bool add = false;
  void run() const {
    GemmProblem g;
    g.dtype = dtype_of<T>;
    g.m = m;
    g.n = n;
    g.k = k;
    g.a = a;
    g.a_row = a_row;
    g.a_col = a_col;
    g.b = b;
    g.b_row = b_row;
    g.b_col = b_col;
    g.c = c;
    g.c_row = n;
    g.c_col = 1;
    if (add) {
      g.bias = c;
      g.bias_row = n;
      g.bias_col = 1;
      g.beta = 1;
    }
    gemm(g);
  }
};

template <class T>
const T* at(const View& v, std::int64_t row, std::int64_t columns) {
  return v.defined() ? v.ptr<const T>() + row * columns : nullptr;
}
template <class T>
T* at(T* p, std::int64_t row, std::int64_t columns) {
  return p ? p + row * columns : nullptr;
}

template <class T>
struct Sizes {
  Sizes(RnnMode mode, const View& w_hh, const View& w_hr, IntArrayRef batch_sizes)
      : gates(rnn_gates(mode)),
        hidden(w_hh.size(0) / gates),
        state(w_hh.size(1)),
        batch(batch_sizes.empty() ? 0 : batch_sizes[0]),
        projects(w_hr.defined()),
        columns(rnn_work_columns(mode, hidden, state)) {}
  std::int64_t gates, hidden, state, batch;
  bool projects;
  std::int64_t columns;
};

template <class T>
class ForwardLayer {
 public:
  ForwardLayer(const View& output, const View& work, const View& gates, const View& w_hh, const View& b_hh,
               const View& w_hr, IntArrayRef batch_sizes, RnnMode mode, bool reverse)
      : fns_(fns_for(dtype_of<T>)),
        z_(mode, w_hh, w_hr, batch_sizes),
        steps_(batch_sizes, reverse),
        packs_(!z_.projects && steps_.total >= kRowsToPack),
        output_(output),
        work_(work),
        gates_(gates),
        w_hh_(w_hh.ptr<const T>()),
        w_hr_(z_.projects ? w_hr.ptr<const T>() : nullptr) {
    step_.mode = mode;
    step_.hidden = z_.hidden;
    step_.state = z_.state;
    step_.work_columns = z_.columns;
    step_.bias = b_hh.defined() ? b_hh.data : nullptr;
  }

  /// `h` holds the first state and receives the last, as does c.
  void run(T* h, T* c) {
    const std::int64_t size = z_.batch * z_.state;
    const HostBuffer<T> other(size),
        room(packs_ ? fns_.packed_size(z_.gates, z_.hidden, z_.state) : z_.batch * z_.hidden * (z_.gates + 1));
    if (packs_) fns_.pack_forward(w_hh_, z_.gates, z_.hidden, z_.state, room.data());
    T *now = h, *next = other.data();
    for (std::size_t k = 0; k < steps_.count(); ++k, std::swap(now, next)) {
      const std::int64_t rows = steps_.rows[k], first = steps_.first[k];
      step_.rows = rows;
      step_.work = at(work_.defined() ? work_.ptr<T>() : nullptr, first, z_.columns);
      step_.gates = at<T>(gates_, first, z_.gates * z_.hidden);
      step_.output = at(output_.ptr<T>(), first, z_.state);
      step_.h = now;
      step_.h_next = next;
      step_.c = c;
      packs_ ? packed(room.data()) : plain(room.data());
      std::copy(now + rows * z_.state, now + size, next + rows * z_.state);  // sequences that rest
    }
    if (now != h) std::copy_n(now, size, h);
  }

 private:
  void packed(const T* weights) {
    step_.packed = weights;
    const std::int64_t groups = (z_.hidden + fns_.units - 1) / fns_.units;
    parallel_for(0, groups, grain(step_.rows * fns_.units * z_.gates * z_.state),
                 [&](std::int64_t begin, std::int64_t end) { fns_.forward(step_, begin, end); });
  }

  void plain(T* room) {
    const std::int64_t rows = step_.rows, columns = z_.gates * z_.hidden, p = z_.state;
    const auto* h = static_cast<const T*>(step_.h);
    Product<T>{rows, columns, p, h, p, 1, w_hh_, 1, p, room}.run();
    T* const unprojected = room + z_.batch * columns;
    if (z_.projects) step_.unprojected = unprojected;
    parallel_for(0, rows, grain(columns * 16),
                 [&](std::int64_t begin, std::int64_t end) { fns_.forward_rows(step_, room, begin, end); });
    if (!z_.projects) return;
    Product<T>{rows, p, z_.hidden, unprojected, z_.hidden, 1, w_hr_, 1, z_.hidden, static_cast<T*>(step_.output)}.run();
    std::copy_n(static_cast<const T*>(step_.output), rows * p, static_cast<T*>(step_.h_next));
    if (!step_.work) return;
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy_n(h + i * p, p, static_cast<T*>(step_.work) + (i + 1) * z_.columns - p);
  }

  const RnnFns& fns_;
  const Sizes<T> z_;
  const Steps steps_;
  const bool packs_;
  const View &output_, &work_, &gates_;
  const T *w_hh_, *w_hr_;
  RnnStep step_;
};

/// Where the gradients of a layer go.
template <class T>
struct Gradients {
  T *dgates, *dh, *dc, *dw_hh, *db_hh, *dw_hr;
};

template <class T>
class BackwardLayer {
 public:
  BackwardLayer(const View& doutput, const View& work, const View& w_hh, const View& w_hr, IntArrayRef batch_sizes,
                RnnMode mode, bool reverse)
      : fns_(fns_for(dtype_of<T>)),
        z_(mode, w_hh, w_hr, batch_sizes),
        steps_(batch_sizes, reverse),
        packs_(!z_.projects && steps_.total >= kRowsToPack),
        doutput_(doutput),
        work_(work.ptr<T>()),
        w_hh_(w_hh.ptr<const T>()),
        w_hr_(z_.projects ? w_hr.ptr<const T>() : nullptr) {
    step_.mode = mode;
    step_.hidden = z_.hidden;
    step_.state = z_.state;
    step_.work_columns = z_.columns;
  }

  /// to.dh and to.dc hold the gradients of the last states and receive those of the first.
  void run(const Gradients<T>& to) {
    const std::int64_t columns = z_.gates * z_.hidden, total = steps_.total;
    const HostBuffer<T> own(step_.mode == RnnMode::Gru ? total * columns : 0);
    slopes_ = own.data() ? own.data() : to.dgates;
    const HostBuffer<T> weights(packs_ ? fns_.packed_size(z_.gates, z_.hidden, z_.state) : 0);
    if (packs_) fns_.pack_backward(w_hh_, z_.gates, z_.hidden, z_.state, weights.data());
    step_.packed = weights.data();
    const HostBuffer<T> projected(z_.projects ? total * (z_.state + z_.hidden) + z_.batch * z_.hidden : 0);
    dstate_ = projected.data();
    cells_ = at(dstate_, total, z_.state);
    step_.dc = to.dc;
    for (std::size_t k = steps_.count(); k-- > 0;) {
      const std::int64_t first = steps_.first[k];
      step_.rows = steps_.rows[k];
      step_.work = work_ + first * z_.columns;
      step_.dgates = to.dgates + first * columns;
      step_.slopes = slopes_ + first * columns;
      step_.doutput = at<T>(doutput_, first, z_.state);
      step_.dh = to.dh;
      packs_ ? packed() : plain(to.dh, first);
      step_.slopes_after = step_.slopes;
      step_.rows_after = step_.rows;
    }
    step_.rows = 0;
    if (packs_ && steps_.count() > 0) packed();
    weight_gradients(to);
  }

 private:
  void packed() {
    const std::int64_t groups = (z_.hidden + fns_.units - 1) / fns_.units;
    const std::int64_t rows = std::max(step_.rows, step_.rows_after);
    parallel_for(0, groups, grain(rows * fns_.units * z_.gates * z_.state),
                 [&](std::int64_t begin, std::int64_t end) { fns_.backward(step_, begin, end); });
  }

  /// The product with the weights at the end rather than at the beginning of a step.
  void plain(T* dh, std::int64_t first) {
    const std::int64_t rows = step_.rows, columns = z_.gates * z_.hidden, p = z_.state;
    if (z_.projects) {
      T* const all = dstate_ + first * p;
      const auto* up = static_cast<const T*>(step_.doutput);
      for (std::int64_t i = 0; i < rows * p; ++i) all[i] = dh[i] + (up ? up[i] : T(0));
      T* const unprojected = cells_ + steps_.total * z_.hidden;
      Product<T>{rows, z_.hidden, p, all, p, 1, w_hr_, z_.hidden, 1, unprojected}.run();
      step_.dh = unprojected;
      step_.doutput = nullptr;
      step_.cells = cells_ + first * z_.hidden;
      std::fill_n(dh, rows * p, T(0));
    }
    parallel_for(0, rows, grain(columns * 16),
                 [&](std::int64_t begin, std::int64_t end) { fns_.backward_rows(step_, begin, end); });
    Product<T>{rows, p, columns, static_cast<const T*>(step_.slopes), columns, 1, w_hh_, p, 1, dh, true}.run();
  }

  void weight_gradients(const Gradients<T>& to) const {
    const std::int64_t columns = z_.gates * z_.hidden, total = steps_.total, p = z_.state;
    if (to.dw_hh)
      Product<T>{columns, p, total, slopes_, 1, columns, work_ + z_.columns - p, z_.columns, 1, to.dw_hh}.run();
    if (to.db_hh) {
      const HostBuffer<T> ones(total);
      std::fill_n(ones.data(), total, T(1));
      Product<T>{1, columns, total, ones.data(), total, 1, slopes_, columns, 1, to.db_hh}.run();
    }
    if (to.dw_hr) Product<T>{p, z_.hidden, total, dstate_, 1, p, cells_, z_.hidden, 1, to.dw_hr}.run();
  }

  const RnnFns& fns_;
  const Sizes<T> z_;
  const Steps steps_;
  const bool packs_;
  const View& doutput_;
  T* work_;
  const T *w_hh_, *w_hr_;
  T *slopes_ = nullptr, *dstate_ = nullptr, *cells_ = nullptr;
  RnnStep step_;
};

/// to = from, or zeros if there is none.
template <class T>
T* start_with(const View& to, const View& from) {
  if (!to.defined()) return nullptr;
  T* const p = to.ptr<T>();
  if (from.defined())
    std::copy_n(from.ptr<const T>(), to.numel, p);
  else
    std::fill_n(p, to.numel, T(0));
  return p;
}
template <class T>
T* pointer(const View& v) {
  return v.defined() ? v.ptr<T>() : nullptr;
}

void rnn_sequence_cpu(const View& output, const View& hy, const View& cy, const View& work, const View& gates,
                      const View& hx, const View& cx, const View& w_hh, const View& b_hh, const View& w_hr,
                      IntArrayRef batch_sizes, RnnMode mode, bool reverse) {
  const auto run = [&]<class T>(T) {
    ForwardLayer<T> layer(output, work, gates, w_hh, b_hh, w_hr, batch_sizes, mode, reverse);
    layer.run(start_with<T>(hy, hx), start_with<T>(cy, cx));
  };
  gates.dtype == DType::Double ? run(double()) : run(float());
}

void rnn_sequence_backward_cpu(const View& dgates, const View& dhx, const View& dcx, const View& dw_hh,
                               const View& db_hh, const View& dw_hr, const View& doutput, const View& dhy,
                               const View& dcy, const View& work, const View& w_hh, const View& w_hr,
                               IntArrayRef batch_sizes, RnnMode mode, bool reverse) {
  const auto run = [&]<class T>(T) {
    BackwardLayer<T> layer(doutput, work, w_hh, w_hr, batch_sizes, mode, reverse);
    layer.run({dgates.ptr<T>(), start_with<T>(dhx, dhy), start_with<T>(dcx, dcy), pointer<T>(dw_hh), pointer<T>(db_hh),
               pointer<T>(dw_hr)});
  };
  work.dtype == DType::Double ? run(double()) : run(float());
}

ATHANOR_REGISTER_KERNEL(rnn_sequence_kernel, CPU, &rnn_sequence_cpu);
ATHANOR_REGISTER_KERNEL(rnn_sequence_backward_kernel, CPU, &rnn_sequence_backward_cpu);

}  // namespace
}  // namespace athanor
