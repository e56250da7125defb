// Gradients of recurrent layers written with ops, for gradients of gradients: the steps once more, and back again.
#include "athanor/ops/activation.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/create.h"
#include "athanor/ops/join.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/rnn_op.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

Tensor rows(const Tensor& t, std::int64_t start, std::int64_t n) { return narrow(t, 0, start, n); }
Tensor together(const std::vector<Tensor>& list, std::int64_t dim) { return cat(TensorList(list), dim); }
/// The first rows replaced.
Tensor with_rows(const Tensor& t, const Tensor& first) {
  const std::int64_t n = first.size(0), all = t.size(0);
  return n == all ? first : together({first, rows(t, n, all - n)}, 0);
}
Tensor plus(const Tensor& a, const Tensor& b) { return a.defined() ? (b.defined() ? add(a, b) : a) : b; }
/// y (1 - y) and 1 - y².
Tensor bend(const Tensor& y) { return sub(y, mul(y, y)); }
Tensor flatten_slope(const Tensor& y) { return rsub(mul(y, y), 1); }

/// One step: values going forward, and the gradients of its gates going back.
struct Step {
  std::int64_t first = 0, count = 0;
  Tensor h_before, c_before, unprojected, h, c;
  std::vector<Tensor> gates;  ///< activated; GRU's fourth is w_hn h + b_hn

  /// all_given: w_ih x + b_ih of all steps.
  void forward(const RnnInputs& in, const Tensor& all_given, RnnMode mode) {
    const std::int64_t hidden = in.w_hh.size(0) / rnn_gates(mode);
    const Tensor given = rows(all_given, first, count);
    Tensor product = mm(h_before, t(in.w_hh));
    if (in.b_hh.defined()) product = add(product, in.b_hh);
    if (mode == RnnMode::Gru) return forward_gru(given, product, hidden);
    const Tensor sums = add(given, product);
    if (mode == RnnMode::Lstm) {
      for (std::int64_t g = 0; g < 4; ++g) {
        const Tensor part = narrow(sums, 1, g * hidden, hidden);
        gates.push_back(g == 2 ? tanh(part) : sigmoid(part));
      }
      c = add(mul(gates[1], c_before), mul(gates[0], gates[2]));
      unprojected = mul(gates[3], tanh(c));
      h = in.w_hr.defined() ? mm(unprojected, t(in.w_hr)) : unprojected;
    } else {
      gates = {mode == RnnMode::Tanh ? tanh(sums) : relu(sums)};
      h = gates[0];
    }
  }
  void forward_gru(const Tensor& given, const Tensor& product, std::int64_t hidden) {
    for (std::int64_t g = 0; g < 2; ++g)
      gates.push_back(sigmoid(add(narrow(given, 1, g * hidden, hidden), narrow(product, 1, g * hidden, hidden))));
    const Tensor part = narrow(product, 1, 2 * hidden, hidden);
    gates.push_back(tanh(add(narrow(given, 1, 2 * hidden, hidden), mul(gates[0], part))));
    gates.push_back(part);
    h = add(gates[2], mul(gates[1], sub(h_before, gates[2])));
  }

  /// Gradients of the given gates and of w_hh h + b_hh; dc becomes that of c before; `past` is what reaches h before
  /// without passing the product.
  std::pair<Tensor, Tensor> backward(const Tensor& up, Tensor& dc, Tensor& past, RnnMode mode) const {
    if (mode == RnnMode::Lstm) {
      const Tensor bent = tanh(c), slope = add(mul(mul(up, gates[3]), flatten_slope(bent)), dc);
      dc = mul(slope, gates[1]);
      const Tensor all =
          together({mul(mul(slope, gates[2]), bend(gates[0])), mul(mul(slope, c_before), bend(gates[1])),
                    mul(mul(slope, gates[0]), flatten_slope(gates[2])), mul(mul(up, bent), bend(gates[3]))},
                   1);
      return {all, all};
    }
    if (mode == RnnMode::Gru) {
      const Tensor &r = gates[0], &z = gates[1], &fresh = gates[2];
      const Tensor to_fresh = mul(mul(up, rsub(z, 1)), flatten_slope(fresh));
      const Tensor to_r = mul(mul(to_fresh, gates[3]), bend(r));
      const Tensor to_z = mul(mul(up, sub(h_before, fresh)), bend(z));
      past = mul(up, z);
      return {together({to_r, to_z, to_fresh}, 1), together({to_r, to_z, mul(to_fresh, r)}, 1)};
    }
    const Tensor all = mul(up, mode == RnnMode::Tanh ? flatten_slope(gates[0]) : cast(gt(gates[0], 0), up.dtype()));
    return {all, all};
  }
};

std::vector<Step> run_forward(const RnnInputs& in, IntArrayRef batch_sizes, RnnMode mode, bool reverse) {
  std::vector<Step> steps;
  std::int64_t first = 0;
  for (const std::int64_t n : batch_sizes) {
    steps.emplace_back();
    steps.back().first = first;
    steps.back().count = n;
    first += n;
  }
  if (reverse) std::reverse(steps.begin(), steps.end());
  const Tensor given = linear(in.input, in.w_ih, in.b_ih);
  Tensor h = in.hx, c = in.cx;
  for (Step& s : steps) {
    s.h_before = rows(h, 0, s.count);
    if (mode == RnnMode::Lstm) s.c_before = rows(c, 0, s.count);
    s.forward(in, given, mode);
    h = with_rows(h, s.h);
    if (mode == RnnMode::Lstm) c = with_rows(c, s.c);
  }
  return steps;
}

}  // namespace

RnnInputs composed_rnn_gradient(const RnnInputs& in, const std::array<Tensor, 3>& up, IntArrayRef batch_sizes,
                                RnnMode mode, bool reverse) {
  const std::vector<Step> steps = run_forward(in, batch_sizes, mode, reverse);
  RnnInputs d;
  d.hx = up[1].defined() ? up[1] : zeros_like(in.hx);
  if (mode == RnnMode::Lstm) d.cx = up[2].defined() ? up[2] : zeros_like(in.cx);
  std::vector<Tensor> gates;
  for (auto s = steps.rbegin(); s != steps.rend(); ++s) {
    Tensor dh = rows(d.hx, 0, s->count), dc = d.cx.defined() ? rows(d.cx, 0, s->count) : Tensor(), past;
    if (up[0].defined()) dh = add(dh, rows(up[0], s->first, s->count));
    if (in.w_hr.defined()) {
      d.w_hr = plus(d.w_hr, mm(t(dh), s->unprojected));
      dh = mm(dh, in.w_hr);
    }
    const auto [given, slopes] = s->backward(dh, dc, past, mode);
    gates.push_back(given);
    d.w_hh = plus(d.w_hh, mm(t(slopes), s->h_before));
    if (in.b_hh.defined()) d.b_hh = plus(d.b_hh, sum(slopes, IntArrayRef{0}, false, std::nullopt));
    d.hx = with_rows(d.hx, plus(mm(slopes, in.w_hh), past));
    if (dc.defined()) d.cx = with_rows(d.cx, dc);
  }
  if (!reverse) std::reverse(gates.begin(), gates.end());
  const Tensor given = together(gates, 0);
  d.input = mm(given, in.w_ih);
  d.w_ih = mm(t(given), in.input);
  if (in.b_ih.defined()) d.b_ih = sum(given, IntArrayRef{0}, false, std::nullopt);
  return d;
}

}  // namespace athanor::ops
