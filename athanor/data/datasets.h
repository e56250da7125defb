#pragma once
/// Datasets: a source of examples by index, transformations of it, and parts of it. `get_batch` is called by several
/// worker threads at once and must be thread-safe; `get` of the datasets here is.

#include <memory>
#include <optional>
#include <vector>

#include "athanor/data/example.h"
#include "athanor/data/transforms.h"

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

/// Base of datasets that yield one example per index.
template <class Self, class SingleExample = Example<>>
class Dataset : public BatchDataset<Self, std::vector<SingleExample>> {
 public:
  using ExampleType = SingleExample;
  virtual ExampleType get(std::size_t index) = 0;
  std::vector<ExampleType> get_batch(ArrayRef<std::size_t> indices) override {
    std::vector<ExampleType> batch;
    batch.reserve(indices.size());
    for (const std::size_t i : indices) batch.push_back(get(i));
    return batch;
  }
};

/// A dataset whose batches pass through a transform. Where the source can gather a whole batch into one tensor
/// (`get_stacked`) and the transforms on the way are uniform over examples, Stack costs one copy instead of one per
/// example.
template <class Source, class Transform>
class MapDataset : public BatchDataset<MapDataset<Source, Transform>, typename Transform::OutputBatchType,
                                       typename Source::BatchRequestType> {
 public:
  using Request = typename Source::BatchRequestType;
  using OutputBatch = typename Transform::OutputBatchType;
  MapDataset(Source source, Transform transform) : source_(std::move(source)), transform_(std::move(transform)) {}

  OutputBatch get_batch(Request request) override {
    if constexpr (requires(Source & s, Transform & t) { t.apply_stacked(s.get_stacked(request)); } &&
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
  const Source& dataset() const { return source_; }
  const Transform& transform() const { return transform_; }

 private:
  Source source_;
  Transform transform_;
};

namespace detail {
/// Rows `indices` of t, in one tensor. Throws IndexError out of range.
Tensor gather_rows(const Tensor& t, ArrayRef<std::size_t> indices);
}  // namespace detail

/// Examples are rows of one tensor, or of two (data and targets), held in memory.
class TensorDataset : public Dataset<TensorDataset, Example<>> {
 public:
  /// Throws ValueError unless both have as many rows.
  TensorDataset(Tensor data, Tensor targets);
  Example<> get(std::size_t index) override;
  Example<> get_stacked(ArrayRef<std::size_t> indices);
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(data_.size(0)); }
  const Tensor& data() const { return data_; }
  const Tensor& targets() const { return targets_; }

 private:
  Tensor data_, targets_;
};

/// A dataset of rows of one tensor without targets; libtorch's TensorDataset.
class TensorDataDataset : public Dataset<TensorDataDataset, TensorExample> {
 public:
  explicit TensorDataDataset(Tensor data);
  TensorExample get(std::size_t index) override;
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(data_.size(0)); }

 private:
  Tensor data_;
};

/// The examples of `source` at `indices`.
template <class Source>
class Subset : public BatchDataset<Subset<Source>, typename Source::BatchType> {
 public:
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

/// A dataset shared by several owners; copies refer to the same one.
template <class Source>
class SharedBatchDataset
    : public BatchDataset<SharedBatchDataset<Source>, typename Source::BatchType, typename Source::BatchRequestType> {
 public:
  explicit SharedBatchDataset(std::shared_ptr<Source> source) : source_(std::move(source)) {}
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
