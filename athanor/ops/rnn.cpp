// Recurrent layers: RNN, LSTM, GRU over padded and packed sequences, and their cells. A layer in one direction is one
// op.
#include "athanor/ops/rnn.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/join.h"
#include "athanor/ops/norm_op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/random.h"
#include "athanor/ops/rnn_op.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

const char* name_of(RnnMode m) {
  constexpr const char* names[] = {"rnn_tanh", "rnn_relu", "lstm", "gru"};
  return names[static_cast<int>(m)];
}

/// The sizes of one layer's parameters.
void check_weights(const char* op, const Tensor& input, const Tensor& w_ih, const Tensor& w_hh,
                   std::initializer_list<const Tensor*> biases) {
  ATHANOR_CHECK(w_ih.dim() == 2 && w_hh.dim() == 2 && w_ih.size(0) == w_hh.size(0), op,
                ": expected matrices w_ih and w_hh with a row for each gate of each hidden unit, got shapes ",
                w_ih.sizes(), " and ", w_hh.sizes());
  ATHANOR_CHECK(input.size(1) == w_ih.size(1), op, ": mat1 and mat2 shapes cannot be multiplied (", input.size(0), "x",
                input.size(1), " and ", w_ih.size(1), "x", w_ih.size(0),
                "); the last size of the input must be w_ih's");
  for (const Tensor* b : biases)
    ATHANOR_CHECK(!b->defined() || (b->dim() == 1 && b->size(0) == w_hh.size(0)), op, ": expected a bias of shape [",
                  w_hh.size(0), "], got ", b->sizes());
}

}  // namespace

/// The inputs of _rnn_sequence in its order.
enum RnnInput : std::size_t { kInput, kHx, kCx, kWih, kWhh, kBih, kBhh, kWhr, kRnnInputs };

/// Gradients of _rnn_sequence with respect to those of its inputs whose bits `wanted` has; the others are undefined.
struct RnnSequenceBackward {
  ATHANOR_OP(
      "_rnn_sequence_backward(Tensor? doutput, Tensor? dhy, Tensor? dcy, Tensor work, Tensor input, Tensor w_ih, "
      "Tensor w_hh, Tensor? w_hr, int[] batch_sizes, int mode, bool reverse, int wanted) -> (Tensor, Tensor, Tensor, "
      "Tensor, Tensor, Tensor, Tensor, Tensor) | function");
  DimVector batch_sizes;
  std::int64_t mode, wanted;
  bool reverse;
  std::array<Meta, kRnnInputs> infer(const Tensor&, const Tensor&, const Tensor&, const Tensor& work,
                                     const Tensor& input, const Tensor& w_ih, const Tensor& w_hh, const Tensor& w_hr) {
    const std::int64_t columns = w_hh.size(0), batch = batch_sizes[0];
    const std::int64_t hidden = columns / rnn_gates(static_cast<RnnMode>(mode));
    const auto meta = [&](RnnInput i, DimVector sizes) {
      return wanted >> i & 1 ? Meta{std::move(sizes), work.dtype(), work.device(), {}} : Meta{};
    };
    return {meta(kInput, DimVector(input.sizes())),
            meta(kHx, {batch, w_hh.size(1)}),
            meta(kCx, {batch, hidden}),
            meta(kWih, DimVector(w_ih.sizes())),
            meta(kWhh, DimVector(w_hh.sizes())),
            meta(kBih, {columns}),
            meta(kBhh, {columns}),
            meta(kWhr, w_hr.defined() ? DimVector(w_hr.sizes()) : DimVector())};
  }
  void run(const Tensor& dinput, const Tensor& dhx, const Tensor& dcx, const Tensor& dw_ih, const Tensor& dw_hh,
           const Tensor& db_ih, const Tensor& db_hh, const Tensor& dw_hr, const Tensor& doutput, const Tensor& dhy,
           const Tensor& dcy, const Tensor& work, const Tensor& input, const Tensor& w_ih, const Tensor& w_hh,
           const Tensor& w_hr) {
    launch<kRnnInputs>(rnn_sequence_backward_kernel, dinput, dhx, dcx, dw_ih, dw_hh, db_ih, db_hh, dw_hr, doutput, dhy,
                       dcy, work, input, w_ih, w_hh, w_hr, IntArrayRef(batch_sizes), static_cast<RnnMode>(mode),
                       reverse);
  }
};

/// One recurrent layer in one direction over a packed sequence; kernels/rnn.h says what is what. Results: output, hy,
/// cy (LSTM only), and what the backward pass needs.
struct RnnSequence {
  ATHANOR_OP(
      "_rnn_sequence(Tensor input, Tensor hx, Tensor? cx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, "
      "Tensor? w_hr, int[] batch_sizes, int mode, bool reverse) -> (Tensor, Tensor, Tensor, Tensor) | function");
  DimVector batch_sizes;
  std::int64_t mode;
  bool reverse;
  std::int64_t features = 0;
  SavedTensor saved_[kRnnInputs], work_;
  void prepare(Tensor& input, Tensor& hx, Tensor& cx, Tensor& w_ih, Tensor& w_hh, Tensor& b_ih, Tensor& b_hh,
               Tensor& w_hr) {
    for (Tensor* t : {&input, &hx, &cx, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr}) *t = dense(*t);
  }
  std::array<Meta, 4> infer(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih,
                            const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr) {
    const RnnMode m = static_cast<RnnMode>(mode);
    const std::int64_t state = w_hh.size(1), hidden = w_hh.size(0) / rnn_gates(m), total = input.size(0);
    check_weights(name_of(m), input, w_ih, w_hh, {&b_ih, &b_hh});
    features = input.size(1);
    bool recorded = false;
    for (const Tensor* t : {&input, &hx, &cx, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr}) recorded = recorded || wants_grad(*t);
    const auto meta = [&](bool given, DimVector sizes) {
      return given ? Meta{std::move(sizes), input.dtype(), input.device(), {}} : Meta{};
    };
    return {meta(true, {total, state}), meta(true, {batch_sizes[0], state}),
            meta(cx.defined(), {batch_sizes[0], hidden}),
            meta(recorded && GradMode::is_enabled(), {total, rnn_work_columns(m, hidden, state)})};
  }
  void run(const Tensor& output, const Tensor& hy, const Tensor& cy, const Tensor& work, const Tensor& input,
           const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
           const Tensor& b_hh, const Tensor& w_hr) {
    launch<4>(rnn_sequence_kernel, output, hy, cy, work, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr,
              IntArrayRef(batch_sizes), static_cast<RnnMode>(mode), reverse);
  }
  void save(const Node&, const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih,
            const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr) {
    const Tensor* all[] = {&input, &hx, &cx, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr};
    for (std::size_t i = 0; i < kRnnInputs; ++i)
      if (all[i]->defined()) saved_[i].save(*all[i]);
  }
  void save_results(Node* n, const Tensor&, const Tensor&, const Tensor&, const Tensor& work) {
    work_.save_result(work, n);
  }
  void grad(GradCall& g) {
    const auto saved = [&](RnnInput i) { return saved_[i].defined() ? g.get(saved_[i]) : Tensor(); };
    const auto up = [&](std::size_t i) { return g.has(i) ? dense(g.grad(i)) : Tensor(); };
    RnnInputs d;
    if (GradMode::is_enabled()) {
      const RnnInputs in{saved(kInput), saved(kHx),  saved(kCx),  saved(kWih),
                         saved(kWhh),   saved(kBih), saved(kBhh), saved(kWhr)};
      d = composed_rnn_gradient(in, {up(0), up(1), up(2)}, batch_sizes, static_cast<RnnMode>(mode), reverse);
    } else {
      std::int64_t wanted = 0;
      for (std::size_t i = 0; i < kRnnInputs; ++i) wanted |= std::int64_t(saved_[i].defined() && g.needs(i)) << i;
      const Tensor work = g.get(work_), w_hh = saved(kWhh);
      // The input is read for w_ih's gradient alone, and w_ih for the input's: else anything of that shape will do, and
      // the tensor may have changed.
      const auto read_for = [&](RnnInput result, RnnInput i, std::int64_t rows) {
        return wanted >> result & 1 ? saved(i) : detail::alias(work, {rows, features}, {0, 0}, work.storage_offset());
      };
      std::tie(d.input, d.hx, d.cx, d.w_ih, d.w_hh, d.b_ih, d.b_hh, d.w_hr) = _rnn_sequence_backward(
          up(0), up(1), up(2), work, read_for(kWih, kInput, work.size(0)), read_for(kInput, kWih, w_hh.size(0)), w_hh,
          saved(kWhr), batch_sizes, mode, reverse, wanted);
    }
    const Tensor* all[] = {&d.input, &d.hx, &d.cx, &d.w_ih, &d.w_hh, &d.b_ih, &d.b_hh, &d.w_hr};
    for (std::size_t i = 0; i < kRnnInputs; ++i)
      if (g.needs(i)) g.set(i, *all[i]);
  }
};

namespace {

struct LayerWeights {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;
};

/// Everything a call of a whole stack of layers needs.
struct Stack {
  RnnMode mode;
  std::int64_t num_layers;
  double dropout;
  bool has_biases, train, bidirectional;
  std::int64_t directions() const { return bidirectional ? 2 : 1; }

  LayerWeights weights(TensorList params, std::int64_t at, bool projects) const {
    const std::int64_t each = 2 + 2 * has_biases + projects;
    const auto get = [&](std::int64_t i) { return params[static_cast<std::size_t>(at * each + i)]; };
    LayerWeights w{get(0), get(1), {}, {}, {}};
    if (has_biases) {
      w.b_ih = get(2);
      w.b_hh = get(3);
    }
    if (projects) w.w_hr = get(each - 1);
    return w;
  }

  void check(TensorList hx, TensorList params, bool projects, std::int64_t batch) const {
    const char* op = name_of(mode);
    const std::int64_t each = 2 + 2 * has_biases + projects, layers = num_layers * directions();
    ATHANOR_CHECK(num_layers > 0, op, ": num_layers must be positive, got ", num_layers);
    ATHANOR_CHECK(static_cast<std::int64_t>(params.size()) == layers * each, op, ": got ", params.size(),
                  " parameters, expected ", layers * each, " (", each, " for each of ", num_layers, " layers and ",
                  directions(), " directions)");
    const std::int64_t hidden = params[1].size(0) / rnn_gates(mode), state = params[1].size(1);
    for (std::size_t i = 0; i < hx.size(); ++i) {
      const DimVector expected{layers, batch, i == 0 ? state : hidden};
      ATHANOR_CHECK(hx[i].sizes() == IntArrayRef(expected), op, ": Expected hidden[", i, "] size ", expected, ", got ",
                    hx[i].sizes());
    }
  }

  /// input (rows, features), packed. Gives the last layer's output and the layers' last states.
  std::tuple<Tensor, Tensor, Tensor> run(Tensor input, IntArrayRef batch_sizes, TensorList hx, TensorList params,
                                         bool projects) const {
    check(hx, params, projects, batch_sizes[0]);
    std::vector<Tensor> hy, cy;
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      std::vector<Tensor> outputs;
      for (std::int64_t d = 0; d < directions(); ++d) {
        const std::int64_t at = layer * directions() + d;
        const LayerWeights w = weights(params, at, projects);
        auto [out, h, c] =
            one(input, select(hx[0], 0, at), hx.size() > 1 ? select(hx[1], 0, at) : Tensor(), w, batch_sizes, d == 1);
        outputs.push_back(out);
        hy.push_back(h);
        cy.push_back(c);
      }
      input = outputs.size() == 1 ? outputs[0] : cat(TensorList(outputs), 1);
      if (dropout > 0 && train && layer + 1 < num_layers) input = athanor::ops::dropout(input, dropout, true);
    }
    return {input, stack(TensorList(hy), 0), mode == RnnMode::Lstm ? stack(TensorList(cy), 0) : Tensor()};
  }

  std::tuple<Tensor, Tensor, Tensor> one(const Tensor& input, const Tensor& h, const Tensor& c, const LayerWeights& w,
                                         IntArrayRef batch_sizes, bool reverse) const {
    auto [out, hy, cy, work] = _rnn_sequence(input, h, c, w.w_ih, w.w_hh, w.b_ih, w.b_hh, w.w_hr, batch_sizes,
                                             static_cast<std::int64_t>(mode), reverse);
    return {out, hy, cy};
  }
};

/// float32 for half types, which are computed in it.
struct Computed {
  Computed(const Tensor& input, TensorList hx_, TensorList params_) : from(input.dtype()) {
    const DType t = is_half(from) ? DType::Float : from;
    x = cast(input, t);
    for (const Tensor& h : hx_) hx.push_back(cast(h, t));
    for (const Tensor& p : params_) params.push_back(cast(p, t));
  }
  DType from;
  Tensor x;
  std::vector<Tensor> hx, params;
};

/// The operands as a recurrent op takes them inside an autocast region, which it leaves for its scope.
struct Lowered {
  Lowered(const Tensor& input, TensorList hx_, TensorList params_) : x(low(input)) {
    for (const Tensor& h : hx_) hx.push_back(low(h));
    for (const Tensor& p : params_) params.push_back(low(p));
    off.emplace(false);
  }
  static Tensor low(const Tensor& t) { return t.defined() ? autocast_operand(t, AutocastTo::Lower) : t; }
  Tensor x;
  std::vector<Tensor> hx, params;
  std::optional<autocast::AutocastGuard> off;
};

void check_types(const char* op, const Tensor& input, TensorList hx, TensorList params, std::size_t states) {
  ATHANOR_CHECK(input.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK_TYPE(NotImplementedError, input.is_floating_point(), op, ": not implemented for ",
                     dtype_name(input.dtype()), "; expected a floating dtype");
  ATHANOR_CHECK(hx.size() == states, op, " expects ", states, states == 1 ? " hidden state" : " hidden states",
                ", got ", hx.size());
  ATHANOR_CHECK(params.size() >= 2, op, ": got ", params.size(), " parameters, expected w_ih, w_hh and so on");
  for (const TensorList& list : {hx, params})
    for (const Tensor& t : list) {
      ATHANOR_CHECK(t.defined(), op, ": expected hidden states and parameters, got an undefined tensor");
      ATHANOR_CHECK(t.dtype() == input.dtype(), op, ": input has dtype ", input.dtype(),
                    ", a hidden state or parameter ", t.dtype(), "; convert one with .to(dtype)");
    }
}

std::tuple<Tensor, Tensor, Tensor> run_padded(const Stack& s, const Tensor& input, TensorList hx, TensorList params,
                                              bool batch_first) {
  if (__builtin_expect(athanor::detail::autocast_on, 0)) {
    const Lowered low(input, hx, params);
    return run_padded(s, low.x, low.hx, low.params, batch_first);
  }
  const char* op = name_of(s.mode);
  check_types(op, input, hx, params, s.mode == RnnMode::Lstm ? 2 : 1);
  ATHANOR_CHECK(input.dim() == 3, op, ": Expected input to be 3D (", batch_first ? "batch, seq" : "seq, batch",
                ", feature), got shape ", input.sizes(), " instead");
  const Computed in(input, hx, params);
  const Tensor x = batch_first ? transpose(in.x, 0, 1) : in.x;
  const std::int64_t steps = x.size(0), batch = x.size(1);
  ATHANOR_CHECK(steps > 0, op, ": Expected sequence length to be larger than 0 in RNN, got input of shape ",
                input.sizes());
  const DimVector batch_sizes(static_cast<std::size_t>(steps), batch);
  const bool projects = s.mode == RnnMode::Lstm && hx[0].size(-1) != hx[1].size(-1);
  auto [out, hy, cy] = s.run(reshape(x, {steps * batch, x.size(2)}), batch_sizes, in.hx, in.params, projects);
  out = reshape(out, {steps, batch, out.size(1)});
  if (batch_first) out = transpose(out, 0, 1);
  return {cast(out, in.from), cast(hy, in.from), cy.defined() ? cast(cy, in.from) : cy};
}

/// Values of a batch_sizes tensor, checked.
DimVector batch_sizes_of(const char* op, const Tensor& batch_sizes, std::int64_t rows) {
  ATHANOR_CHECK(batch_sizes.defined() && batch_sizes.dim() == 1 && batch_sizes.dtype() == DType::Long &&
                    batch_sizes.device().is_host() && batch_sizes.numel() > 0,
                op, ": batch_sizes should be a vector of int64 on the CPU with an element for each step");
  const Tensor dense_sizes = contiguous(batch_sizes);
  const std::int64_t* p = dense_sizes.data_ptr<std::int64_t>();
  DimVector out;
  std::int64_t total = 0;
  for (std::int64_t t = 0; t < batch_sizes.numel(); ++t) {
    ATHANOR_CHECK(p[t] > 0 && (t == 0 || p[t] <= p[t - 1]), op, ": batch_sizes should be positive and never grow, got ",
                  p[t], " at step ", t);
    total += p[t];
    out.push_back(p[t]);
  }
  ATHANOR_CHECK(total == rows, op, ": batch_sizes has a sum of ", total, ", but data has ", rows, " rows");
  return out;
}

std::tuple<Tensor, Tensor, Tensor> run_packed(const Stack& s, const Tensor& data, const Tensor& batch_sizes,
                                              TensorList hx, TensorList params) {
  if (__builtin_expect(athanor::detail::autocast_on, 0)) {
    const Lowered low(data, hx, params);
    return run_packed(s, low.x, batch_sizes, low.hx, low.params);
  }
  const char* op = name_of(s.mode);
  check_types(op, data, hx, params, s.mode == RnnMode::Lstm ? 2 : 1);
  ATHANOR_CHECK(data.dim() == 2, op, ": packed data should be 2D (rows, feature), got shape ", data.sizes());
  const Computed in(data, hx, params);
  const bool projects = s.mode == RnnMode::Lstm && hx[0].size(-1) != hx[1].size(-1);
  auto [out, hy, cy] = s.run(in.x, batch_sizes_of(op, batch_sizes, data.size(0)), in.hx, in.params, projects);
  return {cast(out, in.from), cast(hy, in.from), cy.defined() ? cast(cy, in.from) : cy};
}

std::tuple<Tensor, Tensor> first_two(std::tuple<Tensor, Tensor, Tensor> r) {
  auto& [first, second, third] = r;
  return {std::move(first), std::move(second)};
}

}  // namespace

/// Layers of long short-term memory over input (T, B, features), or (B, T, features) if batch_first. hx: first h and c,
/// each (layers · directions, B, …). params: w_ih, w_hh[, b_ih, b_hh][, w_hr] of each layer and direction. Gives the
/// outputs and the last h and c.
ATHANOR_FUNCTION(
    "lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool "
    "train, "
    "bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)");
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases,
                                        std::int64_t num_layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  return run_padded({RnnMode::Lstm, num_layers, dropout, has_biases, train, bidirectional}, input, hx, params,
                    batch_first);
}
/// The same over packed data (rows, features).
ATHANOR_FUNCTION(
    "lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float "
    "dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)");
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& data, const Tensor& batch_sizes, TensorList hx, TensorList params,
                                        bool has_biases, std::int64_t num_layers, double dropout, bool train,
                                        bool bidirectional) {
  return run_packed({RnnMode::Lstm, num_layers, dropout, has_biases, train, bidirectional}, data, batch_sizes, hx,
                    params);
}

/// Layers of gated recurrent units; arguments as for lstm, with hx the first h. Gives the outputs and the last h.
ATHANOR_FUNCTION(
    "gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first) -> (Tensor, Tensor)");
std::tuple<Tensor, Tensor> gru(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
                               std::int64_t num_layers, double dropout, bool train, bool bidirectional,
                               bool batch_first) {
  return first_two(run_padded({RnnMode::Gru, num_layers, dropout, has_biases, train, bidirectional}, input,
                              TensorList(&hx, 1), params, batch_first));
}
ATHANOR_FUNCTION(
    "gru.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float "
    "dropout, bool train, bool bidirectional) -> (Tensor, Tensor)");
std::tuple<Tensor, Tensor> gru(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params,
                               bool has_biases, std::int64_t num_layers, double dropout, bool train,
                               bool bidirectional) {
  return first_two(run_packed({RnnMode::Gru, num_layers, dropout, has_biases, train, bidirectional}, data, batch_sizes,
                              TensorList(&hx, 1), params));
}

/// Layers of tanh(w_ih x + b_ih + w_hh h + b_hh); arguments as for lstm, with hx the first h. Gives the outputs and the
/// last h.
ATHANOR_FUNCTION(
    "rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool "
    "train, "
    "bool bidirectional, bool batch_first) -> (Tensor, Tensor)");
std::tuple<Tensor, Tensor> rnn_tanh(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
                                    std::int64_t num_layers, double dropout, bool train, bool bidirectional,
                                    bool batch_first) {
  return first_two(run_padded({RnnMode::Tanh, num_layers, dropout, has_biases, train, bidirectional}, input,
                              TensorList(&hx, 1), params, batch_first));
}
ATHANOR_FUNCTION(
    "rnn_tanh.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float "
    "dropout, bool train, bool bidirectional) -> (Tensor, Tensor)");
std::tuple<Tensor, Tensor> rnn_tanh(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params,
                                    bool has_biases, std::int64_t num_layers, double dropout, bool train,
                                    bool bidirectional) {
  return first_two(run_packed({RnnMode::Tanh, num_layers, dropout, has_biases, train, bidirectional}, data, batch_sizes,
                              TensorList(&hx, 1), params));
}

/// Layers of relu(w_ih x + b_ih + w_hh h + b_hh); arguments as for lstm, with hx the first h. Gives the outputs and the
/// last h.
ATHANOR_FUNCTION(
    "rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool "
    "train, "
    "bool bidirectional, bool batch_first) -> (Tensor, Tensor)");
std::tuple<Tensor, Tensor> rnn_relu(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
                                    std::int64_t num_layers, double dropout, bool train, bool bidirectional,
                                    bool batch_first) {
  return first_two(run_padded({RnnMode::Relu, num_layers, dropout, has_biases, train, bidirectional}, input,
                              TensorList(&hx, 1), params, batch_first));
}
ATHANOR_FUNCTION(
    "rnn_relu.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float "
    "dropout, bool train, bool bidirectional) -> (Tensor, Tensor)");
std::tuple<Tensor, Tensor> rnn_relu(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params,
                                    bool has_biases, std::int64_t num_layers, double dropout, bool train,
                                    bool bidirectional) {
  return first_two(run_packed({RnnMode::Relu, num_layers, dropout, has_biases, train, bidirectional}, data, batch_sizes,
                              TensorList(&hx, 1), params));
}

namespace {

/// One step of one layer: input (B, features), states (B, H).
std::tuple<Tensor, Tensor, Tensor> run_cell(const char* op, RnnMode mode, const Tensor& input, TensorList hx,
                                            const LayerWeights& w) {
  if (__builtin_expect(athanor::detail::autocast_on, 0)) {
    const Lowered low(input, hx, std::vector<Tensor>{w.w_ih, w.w_hh, w.b_ih, w.b_hh});
    return run_cell(op, mode, low.x, low.hx, {low.params[0], low.params[1], low.params[2], low.params[3], {}});
  }
  std::vector<Tensor> params{w.w_ih, w.w_hh};
  if (w.b_ih.defined()) params.push_back(w.b_ih);
  if (w.b_hh.defined()) params.push_back(w.b_hh);
  check_types(op, input, hx, params, mode == RnnMode::Lstm ? 2 : 1);
  ATHANOR_CHECK(input.dim() == 2, op, ": Expected input to be 2D (batch, feature), got shape ", input.sizes());
  ATHANOR_CHECK(w.b_ih.defined() == w.b_hh.defined(), op, ": expected both biases or none");
  const std::int64_t hidden = w.w_hh.size(1);
  for (const Tensor& h : hx)
    ATHANOR_CHECK(h.dim() == 2 && h.size(0) == input.size(0) && h.size(1) == hidden, op,
                  ": Expected hidden state of shape [", input.size(0), ", ", hidden, "], got ", h.sizes());
  if (input.size(0) == 0) {
    const Tensor none = zeros({0, hidden}, input.options());
    return {none, none, mode == RnnMode::Lstm ? none : Tensor()};
  }
  const Computed in(input, hx, params);
  const bool biased = w.b_ih.defined();
  const LayerWeights computed{
      in.params[0], in.params[1], biased ? in.params[2] : Tensor(), biased ? in.params[3] : Tensor(), {}};
  const Stack stack{mode, 1, 0, biased, false, false};
  auto [out, h, c] =
      stack.one(in.x, in.hx[0], in.hx.size() > 1 ? in.hx[1] : Tensor(), computed, {input.size(0)}, false);
  return {cast(out, in.from), cast(h, in.from), c.defined() ? cast(c, in.from) : c};
}

}  // namespace

/// One step of long short-term memory: the new h and c (B, H) from input (B, features) and hx = {h, c}.
ATHANOR_FUNCTION(
    "lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih={}, Tensor? b_hh={}) -> (Tensor, "
    "Tensor)");
std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
                                     const Tensor& b_ih, const Tensor& b_hh) {
  auto [out, h, c] = run_cell("lstm_cell", RnnMode::Lstm, input, hx, {w_ih, w_hh, b_ih, b_hh, {}});
  return {h, c};
}

/// One step of gru: the new h (B, H) from input (B, features) and hx (B, H).
ATHANOR_FUNCTION(
    "gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih={}, Tensor? b_hh={}) -> Tensor");
Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                const Tensor& b_hh) {
  return std::get<1>(run_cell("gru_cell", RnnMode::Gru, input, TensorList(&hx, 1), {w_ih, w_hh, b_ih, b_hh, {}}));
}

/// One step of rnn_tanh: the new h (B, H) from input (B, features) and hx (B, H).
ATHANOR_FUNCTION(
    "rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih={}, Tensor? b_hh={}) -> Tensor");
Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return std::get<1>(run_cell("rnn_tanh_cell", RnnMode::Tanh, input, TensorList(&hx, 1), {w_ih, w_hh, b_ih, b_hh, {}}));
}

/// One step of rnn_relu: the new h (B, H) from input (B, features) and hx (B, H).
ATHANOR_FUNCTION(
    "rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih={}, Tensor? b_hh={}) -> Tensor");
Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return std::get<1>(run_cell("rnn_relu_cell", RnnMode::Relu, input, TensorList(&hx, 1), {w_ih, w_hh, b_ih, b_hh, {}}));
}

}  // namespace athanor::ops

#include "athanor/ops/rnn.glue.inc"
