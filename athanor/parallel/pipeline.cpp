#include "athanor/parallel/pipeline.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "athanor/autograd/function.h"
#include "athanor/ops/history.h"
#include "athanor/parallel/data_parallel.h"
#include "athanor/tape/grad_mode.h"
#include "athanor/tape/node.h"
#include "athanor/tensor/stream.h"

namespace athanor::nn::parallel {

std::vector<std::vector<PipelineStep>> pipeline_steps(PipelineSchedule schedule, std::int64_t stages,
                                                      std::int64_t micro_batches) {
  ATHANOR_CHECK_VALUE(stages > 0 && micro_batches > 0, "pipeline_steps: ", stages, " stages and ", micro_batches,
                      " micro-batches; both must be positive");
  std::vector<std::vector<PipelineStep>> all;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    std::vector<PipelineStep>& steps = all.emplace_back();
    if (schedule == PipelineSchedule::FillDrain) {
      for (std::int64_t m = 0; m < micro_batches; ++m) steps.push_back({m, false});
      for (std::int64_t m = micro_batches; m-- > 0;) steps.push_back({m, true});
      continue;
    }
    const std::int64_t ahead = std::min(micro_batches, stages - stage);
    for (std::int64_t m = 0; m < ahead; ++m) steps.push_back({m, false});
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      steps.push_back({m, true});
      if (m + ahead < micro_batches) steps.push_back({m + ahead, false});
    }
  }
  return all;
}

namespace {

std::vector<std::int64_t> equal_parts(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> parts;
  for (std::int64_t i = 0; i < stages; ++i) parts.push_back((layers + i) / stages);
  return parts;
}

std::string text_of(const std::vector<std::int64_t>& numbers) { return athanor::detail::str(IntArrayRef(numbers)); }

}  // namespace

PipelineImpl::PipelineImpl(const Sequential& layers, PipelineOptions options)
    : Module("Pipeline"), options_(std::move(options)) {
  if (options_.devices().empty()) options_.devices(all_devices());
  const auto count = static_cast<std::int64_t>(layers->size());
  const auto stages = static_cast<std::int64_t>(options_.devices().size());
  if (options_.balance().empty()) options_.balance(equal_parts(count, stages));
  const std::vector<std::int64_t>& balance = options_.balance();
  std::int64_t sum = 0;
  for (const std::int64_t n : balance) {
    ATHANOR_CHECK_VALUE(n > 0, "Pipeline: every stage needs a layer, got balance ", text_of(balance), " for ", count,
                        " layers on ", stages, " devices");
    sum += n;
  }
  ATHANOR_CHECK_VALUE(sum == count, "Pipeline: balance ", text_of(balance), " is for ", sum, " layers, there are ",
                      count);
  ATHANOR_CHECK_VALUE(static_cast<std::int64_t>(balance.size()) == stages, "Pipeline: balance ", text_of(balance),
                      " is for ", balance.size(), " stages, there are ", stages, " devices");
  const auto named = layers->named_children();
  auto layer = layers->begin();
  for (const std::int64_t n : balance) {
    Sequential& stage = stages_.emplace_back();
    for (std::int64_t i = 0; i < n; ++i, ++layer) stage->push_back(*layer);
  }
  for (const auto& child : named) register_module(child.key(), child.value());
  place();
}

PipelineImpl::PipelineImpl(const std::vector<AnyModule>& stages, PipelineOptions options)
    : Module("Pipeline"), options_(std::move(options)) {
  if (options_.devices().empty()) options_.devices(all_devices());
  ATHANOR_CHECK_VALUE(!stages.empty() && stages.size() == options_.devices().size(), "Pipeline: ", stages.size(),
                      " stages for ", options_.devices().size(), " devices");
  ATHANOR_CHECK_VALUE(options_.balance().empty(), "Pipeline: balance is for a Sequential, not for a list of stages");
  for (std::size_t i = 0; i < stages.size(); ++i) {
    stages_.emplace_back()->push_back(stages[i]);
    register_module(std::to_string(i), stages[i].ptr());
  }
  place();
}

void PipelineImpl::place() {
  ATHANOR_CHECK_VALUE(options_.chunks() > 0, "Pipeline: chunks must be positive, got ", options_.chunks());
  const std::optional<std::int64_t> split = options_.split_size();
  ATHANOR_CHECK_VALUE(!split || *split > 0, "Pipeline: split_size must be positive, got ", split.value_or(0));
  std::vector<PipelineCheckpoint>& how = options_.checkpoint();
  if (how.size() == 1) how.assign(stages_.size(), how[0]);
  ATHANOR_CHECK_VALUE(how.size() == stages_.size(), "Pipeline: checkpoint says how for ", how.size(),
                      " stages, there are ", stages_.size());
  std::vector<Device> devices;
  for (const Device device : options_.devices()) devices.push_back(resolve(device));
  options_.devices(std::move(devices));
  check_sharing();
  for (std::size_t i = 0; i < stages_.size(); ++i) stages_[i]->to(options_.devices()[i]);
}

void PipelineImpl::check_sharing() const {
  std::unordered_map<const TensorImpl*, std::pair<std::string, std::size_t>> seen;
  const auto check = [&](const char* what, std::size_t stage, const std::string& layer, const auto& named) {
    for (const auto& item : named) {
      const std::string name = layer + "." + item.key();
      const auto& [other, earlier] = seen.try_emplace(item->impl(), name, stage).first->second;
      ATHANOR_CHECK_VALUE(devices()[earlier] == devices()[stage], "Pipeline: ", what, " '", other, "' of stage ",
                          earlier, " on ", devices()[earlier], " is ", what, " '", name, "' of stage ", stage, " on ",
                          devices()[stage], " as well, and can lie on one device only. Put what shares it into one ",
                          "stage, or give each its own and add up their gradients");
    }
  };
  std::size_t stage = 0, left = stages_[0]->size();
  for (const auto& layer : named_children()) {
    for (; left == 0; left = stages_[stage]->size()) ++stage;
    --left;
    check("parameter", stage, layer.key(), layer.value()->named_parameters());
    check("buffer", stage, layer.key(), layer.value()->named_buffers());
  }
}

// All of them travel before any work is enqueued: a copy from the host waits for what its queue has to do already.
std::vector<Tensor> PipelineImpl::micro_batches(const Tensor& batch, Device device, const char* what) const {
  ATHANOR_CHECK(batch.defined() && batch.dim() > 0, "Pipeline: ", what, " needs a batch as its first dimension, got ",
                batch.defined() ? "a 0-d tensor" : "none");
  const std::int64_t size = batch.size(0);
  ATHANOR_CHECK_VALUE(size > 0, "Pipeline: ", what, " of shape ", batch.sizes(), " is an empty batch");
  const std::int64_t split = options_.split_size().value_or(0);
  ATHANOR_CHECK_VALUE(split <= size, "Pipeline: split_size ", split, " is beyond the batch of ", size);
  std::vector<Tensor> parts = split > 0 ? batch.split(split) : batch.chunk(options_.chunks());
  for (Tensor& part : parts) part = part.to(device);
  return parts;
}

Tensor PipelineImpl::run_stage(std::size_t stage, const Tensor& x, bool last_micro_batch) {
  Sequential& layers = stages_[stage];
  const PipelineCheckpoint how = options_.checkpoint()[stage];
  const bool again = how == PipelineCheckpoint::Always || (how == PipelineCheckpoint::ExceptLast && !last_micro_batch);
  if (!again || !GradMode::is_enabled()) return layers(x);
  const auto fn = [layers](const autograd::variable_list& in) mutable {
    return autograd::variable_list{layers(in[0].clone())};  // a first layer in place must not write what is kept
  };
  return autograd::checkpoint(fn, {x})[0];
}

Tensor PipelineImpl::forward(const Tensor& input) {
  const std::vector<Tensor> parts = micro_batches(input, devices().front(), "the input");
  std::vector<Tensor> outputs;
  for (std::size_t m = 0; m < parts.size(); ++m) {
    Tensor x = parts[m];
    for (std::size_t s = 0; s < stages_.size(); ++s) x = run_stage(s, x.to(devices()[s]), m + 1 == parts.size());
    ATHANOR_CHECK(x.dim() > 0 && x.size(0) == parts[m].size(0), "Pipeline: the last stage made a tensor of shape ",
                  x.sizes(), " of a micro-batch of ", parts[m].size(0), "; its first dimension must be the batch");
    outputs.push_back(x);
  }
  return outputs.size() == 1 ? outputs[0] : cat(outputs, 0);
}

namespace {

// What a neighbour is going to copy: a hidden layout is restored now, since it would be behind the steps that its queue
// is given before the neighbour's.
void restore_layout(const Tensor& t) {
  if (t.defined()) static_cast<void>(t.storage()->data());
}

// Where a stage's graph begins: keeps the gradient of the stage's input, on the stage's device.
struct EntranceNode final : Node {
  void apply(const GradList& in, GradList&) override {
    gradient = Tensor(in[0]);
    restore_layout(gradient);
  }
  std::string name() const override { return "PipelineStageBackward"; }
  Tensor gradient;
};

}  // namespace

// One train_step. Every stage's graph is its own, and whatever a stage waits for, copies from its neighbours included,
// is enqueued with the step that needs it: a queue is in order, so a copy that came sooner would hold back other steps.
class PipelineImpl::Run {
 public:
  using Loss = std::function<Tensor(const Tensor&, const Tensor&)>;
  Run(PipelineImpl& pipeline, const Tensor& input, const Tensor& target, const Loss& loss)
      : pipeline_(pipeline),
        loss_(loss),
        inputs_(pipeline.micro_batches(input, pipeline.devices().front(), "the input")),
        stages_(pipeline.stages()) {
    ATHANOR_CHECK_VALUE(target.defined() && target.dim() > 0 && target.size(0) == input.size(0),
                        "Pipeline::train_step: a batch of ", input.size(0), " with a target of shape ",
                        target.defined() ? target.sizes() : IntArrayRef());
    targets_ = pipeline.micro_batches(target, pipeline.devices().back(), "the target");
    total_ = static_cast<double>(input.size(0));
    steps_done_.assign(stages_, std::vector<int>(inputs_.size(), 0));
    ends_.assign(stages_, std::vector<Tensor>(inputs_.size()));
    entrances_.assign(stages_, std::vector<IntrusivePtr<EntranceNode>>(inputs_.size()));
  }

  Tensor go() {
    const auto count = static_cast<std::int64_t>(inputs_.size());
    const auto steps = pipeline_steps(pipeline_.options_.schedule(), static_cast<std::int64_t>(stages_), count);
    std::vector<std::size_t> at(stages_, 0);
    // In an order that has each step after what it needs, and the stages in turns.
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < stages_; ++s) {
        if (at[s] == steps[s].size() || !ready(s, steps[s][at[s]])) continue;
        const PipelineStep& step = steps[s][at[s]++];
        const auto m = static_cast<std::size_t>(step.micro_batch);
        step.backward ? backward(s, m) : forward(s, m);
        ++steps_done_[s][m];
        moved = true;
      }
    }
    return sum_;
  }

 private:
  bool ready(std::size_t s, const PipelineStep& step) const {
    const auto m = static_cast<std::size_t>(step.micro_batch);
    if (!step.backward) return s == 0 || steps_done_[s - 1][m] > 0;
    return s + 1 == stages_ ? steps_done_[s][m] == 1 : steps_done_[s + 1][m] == 2;
  }

  Tensor entrance(std::size_t s, std::size_t m) {
    if (s == 0) return inputs_[m].detach();
    const Tensor& from = ends_[s - 1][m];
    const Device device = pipeline_.devices()[s];
    // A copy even on the same device: the stage may begin with an in-place layer, which must not write what the stage
    // before has kept.
    Tensor x = from.device() == device ? from.detach().clone() : from.detach().to(device);
    if (from.requires_grad()) {
      entrances_[s][m] = make_intrusive<EntranceNode>();
      set_history(x, entrances_[s][m]);
    }
    return x;
  }

  void forward(std::size_t s, std::size_t m) {
    Tensor y = pipeline_.run_stage(s, entrance(s, m), m + 1 == inputs_.size());
    if (s + 1 == stages_) {
      const double share = static_cast<double>(inputs_[m].size(0)) / total_;
      y = loss_(y, targets_[m]);
      ATHANOR_CHECK(y.dim() == 0, "Pipeline::train_step: the loss must be a scalar, got shape ", y.sizes());
      y = y * share;
      sum_ = sum_.defined() ? sum_ + y.detach() : y.detach();
    }
    restore_layout(y);
    ends_[s][m] = y;
  }

  void backward(std::size_t s, std::size_t m) {
    const Tensor y = std::exchange(ends_[s][m], Tensor());
    if (!y.requires_grad()) return;
    if (s + 1 == stages_) return y.backward();
    const IntrusivePtr<EntranceNode> next = std::move(entrances_[s + 1][m]);
    if (next && next->gradient.defined()) y.backward(next->gradient.to(pipeline_.devices()[s]));
  }

  PipelineImpl& pipeline_;
  const Loss& loss_;
  std::vector<Tensor> inputs_, targets_;
  std::size_t stages_;
  double total_ = 0;
  // Of each stage and micro-batch: 1 after forward, 2 after backward; the output until then, the loss's share in the
  // last stage; the beginning of its graph until the stage before has the gradient.
  std::vector<std::vector<int>> steps_done_;
  std::vector<std::vector<Tensor>> ends_;
  std::vector<std::vector<IntrusivePtr<EntranceNode>>> entrances_;
  Tensor sum_;
};

Tensor PipelineImpl::train_step(const Tensor& input, const Tensor& target,
                                const std::function<Tensor(const Tensor&, const Tensor&)>& loss) {
  const AutoGradMode on(true);
  return Run(*this, input, target, loss).go();
}

}  // namespace athanor::nn::parallel
