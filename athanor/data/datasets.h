#pragma once
/// Datasets: a source of examples by index, transformations of it, and parts of it. A loader's worker threads
/// each have a copy of the dataset; what copies share, or a dataset that cannot be copied, must be safe to use by
/// several threads at once. `get` of the datasets here is.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "athanor/data/example.h"
#include "athanor/data/transforms.h"

namespace athanor::serialize {
class OutputArchive;
class InputArchive;
}  // namespace athanor::serialize

namespace athanor::data::datasets {

template <class Source, class Transform>
class MapDataset;

/// Base of everything that yields batches for a request of type BatchRequest.
template <class Self, class Batch, class Request = ArrayRef<std::size_t>>
class BatchDataset {
 public:
  using SelfType = Self;
  using BatchType = Batch;
  using BatchRequestType = Request;
  static constexpr bool is_stateful = false;
  virtual ~BatchDataset() = default;
  virtual Batch get_batch(Request request) = 0;
  /// Number of examples, if known.
  virtual std::optional<std::size_t> size() const = 0;
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) & {
    return MapDataset<Self, Transform>(static_cast<Self&>(*this), std::move(transform));
  }
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) && {
    return MapDataset<Self, Transform>(std::move(static_cast<Self&>(*this)), std::move(transform));
  }
};

namespace detail {
/// Of this thread: which example a dataset could not give, for the loader's message. Taken, it is forgotten.
void note_failed_sample(std::size_t index);
std::optional<std::size_t> take_failed_sample();
}  // namespace detail

/// Base of datasets that yield one example per index.
template <class Self, class SingleExample = Example<>>
class Dataset : public BatchDataset<Self, std::vector<SingleExample>> {
 public:
  using ExampleType = SingleExample;
  virtual ExampleType get(std::size_t index) = 0;
  std::vector<ExampleType> get_batch(ArrayRef<std::size_t> indices) override {
    std::vector<ExampleType> batch;
    batch.reserve(indices.size());
    for (const std::size_t i : indices) {
      try {
        batch.push_back(get(i));
      } catch (...) {
        detail::note_failed_sample(i);
        throw;
      }
    }
    return batch;
  }
};

namespace detail {
/// A stream's batches are optional before and after a transform.
template <class Source, class Transform>
using mapped_batch = std::conditional_t<Source::is_stateful, std::optional<typename Transform::OutputBatchType>,
                                        typename Transform::OutputBatchType>;
}  // namespace detail

/// A dataset whose batches pass through a transform. Where the source can gather a whole batch into one tensor
/// (`get_stacked`) and the transforms on the way are uniform over examples, Stack costs one copy instead of one per
/// example.
template <class Source, class Transform>
class MapDataset : public BatchDataset<MapDataset<Source, Transform>, detail::mapped_batch<Source, Transform>,
                                       typename Source::BatchRequestType> {
 public:
  using Request = typename Source::BatchRequestType;
  using OutputBatch = detail::mapped_batch<Source, Transform>;
  static constexpr bool is_stateful = Source::is_stateful;
  MapDataset(Source source, Transform transform) : source_(std::move(source)), transform_(std::move(transform)) {}

  OutputBatch get_batch(Request request) override {
    if constexpr (is_stateful) {
      auto batch = source_.get_batch(request);
      if (!batch) return std::nullopt;
      return transform_.apply_batch(std::move(*batch));
    } else if constexpr (requires(Source & s, Transform & t) { t.apply_stacked(s.get_stacked(request)); } &&
                         Transform::is_stack)
      return transform_.apply_stacked(source_.get_stacked(request));
    else
      return transform_.apply_batch(source_.get_batch(std::move(request)));
  }
  auto get_stacked(Request request) requires(requires(Source& s, Transform& t) {
    t.apply_stacked(s.get_stacked(request));
  } && !Transform::is_stack) {
    return transform_.apply_stacked(source_.get_stacked(request));
  }
  std::optional<std::size_t> size() const override { return source_.size(); }
  void reset() requires requires(Source& s) { s.reset(); }
  { source_.reset(); }
  const Source& dataset() const { return source_; }
  const Transform& transform() const { return transform_; }

 private:
  Source source_;
  Transform transform_;
};

namespace detail {
/// Rows `indices` of t, in one tensor. Throws IndexError out of range.
Tensor gather_rows(const Tensor& t, ArrayRef<std::size_t> indices);
/// Bytes as float32 from 0 to 1.
Tensor to_floats(const Tensor& bytes);
/// The type of a dataset's single examples, void if it yields whole batches only.
template <class Source>
auto example_type(int) -> typename Source::ExampleType;
template <class Source>
void example_type(...);
template <class Source>
using example_of = decltype(example_type<Source>(0));
}  // namespace detail

/// Examples are the rows of one tensor, without targets; libtorch's TensorDataset.
class TensorDataset : public Dataset<TensorDataset, TensorExample> {
 public:
  /// Throws ValueError for a 0-d tensor.
  explicit TensorDataset(Tensor tensor);
  /// The tensors stacked, one example each.
  explicit TensorDataset(const std::vector<Tensor>& tensors) : TensorDataset(stack(tensors)) {}
  TensorExample get(std::size_t index) override;
  TensorExample get_stacked(ArrayRef<std::size_t> indices);
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(tensor.size(0)); }

  Tensor tensor;
};

/// Examples are rows of two tensors, data and targets; Python's TensorDataset(x, y).
class TensorPairDataset : public Dataset<TensorPairDataset, Example<>> {
 public:
  /// Throws ValueError unless both have as many rows.
  TensorPairDataset(Tensor data, Tensor targets);
  Example<> get(std::size_t index) override;
  Example<> get_stacked(ArrayRef<std::size_t> indices);
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(data_.size(0)); }
  const Tensor& data() const { return data_; }
  const Tensor& targets() const { return targets_; }

 private:
  Tensor data_, targets_;
};

/// Rows of any number of tensors; Python's TensorDataset(*tensors). A batch holds one tensor for each of them, already
/// stacked.
class TensorListDataset : public BatchDataset<TensorListDataset, std::vector<Tensor>> {
 public:
  /// Throws ValueError for an empty list, a 0-d tensor or unequal numbers of rows.
  explicit TensorListDataset(std::vector<Tensor> tensors);
  std::vector<Tensor> get(std::size_t index) const;
  std::vector<Tensor> get_batch(ArrayRef<std::size_t> indices) override;
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(tensors_[0].size(0)); }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

/// Python's TensorDataset(...) whatever the number of tensors.
inline TensorDataset tensor_dataset(Tensor data) { return TensorDataset(std::move(data)); }
inline TensorPairDataset tensor_dataset(Tensor data, Tensor targets) { return {std::move(data), std::move(targets)}; }
template <class... More>
TensorListDataset tensor_dataset(Tensor a, Tensor b, Tensor c, More... more) {
  return TensorListDataset({std::move(a), std::move(b), std::move(c), std::move(more)...});
}

/// A dataset that says itself where a batch starts and when an epoch ends: a stream, Python's IterableDataset. The
/// request is the number of examples wanted; no batch means the end. Workers share one dataset and call get_batch at
/// once: it must be thread-safe.
template <class Self, class Batch = std::vector<Example<>>, class Request = std::size_t>
class StatefulDataset : public BatchDataset<Self, std::optional<Batch>, Request> {
 public:
  static constexpr bool is_stateful = true;
  /// Starts an epoch.
  virtual void reset() = 0;
  /// Where the stream stands, for those that override the two.
  virtual void save(serialize::OutputArchive&) const {}
  virtual void load(serialize::InputArchive&) {}
};

/// A dataset without indices and without an end: the sampler says how many examples an epoch has.
template <class Self, class Batch = std::vector<Example<>>>
using StreamDataset = BatchDataset<Self, Batch, std::size_t>;

/// The examples of `source` at `indices`.
template <class Source>
class Subset : public BatchDataset<Subset<Source>, typename Source::BatchType> {
 public:
  using ExampleType = detail::example_of<Source>;
  Subset(Source source, std::vector<std::size_t> indices) : source_(std::move(source)), indices_(std::move(indices)) {
    const auto n = source_.size();
    for (const std::size_t i : indices_)
      ATHANOR_CHECK_INDEX(!n || i < *n, "Subset: index ", i, " is out of range for a dataset of ", *n, " examples");
  }
  typename Source::BatchType get_batch(ArrayRef<std::size_t> request) override {
    return source_.get_batch(translate(request));
  }
  auto get(std::size_t index) requires requires(Source& s) { s.get(index); }
  { return source_.get(translate({index})[0]); }
  auto get_stacked(ArrayRef<std::size_t> request) requires requires(Source& s) { s.get_stacked(request); }
  { return source_.get_stacked(translate(request)); }
  std::optional<std::size_t> size() const override { return indices_.size(); }
  const std::vector<std::size_t>& indices() const { return indices_; }

 private:
  std::vector<std::size_t> translate(ArrayRef<std::size_t> request) const {
    std::vector<std::size_t> out;
    out.reserve(request.size());
    for (const std::size_t i : request) {
      ATHANOR_CHECK_INDEX(i < indices_.size(), "Subset: index ", i, " is out of range for ", indices_.size(),
                          " examples");
      out.push_back(indices_[i]);
    }
    return out;
  }
  Source source_;
  std::vector<std::size_t> indices_;
};

/// How many examples each fraction is: rounded down, what is left over is dealt out one by one from the first on, as
/// PyTorch's random_split: `random_split(data, split_lengths(n, {0.9, 0.1}))`. Throws ValueError unless they are 0 to 1
/// and add up to 1.
std::vector<std::size_t> split_lengths(std::size_t size, ArrayRef<double> fractions);
/// Non-overlapping random parts of the given lengths, which must add up to the dataset's size (ValueError).
std::vector<std::vector<std::size_t>> random_split_indices(std::size_t size, ArrayRef<std::size_t> lengths,
                                                           Generator generator);
template <class Source>
std::vector<Subset<Source>> random_split(const Source& source, const std::vector<std::size_t>& lengths,
                                         Generator generator = default_generator()) {
  std::vector<Subset<Source>> parts;
  for (auto& indices : random_split_indices(source.size().value(), lengths, generator))
    parts.emplace_back(source, std::move(indices));
  return parts;
}

/// Several datasets one after the other, of any types with examples of type Single:
/// `ConcatDataset both(MNIST(a), Subset(b, {0, 1}));`
template <class Single>
class ConcatDataset : public Dataset<ConcatDataset<Single>, Single> {
 public:
  template <class First, class... Sources>
  requires(!std::is_same_v<std::decay_t<First>, ConcatDataset>) explicit ConcatDataset(First first,
                                                                                       Sources... sources) {
    add(std::move(first));
    (add(std::move(sources)), ...);
  }
  template <class Source>
  explicit ConcatDataset(std::vector<Source> sources) {
    ATHANOR_CHECK_VALUE(!sources.empty(), "ConcatDataset: datasets should not be an empty list");
    for (auto& source : sources) add(std::move(source));
  }
  Single get(std::size_t index) override {
    ATHANOR_CHECK_INDEX(index < ends_.back(), "ConcatDataset: index ", index, " is out of range for ", ends_.back(),
                        " examples");
    const auto part = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    return parts_[part](part ? index - ends_[part - 1] : index);
  }
  std::optional<std::size_t> size() const override { return ends_.back(); }
  /// The number of examples of the first dataset, of the first two, and so on.
  const std::vector<std::size_t>& cumulative_sizes() const { return ends_; }

 private:
  template <class Source>
  void add(Source source) {
    const auto n = source.size();
    ATHANOR_CHECK_VALUE(n, "ConcatDataset: a dataset does not know its size");
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + *n);
    auto kept = std::make_shared<Source>(std::move(source));
    parts_.push_back([kept](std::size_t i) { return kept->get(i); });
  }
  std::vector<std::function<Single(std::size_t)>> parts_;
  std::vector<std::size_t> ends_;
};
template <class First, class... Sources>
ConcatDataset(First, Sources...) -> ConcatDataset<typename First::ExampleType>;
template <class Source>
ConcatDataset(std::vector<Source>) -> ConcatDataset<typename Source::ExampleType>;

/// A dataset shared by several owners; copies refer to the same one.
template <class Source>
class SharedBatchDataset
    : public BatchDataset<SharedBatchDataset<Source>, typename Source::BatchType, typename Source::BatchRequestType> {
 public:
  static constexpr bool is_stateful = Source::is_stateful;
  explicit SharedBatchDataset(std::shared_ptr<Source> source) : source_(std::move(source)) {}
  void reset() requires requires(Source& s) { s.reset(); }
  { source_->reset(); }
  typename Source::BatchType get_batch(typename Source::BatchRequestType request) override {
    return source_->get_batch(std::move(request));
  }
  std::optional<std::size_t> size() const override { return source_->size(); }
  Source& operator*() { return *source_; }
  Source* operator->() { return source_.get(); }

 private:
  std::shared_ptr<Source> source_;
};
template <class Source, class... Args>
SharedBatchDataset<Source> make_shared_dataset(Args&&... args) {
  return SharedBatchDataset<Source>(std::make_shared<Source>(std::forward<Args>(args)...));
}

}  // namespace athanor::data::datasets
