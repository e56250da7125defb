#include "athanor/distributed/process_group.h"

#include <ctime>

#include "athanor/base/env.h"
#include "athanor/base/log.h"
#include "athanor/distributed/early_use.h"
#include "athanor/distributed/process_group_impl.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/tensor/stream.h"

namespace athanor::distributed {

using athanor::detail::str;

std::string host_backend(const std::string& text) {
  if (text.find(':') == std::string::npos) return text;
  std::string rest = text, found;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string part = rest.substr(0, end);
    rest.erase(0, std::min(end + 1, rest.size()));
    const std::size_t colon = part.find(':');
    const std::string device = part.substr(0, colon);
    ATHANOR_CHECK_VALUE(colon != std::string::npos && colon + 1 < part.size() && (device == "cpu" || device == "cuda"),
                        "backend '", text, "': '", part, "' should be device:name, as in cpu:tcp,cuda:nccl");
    if (device == "cpu" || (text == part && athanor::detail::cuda_queue_count() > 0)) {
      ATHANOR_CHECK_VALUE(found.empty(), "backend '", text, "' names two backends for cpu");
      found = part.substr(colon + 1);
    }
  }
  ATHANOR_CHECK_VALUE(!found.empty(), "backend '", text, "' names none for cpu, and this build has no other device");
  return found;
}

namespace {

// How long a rank of a broken group waits for the others' records.
constexpr std::chrono::milliseconds kReportPatience{1000};

BackendOptions backend_options(const ProcessGroupOptions& options, const std::shared_ptr<Store>& store,
                               const std::vector<int>& global_ranks, const std::string& secret) {
  BackendOptions wanted;
  wanted.store = std::make_shared<PrefixStore>("backend", store);
  wanted.rank = options.rank;
  wanted.size = options.size;
  wanted.global_ranks = global_ranks;
  wanted.group_name = options.name;
  wanted.timeout = options.timeout;
  wanted.secret = secret;
  wanted.ended = options.ended;
  return wanted;
}

// Without it the ranks need not reach each other but by the backend and the store.
std::unique_ptr<ControlChannel> control_for(const Backend& backend, BackendOptions options,
                                            const std::shared_ptr<Store>& store) {
  if (backend.compares_fingerprints() || backend.size() == 1 || !env::flag("ATHANOR_CHECK_COLLECTIVES", true))
    return nullptr;
  options.store = std::make_shared<PrefixStore>("control", store);
  return make_control_channel(options);
}

// Ranks that talk to each other in different ways would wait for each other until the timeout.
void agree_on_backend(Store& store, const std::string& backend, int rank, std::chrono::milliseconds timeout) {
  const StoreDeadline limit(Deadline::after(timeout));
  const std::string own = str("backend '", backend, "' of rank ", rank);
  const Store::Value first = store.compare_set("backend chosen", {}, Store::Value(own.begin(), own.end()));
  const std::string chosen(first.begin(), first.end());
  if (!chosen.starts_with(str("backend '", backend, "' ")))
    throw DistBackendError(str("init_process_group: ", own, ", but ", chosen, ": all ranks need the same one"),
                           ATHANOR_WHERE);
}

std::vector<int> ranks_or_all(const ProcessGroupOptions& options) {
  std::vector<int> ranks = options.global_ranks;
  if (ranks.empty())
    for (int r = 0; r < options.size; ++r) ranks.push_back(r);
  ATHANOR_CHECK_VALUE(ranks.size() == static_cast<std::size_t>(options.size), "process group '", options.name,
                      "': ", ranks.size(), " global ranks for ", options.size, " members");
  return ranks;
}

}  // namespace

Deadline deadline_soon(std::chrono::milliseconds timeout) {
#ifdef CLOCK_MONOTONIC_COARSE
  // The same clock as steady_clock, as of the last tick of the system's timer.
  constexpr std::chrono::milliseconds kTick{10};
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const auto since = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  return Deadline(Deadline::Clock::time_point(since) + kTick + timeout);
#else
  return Deadline(Deadline::Clock::now() + timeout);
#endif
}

// ---- Impl

ProcessGroup::Impl::Impl(ProcessGroup& group, std::shared_ptr<Store> group_store, std::unique_ptr<Backend> made,
                         std::unique_ptr<ControlChannel> channel)
    : rank(group.rank_),
      size(group.size_),
      name(group.name_),
      timeout(group.timeout_),
      store(std::move(group_store)),
      backend(std::move(made)),
      control(std::move(channel)),
      watcher(control ? control.get() : dynamic_cast<GroupWatch*>(backend.get())),
      debug(env::flag("ATHANOR_DISTRIBUTED_DEBUG", false)),
      generation(fork_generation()),
      recorder(group.name_, group.rank_, group.size_) {}

ProcessGroup::Impl::~Impl() = default;

Call ProcessGroup::Impl::describe(OpType op, const Tensor* tensor, std::int64_t count, int root, const ReduceOp& reduce,
                                  const Where& where) const {
  Call call;
  call.op = op;
  call.root = root;
  call.reduce = reduce.kind();
  call.user_operator = reduce.user_name();
  call.count = count;
  call.where = where;
  call.watch = watcher;
  if (tensor) {
    if (debug) EarlyUse::note(op_name(op), *tensor);
    call.dtype = tensor->scalar_type();
    call.shape = {tensor->sizes().data(), tensor->sizes().size()};
  }
  std::uint64_t h = mix(0, static_cast<std::uint64_t>(op) | static_cast<std::uint64_t>(call.dtype) << 8 |
                               static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 16);
  h = mix(h, static_cast<std::uint64_t>(count));
  call.fingerprint = mix(h, reduce.identity());
  // Parts of lists may differ between ranks.
  if (op <= OpType::Reduce || op == OpType::Gather || op == OpType::Scatter) agree_on(call, tensor->sizes());
  return call;
}

void ProcessGroup::Impl::throw_unusable(const Call& call) const {
  if (generation != fork_generation())
    throw DistError(str(op_name(call.op), ": process group '", name, "' was made before this process was forked and ",
                        "belongs to the parent; call init_process_group in the child"),
                    ATHANOR_WHERE);
  const std::lock_guard lock(failure_mutex);
  throw DistError(str(op_name(call.op), ": process group '", name, "' cannot be used any more: ", failure,
                      ". destroy_process_group, then init_process_group to go on"),
                  ATHANOR_WHERE);
}

// Another library tells of a connection that broke or a wait that was too long, not of the rank that is gone.
std::string ProcessGroup::Impl::why_failed() const {
  constexpr std::chrono::milliseconds kPatience{500};
  if (!control) return {};
  try {
    throw;
  } catch (const DistBackendError&) {
    try {
      control->look_for(kPatience);
    } catch (const DistBackendError& reason) {
      return reason.what();
    }
  } catch (const std::exception&) {  // no matter of the ranks
  }
  return {};
}

void ProcessGroup::Impl::call_failed(const Call& call, std::uint64_t ticket) {
  recorder.ended(ticket, false);
  const std::string why = why_failed();
  const auto broke = [&](const char* what) {
    const std::lock_guard lock(failure_mutex);
    if (unusable.load()) return false;
    failure = str(call.text(), " failed: ", what);
    unusable.store(true, std::memory_order_release);
    return true;
  };
  const auto report = [&](const char* what) {
    const std::string reason = str("rank ", rank, ": ", what);
    backend->abort(reason);
    if (control) control->abort(reason);
    std::string text =
        str("in ", call.text(), ", on rank ", rank, " of ", size, " in group '", name, "'\n",
            internals::merged_flight_report(
                *store, recorder, size, [this] { return lost_ranks(); }, std::min(timeout, kReportPatience), talk()));
    ATHANOR_LOG(Info, "collective failed: ", what, "\n", text);
    return text;
  };
  try {
    throw;
  } catch (Error& error) {
    if (!why.empty() && std::string_view(error.what()).find(why) == std::string_view::npos) error.add_context(why);
    if (broke(error.what())) error.add_context(report(error.what()));
    throw;
  } catch (const std::exception& error) {
    if (broke(error.what())) report(error.what());
    throw;
  }
}

void ProcessGroup::Impl::abort(const std::string& reason) noexcept {
  try {
    const std::lock_guard lock(failure_mutex);
    if (!unusable.load()) failure = str("it was aborted: ", reason);
    unusable.store(true, std::memory_order_release);
  } catch (const std::exception&) {  // no memory for the reason
    unusable.store(true, std::memory_order_release);
  }
  backend->abort(reason);
  if (control) control->abort(reason);
  try {
    internals::leave_flight_record(*store, recorder);
  } catch (const std::exception&) {  // the others will say that it is missing
  }
}

void ProcessGroup::Impl::shutdown() {
  if (generation != fork_generation()) {  // the parent's threads and connections are not here
    queue.forget_thread();
    if (p2p_thread.joinable()) new std::thread(std::move(p2p_thread));
    return;
  }
  queue.stop();
  bool well = false;
  {
    const std::lock_guard lock(failure_mutex);
    well = !unusable.load();
    if (well) failure = "it was destroyed";
    unusable.store(true, std::memory_order_release);
  }
  give_up_messages("its process group was destroyed");
  if (!well) return;
  backend->shutdown();
  if (control) control->shutdown();
}

// ---- ProcessGroup

ProcessGroup::ProcessGroup(std::shared_ptr<Store> store, const ProcessGroupOptions& options)
    : rank_(options.rank),
      size_(options.size),
      name_(options.name),
      backend_name_(host_backend(options.backend)),
      secret_(job_secret(options.secret)),
      timeout_(std::min<std::chrono::milliseconds>(options.timeout, std::chrono::hours(876'000))),
      global_ranks_(ranks_or_all(options)) {
  ATHANOR_CHECK_VALUE(size_ >= 1 && rank_ >= 0 && rank_ < size_, "process group '", name_, "': rank ", rank_, " of ",
                      size_, ", expected 0 to ", size_ - 1);
  ATHANOR_CHECK_VALUE(timeout_.count() > 0, "process group '", name_, "': the timeout should be positive, got ",
                      timeout_.count(), " ms");
  ATHANOR_CHECK_VALUE(store != nullptr, "process group '", name_, "': the store is null");
  store_ = std::make_shared<PrefixStore>(name_, std::move(store));
  if (size_ > 1) agree_on_backend(*store_, backend_name_, rank_, timeout_);
  const BackendOptions wanted = backend_options(options, store_, global_ranks_, secret_);
  ATHANOR_LOG(Debug, "group '", name_, "': rank ", rank_, " of ", size_, " connects by backend '", backend_name_, "'");
  const auto before = Deadline::Clock::now();
  auto backend = make_backend(backend_name_, wanted);
  auto control = control_for(*backend, wanted, store_);
  impl_ = std::make_unique<Impl>(*this, store_, std::move(backend), std::move(control));
  ATHANOR_LOG(Debug, "group '", name_, "': rank ", rank_, " of ", size_, " is ready after ",
              std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - before).count(), " ms");
}

ProcessGroup::ProcessGroup(OutsiderTag, const ProcessGroupOptions& options)
    : rank_(-1),
      size_(options.size),
      name_(options.name),
      backend_name_(host_backend(options.backend)),
      timeout_(options.timeout),
      global_ranks_(ranks_or_all(options)) {}

std::shared_ptr<ProcessGroup> ProcessGroup::outsider(const ProcessGroupOptions& options) {
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(OutsiderTag(), options));
}

ProcessGroup::~ProcessGroup() {
  try {
    if (impl_) impl_->shutdown();
  } catch (const std::exception& error) {
    ATHANOR_LOG(Warning, "process group '", name_, "' did not end well: ", error.what());
  }
}

int ProcessGroup::group_rank_of(int global_rank) const {
  for (std::size_t r = 0; r < global_ranks_.size(); ++r)
    if (global_ranks_[r] == global_rank) return static_cast<int>(r);
  ATHANOR_THROW(ValueError, "rank ", global_rank, " is no member of process group '", name_, "', which has the ranks ",
                std::vector<std::int64_t>(global_ranks_.begin(), global_ranks_.end()));
}

void ProcessGroup::abort(const std::string& reason) noexcept {
  if (impl_) impl_->abort(reason);
}

void ProcessGroup::shutdown() {
  if (impl_) impl_->shutdown();
}

bool ProcessGroup::usable() const { return impl_ && !impl_->unusable.load() && impl_->generation == fork_generation(); }

std::vector<int> ProcessGroup::lost_ranks() const {
  if (!impl_ || impl_->generation != fork_generation()) return {};
  return impl_->lost_ranks();
}

StateTalk* ProcessGroup::talk() const {
  return impl_ && impl_->generation == fork_generation() ? impl_->talk() : nullptr;
}

const FlightRecorder& ProcessGroup::flight_recorder() const {
  ATHANOR_CHECK(impl_, "process group '", name_, "': this process is no member");
  return impl_->recorder;
}

}  // namespace athanor::distributed
