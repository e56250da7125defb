#pragma once
/// Transforms of examples and batches, as libtorch's data::transforms. A transform that treats every example alike also
/// has `apply_stacked`, used when a batch is gathered whole.

#include <functional>
#include <memory>
#include <vector>

#include "athanor/data/example.h"

namespace athanor::data::transforms {

namespace detail {
Tensor to_unit_floats(const Tensor& data);
}  // namespace detail

/// Batch to batch.
template <class InputBatch, class OutputBatch>
class BatchTransform {
 public:
  using InputBatchType = InputBatch;
  using OutputBatchType = OutputBatch;
  static constexpr bool is_stack = false;
  virtual ~BatchTransform() = default;
  virtual OutputBatch apply_batch(InputBatch batch) = 0;
};

/// A batch to one value: Collation<int> takes a vector of int.
template <class Result, class Batch = std::vector<Result>>
using Collation = BatchTransform<Batch, Result>;

/// Example to example.
template <class Input, class Output>
class Transform : public BatchTransform<std::vector<Input>, std::vector<Output>> {
 public:
  using InputType = Input;
  using OutputType = Output;
  virtual Output apply(Input input) = 0;
  std::vector<Output> apply_batch(std::vector<Input> batch) override {
    std::vector<Output> out;
    out.reserve(batch.size());
    for (Input& e : batch) out.push_back(apply(std::move(e)));
    return out;
  }
};

/// A function as a transform of examples.
template <class Input, class Output = Input>
class Lambda : public Transform<Input, Output> {
 public:
  explicit Lambda(std::function<Output(Input)> f) : f_(std::move(f)) {}
  Output apply(Input input) override { return f_(std::move(input)); }

 private:
  std::function<Output(Input)> f_;
};

/// A function as a transform of whole batches.
template <class Input, class Output = Input>
class BatchLambda : public BatchTransform<Input, Output> {
 public:
  explicit BatchLambda(std::function<Output(Input)> f) : f_(std::move(f)) {}
  Output apply_batch(Input batch) override { return f_(std::move(batch)); }

 private:
  std::function<Output(Input)> f_;
};

/// A function as a Collation.
template <class Result, class Batch = std::vector<Result>>
using Collate = BatchLambda<Batch, Result>;

/// Changes an example's data tensor only.
template <class Target = Tensor>
class TensorTransform : public Transform<Example<Tensor, Target>, Example<Tensor, Target>> {
 public:
  using E = Example<Tensor, Target>;
  virtual Tensor operator()(Tensor data) = 0;
  E apply(E e) override {
    e.data = (*this)(std::move(e.data));
    return e;
  }
};

template <class Target = Tensor>
class TensorLambda : public TensorTransform<Target> {
 public:
  explicit TensorLambda(std::function<Tensor(Tensor)> f) : f_(std::move(f)) {}
  Tensor operator()(Tensor data) override { return f_(std::move(data)); }

 private:
  std::function<Tensor(Tensor)> f_;
};

/// Bytes to floats: 0 … 255 becomes 0 … 1. Other dtypes become float as they are. Python's ToTensor without its
/// exchange of dimensions: images here are channels first already.
template <class Target = Tensor>
class ToTensor : public TensorTransform<Target> {
 public:
  Tensor operator()(Tensor data) override { return detail::to_unit_floats(data); }
  Example<Tensor, Target> apply_stacked(Example<Tensor, Target> batch) {
    batch.data = detail::to_unit_floats(batch.data);
    return batch;
  }
};

/// Transforms of tensors one after the other.
template <class Target = Tensor>
class Compose : public TensorTransform<Target> {
 public:
  template <class... Transforms>
  requires(sizeof...(Transforms) > 0 &&
           !(std::is_same_v<std::decay_t<Transforms>, Compose> || ...)) explicit Compose(Transforms... transforms) {
    (parts_.push_back(std::make_shared<Transforms>(std::move(transforms))), ...);
  }
  Tensor operator()(Tensor data) override {
    for (const auto& part : parts_) data = (*part)(std::move(data));
    return data;
  }

 private:
  std::vector<std::shared_ptr<TensorTransform<Target>>> parts_;
};

/// (x - mean) / stddev. One value, or one per channel (dim -3 of an image).
template <class Target = Tensor>
class Normalize : public TensorTransform<Target> {
 public:
  Normalize(ArrayRef<double> mean, ArrayRef<double> stddev) : mean_(channel(mean)), stddev_(channel(stddev)) {}
  Tensor operator()(Tensor data) override { return normalize(data); }
  Example<Tensor, Target> apply_stacked(Example<Tensor, Target> batch) {
    batch.data = normalize(batch.data);
    return batch;
  }

 private:
  static Tensor channel(ArrayRef<double> values) {
    ATHANOR_CHECK_VALUE(!values.empty(), "Normalize: expected at least one value");
    Tensor t = empty({static_cast<std::int64_t>(values.size())}, kFloat);
    std::copy(values.begin(), values.end(), t.data_ptr<float>());
    return values.size() == 1 ? t.reshape({}) : t.reshape({-1, 1, 1});
  }
  Tensor normalize(const Tensor& x) const {
    const NoGradGuard off;
    return x.sub(mean_).div_(stddev_);
  }
  Tensor mean_, stddev_;
};

/// Examples to one example whose tensors have a new first dimension.
template <class E = Example<>>
class Stack;

template <>
class Stack<Example<>> : public BatchTransform<std::vector<Example<>>, Example<>> {
 public:
  static constexpr bool is_stack = true;
  Example<> apply_batch(std::vector<Example<>> batch) override;
  Example<> apply_stacked(Example<> batch) { return batch; }
};

template <>
class Stack<TensorExample> : public BatchTransform<std::vector<TensorExample>, TensorExample> {
 public:
  static constexpr bool is_stack = true;
  TensorExample apply_stacked(TensorExample batch) { return batch; }
  TensorExample apply_batch(std::vector<TensorExample> batch) override;
};

}  // namespace athanor::data::transforms
