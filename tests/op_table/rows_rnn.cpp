// Recurrent layers and their cells.
#include "athanor/ops/factory.h"
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

enum class Kind { Tanh, Relu, Lstm, Gru };

double gate_of(double x) { return 1 / (1 + std::exp(-x)); }

/// Matrices as rows of values.
using Matrix = std::vector<Values>;
Matrix matrix_of(const Array& a, std::int64_t from = 0, std::int64_t rows = -1) {
  const std::int64_t columns = a.shape.back();
  if (rows < 0) rows = a.numel() / std::max<std::int64_t>(columns, 1);
  Matrix m;
  for (std::int64_t i = from; i < from + rows; ++i) {
    m.emplace_back();
    for (std::int64_t j = 0; j < columns; ++j) m.back().push_back(a[i * columns + j]);
  }
  return m;
}

struct Weights {
  Matrix w_ih, w_hh, w_hr;
  Values b_ih, b_hh;
};

Values times(const Matrix& w, const Values& x, const Values& bias) {
  Values out;
  for (std::size_t i = 0; i < w.size(); ++i) {
    double sum = bias.empty() ? 0 : bias[i];
    for (std::size_t j = 0; j < x.size(); ++j) sum += w[i][j] * x[j];
    out.push_back(sum);
  }
  return out;
}

/// One step of one sequence.
void step(Kind kind, const Weights& w, const Values& x, Values& h, Values& c) {
  const Values given = times(w.w_ih, x, w.b_ih), from_state = times(w.w_hh, h, w.b_hh);
  const std::size_t hidden = given.size() / (kind == Kind::Lstm ? 4 : kind == Kind::Gru ? 3 : 1);
  Values next(hidden);
  for (std::size_t u = 0; u < hidden; ++u) {
    const auto sum = [&](std::size_t gate) { return given[gate * hidden + u] + from_state[gate * hidden + u]; };
    if (kind == Kind::Lstm) {
      c[u] = gate_of(sum(1)) * c[u] + gate_of(sum(0)) * std::tanh(sum(2));
      next[u] = gate_of(sum(3)) * std::tanh(c[u]);
    } else if (kind == Kind::Gru) {
      const double r = gate_of(sum(0)), z = gate_of(sum(1));
      const double fresh = std::tanh(given[2 * hidden + u] + r * from_state[2 * hidden + u]);
      next[u] = (1 - z) * fresh + z * h[u];
    } else {
      next[u] = kind == Kind::Tanh ? std::tanh(sum(0)) : std::max(sum(0), 0.0);
    }
  }
  h = w.w_hr.empty() ? next : times(w.w_hr, next, {});
}

/// One layer in one direction over rows of steps (`sizes` rows each). in: data, states, then w_ih, w_hh, b_ih, b_hh.
Arrays layer_of(Kind kind, const Arrays& in, const std::vector<std::int64_t>& sizes, bool reverse) {
  const std::size_t states = kind == Kind::Lstm ? 2 : 1, at = 1 + states;
  Weights w{matrix_of(in[at]), matrix_of(in[at + 1]), {}, {}, {}};
  if (in.size() > at + 3) {
    w.b_ih = matrix_of(with_shape(in[at + 2], {1, in[at + 2].numel()}))[0];
    w.b_hh = matrix_of(with_shape(in[at + 3], {1, in[at + 3].numel()}))[0];
  }
  if (in.size() == at + 3 || in.size() == at + 5) w.w_hr = matrix_of(in.back());
  Matrix h = matrix_of(in[1]), c = states == 2 ? matrix_of(in[2]) : Matrix(h.size());
  const Matrix x = matrix_of(in[0]);
  std::vector<std::int64_t> first{0};
  for (const std::int64_t n : sizes) first.push_back(first.back() + n);
  Matrix out(x.size());
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const std::size_t t = reverse ? sizes.size() - 1 - k : k;
    for (std::int64_t b = 0; b < sizes[t]; ++b) {
      const auto row = static_cast<std::size_t>(first[t] + b), s = static_cast<std::size_t>(b);
      step(kind, w, x[row], h[s], c[s]);
      out[row] = h[s];
    }
  }
  const auto array = [](const Matrix& m, Shape shape) {
    Values all;
    for (const Values& row : m) all.insert(all.end(), row.begin(), row.end());
    return Array(std::move(shape), all);
  };
  const auto width = static_cast<std::int64_t>(h[0].size());
  Shape shape = in[0].shape;
  shape.back() = width;
  Arrays result{array(out, shape), array(h, {1, in[1].shape[1], width})};
  if (states == 2) result.push_back(array(c, in[2].shape));
  return result;
}

std::int64_t gates_of(Kind k) { return k == Kind::Lstm ? 4 : k == Kind::Gru ? 3 : 1; }

/// data, states and parameters of one layer.
Sample layer_sample(Kind kind, const Shape& data, std::int64_t batch, std::int64_t hidden, bool bias, bool gradient,
                    std::int64_t projection = 0) {
  const std::int64_t rows = gates_of(kind) * hidden, inputs = data.back(), state = projection ? projection : hidden;
  Sample s{{uniform(data, -1, 1), uniform({1, batch, state}, -1, 1, 2)}, gradient};
  if (kind == Kind::Lstm) s.inputs.emplace_back(uniform({1, batch, hidden}, -1, 1, 3));
  s.inputs.emplace_back(uniform({rows, inputs}, -1, 1, 4));
  // Many units with large weights would make small differences grow from step to step.
  const double bound = hidden > 8 ? 0.3 : 1;
  s.inputs.emplace_back(uniform({rows, state}, -bound, bound, 5));
  if (bias) {
    s.inputs.emplace_back(uniform({rows}, 0.1, 0.9, 6));
    s.inputs.emplace_back(uniform({rows}, 0.1, 0.9, 7));
  }
  if (projection) s.inputs.emplace_back(uniform({projection, hidden}, -1, 1, 8));
  return s;
}

const std::vector<std::int64_t> kSizes = {3, 2, 2, 1};

Row rnn_row(const char* name, const char* overload) {
  Row r = gradient_row_of(name, overload, kFloats);
  r.tolerance = 30;
  r.absolute = 50;
  r.exact_layouts = false;
  return r;
}

/// Calls an op over a sequence: packed (by kSizes) or padded. x: data, states, parameters.
using LayerCall = std::function<Tensors(const Tensors& x, bool packed, bool bias, bool batch_first)>;

Tensor sizes_tensor() { return tensor(kSizes, TensorOptions(kLong)); }

using Padded = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, TensorList, bool, std::int64_t, double,
                                              bool, bool, bool);
using Packed = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Tensor&, TensorList, bool,
                                              std::int64_t, double, bool, bool);
LayerCall call_of(Padded padded, Packed packed_form) {
  return [=](const Tensors& x, bool packed, bool bias, bool batch_first) {
    const Tensors params(x.begin() + 2, x.end());
    auto [out, h] = packed ? packed_form(x[0], sizes_tensor(), x[1], params, bias, 1, 0, true, false)
                           : padded(x[0], x[1], params, bias, 1, 0, true, false, batch_first);
    return Tensors{out, h};
  };
}
Tensors call_lstm(const Tensors& x, bool packed, bool bias, bool batch_first) {
  const Tensors states{x[1], x[2]}, params(x.begin() + 3, x.end());
  auto [out, h, c] = packed ? lstm(x[0], sizes_tensor(), states, params, bias, 1, 0, true, false)
                            : lstm(x[0], states, params, bias, 1, 0, true, false, batch_first);
  return {out, h, c};
}

Array turned(const Array& a) { return transposed(a, 0, 1); }

Tensors inputs_for_refusal(Kind kind) {
  Tensors x;
  for (const Input& i : layer_sample(kind, {3, 2, 2}, 2, 3, true, false).inputs)
    x.push_back(to_tensor(i.array, kFloat));
  return x;
}

void add_layer_rows(const char* name, Kind kind, const LayerCall& call) {
  Row r = rnn_row(name, "input");
  const auto sizes_of = [](const Array& x) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(x.shape[0]), x.shape[1]);
  };
  const auto add = [&](const char* title, std::vector<Sample> samples, bool bias, bool batch_first) {
    r.cases.push_back({title,
                       std::move(samples),
                       [=](const Tensors& x) { return call(x, false, bias, batch_first); },
                       [=](const Arrays& in) {
                         Arrays all = in;
                         if (batch_first) all[0] = turned(all[0]);
                         Arrays out = layer_of(kind, all, sizes_of(all[0]), false);
                         if (batch_first) out[0] = turned(out[0]);
                         return out;
                       },
                       {},
                       {}});
  };
  add("", {layer_sample(kind, {3, 2, 2}, 2, 3, true, true), layer_sample(kind, {9, 5, 3}, 5, 37, true, false)}, true,
      false);
  add("no bias, batch first",
      {layer_sample(kind, {2, 3, 2}, 2, 2, false, true), layer_sample(kind, {1, 1, 1}, 1, 1, false, true)}, false,
      true);
  if (kind == Kind::Lstm) add("projected", {layer_sample(kind, {3, 2, 2}, 2, 3, true, true, 2)}, true, false);
  r.refusals = {{"a matrix",
                 [=] {
                   Tensors x = inputs_for_refusal(kind);
                   x[0] = x[0].select(0, 0);
                   call(x, false, true, false);
                 },
                 "Expected input to be 3D"},
                {"states of another size",
                 [=] {
                   Tensors x = inputs_for_refusal(kind);
                   x[1] = zeros({1, 5, 3});
                   call(x, false, true, false);
                 },
                 "Expected hidden[0] size"},
                {"a parameter too few",
                 [=] {
                   Tensors x = inputs_for_refusal(kind);
                   x.pop_back();
                   call(x, false, true, false);
                 },
                 "parameters, expected"},
                {"no steps",
                 [=] {
                   Tensors x = inputs_for_refusal(kind);
                   x[0] = zeros({0, 2, 2});
                   call(x, false, true, false);
                 },
                 "larger than 0"}};
  add_row(r);

  r = rnn_row(name, "data");
  r.cases.push_back({"",
                     {layer_sample(kind, {8, 2}, 3, 3, true, true), layer_sample(kind, {8, 5}, 3, 40, true, false)},
                     [=](const Tensors& x) { return call(x, true, true, false); },
                     [=](const Arrays& in) { return layer_of(kind, in, kSizes, false); },
                     {},
                     {}});
  r.refusals = {{"rows that are not those of batch_sizes",
                 [=] {
                   Tensors x = inputs_for_refusal(kind);
                   x[0] = zeros({7, 2});
                   call(x, true, true, false);
                 },
                 "batch_sizes has a sum of 8"}};
  add_row(r);
}

using Cell = std::function<Tensors(const Tensors&)>;

/// x: input, states, then w_ih, w_hh[, b_ih, b_hh].
void add_cell_row(const char* name, Kind kind, const Cell& call) {
  Row r = rnn_row(name, "");
  const auto cell_sample = [&](std::int64_t batch, std::int64_t inputs, std::int64_t hidden, bool bias, bool gradient) {
    Sample s = layer_sample(kind, {batch, inputs}, batch, hidden, bias, gradient);
    for (std::size_t i = 1; i <= (kind == Kind::Lstm ? 2U : 1U); ++i) s.inputs[i].array.shape = {batch, hidden};
    return s;
  };
  const auto reference = [=](const Arrays& in) {
    Arrays all = in;
    for (std::size_t i = 1; i <= (kind == Kind::Lstm ? 2U : 1U); ++i) all[i].shape.insert(all[i].shape.begin(), 1);
    if (in[0].shape[0] == 0) return Arrays(kind == Kind::Lstm ? 2 : 1, with_shape(Array({0}), in[1].shape));
    Arrays out = layer_of(kind, all, {in[0].shape[0]}, false);
    out.erase(out.begin());
    for (Array& a : out) a.shape = in[1].shape;
    return out;
  };
  r.cases = {{"",
              {cell_sample(2, 2, 3, true, true), cell_sample(1, 3, 1, true, true), cell_sample(0, 2, 3, true, false),
               cell_sample(17, 5, 37, true, false)},
              call,
              reference,
              {},
              {}},
             {"no bias", {cell_sample(2, 2, 3, false, true)}, call, reference, {}, {}}};
  r.refusals = {{"a vector",
                 [=] {
                   call({ones({2}), ones({1, 3}), ones({1, 3}), ones({3, 2}), ones({3, 3})});
                 },
                 "Expected input to be 2D"}};
  add_row(r);
}

using OneState = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&);
Cell cell_of(OneState function) {
  return [=](const Tensors& x) {
    return Tensors{function(x[0], x[1], x[2], x[3], x.size() > 4 ? x[4] : Tensor(), x.size() > 5 ? x[5] : Tensor())};
  };
}

const bool added_rnn = [] {
  add_layer_rows("lstm", Kind::Lstm, &call_lstm);
  add_layer_rows("gru", Kind::Gru, call_of(Padded(&gru), Packed(&gru)));
  add_layer_rows("rnn_tanh", Kind::Tanh, call_of(Padded(&rnn_tanh), Packed(&rnn_tanh)));
  add_layer_rows("rnn_relu", Kind::Relu, call_of(Padded(&rnn_relu), Packed(&rnn_relu)));
  add_cell_row("lstm_cell", Kind::Lstm, [](const Tensors& x) {
    auto [h, c] = lstm_cell(x[0], Tensors{x[1], x[2]}, x[3], x[4], x.size() > 5 ? x[5] : Tensor(),
                            x.size() > 6 ? x[6] : Tensor());
    return Tensors{h, c};
  });
  add_cell_row("gru_cell", Kind::Gru, cell_of(&gru_cell));
  add_cell_row("rnn_tanh_cell", Kind::Tanh, cell_of(&rnn_tanh_cell));
  add_cell_row("rnn_relu_cell", Kind::Relu, cell_of(&rnn_relu_cell));
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
