#pragma once
/// DataLoader: batches of a dataset in the order of a sampler, fetched ahead by worker threads. Neither the order nor
/// what random transforms draw depends on the number of workers.

#include <chrono>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "athanor/data/datasets.h"
#include "athanor/data/randomness.h"
#include "athanor/data/samplers.h"
#include "athanor/optim/optimizer.h"

namespace athanor::data {

class DataLoaderOptions {
 public:
  DataLoaderOptions() = default;
  DataLoaderOptions(std::size_t batch_size) : batch_size_(batch_size) {}
  ATHANOR_OPTIM_ARG(std::size_t, batch_size, 1);
  /// 0: batches are made in the caller's thread.
  ATHANOR_OPTIM_ARG(std::size_t, workers, 0);
  /// Batches fetched ahead; 2 per worker by default.
  ATHANOR_OPTIM_ARG(std::optional<std::size_t>, max_jobs, std::nullopt);
  /// How long to wait for a batch before Error; kDefaultTimeout unless given. A worker that is still busy when the
  /// loader goes is waited for as long, then left behind.
  ATHANOR_OPTIM_ARG(std::optional<std::chrono::milliseconds>, timeout, std::nullopt);

 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(10);
  ATHANOR_OPTIM_ARG(bool, enforce_ordering, true);
  /// Leave out a last batch that is not full.
  ATHANOR_OPTIM_ARG(bool, drop_last, false);
  /// Called in every worker's thread, with the worker's number from 0 on, before its first batch; each epoch has
  /// threads of its own and ends when all calls have returned. What one throws comes out of the iteration. Without
  /// workers it is not called.
  ATHANOR_OPTIM_ARG(std::function<void(std::size_t worker)>, worker_init, nullptr);
};

/// An exception from a worker; what() names the batch's indices, and the sample for which get() threw.
class WorkerException : public Error {
 public:
  WorkerException(std::exception_ptr original, ArrayRef<std::size_t> indices);
  /// For a stream, whose examples have no indices.
  WorkerException(std::exception_ptr original, std::size_t wanted);
  WorkerException(std::exception_ptr original, const samplers::CustomBatchRequest& request)
      : WorkerException(std::move(original), request.size()) {}
  std::exception_ptr original_exception;
};

namespace detail {
/// What the loader's thread and its workers share during one epoch, whatever the batches are.
class WorkQueue {
 public:
  using Job = std::function<void()>;
  /// Starts `workers` threads; each calls `init`, if there is one, with its number, and makes one job after the other.
  WorkQueue(std::size_t workers, std::chrono::milliseconds timeout, const std::function<void(std::size_t)>& init);
  /// Drops jobs not begun and waits for those that are, for the timeout; a worker that takes longer is left behind.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  /// A worker will run `make` and then `keep`, which runs under the queue's lock.
  void push(Job make, Job keep);
  /// In a job: the number of the worker that runs it.
  static std::size_t this_worker();
  /// Waits until `ready`, asked under the lock, says so, then runs `take` under the lock. Throws Error after the
  /// timeout.
  void wait(const std::function<bool()>& ready, const Job& take);
  /// Waits until `init` has returned in every worker. Throws what a worker threw itself, Error after the timeout.
  void wait_for_init();

 private:
  struct Shared;
  struct Workers;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Workers> workers_;
  std::chrono::milliseconds timeout_;
};

template <class T>
struct without_optional {
  using type = T;
};
template <class T>
struct without_optional<std::optional<T>> {
  using type = T;
};
}  // namespace detail

template <class DatasetType, class SamplerType>
class DataLoader {
 public:
  using Batch = typename detail::without_optional<typename DatasetType::BatchType>::type;
  using BatchType = Batch;
  using BatchRequest = typename SamplerType::BatchRequestType;
  class Iterator;

  DataLoader(DatasetType dataset, SamplerType sampler, DataLoaderOptions options)
      : dataset_(std::make_shared<DatasetType>(std::move(dataset))),
        sampler_(std::move(sampler)),
        options_(std::move(options)) {
    ATHANOR_CHECK_VALUE(options_.batch_size() > 0, "DataLoader: batch_size should be a positive integer value");
  }
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Starts an epoch. Only one iteration runs at a time; a new one abandons the old.
  Iterator begin() {
    start(true);
    return Iterator(this);
  }
  Iterator end() { return {}; }
  /// Like begin(), but goes on where the sampler stands (after a restore).
  Iterator resume() {
    start(false);
    return Iterator(this);
  }
  /// Number of batches of an epoch, if the dataset knows its size.
  std::optional<std::size_t> size() const {
    const auto n = dataset_->size();
    if (!n) return n;
    const std::size_t b = options_.batch_size();
    return options_.drop_last() ? *n / b : (*n + b - 1) / b;
  }
  const DataLoaderOptions& options() const { return options_; }
  /// Workers have copies of it, made when the first of them start.
  DatasetType& dataset() { return *dataset_; }
  SamplerType& sampler() { return sampler_; }
  /// The sampler's state just after the batch handed out last, whatever was fetched ahead.
  samplers::SamplerState state() const { return epochs_ ? delivered_ : sampler_.state(); }
  /// Joins the workers. Called by the destructor.
  void join() { queue_.reset(); }

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;
    using iterator_category = std::input_iterator_tag;
    /// The end.
    Iterator() = default;
    /// The first batch is taken when it is first asked for.
    explicit Iterator(DataLoader* loader) : at_(std::make_shared<Place>(loader)) {}
    /// These throw Error past the end.
    Batch& operator*() const {
      ATHANOR_CHECK(at_, "Dereferencing the DataLoader's past-the-end iterator is not allowed");
      ATHANOR_CHECK(!ended(), "Attempted to dereference iterator that was past the end");
      return *at_->batch;
    }
    Batch* operator->() const { return &**this; }
    /// Moves the copies of this iterator, too.
    Iterator& operator++() {
      ATHANOR_CHECK(at_, "Incrementing the DataLoader's past-the-end iterator is not allowed");
      ATHANOR_CHECK(!ended(), "Attempted to increment iterator past the end");
      at_->batch = at_->loader->next();
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_ || (a.ended() && b.ended()); }

   private:
    struct Place {
      explicit Place(DataLoader* from) : loader(from) {}
      DataLoader* loader;
      std::optional<Batch> batch;
      bool begun = false;
    };
    bool ended() const {
      if (!at_) return true;
      if (!at_->begun) {
        at_->begun = true;
        at_->batch = at_->loader->next();
      }
      return !at_->batch;
    }
    std::shared_ptr<Place> at_;
  };

 private:
  struct Result {
    std::optional<Batch> batch;  // absent when a stream has ended
    std::exception_ptr error;
    samplers::SamplerState after;
  };
  struct Results {
    std::map<std::size_t, Result> by_number;
    std::size_t arrivals = 0;
  };

  /// One dataset for each worker: its own copy where there can be one, as in libtorch, so that get() may change what
  /// the dataset holds. Tensors share their memory.
  using Datasets = std::vector<std::shared_ptr<DatasetType>>;
  std::shared_ptr<Datasets> datasets_of_workers() const {
    auto all = std::make_shared<Datasets>(options_.workers(), dataset_);
    if constexpr (!DatasetType::is_stateful && std::is_copy_constructible_v<DatasetType>)
      for (auto& own : *all) own = std::make_shared<DatasetType>(*dataset_);
    return all;
  }

  void start(bool fresh) {
    queue_.reset();
    if (fresh) {
      if constexpr (DatasetType::is_stateful) dataset_->reset();
      sampler_.reset();
    }
    delivered_ = sampler_.state();
    randomness_ = detail::epoch_randomness(delivered_.generator, epochs_++);
    next_job_ = next_result_ = 0;
    exhausted_ = false;
    if (options_.workers() == 0) return;
    results_ = std::make_shared<Results>();
    // They are kept from epoch to epoch, unless a worker that was left behind still has one.
    if (!datasets_ || datasets_.use_count() > 1) datasets_ = datasets_of_workers();
    queue_ = std::make_unique<detail::WorkQueue>(
        options_.workers(), options_.timeout().value_or(DataLoaderOptions::kDefaultTimeout), options_.worker_init());
    refill();
  }

  /// The next request; false if the epoch is over.
  std::optional<BatchRequest> draw() {
    if (exhausted_) return std::nullopt;
    std::optional<BatchRequest> request = sampler_.next(options_.batch_size());
    exhausted_ = !request.has_value();
    if constexpr (requires { request->size(); })
      exhausted_ = exhausted_ || (options_.drop_last() && request->size() < options_.batch_size());
    if (exhausted_) return std::nullopt;
    return request;
  }

  static Result fetch(DatasetType& dataset, const BatchRequest& request, samplers::SamplerState after,
                      PhiloxState randomness) {
    Result r{std::nullopt, nullptr, after};
    const detail::BatchRandomness own(randomness, after.position);
    datasets::detail::take_failed_sample();  // of an exception that a dataset caught itself
    try {
      r.batch = dataset.get_batch(request);
    } catch (...) {
      r.error = std::make_exception_ptr(WorkerException(std::current_exception(), request));
    }
    return r;
  }

  void refill() {
    const std::size_t ahead = std::max<std::size_t>(options_.max_jobs().value_or(2 * options_.workers()), 1);
    while (next_job_ - next_result_ < ahead) {
      std::optional<BatchRequest> request = draw();
      if (!request) return;
      auto made = std::make_shared<Result>();
      queue_->push(
          [made, datasets = datasets_, request = std::move(*request), after = sampler_.state(),
           randomness = randomness_] {
            *made = fetch(*(*datasets)[detail::WorkQueue::this_worker()], request, after, randomness);
          },
          [made, results = results_, number = next_job_, ordered = options_.enforce_ordering()] {
            results->by_number[ordered ? number : results->arrivals++] = std::move(*made);
          });
      ++next_job_;
    }
  }

  std::optional<Result> next_of_workers() {
    if (next_result_ == next_job_) {
      queue_->wait_for_init();
      return std::nullopt;
    }
    Result r;
    queue_->wait(
        [this] {
          const auto& made = results_->by_number;
          return !made.empty() && (!options_.enforce_ordering() || made.begin()->first == next_result_);
        },
        [this, &r] {
          r = std::move(results_->by_number.begin()->second);
          results_->by_number.erase(results_->by_number.begin());
        });
    ++next_result_;
    if (!r.batch && !r.error) exhausted_ = true;
    refill();
    return r;
  }

  std::optional<Batch> next() {
    for (;;) {
      std::optional<Result> r;
      if (options_.workers() > 0)
        r = next_of_workers();
      else if (const std::optional<BatchRequest> request = draw())
        r = fetch(*dataset_, *request, sampler_.state(), randomness_);
      if (!r) return std::nullopt;
      if (r->error) std::rethrow_exception(r->error);
      if (r->batch) {
        delivered_ = r->after;
        return std::move(r->batch);
      }
      // A stream has ended; other workers may still hold batches of it.
      exhausted_ = true;
    }
  }

  std::shared_ptr<DatasetType> dataset_;
  SamplerType sampler_;
  DataLoaderOptions options_;
  samplers::SamplerState delivered_;
  PhiloxState randomness_{0, 0};
  std::shared_ptr<Datasets> datasets_;
  std::shared_ptr<Results> results_;
  std::size_t next_job_ = 0, next_result_ = 0, epochs_ = 0;
  bool exhausted_ = false;
  std::unique_ptr<detail::WorkQueue> queue_;
};

/// libtorch's names of the two kinds.
template <class DatasetType, class SamplerType>
using StatelessDataLoader = DataLoader<DatasetType, SamplerType>;
template <class DatasetType>
using StatefulDataLoader = DataLoader<DatasetType, samplers::StreamSampler>;

/// As libtorch's: `make_data_loader<samplers::SequentialSampler>(dataset, 64)`; RandomSampler by default. Throws Error
/// for a dataset that does not know its size.
template <class SamplerType = samplers::RandomSampler, class DatasetType>
requires(!DatasetType::is_stateful) std::unique_ptr<DataLoader<DatasetType, SamplerType>> make_data_loader(
    DatasetType dataset, DataLoaderOptions options = {}) {
  const auto size = dataset.size();
  ATHANOR_CHECK(size,
                "make_data_loader: Expected the dataset to be sized in order to construct the Sampler; give a sampler");
  return std::make_unique<DataLoader<DatasetType, SamplerType>>(std::move(dataset), SamplerType(*size),
                                                                std::move(options));
}
template <class DatasetType, class SamplerType>
std::unique_ptr<DataLoader<DatasetType, SamplerType>> make_data_loader(DatasetType dataset, SamplerType sampler,
                                                                       DataLoaderOptions options) {
  return std::make_unique<DataLoader<DatasetType, SamplerType>>(std::move(dataset), std::move(sampler),
                                                                std::move(options));
}
/// Of a stream: batches until it ends.
template <class DatasetType>
requires(DatasetType::is_stateful) std::unique_ptr<StatefulDataLoader<DatasetType>> make_data_loader(
    DatasetType dataset, DataLoaderOptions options = {}) {
  return std::make_unique<StatefulDataLoader<DatasetType>>(
      std::move(dataset), samplers::StreamSampler(std::numeric_limits<std::size_t>::max()), std::move(options));
}

}  // namespace athanor::data
