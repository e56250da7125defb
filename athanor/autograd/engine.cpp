#include "athanor/autograd/engine.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "athanor/autograd/gradient_home.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/direct_gradient.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/view.h"
#include "athanor/profiler/record.h"
#include "athanor/tape/anomaly.h"
#include "athanor/tape/grad_mode.h"
#include "athanor/tape/run_hooks.h"
#include "athanor/tape/wanted_edges.h"

namespace athanor::autograd {
namespace {

/// Gradients on their way to one node, which the roots and inputs of the backward hold: a node never gives up its
/// edges.
struct Pending {
  Node* node = nullptr;
  GradList grads;
};

/// Nodes that have received a gradient, largest sequence number first. Few are there at a time in most graphs: those
/// are looked for one by one, without a map.
class ReadyQueue {
 public:
  GradList& slot(const Edge& e) {
    Node* node = e.node.get();
    if (Pending* p = find(node)) return p->grads;
    Pending* p = take_spare();
    p->node = node;
    p->grads.resize(std::max<std::size_t>(node->num_outputs(), 1));
    heap_.push_back({node->sequence_nr(), node, p});
    std::push_heap(heap_.begin(), heap_.end(), later);
    if (mapped_)
      by_node_.emplace(node, p);
    else if (heap_.size() > kMany)
      map_all();
    return p->grads;
  }
  bool empty() const { return heap_.empty(); }
  /// The caller gives it back with `recycle`.
  Pending* pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Ready last = heap_.back();
    heap_.pop_back();
    if (mapped_) unmap(last.node);
    return last.pending;
  }
  void recycle(Pending* p) {
    p->grads.clear();
    spare_.push_back(p);
  }

 private:
  struct Ready {
    std::uint64_t sequence;
    Node* node;
    Pending* pending;
  };
  static constexpr std::size_t kMany = 16;  // from here to a quarter of it nodes are found through the map
  static constexpr std::size_t kInline = 4;

  static bool later(const Ready& a, const Ready& b) { return a.sequence < b.sequence; }
  Pending* find(Node* node) const {
    if (mapped_) {
      const auto found = by_node_.find(node);
      return found == by_node_.end() ? nullptr : found->second;
    }
    for (const Ready& r : heap_)
      if (r.node == node) return r.pending;
    return nullptr;
  }
  void map_all() {
    for (const Ready& r : heap_) by_node_.emplace(r.node, r.pending);
    mapped_ = true;
  }
  void unmap(Node* node) {
    by_node_.erase(node);
    if (heap_.size() > kMany / 4) return;
    for (const Ready& r : heap_) by_node_.erase(r.node);  // clear() takes time for every bucket there ever was
    mapped_ = false;
  }
  Pending* take_spare() {
    if (!spare_.empty()) {
      Pending* p = spare_.back();
      spare_.pop_back();
      return p;
    }
    if (used_ < kInline) return &few_[used_++];
    more_.push_back(std::make_unique<Pending>());
    return more_.back().get();
  }

  SmallVector<Ready, kMany> heap_;
  SmallVector<Pending*, kMany> spare_;
  std::unordered_map<Node*, Pending*> by_node_;
  bool mapped_ = false;
  Pending few_[kInline];
  std::size_t used_ = 0;
  std::vector<std::unique_ptr<Pending>> more_;
};

/// Nodes from which some input edge can be reached, the inputs among them. A graph that is made later may reach any.
// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): the base's is protected
class Needed final : public athanor::detail::WantedEdges {
 public:
  Needed(const std::vector<Edge>& roots, const std::vector<Edge>& inputs) {
    std::unordered_set<Node*> seen;
    std::vector<Node*> order, stack;
    std::uint64_t oldest = UINT64_MAX;
    for (const Edge& e : inputs)
      if (e.node) {
        leads_.emplace(e.node.get(), false);
        oldest = std::min(oldest, e.node->sequence_nr());
      }
    if (InnerGraph::any()) oldest = 0;
    for (const Edge& e : roots)
      if (e.node && seen.insert(e.node.get()).second) stack.push_back(e.node.get());
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      order.push_back(n);
      for (std::size_t i = 0; i < n->num_edges(); ++i)
        if (const Edge& e = n->edge(i); e.node && e.node->sequence_nr() >= oldest && seen.insert(e.node.get()).second)
          stack.push_back(e.node.get());
    }
    std::sort(order.begin(), order.end(), [](Node* a, Node* b) { return a->sequence_nr() < b->sequence_nr(); });
    for (Node* n : order) {
      bool leads = n->has_inner_graph();
      for (std::size_t i = 0; i < n->num_edges() && !leads; ++i) leads = contains(n->edge(i).node.get());
      if (leads) leads_[n] = true;
    }
  }
  bool contains(const Node* n) const { return leads_.count(n) != 0; }
  /// Whether it has to run: an input that leads to no other one is where the walk ends.
  bool runs(const Node& n) const {
    const auto at = leads_.find(&n);
    return at != leads_.end() && (at->second || n.variable());
  }
  bool leads(const Node* n) const override { return contains(n); }

 private:
  std::unordered_map<const Node*, bool> leads_;
};

/// Sums what broadcasting had repeated.
void conform_shape(TensorBase& g, const OutputMeta& want, const Edge& target, const Node& from) {
  bool expandable = g.dim() >= static_cast<std::int64_t>(want.sizes.size());
  for (std::size_t i = 0; expandable && i < want.sizes.size(); ++i) {
    const std::int64_t have = g.sizes()[g.sizes().size() - 1 - i], w = want.sizes[want.sizes.size() - 1 - i];
    expandable = have == w || w == 1;
  }
  if (expandable) {
    g = ops::sum_to_size(g, want.sizes);
    return;
  }
  ATHANOR_THROW(Error, "Function ", from.name(), " returned an invalid gradient at an input of ", target.node->name(),
                " - got ", g.sizes(), " but expected shape compatible with ", IntArrayRef(want.sizes));
}

/// Brings a gradient to the shape and dtype its target expects, and one number to its device.
void conform(TensorBase& g, const Edge& target, const Node& from) {
  if (target.nr >= target.node->num_outputs()) return;
  const OutputMeta& want = target.node->output(target.nr);
  if (g.dtype() != want.dtype && is_floating_point(want.dtype)) g = ops::to_dtype(g, want.dtype);
  if (__builtin_expect(!(g.sizes() == IntArrayRef(want.sizes)), 0)) conform_shape(g, want, target, from);
  if (__builtin_expect(g.device() == want.device, 1) || want.dtype == DType::Undefined) return;
  ATHANOR_CHECK(g.dim() == 0, "Function ", from.name(), " returned an invalid gradient at an input of ",
                target.node->name(), " - expected device ", want.device, " but got ", g.device(),
                "; return it as grad.to(input.device())");
  g = ops::to_device(g, want.device);
}

void add_to(TensorBase& slot, TensorBase g) {
  if (!slot.defined()) {
    slot = std::move(g);
    return;
  }
  // Nobody else sees a sum made here, so the third gradient is added in place.
  const bool own = !GradMode::is_enabled() && slot.use_count() == 1 && slot.storage()->use_count() == 1 &&
                   !slot.impl()->tracked && slot.is_non_overlapping_and_dense() && slot.sizes() == g.sizes();
  if (own)
    ops::add_(slot, g);
  else
    slot = ops::add(slot, g);
}

void check_nan(const GradList& grads, const Node& node) {
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined() || !grads[i].is_floating_point()) continue;
    const TensorBase s = ops::sum(ops::sub(grads[i], grads[i]));
    const double v = s.item().toDouble();  // NaN as soon as one element is NaN or infinite
    if (v == v) continue;
    const TensorBase total = ops::sum(grads[i]);
    const double t = total.item().toDouble();
    if (t == t) continue;
    const std::string* trace = node.forward_trace_or_null();
    ATHANOR_THROW(Error, "Function '", node.name(), "' returned nan values in its ", i, "th output.",
                  trace ? "\nForward call was made at:\n" + *trace : "");
  }
}

struct GradModeScope {
  explicit GradModeScope(bool on) : saved(GradMode::is_enabled()) { GradMode::set_enabled(on); }
  ~GradModeScope() { GradMode::set_enabled(saved); }
  bool saved;
};

struct WantedScope {
  explicit WantedScope(const Needed* needed) : saved(athanor::detail::wanted_edges) {
    athanor::detail::wanted_edges = needed;
  }
  ~WantedScope() { athanor::detail::wanted_edges = saved; }
  const athanor::detail::WantedEdges* saved;
};

struct Capture {
  std::uint32_t nr;
  std::size_t index;
};

/// What the outermost backward of this thread does at its end.
struct EndOfBackward {
  EndOfBackward() : outermost(!present) {
    if (outermost) present = this;
  }
  ~EndOfBackward() {
    if (outermost) present = nullptr;
  }
  void run() {
    if (!outermost) return;
    for (std::size_t i = 0; i < calls.size(); ++i) {  // NOLINT(modernize-loop-convert): a call may add another
      const std::function<void()> call = std::move(calls[i]);
      call();
    }
  }
  static thread_local EndOfBackward* present;
  const bool outermost;
  std::vector<std::function<void()>> calls;
};
thread_local EndOfBackward* EndOfBackward::present = nullptr;

// Those of a leaf first: they run whether its gradient is accumulated or handed to the caller of grad().
void run_leaf_hooks(const TensorImpl& leaf, TensorBase& grad) {
  const auto& hooks = leaf.autograd->hooks;
  if (!hooks || !grad.defined()) return;
  athanor::detail::for_each_hook(hooks->hooks, [&](const TensorHooks::Hook& hook) {
    if (TensorBase changed = hook(grad); changed.defined()) grad = changed;
  });
}

void run_hooks(Node& node, GradList& grads) {
  if (const TensorImpl* leaf = node.variable()) run_leaf_hooks(*leaf, grads[0]);
  NodeHooks* hooks = node.hooks_or_null();
  if (!hooks) return;
  const auto run = [&](const NodeHooks::Pre& hook) { hook(grads); };
  athanor::detail::for_each_hook(hooks->pre, run);
  athanor::detail::for_each_hook(hooks->retain, run);
}

void apply(Node& node, const GradList& in, GradList& out) {
  if (__builtin_expect(!profiler::detail::is_recording(), 1)) return node.apply(in, out);
  const std::string name = node.name();
  const profiler::detail::Scope scope(
      {.name = name, .kind = profiler::EventKind::Backward, .sequence = node.sequence_nr()});
  node.apply(in, out);
}

/// What a backward is to do.
struct Plan {
  bool keep_graph, create_graph, accumulate;
  const std::vector<Edge>& inputs;
  /// Only what leads to an input runs.
  bool only_inputs = !inputs.empty();
  /// Part of a backward, whose inputs come first. The walk ends at every input.
  bool inner = false;
  std::size_t outer_inputs = 0;
};

/// A backward at work. The innermost of the thread is `present`.
struct Run {
  Run(const Plan& plan, ReadyQueue& ready) : plan(plan), ready(ready), outer(present) { present = this; }
  ~Run() { present = outer; }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  const Plan& plan;
  ReadyQueue& ready;
  Run* const outer;
  static thread_local Run* present;
};
thread_local Run* Run::present = nullptr;

std::vector<TensorBase> run(const std::vector<Edge>& roots, std::vector<TensorBase> gradients, const Plan& plan) {
  const std::vector<Edge>& inputs = plan.inputs;
  EndOfBackward end;
  const GradModeScope mode(plan.create_graph);
  const DirectGradients direct(!plan.only_inputs && plan.accumulate && !plan.create_graph && !anomaly_enabled());
  std::vector<TensorBase> captured(inputs.size());
  std::unordered_map<Node*, std::vector<Capture>> captures;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].node) captures[inputs[i].node.get()].push_back({inputs[i].nr, i});
  std::unique_ptr<Needed> needed;
  if (plan.only_inputs) needed = std::make_unique<Needed>(roots, inputs);
  const WantedScope wanted(needed.get());

  ReadyQueue ready;
  const Run here(plan, ready);
  for (std::size_t i = 0; i < roots.size(); ++i)
    if (roots[i].node) add_to(ready.slot(roots[i])[roots[i].nr], std::move(gradients[i]));

  while (!ready.empty()) {
    Pending* p = ready.pop();
    Node& node = *p->node;
    const auto capture = captures.find(&node);
    const bool captures_here = capture != captures.end();
    const bool ends_here = captures_here && plan.inner;
    const bool leaf = node.variable() != nullptr;
    if (!captures_here || capture->second.front().index >= plan.outer_inputs) run_hooks(node, p->grads);
    if (captures_here)
      for (const Capture& c : capture->second)  // more than once where an inner graph led to the node, too
        if (p->grads[c.nr].defined()) add_to(captured[c.index], p->grads[c.nr]);
    if (ends_here || (needed && (!needed->runs(node) || (leaf && !plan.accumulate)))) {
      ready.recycle(p);
      continue;
    }
    GradList out(node.num_edges());
    apply(node, p->grads, out);
    if (__builtin_expect(anomaly_enabled() && anomaly_checks_nan(), 0)) check_nan(out, node);
    if (NodeHooks* hooks = node.hooks_or_null())
      athanor::detail::for_each_hook(hooks->post, [&](const NodeHooks::Post& hook) { hook(out, p->grads); });
    if (!plan.keep_graph) node.release();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Edge& e = node.edge(i);
      if (!e.node || !out[i].defined() || (needed && !needed->contains(e.node.get()))) continue;
      conform(out[i], e, node);
      TensorBase& slot = ready.slot(e)[e.nr];
      add_to(slot, std::move(out[i]));
    }
    ready.recycle(p);
  }
  end.run();
  return captured;
}

}  // namespace

std::vector<TensorBase> run_backward(const std::vector<Edge>& roots, std::vector<TensorBase> gradients, bool keep_graph,
                                     bool create_graph, const std::vector<Edge>& inputs, bool accumulate) {
  return run(roots, std::move(gradients), {keep_graph, create_graph, accumulate, inputs});
}

std::vector<TensorBase> run_inner_backward(const std::vector<Edge>& roots, std::vector<TensorBase> gradients,
                                           const std::vector<Edge>& own, bool create_graph) {
  Run* outer = Run::present;
  std::vector<Edge> inputs;
  if (outer)
    for (const Edge& e : outer->plan.inputs) {
      const auto same = [&](const Edge& other) { return other.node == e.node && other.nr == e.nr; };
      if (std::none_of(inputs.begin(), inputs.end(), same)) inputs.push_back(e);
    }
  const std::size_t asked = inputs.size();
  const bool restricted = outer && outer->plan.only_inputs;
  inputs.insert(inputs.end(), own.begin(), own.end());
  std::vector<TensorBase> got =
      run(roots, std::move(gradients), {create_graph, create_graph, true, inputs, restricted, true, asked});
  for (std::size_t i = 0; i < asked; ++i)
    if (got[i].defined()) add_to(outer->ready.slot(inputs[i])[inputs[i].nr], std::move(got[i]));
  return {got.begin() + static_cast<std::ptrdiff_t>(asked), got.end()};
}

std::atomic<std::int64_t> InnerGraph::alive_{0};

void at_end_of_backward(std::function<void()> f) {
  ATHANOR_CHECK(EndOfBackward::present, "at_end_of_backward: no backward runs in this thread");
  EndOfBackward::present->calls.push_back(std::move(f));
}

}  // namespace athanor::autograd
