#pragma once
/// User-defined differentiable functions, as libtorch's:
///
///     struct Square : athanor::autograd::Function<Square> {
///       static Tensor forward(AutogradContext* ctx, const Tensor& x) { ctx->save_for_backward({x}); return x * x; }
///       static variable_list backward(AutogradContext* ctx, variable_list g) {
///         return {g[0] * ctx->get_saved_variables()[0] * 2};
///       }
///     };
///     Tensor y = Square::apply(x);
///
/// backward returns one entry per argument of forward; undefined ones for arguments without gradient.

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/ivalue.h"

namespace athanor {

namespace autograd {

using Variable = Tensor;
/// A tensor of the same storage outside any graph, itself a leaf.
inline Variable make_variable(const Tensor& data, bool requires_grad = false) {
  return data.detach().requires_grad_(requires_grad);
}

class AutogradContext {
 public:
  /// Non-tensor state for backward.
  std::unordered_map<std::string, IValue> saved_data;

  /// Tensors for backward, inputs or results of forward. At most one call.
  void save_for_backward(variable_list to_save) { to_save_ = std::move(to_save); }
  /// What was saved; throws if one was changed in place meanwhile or the graph was freed.
  variable_list get_saved_variables() const;
  /// Inputs that forward changed in place and returns.
  void mark_dirty(const variable_list& inputs);
  /// Results that have no gradient.
  void mark_non_differentiable(const variable_list& outputs);
  /// Whether backward receives zeros (default) or undefined tensors where no gradient flowed.
  void set_materialize_grads(bool on) { materialize_ = on; }
  /// True if argument i of forward (tensors only are counted) wants its gradient; in backward, whether this backward
  /// has a use for it: one for some inputs alone may not.
  bool needs_input_grad(std::size_t i) const;

 private:
  friend class FunctionNode;
  template <class>
  friend struct Function;
  variable_list to_save_;
  std::vector<SavedTensor> saved_;
  std::unordered_set<TensorImpl*> dirty_, non_differentiable_;
  bool materialize_ = true;
  bool released_ = false;
  Node* node_ = nullptr;
};

/// The node of a user-defined function.
class FunctionNode : public Node {
 public:
  using Backward = variable_list (*)(AutogradContext*, variable_list);
  FunctionNode(std::string name, Backward backward) : name_(std::move(name)), backward_(backward) { ctx.node_ = this; }
  void apply(const GradList& in, GradList& out) override;
  std::string name() const override { return name_; }
  void release() override;
  /// Gives results their history; `inputs` are forward's tensors. Called with grad mode on.
  void attach(variable_list& outputs, const variable_list& inputs, bool record);
  AutogradContext ctx;
  std::vector<bool> argument_is_tensor;

 private:
  std::string name_;
  Backward backward_;
};

namespace detail {
std::string function_name(const char* mangled);
inline void collect(variable_list& inputs, std::vector<bool>& is_tensor, const Tensor& t) {
  inputs.push_back(t);
  is_tensor.push_back(true);
}
inline void collect(variable_list& inputs, std::vector<bool>& is_tensor, const std::vector<Tensor>& list) {
  for (const Tensor& t : list) collect(inputs, is_tensor, t);
}
inline void collect(variable_list& inputs, std::vector<bool>& is_tensor, TensorList list) {
  for (const Tensor& t : list) collect(inputs, is_tensor, t);
}
template <class T>
void collect(variable_list&, std::vector<bool>& is_tensor, const T&) {
  is_tensor.push_back(false);
}
inline variable_list to_list(const Tensor& t) { return {t}; }
inline variable_list to_list(variable_list list) { return list; }
template <class T>
T from_list(variable_list&& list) {
  if constexpr (std::is_same_v<T, Tensor>)
    return std::move(list[0]);
  else
    return std::move(list);
}
}  // namespace detail

template <class X>
struct Function {
  template <class... Args>
  static auto apply(Args&&... args) {
    using Result = std::decay_t<decltype(X::forward(nullptr, std::forward<Args>(args)...))>;
    auto node = IntrusivePtr<FunctionNode>(new FunctionNode(detail::function_name(typeid(X).name()), &X::backward));
    variable_list inputs;
    (detail::collect(inputs, node->argument_is_tensor, args), ...);
    bool record = false;
    for (const Tensor& t : inputs) {
      Edge e = GradMode::is_enabled() && t.defined() ? gradient_edge(t) : Edge{};
      record = record || e.is_valid();
      node->add_edge(std::move(e));
    }
    variable_list outputs;
    {
      const NoGradGuard off;
      outputs = detail::to_list(X::forward(&node->ctx, std::forward<Args>(args)...));
    }
    node->attach(outputs, inputs, record);
    return detail::from_list<Result>(std::move(outputs));
  }
};

/// Runs `fn(inputs)` without recording its inside; backward runs it again (with the same random numbers) and then
/// differentiates it: less memory for more time.
variable_list checkpoint(std::function<variable_list(const variable_list&)> fn, const variable_list& inputs,
                         bool preserve_rng_state = true);

}  // namespace autograd
}  // namespace athanor
