#include "athanor/autograd/autograd.h"

#include "athanor/autograd/engine.h"
#include "athanor/autograd/gradient_home.h"
#include "athanor/base/warning.h"
#include "athanor/ops/all_ops.h"
#include "athanor/ops/retain_grad.h"

namespace athanor::autograd {
namespace {

std::vector<TensorBase> root_gradients(const variable_list& tensors, const variable_list& given) {
  ATHANOR_CHECK(given.empty() || given.size() == tensors.size(), "got ", tensors.size(), " tensors and ", given.size(),
                " gradients");
  std::vector<TensorBase> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    ATHANOR_CHECK(t.requires_grad(), "element ", i, " of tensors does not require grad and does not have a grad_fn");
    if (i < given.size() && given[i].defined()) {
      ATHANOR_CHECK(given[i].sizes() == t.sizes(), "Mismatch in shape: grad_output[", i, "] has a shape of ",
                    given[i].sizes(), " and output[", i, "] has a shape of ", t.sizes(), ".");
      const bool moves = given[i].dim() == 0 && given[i].device() != t.device();
      ATHANOR_CHECK(moves || given[i].device() == t.device(), "invalid gradient at index ", i, " - expected device ",
                    t.device(), " but got ", given[i].device(), "; move it with .to(output.device())");
      out.push_back(moves ? ops::to_device(given[i], t.device()) : TensorBase(given[i]));
    } else {
      ATHANOR_CHECK(t.numel() == 1, "grad can be implicitly created only for scalar outputs; this one has shape ",
                    t.sizes(), ": pass a gradient of that shape");
      out.push_back(ops::ones_like(t));
    }
  }
  return out;
}

std::vector<Edge> edges_of(const variable_list& tensors) {
  std::vector<Edge> out;
  for (const Tensor& t : tensors) out.push_back(gradient_edge(t));
  return out;
}

}  // namespace

void backward(const variable_list& tensors, const variable_list& grad_tensors, std::optional<bool> retain_graph,
              bool create_graph, const variable_list& inputs) {
  auto gradients = root_gradients(tensors, grad_tensors);
  for (const Tensor& t : inputs) ATHANOR_CHECK(t.requires_grad(), "backward: one of the inputs does not require grad");
  for (const Tensor& t : inputs)
    if (!t.is_leaf()) t.retain_grad();  // what was asked for by name gets its grad, too
  run_backward(edges_of(tensors), std::move(gradients), retain_graph.value_or(create_graph), create_graph,
               edges_of(inputs), true);
}

variable_list grad(const variable_list& outputs, const variable_list& inputs, const variable_list& grad_outputs,
                   std::optional<bool> retain_graph, bool create_graph, bool allow_unused) {
  ATHANOR_CHECK(!inputs.empty(), "grad requires non-empty inputs.");
  auto gradients = root_gradients(outputs, grad_outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    ATHANOR_CHECK(inputs[i].requires_grad(), "One of the differentiated Tensors does not require grad (input ", i, ")");
  auto got = run_backward(edges_of(outputs), std::move(gradients), retain_graph.value_or(create_graph), create_graph,
                          edges_of(inputs), false);
  variable_list result;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ATHANOR_CHECK(
        got[i].defined() || allow_unused, "One of the differentiated Tensors (input ", i,
        ") appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.");
    result.emplace_back(std::move(got[i]));
  }
  return result;
}

}  // namespace athanor::autograd

namespace athanor {

const Tensor& Tensor::grad() const {
  if (const char* why = why_no_grad(*this)) warn({{"grad", "", 0}, why, true});
  return static_cast<const Tensor&>(grad_of(*this));
}

void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                      std::optional<TensorList> inputs) const {
  ATHANOR_CHECK(!inputs || !inputs->empty(), "'inputs' argument to backward cannot be empty");
  autograd::variable_list grads;
  if (gradient.defined()) grads.push_back(gradient);
  autograd::backward({*this}, grads, retain_graph, create_graph, inputs ? inputs->vec() : autograd::variable_list());
}

namespace {

/// The position of t among the results of its node.
std::uint32_t result_nr(const Tensor& t) { return t.output_nr(); }

/// A program's hook may have a state, and hooks are copied to be called.
template <class Hook>
std::shared_ptr<Hook> shared(Hook&& hook) {
  return std::make_shared<Hook>(std::forward<Hook>(hook));
}

/// The gradient that a tensor's hook leaves: another one only of the same shape, dtype and device.
TensorBase after_hook(const std::function<Tensor(const Tensor&)>& hook, const TensorBase& grad) {
  Tensor changed = hook(Tensor(grad));
  if (!changed.defined()) return grad;
  ATHANOR_CHECK(changed.sizes() == grad.sizes(), "a hook has changed the size of a gradient from ", grad.sizes(),
                " to ", changed.sizes(), "; what it returns replaces the gradient and must have its size");
  ATHANOR_CHECK(changed.dtype() == grad.dtype(), "a hook has changed the type of a gradient from ", grad.dtype(),
                " to ", changed.dtype(), "; what it returns replaces the gradient and must have its dtype");
  ATHANOR_CHECK(changed.device() == grad.device(), "a hook has changed the device of a gradient from ", grad.device(),
                " to ", changed.device(), "; what it returns replaces the gradient and must be where that is");
  return changed;
}

}  // namespace

std::uint64_t Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  ATHANOR_CHECK(requires_grad(), "cannot register a hook on a tensor that doesn't require gradient");
  if (auto fn = grad_fn()) {
    const auto nr = result_nr(*this);
    return fn->add_pre_hook([hook = shared(std::move(hook)), nr](GradList& grads) {
      if (nr >= grads.size() || !grads[nr].defined()) return;
      grads[nr] = after_hook(*hook, grads[nr]);
    });
  }
  const std::uint64_t id = detail::next_hook_id();
  AutogradMeta& meta = detail::autograd_meta(*this);
  if (!meta.hooks) meta.hooks = std::make_unique<TensorHooks>();
  meta.hooks->hooks.emplace_back(
      id, [hook = shared(std::move(hook))](const TensorBase& g) { return after_hook(*hook, g); });
  return id;
}

std::uint64_t Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const {
  ATHANOR_CHECK(requires_grad() && is_leaf(),
                "post accumulate grad hooks cannot be registered on non-leaf tensors or ones that do not require grad");
  AutogradMeta& meta = detail::autograd_meta(*this);
  if (!meta.hooks) meta.hooks = std::make_unique<TensorHooks>();
  const std::uint64_t id = detail::next_hook_id();
  auto& list = meta.hooks->post_accumulate;
  auto place = list.end();
  if (!list.empty() && list.back().first == autograd::internals::kHomeHookId) --place;
  list.emplace(place, id, [hook = shared(std::move(hook))](const TensorBase& t) { (*hook)(Tensor(t)); });
  return id;
}

void Tensor::remove_hook(std::uint64_t id) const {
  std::size_t dropped = 0;
  auto drop = [&](auto& list) { dropped += std::erase_if(list, [id](const auto& h) { return h.first == id; }); };
  if (auto fn = grad_fn(); fn && fn->hooks_or_null()) {
    dropped += fn->del_pre_hook(id);
    drop(fn->hooks().retain);
  }
  if (AutogradMeta* meta = detail::autograd_meta_or_null(*this); meta && meta->hooks) {
    drop(meta->hooks->hooks);
    drop(meta->hooks->post_accumulate);
  }
  ATHANOR_CHECK_INDEX(dropped, "remove_hook: Invalid index, no hook ", id,
                      " on this tensor; give what register_hook returned, once");
}

void Tensor::retain_grad() const {
  ATHANOR_CHECK(requires_grad(), "can't retain_grad on Tensor that has requires_grad=False");
  athanor::retain_grad(*this);
}

Tensor Tensor::data() const {
  Tensor out = ops::detach(*this);
  out.impl()->own_version = true;
  return out;
}

void Tensor::set_data(const Tensor& other) const {
  ATHANOR_CHECK(defined() && other.defined(), "set_data: both tensors must be defined");
  TensorImpl* to = impl();
  const TensorImpl* from = other.impl();
  DimVector sizes(from->sizes()), strides(from->strides());
  if (to->autograd && (to->dtype != from->dtype || to->device != from->device || to->sizes() != from->sizes())) {
    // A graph that lives on may keep the accumulator for gradients of the old kind; the next one makes its own.
    const std::lock_guard lock(to->autograd->lock);
    to->autograd->accumulator = nullptr;
  }
  if (to->dims != to->inline_dims) {
    delete[] to->dims;
    to->dims = to->inline_dims;
  }
  to->set_geometry(sizes, strides);
  to->storage = from->storage;
  to->storage_offset = from->storage_offset;
  to->dtype = from->dtype;
  to->device = from->device;
}

}  // namespace athanor
