#include "athanor/parallel/ddp.h"

#include <algorithm>
#include <cmath>

#include "athanor/distributed/groups.h"
#include "athanor/parallel/agreement.h"
#include "athanor/parallel/sync_batch_norm.h"

namespace athanor::nn::parallel {

using athanor::detail::str;

namespace {

std::vector<std::pair<std::string, Tensor>> named(const OrderedDict<std::string, Tensor>& tensors) {
  std::vector<std::pair<std::string, Tensor>> result;
  for (const auto& item : tensors) result.emplace_back(item.key(), item.value());
  return result;
}

std::string devices_text(const std::vector<Device>& devices) {
  std::string text = "[";
  for (const Device device : devices) text += str(text.size() > 1 ? ", " : "", device);
  return text + "]";
}

}  // namespace

NoSyncGuard::NoSyncGuard(DistributedDataParallelBase& ddp) : ddp_(ddp), before_(ddp.synchronize_) {
  ddp.synchronize_ = false;
}
NoSyncGuard::~NoSyncGuard() { ddp_.synchronize_ = before_; }

// Answers the others' forward and backward.
class DistributedDataParallelBase::Hook final : public JoinHook {
 public:
  explicit Hook(DistributedDataParallelBase& ddp) : ddp_(ddp) {}
  void main_hook() override {
    const std::vector<int> active = Join::active_ranks(ddp_);
    ddp_.broadcast_buffers(active.front());
    ddp_.reducer_->set_divisor(Join::divisor(ddp_));
    ddp_.reducer_->join_in();
  }
  void post_hook(int last_joiner) override {
    ddp_.reducer_->set_divisor(0);
    ddp_.broadcast_all(last_joiner);
  }

 private:
  DistributedDataParallelBase& ddp_;
};

DistributedDataParallelBase::DistributedDataParallelBase(const std::shared_ptr<Module>& module,
                                                         const DistributedDataParallelOptions& options)
    : Module("DistributedDataParallel"),
      wrapped_(module),
      options_(options),
      group_(distributed::group_or_default(options.process_group())) {
  ATHANOR_CHECK(module, "DistributedDataParallel: the module is empty");
  register_module("module", module);
  check_devices();
  ATHANOR_CHECK_VALUE(options.bucket_cap_mb() > 0 && std::isfinite(options.bucket_cap_mb()),
                      "DistributedDataParallel: bucket_cap_mb is ", options.bucket_cap_mb(), ", expected more than 0");
  std::vector<Reducer::Parameter> trained;
  for (const auto& item : module->named_parameters())
    if (item.value().requires_grad()) trained.emplace_back(item.key(), item.value());
  ATHANOR_CHECK(!trained.empty(),
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                "gradient.");
  if (options.init_sync() && group_->size() > 1) {
    check_same_tensors(*group_, "DistributedDataParallel", "parameter that requires grad", trained);
    check_same_tensors(*group_, "DistributedDataParallel", "parameter", named(module->named_parameters()));
    check_same_tensors(*group_, "DistributedDataParallel", "buffer", named(module->named_buffers()));
    broadcast_all(0);
  }
  ReducerOptions reducer;
  reducer.bucket_bytes = static_cast<std::size_t>(std::min(options.bucket_cap_mb() * 1048576.0, 1e15));
  reducer.bucket_bytes = std::max<std::size_t>(reducer.bucket_bytes, 1);
  reducer.first_bucket_bytes = std::min(reducer.first_bucket_bytes, reducer.bucket_bytes);
  reducer.static_graph = options.static_graph();
  reducer.overlap = options.overlap();
  reducer_ = std::make_shared<Reducer>(std::move(trained), group_, reducer);
}

DistributedDataParallelBase::~DistributedDataParallelBase() {
  if (reducer_) reducer_->abandon();
}

void DistributedDataParallelBase::check_devices() const {
  std::vector<Device> devices;
  for (const Tensor& p : wrapped_->parameters())
    if (std::find(devices.begin(), devices.end(), p.device()) == devices.end()) devices.push_back(p.device());
  const auto& ids = options_.device_ids();
  if (ids.empty() && !options_.output_device()) return;
  const bool host = devices.size() == 1 && devices[0].is_host();
  ATHANOR_CHECK_VALUE(!host && devices.size() == 1 && ids.size() <= 1,
                      "DistributedDataParallel: device_ids and output_device are for modules on one device that is not "
                      "the host, got device_ids ",
                      devices_text(ids), ", output_device ",
                      options_.output_device() ? options_.output_device()->str() : "none", " and parameters on ",
                      devices_text(devices), "; leave them out");
  if (ids.size() == 1)
    ATHANOR_CHECK_VALUE(ids[0] == devices[0], "DistributedDataParallel: device_ids is ", devices_text(ids),
                        ", but the parameters are on ", devices[0]);
}

void DistributedDataParallelBase::broadcast_buffers(int root) {
  if (!options_.broadcast_buffers() || group_->size() == 1) return;
  broadcast_tensors(*group_, wrapped_->buffers(), root, "DistributedDataParallel: the buffers");
}

void DistributedDataParallelBase::broadcast_all(int root) {
  std::vector<Tensor> all = wrapped_->parameters();
  for (const Tensor& buffer : wrapped_->buffers()) all.push_back(buffer);
  broadcast_tensors(*group_, all, root, "DistributedDataParallel: parameters and buffers");
}

void DistributedDataParallelBase::before_forward() {
  const bool recorded = GradMode::is_enabled(), averages = recorded && synchronize_;
  if (averages) Join::notify(*this);
  const std::vector<int> active = Join::active_ranks(*this);
  // In a join, those without inputs take part in forwards that count, and only in those.
  if (!active.empty() ? averages : buffers_due_) broadcast_buffers(active.empty() ? 0 : active.front());
  if (averages && !active.empty()) reducer_->set_divisor(Join::divisor(*this));
  if (recorded) reducer_->set_synchronizing(averages);
  buffers_due_ = averages;
}

void DistributedDataParallelBase::after_forward() {
  if (GradMode::is_enabled()) reducer_->live_with_graph();
}

void DistributedDataParallelBase::register_comm_hook(CommHook hook) {
  ATHANOR_CHECK(hook, "register_comm_hook: the hook is empty");
  ATHANOR_CHECK(!reducer_->has_hook(), "register_comm_hook or register_builtin_comm_hook can only be called once.");
  reducer_->set_hook(std::move(hook));
}

void DistributedDataParallelBase::to(const TensorOptions& options, bool) {
  for (const Tensor& p : wrapped_->parameters())
    ATHANOR_CHECK(
        options.dtype_opt().value_or(p.dtype()) == p.dtype() && options.device_opt().value_or(p.device()) == p.device(),
        "DistributedDataParallel: a wrapped module cannot be moved or converted, its gradients have their "
        "places in buckets; call to() on the module before wrapping it");
}

std::unique_ptr<JoinHook> DistributedDataParallelBase::join_hook(const JoinOptions& options) {
  ATHANOR_CHECK(options.throw_on_early_termination || !has_sync_batchnorm(*wrapped_),
                "DistributedDataParallel join: SyncBatchNorm communicates in forward, which a rank without inputs "
                "cannot take part in; set throw_on_early_termination");
  return std::make_unique<Hook>(*this);
}

}  // namespace athanor::nn::parallel
