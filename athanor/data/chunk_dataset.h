#pragma once
/// ChunkDataset: a stream whose source yields chunks, such as files, that are too many to keep in memory. Threads read
/// chunks ahead into a cache of examples; batches are cut from it whatever the chunks' sizes are.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "athanor/base/parallel.h"
#include "athanor/data/datasets.h"
#include "athanor/data/samplers.h"

namespace athanor::data::datasets {

/// Reads whole chunks. `read_chunk` is called by several threads at once if there are several preloaders.
template <class Single, class Chunk = std::vector<Single>>
class ChunkDataReader {
 public:
  using ExampleType = Single;
  using ChunkType = Chunk;
  virtual ~ChunkDataReader() = default;
  virtual ChunkType read_chunk(std::size_t index) = 0;
  virtual std::size_t chunk_count() = 0;
  /// Starts an epoch.
  virtual void reset() = 0;
};

/// Throws Error for a zero, and for a cache that cannot hold a batch.
class ChunkDatasetOptions {
 public:
  explicit ChunkDatasetOptions(std::size_t preloader_count, std::size_t batch_size, std::size_t cache_size = 2048,
                               std::size_t cross_chunk_shuffle_count = 1)
      : preloader_count_(preloader_count),
        batch_size_(batch_size),
        cache_size_(cache_size),
        cross_chunk_shuffle_count_(cross_chunk_shuffle_count) {
    ATHANOR_CHECK(preloader_count > 0, "Preloader count is 0. At least one preloader needs to be specified.");
    ATHANOR_CHECK(batch_size > 0, "Batch size is 0. A positive batch size needs to be specified.");
    ATHANOR_CHECK(cache_size > 0, "Cache size is 0. A positive cache size needs to be specified.");
    ATHANOR_CHECK(cache_size >= batch_size,
                  "Cache size is less than batch size. Cache needs to be large enough to hold at least one batch.");
    ATHANOR_CHECK(cross_chunk_shuffle_count > 0,
                  "cross_chunk_shuffle_count needs to be greater than 0. Chunks are shuffled in groups of as many.");
  }
  /// Threads that read ahead. With more than one, chunks come in any order.
  std::size_t preloader_count() const { return preloader_count_; }
  std::size_t batch_size() const { return batch_size_; }
  /// Reading stops while the cache holds as many examples.
  std::size_t cache_size() const { return cache_size_; }
  /// Chunks that are read together, whose examples the example sampler mixes.
  std::size_t cross_chunk_shuffle_count() const { return cross_chunk_shuffle_count_; }

 private:
  std::size_t preloader_count_, batch_size_, cache_size_, cross_chunk_shuffle_count_;
};

/// `chunk_sampler` orders the chunks of an epoch, `example_sampler` the examples of a group of chunks, after
/// `preprocess`, if given, has changed them. Share it by make_shared_dataset. get_batch may be called at once by any
/// number of threads, and throws what the reader threw.
template <class Reader, class ChunkSampler = samplers::RandomSampler, class ExampleSampler = samplers::RandomSampler>
class ChunkDataset final : public StatefulDataset<ChunkDataset<Reader, ChunkSampler, ExampleSampler>,
                                                  typename Reader::ChunkType, std::size_t> {
 public:
  using Chunk = typename Reader::ChunkType;
  using Single = typename Reader::ExampleType;
  using ChunkSamplerType = ChunkSampler;
  using ExampleSamplerType = ExampleSampler;

  ChunkDataset(Reader reader, ChunkSampler chunk_sampler, ExampleSampler example_sampler, ChunkDatasetOptions options,
               std::function<void(Chunk&)> preprocess = nullptr)
      : reader_(std::move(reader)),
        chunk_sampler_(std::move(chunk_sampler)),
        example_sampler_(std::move(example_sampler)),
        options_(options),
        preprocess_(std::move(preprocess)) {}
  ~ChunkDataset() override { stop(); }
  ChunkDataset(const ChunkDataset&) = delete;
  ChunkDataset& operator=(const ChunkDataset&) = delete;

  /// Starts an epoch, at the chunk that load() found the first time after it.
  void reset() override {
    stop();
    reader_.reset();
    if (!std::exchange(loaded_, false)) chunk_sampler_.reset(reader_.chunk_count());
    cache_.clear();
    error_ = nullptr;
    stopping_ = false;
    busy_ = options_.preloader_count();
    for (std::size_t i = 0; i < options_.preloader_count(); ++i) preloaders_.emplace_back([this] { preload(); });
  }

  /// The next batch, shorter at the end of the epoch, then none. Throws Error unless `batch_size` is the options'.
  std::optional<Chunk> get_batch(std::size_t batch_size) override {
    ATHANOR_CHECK(batch_size == options_.batch_size(),
                  "The requested batch size does not match with the initialized batch size.\n The requested batch size "
                  "is ",
                  batch_size, ", while the dataset is created with batch size equal to ", options_.batch_size());
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return cache_.size() >= batch_size || busy_ == 0 || error_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (cache_.empty()) return std::nullopt;
    Chunk batch;
    for (std::size_t i = std::min(batch_size, cache_.size()); i > 0; --i) {
      batch.push_back(std::move(cache_.front()));
      cache_.pop_front();
    }
    lock.unlock();
    drained_.notify_all();
    return batch;
  }
  std::optional<Chunk> get_batch() { return get_batch(options_.batch_size()); }
  std::optional<std::size_t> size() const override { return std::nullopt; }
  /// Not while an epoch runs: the preloaders use it.
  ChunkSampler& chunk_sampler() { return chunk_sampler_; }

  /// Where the chunk sampler stands, which is ahead of the batches by what is in the cache.
  void save(serialize::OutputArchive& archive) const override {
    const std::lock_guard lock(mutex_);
    chunk_sampler_.save(archive);
  }
  void load(serialize::InputArchive& archive) override {
    const std::lock_guard lock(mutex_);
    chunk_sampler_.reset(reader_.chunk_count());
    chunk_sampler_.load(archive);
    loaded_ = true;
  }

 private:
  void preload() {
    const ThreadTeamGuard alone(1);
    try {
      while (load_group()) {
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      --busy_;
    }
    filled_.notify_all();
  }

  /// Reads the next chunks into the cache; false at the end.
  bool load_group() {
    std::optional<std::vector<std::size_t>> wanted;
    {
      std::unique_lock lock(mutex_);
      drained_.wait(lock, [&] { return stopping_ || cache_.size() < options_.cache_size(); });
      if (!stopping_) wanted = chunk_sampler_.next(options_.cross_chunk_shuffle_count());
    }
    if (!wanted) return false;
    Chunk group;
    for (const std::size_t i : *wanted) {
      Chunk chunk = reader_.read_chunk(i);
      group.insert(group.end(), std::make_move_iterator(chunk.begin()), std::make_move_iterator(chunk.end()));
    }
    if (preprocess_) preprocess_(group);
    {
      std::unique_lock lock(mutex_);
      drained_.wait(lock, [&] { return stopping_ || cache_.size() < options_.cache_size(); });
      if (stopping_) return false;
      example_sampler_.reset(group.size());
      if (const auto order = example_sampler_.next(group.size()))
        for (const std::size_t i : *order) cache_.push_back(std::move(group[i]));
    }
    filled_.notify_all();
    return true;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    drained_.notify_all();
    for (std::thread& t : preloaders_) t.join();
    preloaders_.clear();
  }

  Reader reader_;
  ChunkSampler chunk_sampler_;
  ExampleSampler example_sampler_;
  ChunkDatasetOptions options_;
  std::function<void(Chunk&)> preprocess_;
  mutable std::mutex mutex_;
  std::condition_variable filled_, drained_;
  std::deque<Single> cache_;
  std::exception_ptr error_;
  std::vector<std::thread> preloaders_;
  std::size_t busy_ = 0;  // preloaders that may still add to the cache
  bool stopping_ = false, loaded_ = false;
};

}  // namespace athanor::data::datasets
