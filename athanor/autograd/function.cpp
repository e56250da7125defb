#include "athanor/autograd/function.h"

#include <cxxabi.h>
#include <algorithm>

#include "athanor/autograd/engine.h"
#include "athanor/ops/autocast.h"
#include "athanor/ops/create.h"
#include "athanor/tape/wanted_edges.h"

namespace athanor::autograd {

namespace detail {
std::string function_name(const char* mangled) {
  int status = 0;
  char* name = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string out = status == 0 && name ? name : mangled;
  std::free(name);
  if (const auto colon = out.rfind("::"); colon != std::string::npos) out = out.substr(colon + 2);
  return out;
}
}  // namespace detail

variable_list AutogradContext::get_saved_variables() const {
  ATHANOR_CHECK(!released_, "Trying to backward through the graph a second time: the saved tensors of ", node_->name(),
                " have already been freed. Specify retain_graph=True");
  variable_list out;
  for (const SavedTensor& s : saved_) out.emplace_back(s.get(node_));
  return out;
}

void AutogradContext::mark_dirty(const variable_list& inputs) {
  for (const Tensor& t : inputs) dirty_.insert(t.impl());
}

void AutogradContext::mark_non_differentiable(const variable_list& outputs) {
  for (const Tensor& t : outputs) non_differentiable_.insert(t.impl());
}

bool AutogradContext::needs_input_grad(std::size_t i) const { return athanor::detail::wants_gradient(*node_, i); }

void FunctionNode::apply(const GradList& in, GradList& out) {
  variable_list grads;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].defined() || !ctx.materialize_ || output(i).dtype == DType::Undefined)
      grads.emplace_back(in[i]);
    else
      grads.emplace_back(ops::zeros(output(i).sizes, TensorOptions(output(i).dtype).device(output(i).device)));
  }
  const variable_list result = backward_(&ctx, std::move(grads));
  const std::size_t expected = argument_is_tensor.size();
  ATHANOR_CHECK(result.size() >= expected, "function ", name_, " returned an incorrect number of gradients (expected ",
                expected, ", got ", result.size(), ")");
  for (std::size_t i = expected; i < result.size(); ++i)
    ATHANOR_CHECK(!result[i].defined(), "function ", name_, " returned an incorrect number of gradients (expected ",
                  expected, ", got ", result.size(), ")");
  std::size_t edge_nr = 0;
  for (std::size_t i = 0; i < expected; ++i) {
    if (!argument_is_tensor[i]) {
      ATHANOR_CHECK(!result[i].defined(), "function ", name_, " returned a gradient different from None at position ",
                    i + 1, ", but the corresponding forward input was not a Tensor");
      continue;
    }
    if (needs(edge_nr)) out[edge_nr] = result[i];
    ++edge_nr;
  }
}

void FunctionNode::release() {
  ctx.saved_.clear();
  ctx.released_ = true;  // as in libtorch, saved_data stays: a function that saved no tensors may run again
}

void FunctionNode::attach(variable_list& outputs, const variable_list& inputs, bool record) {
  const IntrusivePtr<Node> self(this);
  std::unordered_set<TensorImpl*> input_impls;
  for (const Tensor& t : inputs) input_impls.insert(t.impl());
  for (const TensorImpl* t : ctx.dirty_)
    ATHANOR_CHECK(std::any_of(outputs.begin(), outputs.end(), [&](const Tensor& o) { return o.impl() == t; }),
                  "function ", name_,
                  ": Some elements marked as dirty during the forward method were not returned as output; forward "
                  "should return each input that it changes");
  for (Tensor& t : outputs) {
    if (!t.defined()) {
      ATHANOR_CHECK(!record, "function ", name_, " returned an undefined tensor from forward");
      continue;
    }
    const bool dirty = ctx.dirty_.count(t.impl()) != 0, is_input = input_impls.count(t.impl()) != 0;
    const bool constant = ctx.non_differentiable_.count(t.impl()) != 0 || !t.is_floating_point();
    ATHANOR_CHECK(!dirty || is_input, "function ", name_, " marked a tensor dirty that is not an input");
    if (dirty) {
      if (record) check_inplace(t, name_.c_str());
      t.impl()->bump_version();
    } else if (is_input) {
      // Returned as it came: the result needs a history of its own.
      const TensorBase came = t;
      t = athanor::detail::alias(t, t.sizes(), t.strides(), t.storage_offset());
      // A change in place would reach the input, past the function's backward: it is refused.
      if (record) note_view(t, came, ViewOrigin::MultiOutput);
    }
    if (!record) continue;
    if (constant) {
      add_output(t);
    } else if (dirty) {
      rebase_history(t, self);
    } else {
      set_history(t, self);
    }
  }
  if (record) {
    for (const Tensor& t : ctx.to_save_) {
      SavedTensor s;
      const bool is_result = t.defined() && t.impl()->autograd && t.impl()->autograd->grad_fn.get() == this;
      if (is_result)
        s.save_result(t, this);
      else
        s.save(t);
      ctx.saved_.push_back(std::move(s));
    }
  }
  ctx.to_save_.clear();
  ctx.dirty_.clear();
  ctx.non_differentiable_.clear();
}

namespace {

/// Recomputes on backward. Not a Function: it needs the closure.
class CheckpointNode final : public Node {
 public:
  using Fn = std::function<variable_list(const variable_list&)>;
  CheckpointNode(Fn fn, const variable_list& inputs, std::optional<PhiloxState> rng) : fn_(std::move(fn)), rng_(rng) {
    for (const Tensor& t : inputs) {
      add_edge(t.defined() ? gradient_edge(t) : Edge{});
      inputs_.emplace_back(t);
    }
  }
  std::string name() const override { return "CheckpointBackward"; }
  bool has_inner_graph() const override { return true; }
  void release() override {
    inputs_.clear();
    released_ = true;
  }

  /// What the forward gave, which the recomputation is to give again.
  void note_results(const variable_list& results) {
    for (const Tensor& t : results) results_.emplace_back(t.defined() ? DimVector(t.sizes()) : DimVector());
  }

  void apply(const GradList& in, GradList& out) override {
    ATHANOR_CHECK(!released_,
                  "checkpoint: Trying to backward through the graph a second time. Specify retain_graph=True");
    const bool create_graph = GradMode::is_enabled();
    variable_list starts;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      Tensor t(inputs_[i].get(this));
      if (t.defined()) {
        // The gradient's own graph leads on from here to what the inputs were made of.
        t = create_graph && needs(i) ? t.view_as(t) : t.detach().requires_grad_(needs(i));
      }
      starts.push_back(t);
    }
    const variable_list results = recompute(starts);
    check_as_before(results);
    std::vector<Edge> roots, own;
    std::vector<TensorBase> grads;
    for (std::size_t i = 0; i < results.size() && i < in.size(); ++i) {
      if (!in[i].defined() || !results[i].requires_grad()) continue;
      roots.push_back(gradient_edge(results[i]));
      grads.push_back(in[i]);
    }
    for (std::size_t i = 0; i < starts.size(); ++i)
      if (needs(i)) own.push_back(gradient_edge(starts[i]));
    if (roots.empty()) return;
    std::vector<TensorBase> got = run_inner_backward(roots, std::move(grads), own, create_graph);
    for (std::size_t i = 0, k = 0; i < starts.size(); ++i)
      if (needs(i)) out[i] = std::move(got[k++]);
  }

 private:
  variable_list recompute(const variable_list& starts) {
    const AutoGradMode on(true);
    const autocast::AutocastGuard precision(autocast_);
    if (!rng_) return fn_(starts);
    struct Restore {
      PhiloxState saved = default_generator().state();
      ~Restore() { default_generator().set_state(saved); }
    } restore;
    default_generator().set_state(*rng_);
    return fn_(starts);
  }
  void check_as_before(const variable_list& results) const {
    constexpr const char* kWhy =
        "; the function should do the same both times: what it reads beside its inputs has changed";
    ATHANOR_CHECK(results.size() == results_.size(), "checkpoint: the forward gave ", results_.size(),
                  " tensors, computed again for backward it gives ", results.size(), kWhy);
    for (std::size_t i = 0; i < results.size(); ++i)
      ATHANOR_CHECK(!results[i].defined() || results[i].sizes() == IntArrayRef(results_[i]), "checkpoint: result ", i,
                    " of the forward had shape ", IntArrayRef(results_[i]), ", computed again for backward it has ",
                    results[i].sizes(), kWhy);
  }
  Fn fn_;
  std::optional<PhiloxState> rng_;
  std::vector<DimVector> results_;
  autocast::State autocast_ = autocast::state();
  std::vector<SavedTensor> inputs_;
  bool released_ = false;
  InnerGraph inner_graph_;
};

}  // namespace

variable_list checkpoint(std::function<variable_list(const variable_list&)> fn, const variable_list& inputs,
                         bool preserve_rng_state) {
  std::optional<PhiloxState> rng;
  if (preserve_rng_state) rng = default_generator().state();
  variable_list outputs;
  {
    const NoGradGuard off;
    outputs = fn(inputs);
  }
  if (!GradMode::is_enabled()) return outputs;
  auto node = IntrusivePtr<Node>(new CheckpointNode(std::move(fn), inputs, rng));
  static_cast<CheckpointNode&>(*node).note_results(outputs);
  for (Tensor& t : outputs) {
    if (!t.defined() || !t.is_floating_point()) {
      if (t.defined()) node->add_output(t);
      continue;
    }
    // A view or an input returned as it is needs a history of its own.
    if (t.impl()->autograd) t = athanor::detail::alias(t, t.sizes(), t.strides(), t.storage_offset());
    set_history(t, node);
  }
  return outputs;
}

}  // namespace athanor::autograd
