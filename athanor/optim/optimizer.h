#pragma once
/// Optimizer: parameter groups with options, per-parameter state, step(), as libtorch. Not thread-safe.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "athanor/optim/param_state.h"

namespace athanor::detail {
class Stored;
}

namespace athanor::optim {

/// Options of one algorithm; each algorithm derives its own.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  /// Name and value of every option, for state_dict; booleans as 0 and 1.
  virtual std::map<std::string, double> values() const = 0;
  virtual void set_values(const std::map<std::string, double>& values) = 0;
  /// Options of this class with which nothing was done yet; null if that is not known.
  virtual std::unique_ptr<OptimizerOptions> initial() const { return nullptr; }
};

/// The same options, with the same values, of the same algorithm.
bool operator==(const OptimizerOptions& a, const OptimizerOptions& b);

#define ATHANOR_OPTIM_ARG(type, name, initial)          \
 public:                                                \
  auto name(const type& v)->decltype(*this) {           \
    name##_ = v;                                        \
    return *this;                                       \
  }                                                     \
  const type& name() const noexcept { return name##_; } \
  type& name() noexcept { return name##_; }             \
                                                        \
 private:                                               \
  type name##_ = initial

class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params) : params_(std::move(params)) {}
  OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options)
      : params_(std::move(params)), options_(std::move(options)) {}
  OptimizerParamGroup(const OptimizerParamGroup& o)
      : params_(o.params_), options_(o.options_ ? o.options_->clone() : nullptr), initial_lr_(o.initial_lr_) {}
  OptimizerParamGroup& operator=(const OptimizerParamGroup&) = delete;
  OptimizerParamGroup(OptimizerParamGroup&&) = default;
  bool has_options() const { return options_ != nullptr; }
  OptimizerOptions& options() { return *options_; }
  const OptimizerOptions& options() const { return *options_; }
  void set_options(std::unique_ptr<OptimizerOptions> o) { options_ = std::move(o); }
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }
  /// The learning rate that schedules start from; the first schedule notes it. Part of the state_dict.
  const std::optional<double>& initial_lr() const { return initial_lr_; }
  void set_initial_lr(std::optional<double> lr) { initial_lr_ = lr; }

 private:
  std::vector<Tensor> params_;
  std::unique_ptr<OptimizerOptions> options_;
  std::optional<double> initial_lr_;
};

/// Everything needed to continue: options per group, state per parameter in order of the groups.
struct OptimizerStateDict {
  std::vector<std::map<std::string, double>> groups;
  std::vector<ParamState> state;
};

class Optimizer {
 public:
  using LossClosure = std::function<Tensor()>;

  Optimizer(std::vector<OptimizerParamGroup> groups, std::unique_ptr<OptimizerOptions> defaults);
  Optimizer(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> defaults);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;

  /// Adds a group. Missing options are the defaults; of options that are there, those with the value that they have in
  /// an object on which nothing was set are taken from the defaults, as in libtorch. Throws ValueError for a non-leaf
  /// parameter or one that is in another group already.
  void add_param_group(OptimizerParamGroup group);
  /// One update of every parameter that has a gradient. With a closure, calls it first (with grad mode on) and returns
  /// its loss.
  virtual Tensor step(LossClosure closure = nullptr) = 0;
  /// Clears gradients: drops them, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  std::vector<OptimizerParamGroup>& param_groups() { return param_groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return param_groups_; }
  OptimizerOptions& defaults() { return *defaults_; }
  const OptimizerOptions& defaults() const { return *defaults_; }
  std::size_t size() const;
  /// All parameters, group by group.
  std::vector<Tensor> parameters() const;
  /// Adds to the first group, for which the rules of add_param_group hold.
  void add_parameters(const std::vector<Tensor>& parameters);
  /// State by parameter, whose key is its unsafeGetTensorImpl(). Of the library's optimizers that libtorch has, states
  /// are of the class of that name: static_cast<AdamParamState&>(*adam.state().at(p.unsafeGetTensorImpl())).
  using States = std::unordered_map<void*, std::unique_ptr<OptimizerParamState>>;
  States& state() { return state_; }
  const States& state() const { return state_; }

  OptimizerStateDict state_dict() const;
  /// Throws ValueError if groups or shapes do not match; then nothing is changed.
  void load_state_dict(const OptimizerStateDict& dict);
  /// The same into an archive and back; defined in io/archive.cpp.
  virtual void save(serialize::OutputArchive& archive) const;
  virtual void load(serialize::InputArchive& archive);

 protected:
  /// Calls update(param, grad, state, options) for each parameter with a gradient, grad mode off.
  template <class Options, class F>
  void for_each_parameter(F&& update) {
    const NoGradGuard off;
    for (auto& group : param_groups_) {
      auto& options = static_cast<Options&>(group.options());
      for (Tensor& p : group.params()) {
        if (!p.grad().defined()) continue;
        update(p, p.grad(), state_of(p), options);
      }
    }
  }
  Tensor run_closure(const LossClosure& closure);
  /// An empty state of the algorithm's own class.
  virtual std::unique_ptr<OptimizerParamState> make_state() const;
  /// The state of a parameter, made if there is none.
  OptimizerParamState& state_of(const Tensor& p);
  /// Whether a loaded state tensor can be one of parameter `p`.
  virtual bool state_fits(const Tensor& state, const Tensor& p) const;

  std::vector<OptimizerParamGroup> param_groups_;
  std::unique_ptr<OptimizerOptions> defaults_;
  States state_;
};

namespace detail {
/// True if all have p's strides and p is dense: the fused kernels walk them as flat memory.
bool same_dense_layout(const Tensor& p, std::initializer_list<const Tensor*> others);
/// `g` in p's layout.
Tensor like_layout(const Tensor& g, const Tensor& p);
/// The gradient of the dense parameter `p` as the kernels of optimizers take it: in p's layout, and a hidden outer
/// product as it is.
athanor::detail::Stored step_gradient(const Tensor& grad, const Tensor& p);
std::vector<OptimizerParamGroup> one_group(std::vector<Tensor> params);
}  // namespace detail

}  // namespace athanor::optim
