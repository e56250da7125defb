#include "athanor/device/cpu/rnn.h"

#include <algorithm>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/gemm.h"
#include "athanor/device/cpu/host_buffer.h"

namespace athanor {
namespace {

using cpu::HostBuffer;
using cpu::RnnFns;
using cpu::RnnStep;
using cpu::RnnSteps;

const RnnFns& fns_for(DType t) {
  static const RnnFns f32 = cpu::rnn_f32(), f64 = cpu::rnn_f64();
  return t == DType::Double ? f64 : f32;
}

/// Below, packing the weights costs more than it gains.
constexpr std::int64_t kRowsToPack = 16;
/// Multiply-adds that pay for waking a thread.
constexpr std::int64_t kWorkPerTask = 60000;

std::int64_t grain(std::int64_t work) {
  return std::max<std::int64_t>(1, kWorkPerTask / std::max<std::int64_t>(work, 1));
}

template <class T>
constexpr DType dtype_of = std::is_same_v<T, double> ? DType::Double : DType::Float;

/// c (m × n) = a @ b, plus rows of `bias` unless null (`bias_row` 0: one for all; c itself: adds to it).
template <class T>
struct Product {
  std::int64_t m, n, k;
  const T* a;
  std::int64_t a_row, a_col;
  const T* b;
  std::int64_t b_row, b_col;
  T* c;
  const T* bias = nullptr;
  std::int64_t bias_row = 0;
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
    if (bias) {
      g.bias = bias;
      g.bias_row = bias_row;
      g.bias_col = 1;
      g.beta = 1;
    }
    gemm(g);
  }
};

template <class T>
T* pointer(const View& v) {
  return v.defined() ? v.ptr<T>() : nullptr;
}
template <class T>
T* at(T* p, std::int64_t row, std::int64_t columns) {
  return p ? p + row * columns : nullptr;
}

/// The operands of a layer.
template <class T>
struct Layer {
  Layer(const View& input, const View& w_ih, const View& w_hh, const View& w_hr, IntArrayRef batch_sizes, RnnMode mode,
        bool reverse)
      : mode(mode),
        steps(batch_sizes, reverse),
        gates(rnn_gates(mode)),
        inputs(w_ih.size(1)),
        hidden(w_hh.size(0) / gates),
        state(w_hh.size(1)),
        columns(gates * hidden),
        work_columns(rnn_work_columns(mode, hidden, state)),
        input(input.ptr<const T>()),
        w_ih(w_ih.ptr<const T>()),
        w_hh(w_hh.ptr<const T>()),
        w_hr(pointer<const T>(w_hr)) {}

  bool packs() const { return !w_hr && hidden > 0 && steps.total >= kRowsToPack; }
  void describe(cpu::RnnLayer& l) const {
    l.mode = mode;
    l.steps = &steps;
    l.inputs = inputs;
    l.hidden = hidden;
    l.input = input;
    l.w_ih = w_ih;
    l.w_hh = w_hh;
  }
  RnnStep step() const {
    RnnStep s;
    s.mode = mode;
    s.hidden = hidden;
    s.work_columns = work_columns;
    return s;
  }

  RnnMode mode;
  RnnSteps steps;
  std::int64_t gates, inputs, hidden, state, columns, work_columns;
  const T *input, *w_ih, *w_hh, *w_hr;
};

// ---- few rows, or a layer that projects: products by gemm ----

template <class T>
class ForwardByRows {
 public:
  ForwardByRows(const Layer<T>& layer, const T* bias, const T* b_hh, T* h, T* c, T* output, T* work)
      : z_(layer),
        h_(h),
        output_(output),
        work_(work),
        given_(z_.steps.total * z_.columns),
        room_(z_.steps.batch * (z_.columns + z_.hidden)),
        step_(z_.step()) {
    step_.bias = b_hh;
    step_.product = room_.data();
    step_.h = h;
    step_.c = c;
    Product<T>{z_.steps.total, z_.columns, z_.inputs, z_.input,      z_.inputs, 1,
               z_.w_ih,        1,          z_.inputs, given_.data(), bias}
        .run();
  }

  void run() {
    for (std::size_t k = 0; k < z_.steps.count(); ++k) {
      const std::int64_t first = z_.steps.first[k];
      step_.work = at(work_, first, z_.work_columns);
      step_.given = given_.data() + first * z_.columns;
      step_.output = output_ + first * z_.state;
      step(z_.steps.rows[k]);
    }
  }

 private:
  void step(std::int64_t rows) {
    const std::int64_t p = z_.state;
    Product<T>{rows, z_.columns, p, h_, p, 1, z_.w_hh, 1, p, room_.data()}.run();
    T* const unprojected = room_.data() + z_.steps.batch * z_.columns;
    if (z_.w_hr) step_.unprojected = unprojected;
    parallel_for(0, rows, grain(z_.columns * 16),
                 [&](std::int64_t begin, std::int64_t end) { fns_for(dtype_of<T>).forward_rows(step_, begin, end); });
    if (!z_.w_hr) return;
    for (std::int64_t i = 0; step_.work && i < rows; ++i)
      std::copy_n(h_ + i * p, p, static_cast<T*>(step_.work) + (i + 1) * z_.work_columns - p);
    T* const output = static_cast<T*>(step_.output);
    Product<T>{rows, p, z_.hidden, unprojected, z_.hidden, 1, z_.w_hr, 1, z_.hidden, output}.run();
    std::copy_n(output, rows * p, h_);
  }

  const Layer<T>& z_;
  T *const h_, *const output_, *const work_;
  const HostBuffer<T> given_, room_;
  RnnStep step_;
};

/// Where the gradients of a layer go; dh and dc hold those of the last states and receive those of the first. The
/// others may be null.
template <class T>
struct Gradients {
  T *input, *dh, *dc, *w_ih, *w_hh, *b_ih, *b_hh, *w_hr;
};

template <class T>
class BackwardByRows {
 public:
  BackwardByRows(const Layer<T>& layer, const Gradients<T>& to, const T* doutput, T* work)
      : z_(layer),
        to_(to),
        doutput_(doutput),
        work_(work),
        dgates_(z_.steps.total * z_.columns),
        own_(z_.mode == RnnMode::Gru ? z_.steps.total * z_.columns : 0),
        projected_(z_.w_hr ? z_.steps.total * (z_.state + z_.hidden) + z_.steps.batch * z_.hidden : 0),
        slopes_(own_.data() ? own_.data() : dgates_.data()),
        step_(z_.step()) {}

  void run() {
    step_.dc = to_.dc;
    for (std::size_t k = z_.steps.count(); k-- > 0;) {
      const std::int64_t first = z_.steps.first[k], rows = z_.steps.rows[k];
      step_.work = work_ + first * z_.work_columns;
      step_.dgates = dgates_.data() + first * z_.columns;
      step_.slopes = slopes_ + first * z_.columns;
      step_.doutput = at(doutput_, first, z_.state);
      step_.dh = to_.dh;
      if (z_.w_hr) unproject(first, rows);
      parallel_for(0, rows, grain(z_.columns * 16), [&](std::int64_t begin, std::int64_t end) {
        fns_for(dtype_of<T>).backward_rows(step_, begin, end);
      });
      Product<T>{rows,   z_.state, z_.columns, static_cast<const T*>(step_.slopes), z_.columns, 1, z_.w_hh, z_.state, 1,
                 to_.dh, to_.dh,   z_.state}
          .run();
    }
    products();
  }

 private:
  T* cells() const { return projected_.data() + z_.steps.total * z_.state; }

  /// From the gradient of the state to that of what was projected to it.
  void unproject(std::int64_t first, std::int64_t rows) {
    const std::int64_t p = z_.state;
    T* const all = projected_.data() + first * p;
    const auto* up = static_cast<const T*>(step_.doutput);
    for (std::int64_t i = 0; i < rows * p; ++i) all[i] = to_.dh[i] + (up ? up[i] : T(0));
    T* const unprojected = cells() + z_.steps.total * z_.hidden;
    Product<T>{rows, z_.hidden, p, all, p, 1, z_.w_hr, z_.hidden, 1, unprojected}.run();
    step_.dh = unprojected;
    step_.doutput = nullptr;
    step_.cells = cells() + first * z_.hidden;
    std::fill_n(to_.dh, rows * p, T(0));
  }

  /// Gradients for all steps at once.
  void products() const {
    const std::int64_t columns = z_.columns, total = z_.steps.total, p = z_.state, in = z_.inputs;
    const T* const dgates = dgates_.data();
    if (to_.input) Product<T>{total, in, columns, dgates, columns, 1, z_.w_ih, in, 1, to_.input}.run();
    if (to_.w_ih) Product<T>{columns, in, total, dgates, 1, columns, z_.input, in, 1, to_.w_ih}.run();
    if (to_.w_hh)
      Product<T>{columns, p, total, slopes_, 1, columns, work_ + z_.work_columns - p, z_.work_columns, 1, to_.w_hh}
          .run();
    const HostBuffer<T> ones(to_.b_ih || to_.b_hh ? total : 0);
    std::fill_n(ones.data(), ones.data() ? total : 0, T(1));
    if (to_.b_ih) Product<T>{1, columns, total, ones.data(), total, 1, dgates, columns, 1, to_.b_ih}.run();
    if (to_.b_hh) Product<T>{1, columns, total, ones.data(), total, 1, slopes_, columns, 1, to_.b_hh}.run();
    if (to_.w_hr) Product<T>{p, z_.hidden, total, projected_.data(), 1, p, cells(), z_.hidden, 1, to_.w_hr}.run();
  }

  const Layer<T>& z_;
  const Gradients<T> to_;
  const T* const doutput_;
  T* const work_;
  const HostBuffer<T> dgates_, own_, projected_;
  T* const slopes_;
  RnnStep step_;
};

// ---- the kernels ----

/// to = from, or zeros if there is none.
template <class T>
void start_with(T* to, std::int64_t count, const View& from) {
  if (from.defined())
    std::copy_n(from.ptr<const T>(), count, to);
  else
    std::fill_n(to, count, T(0));
}

template <class T>
HostBuffer<T> sum_of(const View& a, const View& b) {
  HostBuffer<T> out(a.numel);
  for (std::int64_t i = 0; i < a.numel; ++i) out[i] = a.ptr<const T>()[i] + b.ptr<const T>()[i];
  return out;
}

void rnn_sequence_cpu(const View& output, const View& hy, const View& cy, const View& work, const View& input,
                      const View& hx, const View& cx, const View& w_ih, const View& w_hh, const View& b_ih,
                      const View& b_hh, const View& w_hr, IntArrayRef batch_sizes, RnnMode mode, bool reverse) {
  const auto run = [&]<class T>(T) {
    const Layer<T> layer(input, w_ih, w_hh, w_hr, batch_sizes, mode, reverse);
    T *const h = hy.ptr<T>(), *const c = pointer<T>(cy);
    start_with<T>(h, hy.numel, hx);
    if (c) start_with<T>(c, cy.numel, cx);
    // GRU's second bias is multiplied by a gate; elsewhere both are added to the same sums.
    const bool apart = mode == RnnMode::Gru, both = b_ih.defined() && b_hh.defined() && !apart;
    const HostBuffer<T> sum = both ? sum_of<T>(b_ih, b_hh) : HostBuffer<T>();
    const T *const bias = both ? sum.data() : pointer<const T>(b_ih), *const apart_bias =
                                                                          apart ? pointer<const T>(b_hh) : nullptr;
    if (!layer.packs()) return ForwardByRows<T>(layer, bias, apart_bias, h, c, output.ptr<T>(), pointer<T>(work)).run();
    cpu::RnnForward f;
    layer.describe(f);
    f.bias = bias;
    f.b_hh = apart_bias;
    f.h = h;
    f.c = c;
    f.output = output.ptr<T>();
    f.work = pointer<T>(work);
    fns_for(dtype_of<T>).forward(f);
  };
  input.dtype == DType::Double ? run(double()) : run(float());
}

void rnn_sequence_backward_cpu(const View& dinput, const View& dhx, const View& dcx, const View& dw_ih,
                               const View& dw_hh, const View& db_ih, const View& db_hh, const View& dw_hr,
                               const View& doutput, const View& dhy, const View& dcy, const View& work,
                               const View& input, const View& w_ih, const View& w_hh, const View& w_hr,
                               IntArrayRef batch_sizes, RnnMode mode, bool reverse) {
  const auto run = [&]<class T>(T) {
    const Layer<T> layer(input, w_ih, w_hh, w_hr, batch_sizes, mode, reverse);
    const std::int64_t cells = mode == RnnMode::Lstm ? layer.steps.batch * layer.hidden : 0;
    const HostBuffer<T> own_dc(dcx.defined() ? 0 : cells);
    T* const dc = dcx.defined() ? dcx.ptr<T>() : own_dc.data();
    if (dc) start_with<T>(dc, cells, dcy);
    if (layer.packs()) {
      cpu::RnnBackward b;
      layer.describe(b);
      b.work = work.ptr<const T>();
      b.doutput = pointer<const T>(doutput);
      b.dhy = pointer<const T>(dhy);
      b.dhx = pointer<T>(dhx);
      b.dc = dc;
      b.dinput = pointer<T>(dinput);
      b.dw_ih = pointer<T>(dw_ih);
      b.dw_hh = pointer<T>(dw_hh);
      b.db_ih = pointer<T>(db_ih);
      b.db_hh = pointer<T>(db_hh);
      return fns_for(dtype_of<T>).backward(b);
    }
    const std::int64_t states = layer.steps.batch * layer.state;
    const HostBuffer<T> own_dh(dhx.defined() ? 0 : states);
    T* const dh = dhx.defined() ? dhx.ptr<T>() : own_dh.data();
    start_with<T>(dh, states, dhy);
    const Gradients<T> to{
        pointer<T>(dinput), dh, dc, pointer<T>(dw_ih), pointer<T>(dw_hh), pointer<T>(db_ih), pointer<T>(db_hh),
        pointer<T>(dw_hr)};
    BackwardByRows<T>(layer, to, pointer<const T>(doutput), work.ptr<T>()).run();
  };
  work.dtype == DType::Double ? run(double()) : run(float());
}

ATHANOR_REGISTER_KERNEL(rnn_sequence_kernel, CPU, &rnn_sequence_cpu);
ATHANOR_REGISTER_KERNEL(rnn_sequence_backward_kernel, CPU, &rnn_sequence_backward_cpu);

}  // namespace

cpu::RnnSteps::RnnSteps(IntArrayRef batch_sizes, bool reverse) : batch(batch_sizes.empty() ? 0 : batch_sizes[0]) {
  for (const std::int64_t n : batch_sizes) {
    rows.push_back(n);
    first.push_back(total);
    total += n;
  }
  if (!reverse) return;
  std::reverse(rows.begin(), rows.end());
  std::reverse(first.begin(), first.end());
}

}  // namespace athanor
