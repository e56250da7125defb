#include "athanor/parallel/reducer.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "athanor/autograd/gradient_home.h"
#include "athanor/base/cpus.h"
#include "athanor/base/parallel.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/history.h"
#include "athanor/parallel/agreement.h"

namespace athanor::nn::parallel {

using distributed::ReduceOp;

namespace {

// Every gradient begins at its own cache line.
constexpr std::int64_t kAlignment = 64;
// What is reduced faster than another thread wakes up.
constexpr std::size_t kLittle = std::size_t{256} << 10;

std::int64_t padded(std::int64_t elements, DType dtype) {
  const std::int64_t line = kAlignment / static_cast<std::int64_t>(item_size(dtype));
  return (elements + line - 1) / line * line;
}

// Flat memory of all buckets of a layout on one device, and tensors on it. Host tensors are not views of each other,
// so that the program may detach_() its gradients.
class Memory {
 public:
  Memory(std::shared_ptr<void> shared, std::int64_t bytes, Device device) : held_(std::move(shared)) {
    if (held_) {
      base_ = static_cast<char*>(held_.get());
    } else if (device.is_host()) {
      const auto own = std::make_shared<Tensor>(zeros({bytes}, kByte));
      base_ = static_cast<char*>(own->data_ptr());
      held_ = own;
    }
    device_ = device;
  }
  Tensor tensor(std::int64_t byte, IntArrayRef sizes, IntArrayRef strides, DType dtype) const {
    return from_blob(
        base_ + byte, sizes, strides, [held = held_](void*) {}, TensorOptions(dtype));
  }
  bool on_host() const { return base_ != nullptr; }

 private:
  std::shared_ptr<void> held_;
  char* base_ = nullptr;
  Device device_;
};

DimVector strides_like(const Tensor& t) {
  if (t.is_non_overlapping_and_dense()) return DimVector(t.strides());
  return DimVector(empty(t.sizes(), t.options()).strides());
}

bool same_tensor(const Tensor& a, const Tensor& b) { return a.impl() == b.impl(); }

// Reducers that only graphs hold.
struct Abandoned {
  std::mutex lock;
  std::vector<Reducer*> reducers;
};
Abandoned& abandoned() {
  static Abandoned& all = *new Abandoned;
  return all;
}

}  // namespace

Reducer::Reducer(std::vector<Parameter> parameters, distributed::ProcessGroupPtr group, const ReducerOptions& options)
    : group_(std::move(group)), options_(options) {
  slots_.resize(parameters.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].name = std::move(parameters[i].first);
    slots_[i].parameter = std::move(parameters[i].second);
  }
  replace_abandoned();
  for (const auto& slot : slots_) {
    const AutogradMeta* meta = athanor::detail::autograd_meta_or_null(slot.parameter);
    ATHANOR_CHECK(
        !meta || !meta->gradient_home.defined(), "DistributedDataParallel: parameter '", slot.name,
        "' belongs to another DistributedDataParallel already; a parameter can be averaged by one only. If that "
        "one is gone, call backward() of its output or let go of it first");
  }
  // Gradients come in about the reverse order of the layers; the first backward will tell exactly.
  std::vector<std::size_t> order(slots_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  lay_out(cut(order));
  overlap_ = want_overlap();
  for (std::size_t i = 0; i < slots_.size(); ++i)
    autograd::set_gradient_home(slots_[i].parameter, slots_[i].home, [this, i] { completed(i); });
}

Reducer::~Reducer() {
  {
    Abandoned& all = abandoned();
    const std::lock_guard lock(all.lock);
    std::erase(all.reducers, this);
  }
  for (const Slot& slot : slots_) autograd::clear_gradient_home(slot.parameter);
}

// The nodes that accumulate into the parameters belong to the graphs that use them, and to nobody else.
void Reducer::live_with_graph() {
  if (graph_hook_ == 0) graph_hook_ = athanor::detail::next_hook_id();
  for (const Slot& slot : slots_) {
    AutogradMeta& meta = athanor::detail::autograd_meta(slot.parameter);
    {
      const std::lock_guard lock(meta.lock);
      if (!meta.accumulator) continue;
    }
    const Edge edge = gradient_edge(slot.parameter);
    if (!edge.is_valid()) continue;
    auto& hooks = edge.node->hooks().pre;
    if (std::any_of(hooks.begin(), hooks.end(), [&](const auto& h) { return h.first == graph_hook_; })) continue;
    hooks.emplace_back(graph_hook_, [held = shared_from_this()](GradList&) {});
  }
}

void Reducer::abandon() {
  Abandoned& all = abandoned();
  const std::lock_guard lock(all.lock);
  all.reducers.push_back(this);
}

void Reducer::replace_abandoned() const {
  std::vector<std::vector<Slot>> left;  // outlives the lock
  Abandoned& all = abandoned();
  const std::lock_guard lock(all.lock);
  std::erase_if(all.reducers, [&](Reducer* old) {
    const bool shares = std::any_of(slots_.begin(), slots_.end(), [&](const Slot& mine) {
      return std::any_of(old->slots_.begin(), old->slots_.end(),
                         [&](const Slot& slot) { return same_tensor(slot.parameter, mine.parameter); });
    });
    if (!shares || old->due_) return false;
    for (const Slot& slot : old->slots_) autograd::clear_gradient_home(slot.parameter);
    left.push_back(std::move(old->slots_));
    old->slots_.clear();
    return true;
  });
}

// A communication thread pays where it finds a processor to itself, or waits for a network.
bool Reducer::want_overlap() const {
  if (options_.overlap) return *options_.overlap;
  std::size_t bytes = 0;
  for (const Bucket& bucket : buckets_)
    bytes += static_cast<std::size_t>(bucket.flat.numel()) * item_size(bucket.flat.dtype());
  const bool crowded = group_->size() * get_num_threads() >= usable_cpus();
  Tensor wanted = full({1}, shared_ && (crowded || bytes < kLittle) ? 0 : 1, kByte);
  group_->all_reduce(wanted, ReduceOp::MAX, false, call_for("DistributedDataParallel: how to reduce"));
  return wanted.item<std::uint8_t>() != 0;
}

// A bucket holds one dtype on one device. Buckets are reduced in the order in which they are filled up.
Reducer::Order Reducer::cut(const std::vector<std::size_t>& order) const {
  struct Open {
    std::vector<std::size_t> members;
    std::size_t bytes = 0;
  };
  std::map<std::pair<std::string, DType>, Open> open;
  Order result;
  for (const std::size_t index : order) {
    const Tensor& p = slots_[index].parameter;
    Open& bucket = open[{p.device().str(), p.dtype()}];
    bucket.members.push_back(index);
    bucket.bytes += static_cast<std::size_t>(p.numel()) * item_size(p.dtype());
    if (bucket.bytes < (result.empty() ? options_.first_bucket_bytes : options_.bucket_bytes)) continue;
    result.push_back(std::move(bucket.members));
    bucket = {};
  }
  for (auto& [kind, bucket] : open)
    if (!bucket.members.empty()) result.push_back(std::move(bucket.members));
  return result;
}

void Reducer::lay_out(const Order& order) {
  const NoGradGuard off;
  struct Piece {
    std::int64_t elements = 0, marks = 0, byte = 0;
  };
  std::vector<Piece> pieces(order.size());
  std::int64_t bytes = 0;
  bool host = true;
  for (std::size_t b = 0; b < order.size(); ++b) {
    const Tensor& first = slots_[order[b][0]].parameter;
    for (const std::size_t i : order[b]) pieces[b].elements += padded(slots_[i].parameter.numel(), first.dtype());
    pieces[b].marks = padded(static_cast<std::int64_t>(order[b].size()), first.dtype());
    pieces[b].byte = bytes;
    bytes += (pieces[b].elements + pieces[b].marks) * static_cast<std::int64_t>(item_size(first.dtype()));
    host = host && first.device().is_host();
  }
  std::shared_ptr<void> shared;
  if (host && group_->size() > 1 && bytes > 0)
    shared = group_->allocate_shared(static_cast<std::size_t>(bytes), call_for("DistributedDataParallel: its buckets"));
  shared_ = static_cast<bool>(shared);
  const Memory memory(shared, bytes, host ? Device() : slots_[order[0][0]].parameter.device());

  buckets_.clear();
  buckets_.resize(order.size());
  for (std::size_t b = 0; b < order.size(); ++b) {
    Bucket& bucket = buckets_[b];
    const Piece& piece = pieces[b];
    bucket.members = order[b];
    const Tensor& first = slots_[order[b][0]].parameter;
    const auto item = static_cast<std::int64_t>(item_size(first.dtype()));
    Tensor whole;
    if (!memory.on_host()) whole = zeros({piece.elements + piece.marks}, first.options().requires_grad(false));
    const auto part = [&](std::int64_t begin, IntArrayRef sizes, IntArrayRef strides) {
      return memory.on_host() ? memory.tensor(piece.byte + begin * item, sizes, strides, first.dtype())
                              : whole.as_strided(sizes, strides, begin);
    };
    bucket.flat = part(0, {piece.elements + piece.marks}, {1});
    bucket.gradients = part(0, {piece.elements}, {1});
    bucket.marks = part(piece.elements, {static_cast<std::int64_t>(order[b].size())}, {1});
    std::int64_t begin = 0;
    for (std::size_t place = 0; place < order[b].size(); ++place) {
      Slot& slot = slots_[order[b][place]];
      slot.bucket = b;
      slot.place = place;
      slot.offset = begin;
      slot.home = part(begin, slot.parameter.sizes(), strides_like(slot.parameter));
      begin += padded(slot.parameter.numel(), first.dtype());
    }
  }
}

std::vector<std::vector<std::string>> Reducer::buckets() const {
  std::vector<std::vector<std::string>> result;
  for (const Bucket& bucket : buckets_) {
    result.emplace_back();
    for (const std::size_t i : bucket.members) result.back().push_back(slots_[i].name);
  }
  return result;
}

// ---- during backward

void Reducer::completed(std::size_t index) {
  Slot& slot = slots_[index];
  slot.used = true;
  ATHANOR_CHECK_TYPE(TypeError, slot.parameter.dtype() == slot.home.dtype(), "DistributedDataParallel: parameter '",
                     slot.name, "' is ", slot.parameter.dtype(), ", but was ", slot.home.dtype(),
                     " when it was wrapped; convert the module before wrapping it");
  if (!synchronizing_) return;
  if (!running_) begin();
  const NoGradGuard off;
  ++slot.fired;
  if (options_.static_graph && settled_) {
    ATHANOR_CHECK(slot.fired <= slot.expected, "DistributedDataParallel: static_graph is set, but parameter '",
                  slot.name, "' got a gradient ", slot.fired, " times in this backward and ", slot.expected,
                  " times in the first; leave static_graph off for graphs that change");
    move_in(slot);
    if (slot.fired == slot.expected) mark_ready(index);
    return;
  }
  ATHANOR_CHECK(slot.bucket >= launched_, "DistributedDataParallel: parameter '", slot.name,
                "' got a gradient again after it had been given to the other ranks: it takes part in a backward inside "
                "this backward, as autograd::checkpoint does, or in more than one. Set static_graph if every step has "
                "the same graph");
  move_in(slot);
  if (slot.fired > 1) return;
  if (!settled_) arrivals_.push_back(index);
  mark_ready(index);
}

void Reducer::begin() {
  ATHANOR_CHECK(broken_.empty(), broken_);
  running_ = true;
  launched_ = 0;
  arrivals_.clear();
  for (Bucket& bucket : buckets_) bucket.missing = bucket.members.size();
  for (Slot& slot : slots_) slot.fired = 0;
  // Without a call at the end, backward has failed.
  struct Pass {
    std::shared_ptr<Reducer> reducer;
    ~Pass() {
      if (reducer && reducer->running_) reducer->dropped();
    }
  };
  const auto pass = std::make_shared<Pass>();
  pass->reducer = shared_from_this();
  autograd::at_end_of_backward([pass] { pass->reducer->finish(false); });
  if (!options_.static_graph || !settled_) return;
  const NoGradGuard off;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].expected > 0) continue;
    fill_in(slots_[i], false);
    mark_ready(i);
  }
}

// Brings the gradient into its home, where it is not if the program gave `.grad` a tensor of its own.
void Reducer::move_in(Slot& slot) {
  Tensor& grad = slot.parameter.mutable_grad();
  if (same_tensor(grad, slot.home)) return;
  if (grad.defined())
    slot.home.copy_(grad);
  else
    slot.home.zero_();
  grad = slot.home;
}

void Reducer::mark_ready(std::size_t index) {
  --buckets_[slots_[index].bucket].missing;
  // Whether a graph is static shows in its first backward.
  if (overlap_ && (settled_ || !options_.static_graph)) launch();
}

void Reducer::launch() {
  while (launched_ < buckets_.size() && buckets_[launched_].missing == 0) start(launched_++);
}

void Reducer::start(std::size_t index) {
  Bucket& bucket = buckets_[index];
  if (hook_) {
    std::vector<Tensor> parameters;
    std::vector<std::int64_t> offsets;
    std::vector<DimVector> strides;
    for (const std::size_t i : bucket.members) {
      parameters.push_back(slots_[i].parameter);
      offsets.push_back(slots_[i].offset);
      strides.emplace_back(slots_[i].home.strides());
    }
    GradBucket given(index, index + 1 == buckets_.size(), bucket.gradients, std::move(parameters), std::move(offsets),
                     std::move(strides));
    bucket.result = hook_(given);
    ATHANOR_CHECK(bucket.result.valid(),
                  "DistributedDataParallel: the communication hook returned a future without "
                  "state for bucket ",
                  index);
    return;
  }
  if (std::all_of(bucket.members.begin(), bucket.members.end(), [&](std::size_t i) { return slots_[i].used; })) {
    bucket.marks.fill_(1);
  } else {
    std::vector<double> marks;
    for (const std::size_t i : bucket.members) marks.push_back(slots_[i].used ? 1 : 0);
    bucket.marks.copy_(athanor::tensor(marks, TensorOptions(kDouble)));
  }
  const ReduceOp op = divisor_ > 0 ? ReduceOp::premul_sum(1.0 / divisor_) : ReduceOp(ReduceOp::AVG);
  if (!bucket.purpose) bucket.purpose = call_for(purpose_of(index));
  bucket.work = group_->all_reduce(bucket.flat, op, overlap_, *bucket.purpose);
}

// "DistributedDataParallel's backward, bucket 0 (0.weight, 0.bias and 3 more)".
std::string Reducer::purpose_of(std::size_t index) const {
  constexpr std::size_t kShown = 2;
  const std::vector<std::size_t>& members = buckets_[index].members;
  std::string names;
  for (std::size_t i = 0; i < members.size() && i < kShown; ++i)
    names += athanor::detail::str(i > 0 ? ", " : "", slots_[members[i]].name);
  if (members.size() > kShown) names += athanor::detail::str(" and ", members.size() - kShown, " more");
  return athanor::detail::str("DistributedDataParallel's backward, bucket ", index, " (", names, ")");
}

// ---- at its end

void Reducer::join_in() {
  ATHANOR_CHECK(broken_.empty(), broken_);
  running_ = true;
  launched_ = 0;
  arrivals_.clear();
  for (Slot& slot : slots_) slot.fired = 0;
  try {
    finish(true);
  } catch (...) {
    dropped();
    throw;
  }
}

void Reducer::finish(bool joining) {
  const NoGradGuard off;
  for (Slot& slot : slots_)
    if (slot.fired == 0 && (joining || !options_.static_graph || !settled_ || slot.expected > 0))
      fill_in(slot, joining);
  while (launched_ < buckets_.size()) start(launched_++);
  const std::vector<bool> used_somewhere = collect_results();
  if (!joining) settle(used_somewhere);
  const bool first = !settled_;
  if (first) {
    for (Slot& slot : slots_) slot.expected = slot.fired;
    if (overlap_ && group_->size() > 1) agree_on_order();
    settled_ = true;
  }
  end_of_pass();
  if (options_.static_graph && !first && !joining) check_static();
}

// No gradient came in this backward. One that came in an earlier one, without synchronization, counts nevertheless.
void Reducer::fill_in(Slot& slot, bool joining) {
  if (joining) {
    slot.used = false;
    slot.home.zero_();
    return;
  }
  if (slot.used) return move_in(slot);
  const Tensor& grad = slot.parameter.grad();
  if (!grad.defined()) {
    slot.home.zero_();
  } else if (same_tensor(grad, slot.home)) {
    slot.spared = grad.clone();
  } else {
    slot.spared = grad;
    slot.home.copy_(grad);
  }
}

// Which parameters got a gradient on any rank; those of this rank need not be told.
std::vector<bool> Reducer::collect_results() {
  for (Bucket& bucket : buckets_) {
    if (bucket.work) bucket.work->wait();
    bucket.work = nullptr;
    if (!bucket.result.valid()) continue;
    const Tensor result = bucket.result.get();
    ATHANOR_CHECK(result.defined() && result.numel() == bucket.gradients.numel(),
                  "DistributedDataParallel: the communication hook gave ", result, " for a bucket ", bucket.gradients,
                  "; it should give as many elements");
    if (result.data_ptr() != bucket.gradients.data_ptr()) bucket.gradients.copy_(result.reshape({-1}));
  }
  std::vector<bool> used(slots_.size(), true);
  Tensor marks;
  if (hook_) {
    std::vector<std::int64_t> own;
    for (const Slot& slot : slots_) own.push_back(slot.used);
    marks = athanor::tensor(own, TensorOptions(kByte));
    group_->all_reduce(marks, ReduceOp::MAX, false, call_for("DistributedDataParallel's backward: unused parameters"));
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.used) continue;
    const Tensor mark = hook_ ? marks.select(0, static_cast<std::int64_t>(i))
                              : buckets_[slot.bucket].marks.select(0, static_cast<std::int64_t>(slot.place));
    used[i] = mark.item().toDouble() > 0;
  }
  return used;
}

// A parameter that no rank used keeps the gradient it had, or none.
void Reducer::settle(const std::vector<bool>& used_somewhere) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.used) continue;
    Tensor& grad = slot.parameter.mutable_grad();
    if (used_somewhere[i])
      grad = slot.home;
    else if (slot.spared.defined() && same_tensor(grad, slot.home))
      slot.home.copy_(slot.spared);
    slot.spared = {};
  }
}

void Reducer::check_static() const {
  std::string missing;
  for (const Slot& slot : slots_)
    if (slot.fired < slot.expected)
      missing += athanor::detail::str(missing.empty() ? "" : ", ", "'", slot.name, "' (", slot.fired, " instead of ",
                                      slot.expected, " times)");
  ATHANOR_CHECK(missing.empty(),
                "DistributedDataParallel: static_graph is set, but parameters got fewer gradients in "
                "this backward than in the first: ",
                missing, "; leave static_graph off for graphs that change");
}

// All follow the order in which rank 0 got its gradients.
void Reducer::agree_on_order() {
  std::vector<std::size_t> order = arrivals_;
  std::vector<bool> listed(slots_.size());
  for (const std::size_t i : order) listed[i] = true;
  for (const Bucket& bucket : buckets_)
    for (const std::size_t i : bucket.members)
      if (!listed[i]) order.push_back(i);
  Tensor shared = athanor::tensor(std::vector<std::int64_t>(order.begin(), order.end()), TensorOptions(kLong));
  group_->broadcast(shared, 0, false, call_for("DistributedDataParallel: the order of its gradients"));
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::size_t>(shared.data_ptr<std::int64_t>()[i]);
  const Order wanted = cut(order);
  Order present;
  for (const Bucket& bucket : buckets_) present.push_back(bucket.members);
  if (wanted == present) return;
  std::vector<Tensor> old;
  for (const Slot& slot : slots_) old.push_back(slot.home);
  lay_out(wanted);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    autograd::move_gradient_home(slot.parameter, slot.home);
    Tensor& grad = slot.parameter.mutable_grad();
    if (!same_tensor(grad, old[i])) continue;
    slot.home.copy_(old[i]);
    grad = slot.home;
  }
}

void Reducer::end_of_pass() noexcept {
  for (Slot& slot : slots_) slot.used = false;
  running_ = false;
  due_ = false;
}

// A backward failed half way. Nothing is lost if the others have not seen anything of it.
void Reducer::dropped() noexcept {
  running_ = due_ = false;
  for (Slot& slot : slots_) slot.spared = {};
  if (launched_ == 0) return;
  broken_ = athanor::detail::str(
      "DistributedDataParallel: an earlier backward failed on this rank when ", launched_, " of ", buckets_.size(),
      " buckets of gradients had been given to the other ranks; they are out of step now. End the job, or make a new "
      "group and DistributedDataParallel on all ranks");
}

}  // namespace athanor::nn::parallel
