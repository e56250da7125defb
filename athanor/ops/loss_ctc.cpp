// Connectionist temporal classification.
#include "athanor/ops/loss_ctc.h"

#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/ctc.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/spatial.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

/// Losses (N) and the forward variables that their gradient needs.
struct CtcLoss {
  ATHANOR_OP(
      "_ctc_loss(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank, "
      "bool zero_infinity) -> (Tensor, Tensor) | function");
  static constexpr const char* grad_name = "CtcLossBackward0";
  DimVector input_lengths, target_lengths;
  std::int64_t blank;
  bool zero_infinity;
  SavedTensor x, labels, variables;
  Tensor losses;
  std::array<Meta, 2> infer(const Tensor& log_probs, const Tensor&) {
    const std::int64_t n = log_probs.size(1);
    std::int64_t longest = 0;
    for (const std::int64_t s : target_lengths) longest = std::max(longest, s);
    return {Meta{{n}, log_probs.dtype(), log_probs.device(), {}},
            Meta{{n, log_probs.size(0), 2 * longest + 1}, log_probs.dtype(), log_probs.device(), {}}};
  }
  void run(const Tensor& loss, const Tensor& alpha, const Tensor& log_probs, const Tensor& targets) {
    launch<2>(ctc_loss_kernel, loss, alpha, log_probs, targets, input_lengths, target_lengths, blank);
  }
  void save(const Node&, const Tensor& log_probs, const Tensor& targets) {
    x.save(log_probs);
    labels.save(targets);
  }
  void save_results(Node*, const Tensor& loss, const Tensor& alpha) {
    // Aliases: a result saved as it is would keep its own node alive.
    losses = detail::alias(loss, loss.sizes(), loss.strides(), loss.storage_offset());
    variables.save(detail::alias(alpha, alpha.sizes(), alpha.strides(), alpha.storage_offset()));
  }
  void grad(GradCall& g) {
    ATHANOR_CHECK_TYPE(NotImplementedError, !GradMode::is_enabled(),
                       "ctc_loss: gradients of its gradient are not supported; call backward without create_graph");
    if (!g.has(0) || !g.needs(0)) return;
    const Tensor log_probs = g.get(x);
    const Tensor out = empty(log_probs.sizes(), log_probs.options());
    launch(ctc_loss_backward_kernel, out, g.grad(0), losses, g.get(variables), log_probs, g.get(labels), input_lengths,
           target_lengths, blank, zero_infinity);
    g.set(0, out);
  }
};

namespace {

void check_lengths(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                   IntArrayRef target_lengths) {
  const std::int64_t steps = log_probs.size(0), n = log_probs.size(1);
  ATHANOR_CHECK(
      static_cast<std::int64_t>(input_lengths.size()) == n && static_cast<std::int64_t>(target_lengths.size()) == n,
      "ctc_loss: input_lengths and target_lengths must be of size batch_size ", n, ", got ", input_lengths.size(),
      " and ", target_lengths.size(), "; log_probs is of shape ", log_probs.sizes());
  std::int64_t total = 0, longest = 0;
  for (std::size_t i = 0; i < input_lengths.size(); ++i) {
    ATHANOR_CHECK(input_lengths[i] >= 0 && input_lengths[i] <= steps, "ctc_loss: Expected input_lengths to have value ",
                  "between 0 and ", steps, ", but got value ", input_lengths[i], " (while checking sequence ", i, ")");
    ATHANOR_CHECK(target_lengths[i] >= 0, "ctc_loss: Expected target_lengths to have value at least 0, but got value ",
                  target_lengths[i], " (while checking sequence ", i, ")");
    total += target_lengths[i];
    longest = std::max(longest, target_lengths[i]);
  }
  if (targets.dim() == 1)
    ATHANOR_CHECK(targets.numel() == total, "ctc_loss: Expected 1-D targets to hold the sum of target_lengths, ", total,
                  " labels, got ", targets.numel());
  else
    ATHANOR_CHECK(targets.dim() == 2 && targets.size(0) == n && targets.size(1) >= longest,
                  "ctc_loss: Expected targets ", "of shape (", n, ", at least ", longest, ") or 1-D ones, got ",
                  targets.sizes());
}

}  // namespace

/// Minus the log probability of the labels in targets under log_probs (T, N, C) or (T, C), log-softmax outputs, summed
/// over all alignments (Graves et al., ICML 2006). targets: int64 or int32, (N, S) or all one after another. The mean
/// divides each loss by its target's length (1 at least) first. zero_infinity: losses of targets that do not fit their
/// inputs, and their gradients, are 0. The gradient is that with respect to log_probs as free variables.
ATHANOR_FUNCTION(
    "ctc_loss.IntList(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, "
    "int reduction=1, bool zero_infinity=False) -> Tensor");
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
                std::int64_t blank, std::int64_t reduction, bool zero_infinity) {
  ATHANOR_CHECK(log_probs.defined() && targets.defined(), "ctc_loss: expected tensors, got an undefined one");
  ATHANOR_CHECK_TYPE(NotImplementedError, log_probs.dtype() == DType::Float || log_probs.dtype() == DType::Double,
                     "ctc_loss: expected log_probs of dtype float32 or float64, got ", log_probs.dtype());
  ATHANOR_CHECK(targets.dtype() == DType::Long || targets.dtype() == DType::Int,
                "ctc_loss: targets must be int64 or int32, got ", targets.dtype());
  ATHANOR_CHECK(log_probs.dim() == 2 || log_probs.dim() == 3, "ctc_loss: log_probs must be (time, batch, classes) or ",
                "(time, classes), got shape ", log_probs.sizes());
  ATHANOR_CHECK_VALUE(reduction >= 0 && reduction <= 2, "ctc_loss: ", reduction, " is not a valid value for reduction");
  const bool single = log_probs.dim() == 2;
  const Tensor x = single ? unsqueeze(log_probs, 1) : log_probs;
  ATHANOR_CHECK(blank >= 0 && blank < x.size(2), "ctc_loss: blank must be in label range [0, ", x.size(2), "), got ",
                blank);
  check_lengths(x, targets, input_lengths, target_lengths);
  Tensor loss = std::get<0>(_ctc_loss(x, targets, input_lengths, target_lengths, blank, zero_infinity));
  if (zero_infinity) loss = where(eq(loss, std::numeric_limits<double>::infinity()), Scalar(0), loss);
  if (reduction == 1) {
    std::vector<std::int64_t> lengths;
    for (const std::int64_t s : target_lengths) lengths.push_back(std::max<std::int64_t>(s, 1));
    const auto n = static_cast<std::int64_t>(lengths.size());
    return mean(div(loss, cast(index_tensor(lengths, {n}, x.device()), x.dtype())));
  }
  if (reduction == 2) return sum(loss);
  return single ? squeeze(loss, 0) : loss;
}

namespace {

DimVector host_values(const Tensor& t, const char* what) {
  ATHANOR_CHECK(t.defined() && !is_floating_point(t.dtype()), "ctc_loss: ", what, " must be integral");
  const NoGradGuard guard;
  Tensor host = t.device().is_host() ? t : to_device(t, Device());
  host = contiguous(host.dtype() == DType::Long ? host : to_dtype(host, DType::Long));
  DimVector out;
  const auto* p = static_cast<const std::int64_t*>(host.numel() ? host.data_ptr() : nullptr);
  for (std::int64_t i = 0; i < host.numel(); ++i) out.push_back(p[i]);
  return out;
}

}  // namespace

/// The lengths as tensors. Waits for them on a queued device.
ATHANOR_FUNCTION(
    "ctc_loss.Tensor(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, "
    "int reduction=1, bool zero_infinity=False) -> Tensor");
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, std::int64_t blank, std::int64_t reduction, bool zero_infinity) {
  return ctc_loss(log_probs, targets, host_values(input_lengths, "input_lengths"),
                  host_values(target_lengths, "target_lengths"), blank, reduction, zero_infinity);
}

}  // namespace athanor::ops

#include "athanor/ops/loss_ctc.glue.inc"
