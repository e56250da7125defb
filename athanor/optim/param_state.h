#pragma once
/// What an optimizer keeps of each parameter, with libtorch's names and accessors.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "athanor/ops/tensor.h"

namespace athanor::serialize {
class OutputArchive;
class InputArchive;
}  // namespace athanor::serialize

namespace athanor::optim {

/// State of one parameter: named tensors and numbers ("step").
struct ParamState {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, double> numbers;
};

/// State of one parameter as its optimizer holds it. state_dict() keeps what is in `tensors` and `numbers`; a class of
/// one's own may have further members, which its optimizer then saves by itself.
class OptimizerParamState : public ParamState {
 public:
  OptimizerParamState() = default;
  OptimizerParamState(const OptimizerParamState&) = default;
  OptimizerParamState& operator=(const OptimizerParamState&) = default;
  virtual ~OptimizerParamState() = default;
  virtual std::unique_ptr<OptimizerParamState> clone() const { return std::make_unique<OptimizerParamState>(*this); }
  /// libtorch's hooks of archives; this library keeps `tensors` and `numbers`.
  virtual void serialize(serialize::InputArchive&) {}
  virtual void serialize(serialize::OutputArchive&) const {}

 protected:
  /// Undefined, or 0, if it is not there.
  const Tensor& tensor_or_none(const char* name) const;
  double number_or_zero(const char* name) const;
  /// name.0, name.1, …
  std::deque<Tensor> numbered(const char* name) const;
};

/// Equal numbers, and tensors of equal values under the same names.
bool operator==(const OptimizerParamState& a, const OptimizerParamState& b);

/// CRTP: clone() of a state class.
template <class Derived>
class OptimizerCloneableParamState : public OptimizerParamState {
 public:
  std::unique_ptr<OptimizerParamState> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

#define ATHANOR_STATE_TENSOR(name)                                   \
  auto name(Tensor v)->decltype(*this) {                             \
    tensors[#name] = std::move(v);                                   \
    return *this;                                                    \
  }                                                                  \
  const Tensor& name() const { return this->tensor_or_none(#name); } \
  Tensor& name() { return tensors[#name]; }
/// A number is given back by value: write state.step(state.step() + 1).
#define ATHANOR_STATE_NUMBER(type, name)     \
  auto name(type v)->decltype(*this) {       \
    numbers[#name] = static_cast<double>(v); \
    return *this;                            \
  }                                          \
  type name() const { return static_cast<type>(this->number_or_zero(#name)); }

class SGDParamState : public OptimizerCloneableParamState<SGDParamState> {
 public:
  ATHANOR_STATE_TENSOR(momentum_buffer)
};

class AdamParamState : public OptimizerCloneableParamState<AdamParamState> {
 public:
  ATHANOR_STATE_NUMBER(std::int64_t, step)
  ATHANOR_STATE_TENSOR(exp_avg)
  ATHANOR_STATE_TENSOR(exp_avg_sq)
  ATHANOR_STATE_TENSOR(max_exp_avg_sq)
};

class AdamWParamState : public OptimizerCloneableParamState<AdamWParamState> {
 public:
  ATHANOR_STATE_NUMBER(std::int64_t, step)
  ATHANOR_STATE_TENSOR(exp_avg)
  ATHANOR_STATE_TENSOR(exp_avg_sq)
  ATHANOR_STATE_TENSOR(max_exp_avg_sq)
};

class AdagradParamState : public OptimizerCloneableParamState<AdagradParamState> {
 public:
  ATHANOR_STATE_NUMBER(std::int64_t, step)
  ATHANOR_STATE_TENSOR(sum)
};

class RMSpropParamState : public OptimizerCloneableParamState<RMSpropParamState> {
 public:
  ATHANOR_STATE_NUMBER(std::int64_t, step)
  ATHANOR_STATE_TENSOR(square_avg)
  ATHANOR_STATE_TENSOR(momentum_buffer)
  ATHANOR_STATE_TENSOR(grad_avg)
};

/// Of the first parameter, for all of them. Unlike libtorch's: H_diag is a number, and histories are given by value.
class LBFGSParamState : public OptimizerCloneableParamState<LBFGSParamState> {
 public:
  ATHANOR_STATE_NUMBER(std::int64_t, func_evals)
  ATHANOR_STATE_NUMBER(std::int64_t, n_iter)
  ATHANOR_STATE_NUMBER(double, t)
  ATHANOR_STATE_NUMBER(double, prev_loss)
  ATHANOR_STATE_NUMBER(double, H_diag)
  ATHANOR_STATE_TENSOR(d)
  ATHANOR_STATE_TENSOR(prev_flat_grad)
  /// Copies of the last differences of gradients and of parameters, oldest first, and one over their products, as 0-d
  /// tensors. Set all three, of one length, to give LBFGS another history.
  std::deque<Tensor> old_dirs() const { return numbered("old_dirs"); }
  std::deque<Tensor> old_stps() const { return numbered("old_stps"); }
  std::deque<Tensor> ro() const;
  LBFGSParamState& old_dirs(const std::deque<Tensor>& v) { return set_numbered("old_dirs", v); }
  LBFGSParamState& old_stps(const std::deque<Tensor>& v) { return set_numbered("old_stps", v); }
  LBFGSParamState& ro(const std::deque<Tensor>& v);
  /// The factors of the last direction; LBFGS itself makes them anew at each step, and keeps none.
  std::optional<std::vector<Tensor>> al() const;
  LBFGSParamState& al(const std::optional<std::vector<Tensor>>& v);

 private:
  LBFGSParamState& set_numbered(const char* name, const std::deque<Tensor>& v);
};

}  // namespace athanor::optim
