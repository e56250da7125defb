#include "athanor/parallel/sync_batch_norm.h"

#include <ostream>

#include "athanor/distributed/groups.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/history.h"
#include "athanor/parallel/agreement.h"

namespace athanor::nn {

namespace {

using distributed::ProcessGroupPtr;

// Per-channel values as they broadcast against the input.
Tensor along_channels(const Tensor& values, const Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

std::vector<std::int64_t> all_but_channels(const Tensor& input) {
  std::vector<std::int64_t> dims;
  for (std::int64_t d = 0; d < input.dim(); ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}

DType accumulated(DType dtype) { return dtype == kDouble ? kDouble : kFloat; }

struct Statistics {
  Tensor mean, variance;  // float64, of the elements of all ranks
  double count = 0;
};

// Means and sums of squared deviations of all ranks, put together by the formula of Chan, Golub & LeVeque (1979).
Statistics gather_statistics(const Tensor& input, distributed::ProcessGroup& group) {
  const std::int64_t channels = input.size(1);
  const std::int64_t per_channel = channels > 0 ? input.numel() / channels : 0;
  const auto own = static_cast<double>(per_channel);
  Tensor mine = zeros({2 * channels + 1}, kDouble);
  mine[2 * channels].fill_(own);
  if (own > 0) {
    const Tensor x = input.detach().to(accumulated(input.dtype()));
    const auto dims = all_but_channels(input);
    const Tensor mean = x.mean(dims);
    mine.narrow(0, 0, channels).copy_(mean);
    mine.narrow(0, channels, channels).copy_((x - along_channels(mean, x)).square_().sum(dims));
  }
  Tensor all = empty({group.size(), 2 * channels + 1}, kDouble);
  group.all_gather_into_tensor(all, mine, false, parallel::call_for("SyncBatchNorm's forward"));
  Statistics s;
  const Tensor counts = all.narrow(1, 2 * channels, 1);
  s.count = counts.sum().item<double>();
  ATHANOR_CHECK_VALUE(s.count > 1, "Expected more than 1 value per channel when training, got input size ",
                      input.sizes(), " on this rank and ", s.count, " values on all ranks");
  const Tensor means = all.narrow(1, 0, channels);
  s.mean = (means * counts).sum(0) / s.count;
  s.variance = (all.narrow(1, channels, channels) + (means - s.mean).square() * counts).sum(0) / s.count;
  return s;
}

// What forward leaves for backward.
class SyncBatchNormBackward final : public Node {
 public:
  SyncBatchNormBackward(const Tensor& input, const Tensor& weight, const Tensor& bias, ProcessGroupPtr group)
      : group_(std::move(group)), input_(input), weight_(weight) {
    add_edge(gradient_edge(input));
    add_edge(weight.defined() ? gradient_edge(weight) : Edge{});
    add_edge(bias.defined() ? gradient_edge(bias) : Edge{});
  }
  void keep(Tensor mean, Tensor inverse, double count) {
    mean_ = std::move(mean);
    inverse_ = std::move(inverse);
    count_ = count;
  }

  void apply(const GradList& in, GradList& out) override {
    ATHANOR_CHECK(
        mean_.defined(),
        "Trying to backward through the graph a second time (or directly access saved "
        "tensors after they have already been freed). Specify retain_graph=True if you need it. In SyncBatchNorm");
    ATHANOR_CHECK_TYPE(NotImplementedError, !GradMode::is_enabled(),
                       "SyncBatchNorm: its gradient cannot be differentiated again; leave create_graph off");
    if (!in[0].defined()) return;
    const Tensor input(input_.get(this));
    const DType dtype = accumulated(input.dtype());
    const Tensor dy = Tensor(in[0]).to(dtype), away = input.to(dtype) - along_channels(mean_, input);
    const auto dims = all_but_channels(input);
    const std::int64_t channels = input.size(1);
    // Of this rank; the gradients of weight and bias are averaged where all others are.
    const Tensor sums = zeros({2, channels}, dtype);
    if (input.numel() > 0) {
      sums[0].copy_(dy.sum(dims));
      sums[1].copy_((dy * away).sum(dims));
    }
    if (needs(1)) out[1] = sums[1] * inverse_;
    if (needs(2)) out[2] = sums[0].clone();
    // Other ranks' gradients need these sums even if this rank's does not.
    group_->all_reduce(sums, distributed::ReduceOp::SUM, false, parallel::call_for("SyncBatchNorm's backward"));
    if (!needs(0)) return;
    Tensor scale = inverse_;
    if (weight_.defined()) scale = scale * Tensor(weight_.get(this)).to(dtype);
    const Tensor drift = sums[1] * inverse_ * inverse_ / count_;
    out[0] = ((dy - along_channels(sums[0] / count_, input) - away * along_channels(drift, input)) *
              along_channels(scale, input))
                 .to(input.dtype());
  }
  std::string name() const override { return "SyncBatchNormBackward0"; }
  void release() override {
    mean_ = {};
    inverse_ = {};
    input_.reset();
    weight_.reset();
  }

 private:
  ProcessGroupPtr group_;
  SavedTensor input_, weight_;
  Tensor mean_, inverse_;
  double count_ = 0;
};

void blend(Tensor running, const Tensor& now, double momentum) {
  if (running.defined()) running.mul_(1 - momentum).add_(now.to(running.options()), momentum);
}

}  // namespace

namespace functional {

Tensor sync_batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                       const BatchNormFuncOptions& options, const ProcessGroupPtr& given) {
  if (!options.training()) return batch_norm(input, running_mean, running_var, options);
  const ProcessGroupPtr& group = distributed::group_or_default(given);
  if (group->size() == 1) return batch_norm(input, running_mean, running_var, options);
  ATHANOR_CHECK_VALUE(input.dim() >= 2, "SyncBatchNorm: expected at least 2D input (got ", input.dim(), "D input)");
  ATHANOR_CHECK_TYPE(TypeError, input.is_floating_point(), "SyncBatchNorm: expected floating-point input, got ",
                     input.dtype());
  const Tensor &weight = options.weight(), &bias = options.bias();
  for (const Tensor* per_channel : {&weight, &bias, &running_mean, &running_var})
    ATHANOR_CHECK(!per_channel->defined() || per_channel->numel() == input.size(1),
                  "SyncBatchNorm: ", per_channel->numel(), " features for an input of shape ", input.sizes(),
                  ", whose second dimension is ", input.size(1));
  const bool record =
      GradMode::is_enabled() && (input.requires_grad() || (weight.defined() && weight.requires_grad()) ||
                                 (bias.defined() && bias.requires_grad()));
  IntrusivePtr<SyncBatchNormBackward> node;
  if (record) node = make_intrusive<SyncBatchNormBackward>(input, weight, bias, group);
  const NoGradGuard off;
  const Statistics s = gather_statistics(input, *group);
  blend(running_mean, s.mean, options.momentum());
  blend(running_var, s.variance * (s.count / (s.count - 1)), options.momentum());
  const DType dtype = accumulated(input.dtype());
  const Tensor mean = s.mean.to(dtype), inverse = (s.variance + options.eps()).rsqrt().to(dtype);
  Tensor scale = inverse;
  if (weight.defined()) scale = scale * weight.to(dtype);
  Tensor y = (input.to(dtype) - along_channels(mean, input)) * along_channels(scale, input);
  if (bias.defined()) y.add_(along_channels(bias.to(dtype), input));
  y = y.to(input.dtype());
  if (node) {
    node->keep(mean, inverse, s.count);
    set_history(y, IntrusivePtr<Node>(std::move(node)));
  }
  return y;
}

}  // namespace functional

SyncBatchNormImpl::SyncBatchNormImpl(std::int64_t num_features, const ProcessGroupPtr& group)
    : SyncBatchNormImpl(BatchNormOptions(num_features), group) {}
SyncBatchNormImpl::SyncBatchNormImpl(const BatchNormOptions& options, const ProcessGroupPtr& group)
    : options(options), process_group(group) {
  reset();
}

void SyncBatchNormImpl::reset() {
  const std::int64_t n = options.num_features();
  const bool track = options.track_running_stats();
  weight = register_parameter("weight", options.affine() ? ones({n}) : Tensor());
  bias = register_parameter("bias", options.affine() ? zeros({n}) : Tensor());
  running_mean = register_buffer("running_mean", track ? zeros({n}) : Tensor());
  running_var = register_buffer("running_var", track ? ones({n}) : Tensor());
  num_batches_tracked = register_buffer("num_batches_tracked", track ? zeros({}, kLong) : Tensor());
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", affine=" << options.affine() << ")";
}

Tensor SyncBatchNormImpl::forward(const Tensor& input) {
  return in_module(*this, [&] {
    const bool training = is_training(), track = options.track_running_stats();
    double factor = options.momentum().value_or(0.0);
    if (training && num_batches_tracked.defined()) {
      const NoGradGuard off;
      num_batches_tracked.add_(1);
      if (!options.momentum()) factor = 1.0 / static_cast<double>(num_batches_tracked.item<std::int64_t>());
    }
    const auto how = functional::BatchNormFuncOptions()
                         .weight(weight)
                         .bias(bias)
                         .training(training || !running_mean.defined())
                         .momentum(factor)
                         .eps(options.eps());
    const bool pass = !training || track;
    const Tensor mean = pass ? running_mean : Tensor(), var = pass ? running_var : Tensor();
    // Without running statistics, evaluation goes by each rank's own batch.
    return training ? functional::sync_batch_norm(input, mean, var, how, process_group)
                    : functional::batch_norm(input, mean, var, how);
  });
}

namespace {

template <class F>
void for_each_batch_norm(Module& module, F f) {
  module.apply([&](Module& m) {
    if (auto* one = dynamic_cast<BatchNorm1dImpl*>(&m)) f(*one);
    if (auto* two = dynamic_cast<BatchNorm2dImpl*>(&m)) f(*two);
    if (auto* three = dynamic_cast<BatchNorm3dImpl*>(&m)) f(*three);
  });
}

}  // namespace

int convert_sync_batchnorm(Module& module, const ProcessGroupPtr& group) {
  int count = 0;
  for_each_batch_norm(module, [&](auto& norm) {
    norm.normalize = [group](const Tensor& input, const Tensor& mean, const Tensor& var,
                             const functional::BatchNormFuncOptions& how) {
      return functional::sync_batch_norm(input, mean, var, how, group);
    };
    ++count;
  });
  return count;
}

bool has_sync_batchnorm(Module& module) {
  bool found = false;
  module.apply([&](Module& m) { found = found || dynamic_cast<SyncBatchNormImpl*>(&m); });
  for_each_batch_norm(module, [&](auto& norm) { found = found || norm.normalize; });
  return found;
}

}  // namespace athanor::nn
