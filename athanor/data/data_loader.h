#pragma once
/// DataLoader: batches of a dataset in the order of a sampler, fetched ahead by worker threads. The order does not
/// depend on the number of workers.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/data/datasets.h"
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
  /// How long to wait for a batch before Error; for ever by default.
  ATHANOR_OPTIM_ARG(std::optional<std::chrono::milliseconds>, timeout, std::nullopt);
  ATHANOR_OPTIM_ARG(bool, enforce_ordering, true);
  /// Leave out a last batch that is not full.
  ATHANOR_OPTIM_ARG(bool, drop_last, false);
};

/// An exception from a worker; what() names the batch's indices.
class WorkerException : public Error {
 public:
  WorkerException(std::exception_ptr original, ArrayRef<std::size_t> indices);
  std::exception_ptr original_exception;
};

template <class DatasetType, class SamplerType>
class DataLoader {
 public:
  using Batch = typename DatasetType::BatchType;
  class Iterator;

  DataLoader(DatasetType dataset, SamplerType sampler, DataLoaderOptions options)
      : dataset_(std::move(dataset)), sampler_(std::move(sampler)), options_(std::move(options)) {
    ATHANOR_CHECK_VALUE(options_.batch_size() > 0, "DataLoader: batch_size should be a positive integer value");
  }
  ~DataLoader() { stop(); }
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Starts an epoch. Only one iteration runs at a time; a new one abandons the old.
  Iterator begin() {
    start(true);
    return Iterator(this, next());
  }
  Iterator end() { return Iterator(nullptr, std::nullopt); }
  /// Like begin(), but goes on where the sampler stands (after a restore).
  Iterator resume() {
    start(false);
    return Iterator(this, next());
  }
  /// Number of batches of an epoch, if the dataset knows its size.
  std::optional<std::size_t> size() const {
    const auto n = dataset_.size();
    if (!n) return n;
    const std::size_t b = options_.batch_size();
    return options_.drop_last() ? *n / b : (*n + b - 1) / b;
  }
  const DataLoaderOptions& options() const { return options_; }
  DatasetType& dataset() { return dataset_; }
  SamplerType& sampler() { return sampler_; }
  /// The sampler's state just after the batch handed out last, whatever was fetched ahead.
  samplers::SamplerState state() const { return delivered_; }
  /// Joins the workers. Called by the destructor.
  void join() { stop(); }

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;
    using iterator_category = std::input_iterator_tag;
    Iterator(DataLoader* loader, std::optional<Batch> batch) : loader_(loader), batch_(std::move(batch)) {}
    Batch& operator*() { return *batch_; }
    Batch* operator->() { return &*batch_; }
    Iterator& operator++() {
      batch_ = loader_->next();
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) {
      return a.batch_.has_value() == b.batch_.has_value() && !a.batch_.has_value();
    }

   private:
    DataLoader* loader_;
    std::optional<Batch> batch_;
  };

 private:
  struct Job {
    std::size_t nr;
    std::vector<std::size_t> indices;
    samplers::SamplerState after;
  };
  struct Result {
    std::optional<Batch> batch;
    std::exception_ptr error;
    samplers::SamplerState after;
  };

  void start(bool fresh) {
    stop();
    if (fresh) sampler_.reset();
    delivered_ = sampler_.state();
    next_job_ = next_result_ = 0;
    exhausted_ = stopping_ = false;
    jobs_.clear();
    results_.clear();
    if (options_.workers() == 0) return;
    refill();
    for (std::size_t i = 0; i < options_.workers(); ++i) workers_.emplace_back([this] { work(); });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      jobs_.clear();
    }
    job_ready_.notify_all();
    for (auto& t : workers_) t.join();
    workers_.clear();
  }

  std::optional<Job> draw() {
    if (exhausted_) return std::nullopt;
    auto indices = sampler_.next(options_.batch_size());
    if (!indices || (options_.drop_last() && indices->size() < options_.batch_size())) {
      exhausted_ = true;
      return std::nullopt;
    }
    return Job{next_job_++, std::move(*indices), sampler_.state()};
  }

  /// Under mutex_, or before the workers run.
  void refill() {
    const std::size_t ahead = options_.max_jobs().value_or(2 * options_.workers());
    while (next_job_ - next_result_ < std::max<std::size_t>(ahead, 1)) {
      auto job = draw();
      if (!job) return;
      jobs_.push_back(std::move(*job));
    }
  }

  Result fetch(const Job& job) {
    Result r;
    r.after = job.after;
    try {
      r.batch = dataset_.get_batch(job.indices);
    } catch (...) {
      r.error = std::make_exception_ptr(WorkerException(std::current_exception(), job.indices));
    }
    return r;
  }

  void work() {
    const ThreadTeamGuard single(1);
    std::unique_lock lock(mutex_);
    for (;;) {
      job_ready_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      Result r = fetch(job);
      lock.lock();
      results_[options_.enforce_ordering() ? job.nr : arrival_++] = std::move(r);
      result_ready_.notify_all();
    }
  }

  std::optional<Batch> next() {
    if (options_.workers() == 0) {
      auto job = draw();
      return job ? deliver(fetch(*job)) : std::nullopt;
    }
    std::unique_lock lock(mutex_);
    if (next_result_ == next_job_) return std::nullopt;
    const auto ready = [&] {
      return !results_.empty() && (!options_.enforce_ordering() || results_.count(next_result_));
    };
    if (!options_.timeout())
      result_ready_.wait(lock, ready);
    else if (!result_ready_.wait_for(lock, *options_.timeout(), ready))
      ATHANOR_THROW(Error, "DataLoader: no batch within the timeout of ", options_.timeout()->count(),
                    " ms; the dataset or its transforms are slower than expected, or stuck");
    const auto it = results_.begin();
    Result r = std::move(it->second);
    results_.erase(it);
    ++next_result_;
    refill();
    lock.unlock();
    job_ready_.notify_all();
    return deliver(std::move(r));
  }

  std::optional<Batch> deliver(Result r) {
    if (r.error) std::rethrow_exception(r.error);
    delivered_ = r.after;
    return std::move(r.batch);
  }

  DatasetType dataset_;
  SamplerType sampler_;
  DataLoaderOptions options_;
  samplers::SamplerState delivered_;
  std::mutex mutex_;
  std::condition_variable job_ready_, result_ready_;
  std::deque<Job> jobs_;
  std::map<std::size_t, Result> results_;
  std::size_t next_job_ = 0, next_result_ = 0, arrival_ = 0;
  bool exhausted_ = false, stopping_ = false;
  std::vector<std::thread> workers_;
};

/// As libtorch's: `make_data_loader<samplers::SequentialSampler>(dataset, 64)`; RandomSampler by default.
template <class SamplerType = samplers::RandomSampler, class DatasetType>
std::unique_ptr<DataLoader<DatasetType, SamplerType>> make_data_loader(DatasetType dataset,
                                                                       DataLoaderOptions options = {}) {
  const auto size = dataset.size();
  ATHANOR_CHECK(size, "make_data_loader: the dataset does not know its size; give a sampler");
  return std::make_unique<DataLoader<DatasetType, SamplerType>>(std::move(dataset), SamplerType(*size),
                                                                std::move(options));
}
template <class DatasetType, class SamplerType>
std::unique_ptr<DataLoader<DatasetType, SamplerType>> make_data_loader(DatasetType dataset, SamplerType sampler,
                                                                       DataLoaderOptions options) {
  return std::make_unique<DataLoader<DatasetType, SamplerType>>(std::move(dataset), std::move(sampler),
                                                                std::move(options));
}

}  // namespace athanor::data
