#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "athanor/base/deadline.h"
#include "athanor/data/data_loader.h"
#include "athanor/data/image_transforms.h"
#include "athanor/ops/factory.h"
#include "counting.h"

namespace athanor::data {
namespace {

datasets::TensorPairDataset numbers(std::int64_t n) {
  Tensor x = empty({n, 3}), y = empty({n}, kLong);
  for (std::int64_t i = 0; i < n; ++i) {
    for (int j = 0; j < 3; ++j) x.data_ptr<float>()[i * 3 + j] = static_cast<float>(i * 10 + j);
    y.data_ptr<std::int64_t>()[i] = i;
  }
  return {x, y};
}

template <class Loader>
std::vector<std::int64_t> targets(Loader& loader) {
  std::vector<std::int64_t> out;
  for (auto& batch : loader)
    for (std::int64_t i = 0; i < batch.target.numel(); ++i)
      out.push_back(batch.target.template data_ptr<std::int64_t>()[i]);
  return out;
}

/// Throws for one index.
struct Faulty : datasets::Dataset<Faulty> {
  Example<> get(std::size_t i) override {
    ATHANOR_CHECK_VALUE(i != 5, "sample is broken");
    return {ones({1}), zeros({1})};
  }
  std::optional<std::size_t> size() const override { return 8; }
};

}  // namespace

TEST(DataLoader, SequentialBatchesInOrderWithASmallerLast) {
  auto loader = make_data_loader<samplers::SequentialSampler>(numbers(10).map(transforms::Stack<>()), 4);
  std::vector<std::int64_t> sizes;
  for (auto& b : *loader) sizes.push_back(b.data.size(0));
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{4, 4, 2}));
  EXPECT_EQ(loader->size(), 3U);
}

TEST(DataLoader, DropLastLeavesOutTheRest) {
  auto loader = make_data_loader<samplers::SequentialSampler>(numbers(10).map(transforms::Stack<>()),
                                                              DataLoaderOptions(4).drop_last(true));
  EXPECT_EQ(targets(*loader).size(), 8U);
  EXPECT_EQ(loader->size(), 2U);
}

TEST(DataLoader, OrderDoesNotDependOnTheNumberOfWorkers) {
  std::vector<std::vector<std::int64_t>> seen;
  for (const std::size_t workers : {0, 1, 3}) {
    manual_seed(7);
    auto loader = make_data_loader(numbers(101).map(transforms::Stack<>()), DataLoaderOptions(8).workers(workers));
    seen.push_back(targets(*loader));
    const auto second = targets(*loader);
    EXPECT_NE(second, seen.back());  // a new order every epoch
    seen.back().insert(seen.back().end(), second.begin(), second.end());
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
  EXPECT_EQ(std::set<std::int64_t>(seen[0].begin(), seen[0].begin() + 101).size(), 101U);
}

TEST(DataLoader, GatheringWholeBatchesEqualsStackingExamples) {
  auto fast = numbers(20).map(transforms::Normalize<>({5.0}, {2.0})).map(transforms::Stack<>());
  const std::vector<std::size_t> indices{3, 0, 19, 3};
  const auto a = fast.get_batch(indices);
  auto slow = numbers(20);
  transforms::Normalize<> normalize({5.0}, {2.0});
  const auto b = transforms::Stack<>().apply_batch(normalize.apply_batch(slow.get_batch(indices)));
  for (std::int64_t i = 0; i < a.data.numel(); ++i) EXPECT_EQ(a.data.data_ptr<float>()[i], b.data.data_ptr<float>()[i]);
  EXPECT_EQ(a.target.sizes(), b.target.sizes());
}

TEST(DataLoader, WorkerErrorNamesTheSamples) {
  for (const std::size_t workers : {0, 2}) {
    auto loader = make_data_loader<samplers::SequentialSampler>(Faulty().map(transforms::Stack<>()),
                                                                DataLoaderOptions(2).workers(workers));
    try {
      for (auto& b : *loader) (void)b;
      FAIL();
    } catch (const WorkerException& e) {
      EXPECT_NE(std::string(e.what()).find("sample is broken"), std::string::npos);
      EXPECT_NE(std::string(e.what()).find("sample 5 of the batch of samples [4, 5]"), std::string::npos) << e.what();
      EXPECT_THROW(std::rethrow_exception(e.original_exception), ValueError);
    }
  }
}

TEST(DataLoader, ResumesInTheMiddleOfAnEpochExactly) {
  manual_seed(3);
  auto loader = make_data_loader(numbers(50).map(transforms::Stack<>()), DataLoaderOptions(4).workers(2));
  std::vector<std::int64_t> rest;
  samplers::SamplerState state;
  int n = 0;
  for (auto& b : *loader) {
    if (++n == 5) state = loader->state();
    if (n > 5)
      for (std::int64_t i = 0; i < b.target.numel(); ++i) rest.push_back(b.target.data_ptr<std::int64_t>()[i]);
  }
  manual_seed(99);
  auto other = make_data_loader(numbers(50).map(transforms::Stack<>()), DataLoaderOptions(4).workers(1));
  other->sampler().restore(state);
  std::vector<std::int64_t> got;
  for (auto it = other->resume(); !(it == other->end()); ++it)
    for (std::int64_t i = 0; i < it->target.numel(); ++i) got.push_back(it->target.data_ptr<std::int64_t>()[i]);
  EXPECT_EQ(got, rest);
}

TEST(DataLoader, CopiesOfAnIteratorMoveTogether) {
  auto loader = make_data_loader<samplers::SequentialSampler>(numbers(8).map(transforms::Stack<>()), 4);
  auto i = loader->begin();
  auto copy = i;
  EXPECT_TRUE(i == i && i == copy);
  EXPECT_FALSE(i == loader->end());
  ++copy;
  EXPECT_EQ(i->target.data_ptr<std::int64_t>()[0], 4);
  ++i;
  EXPECT_TRUE(copy == loader->end());
  EXPECT_THROW(*copy, Error);
  EXPECT_THROW(++i, Error);
  EXPECT_THROW(*loader->end(), Error);
}

TEST(DataLoader, BatchesAreTakenWhenTheyAreAskedFor) {
  struct Failing : datasets::Dataset<Failing, int> {
    int get(std::size_t) override { throw std::invalid_argument("badness"); }
    std::optional<std::size_t> size() const override { return 4; }
  };
  for (const std::size_t workers : {0, 2}) {
    auto loader = make_data_loader(Failing(), DataLoaderOptions(2).workers(workers));
    auto i = loader->begin();
    EXPECT_THROW(*i, WorkerException);
  }
}

TEST(DataLoader, AbandonedIterationJoinsItsWorkers) {
  auto loader = make_data_loader(numbers(1000).map(transforms::Stack<>()), DataLoaderOptions(1).workers(3));
  auto it = loader->begin();
  ++it;
  auto again = loader->begin();
  EXPECT_EQ(again->data.size(0), 1);
}

/// Each call waits until all workers are in one, and notes which object it is that the thread uses.
struct Owned : datasets::BatchDataset<Owned, std::size_t> {
  struct Shared {
    std::mutex mutex;
    std::condition_variable all_here;
    std::size_t workers = 0, arrived = 0;
    std::set<const Owned*> objects;
  };
  Owned(std::shared_ptr<Shared> s, std::size_t n) : shared(std::move(s)), count(n) {}
  std::size_t get_batch(ArrayRef<std::size_t> indices) override {
    std::unique_lock lock(shared->mutex);
    const std::size_t round = ++shared->arrived;
    const std::size_t full = (round + shared->workers - 1) / shared->workers * shared->workers;
    shared->all_here.notify_all();
    ATHANOR_CHECK(shared->all_here.wait_for(lock, std::chrono::minutes(1), [&] { return shared->arrived >= full; }),
                  "the other workers did not come");
    shared->objects.insert(this);
    ++calls;
    most_calls = std::max(most_calls, calls);
    return indices.front();
  }
  std::optional<std::size_t> size() const override { return count; }
  static inline std::size_t most_calls = 0;
  std::shared_ptr<Shared> shared;
  std::size_t count, calls = 0;  // calls: of this copy, without a lock of its own
};

TEST(DataLoader, EveryWorkerHasACopyOfTheDatasetAndKeepsIt) {
  const auto shared = std::make_shared<Owned::Shared>();
  shared->workers = 3;
  Owned::most_calls = 0;
  auto loader =
      make_data_loader<samplers::SequentialSampler>(Owned(shared, 3), DataLoaderOptions(1).workers(3).max_jobs(3));
  for (int epoch = 1; epoch <= 2; ++epoch) {
    std::vector<std::size_t> got;
    for (const std::size_t first : *loader) got.push_back(first);
    EXPECT_EQ(got, (std::vector<std::size_t>{0, 1, 2}));
    EXPECT_EQ(shared->objects.size(), 3U);
    EXPECT_EQ(Owned::most_calls, static_cast<std::size_t>(epoch));
  }
  EXPECT_EQ(shared->objects.count(&loader->dataset()), 0U);
}

/// Waits at one index until it is let go.
struct Stuck : datasets::Dataset<Stuck> {
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false, left = false;
  };
  explicit Stuck(std::shared_ptr<Gate> g) : gate(std::move(g)) {}
  Example<> get(std::size_t i) override {
    if (i == 2) {
      std::unique_lock lock(gate->mutex);
      gate->changed.wait(lock, [this] { return gate->open; });
      gate->left = true;
      gate->changed.notify_all();
    }
    return {ones({1}), zeros({1})};
  }
  std::optional<std::size_t> size() const override { return 4; }
  std::shared_ptr<Gate> gate;
};

/// Gives the number that its thread was told to be; -1 in threads that nobody told.
thread_local std::int64_t told = -1;
struct Told : datasets::Dataset<Told> {
  Example<> get(std::size_t) override { return {ones({1}), full({1}, told, kLong)}; }
  std::optional<std::size_t> size() const override { return 12; }
};

TEST(DataLoader, WorkersAreInitializedBeforeTheirFirstExample) {
  std::mutex mutex;
  std::multiset<std::size_t> called;
  const auto init = [&](std::size_t worker) {
    told = static_cast<std::int64_t>(worker);
    const std::lock_guard lock(mutex);
    called.insert(worker);
  };
  auto loader = make_data_loader<samplers::SequentialSampler>(Told().map(transforms::Stack<>()),
                                                              DataLoaderOptions(1).workers(3).worker_init(init));
  for (std::size_t epoch = 1; epoch <= 2; ++epoch) {
    for (const std::int64_t number : targets(*loader)) EXPECT_TRUE(number >= 0 && number < 3) << number;
    loader->join();
    EXPECT_EQ(called.count(0), epoch);
    EXPECT_EQ(called.count(2), epoch);
  }
  auto alone = make_data_loader<samplers::SequentialSampler>(Told().map(transforms::Stack<>()),
                                                             DataLoaderOptions(1).worker_init(init));
  EXPECT_EQ(targets(*alone), std::vector<std::int64_t>(12, -1));
}

TEST(DataLoader, WhatAnInitializationThrowsComesOutOfTheIteration) {
  const auto init = [](std::size_t worker) { ATHANOR_CHECK_VALUE(worker != 1, "no room for worker 1"); };
  auto loader = make_data_loader<samplers::SequentialSampler>(Told().map(transforms::Stack<>()),
                                                              DataLoaderOptions(1).workers(2).worker_init(init));
  try {
    for (int epoch = 0; epoch < 100; ++epoch) targets(*loader);
    FAIL() << "nothing was thrown";
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("no room for worker 1"), std::string::npos) << e.what();
  }
}

TEST(DataLoader, WhatAnInitializationThrowsAfterTheLastBatchComesOutOfTheSameEpoch) {
  std::atomic<bool> all_taken{false};
  const auto init = [&](std::size_t worker) {
    if (worker != 1) return;
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (!all_taken && !deadline.expired()) std::this_thread::yield();
    ATHANOR_THROW(ValueError, "no room for worker 1");
  };
  auto loader = make_data_loader<samplers::SequentialSampler>(Told().map(transforms::Stack<>()),
                                                              DataLoaderOptions(1).workers(2).worker_init(init));
  std::size_t batches = 0;
  const auto epoch = [&] {
    for ([[maybe_unused]] const auto& batch : *loader)
      if (++batches == loader->size()) all_taken = true;
  };
  EXPECT_THROW(epoch(), ValueError);
  EXPECT_EQ(batches, loader->size());
}

TEST(DataLoader, AnInitializationThatDoesNotReturnIsAnErrorAfterTheTimeout) {
  const auto over = std::make_shared<std::latch>(1);
  const auto init = [over](std::size_t worker) {
    if (worker == 1) over->wait();
  };
  auto loader = make_data_loader<samplers::SequentialSampler>(
      Told().map(transforms::Stack<>()),
      DataLoaderOptions(1).workers(2).timeout(std::chrono::milliseconds(200)).worker_init(init));
  EXPECT_THROW(targets(*loader), Error);
  over->count_down();
}

TEST(DataLoader, StuckWorkerIsAnErrorAndIsLeftBehind) {
  auto gate = std::make_shared<Stuck::Gate>();
  {
    auto loader = make_data_loader<samplers::SequentialSampler>(
        Stuck(gate).map(transforms::Stack<>()), DataLoaderOptions(1).workers(1).timeout(std::chrono::milliseconds(50)));
    try {
      for (auto& b : *loader) (void)b;
      FAIL() << "there was a batch";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("timeout of 50 ms"), std::string::npos) << e.what();
    }
  }  // The loader goes although its worker is still inside the dataset.
  std::unique_lock lock(gate->mutex);
  EXPECT_FALSE(gate->left);
  gate->open = true;
  gate->changed.notify_all();
  gate->changed.wait(lock, [&] { return gate->left; });
}

TEST(DataLoader, RandomTransformsDoNotDependOnTheNumberOfWorkers) {
  std::vector<Tensor> seen;
  for (const std::size_t workers : {0, 1, 3}) {
    manual_seed(11);
    auto images = counting({40, 1, 4, 4}, kFloat);
    auto loader = make_data_loader(datasets::TensorPairDataset(images, counting({40}))
                                       .map(transforms::RandomHorizontalFlip<>())
                                       .map(transforms::RandomCrop<>(4, 2))
                                       .map(transforms::Stack<>()),
                                   DataLoaderOptions(8).workers(workers));
    std::vector<Tensor> all;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (auto& b : *loader) all.push_back(b.data);
    EXPECT_FALSE(equal(all[0], all[5])) << "the second epoch repeats the first";
    seen.push_back(cat(all));
  }
  EXPECT_TRUE(equal(seen[0], seen[1]));
  EXPECT_TRUE(equal(seen[0], seen[2]));
}

TEST(DataLoader, ExceptionsOfStreamsAreRethrown) {
  struct Broken : datasets::StatefulDataset<Broken> {
    std::optional<std::vector<Example<>>> get_batch(std::size_t) override {
      ATHANOR_THROW(ValueError, "the line is dead");
    }
    std::optional<std::size_t> size() const override { return std::nullopt; }
    void reset() override {}
  };
  for (const std::size_t workers : {0, 2}) {
    auto loader = make_data_loader(Broken(), DataLoaderOptions(3).workers(workers));
    try {
      for (auto& b : *loader) (void)b;
      FAIL();
    } catch (const WorkerException& e) {
      EXPECT_NE(std::string(e.what()).find("the line is dead"), std::string::npos);
      EXPECT_NE(std::string(e.what()).find("3 samples of a stream"), std::string::npos) << e.what();
    }
  }
}

TEST(ConcatDataset, ContinuesFromOneDatasetToTheNext) {
  datasets::ConcatDataset both(numbers(3), datasets::Subset(numbers(10), {7, 8}), numbers(0), numbers(2));
  EXPECT_EQ(both.size(), 7U);
  EXPECT_EQ(both.cumulative_sizes(), (std::vector<std::size_t>{3, 5, 5, 7}));
  auto loader = make_data_loader<samplers::SequentialSampler>(both.map(transforms::Stack<>()), 4);
  EXPECT_EQ(targets(*loader), (std::vector<std::int64_t>{0, 1, 2, 7, 8, 0, 1}));
  EXPECT_THROW(both.get(7), IndexError);
  datasets::ConcatDataset same(std::vector{numbers(2), numbers(1)});
  EXPECT_EQ(same.size(), 3U);
  EXPECT_THROW(datasets::ConcatDataset(std::vector<datasets::TensorPairDataset>()), ValueError);
}

TEST(TensorDataset, AnyNumberOfTensors) {
  EXPECT_EQ(datasets::tensor_dataset(counting({3, 2})).get(1).data.sum().item<std::int64_t>(), 5);
  EXPECT_EQ(datasets::tensor_dataset(counting({3}), counting({3})).get(2).target.item<std::int64_t>(), 2);
  auto three = datasets::tensor_dataset(counting({4}), counting({4}) * 2, counting({4, 2}));
  auto loader = make_data_loader<samplers::SequentialSampler>(three, 3);
  auto it = loader->begin();
  ASSERT_EQ(it->size(), 3U);
  EXPECT_TRUE(equal((*it)[1], tensor({0, 2, 4})));
  EXPECT_EQ((*it)[2].sizes().vec(), (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(datasets::TensorDataset(std::vector<Tensor>{ones({2}), zeros({2})}).size(), 2U);
  EXPECT_THROW(datasets::TensorDataset(tensor(1)), ValueError);
  EXPECT_THROW(datasets::tensor_dataset(ones({2}), ones({2}), ones({3})), ValueError);
  EXPECT_THROW(datasets::TensorListDataset({}), ValueError);
}

TEST(DataLoader, BadOptionsAreRefused) {
  EXPECT_THROW(make_data_loader(numbers(4).map(transforms::Stack<>()), DataLoaderOptions(0)), ValueError);
  EXPECT_THROW(datasets::TensorPairDataset(ones({3, 2}), ones({4})), ValueError);
}

TEST(RandomSplit, PartsCoverTheDatasetOnce) {
  const auto parts = datasets::random_split(numbers(10), {7, 3}, Generator(1));
  std::set<std::size_t> all;
  for (const auto& p : parts) all.insert(p.indices().begin(), p.indices().end());
  EXPECT_EQ(all.size(), 10U);
  EXPECT_EQ(parts[1].size(), 3U);
  EXPECT_THROW(datasets::random_split(numbers(10), {7, 2}), ValueError);
  // As PyTorch deals out what is left over: 3 + 3 + 3, then one more for the first.
  EXPECT_EQ(datasets::split_lengths(10, {1.0 / 3, 1.0 / 3, 1.0 / 3}), (std::vector<std::size_t>{4, 3, 3}));
  EXPECT_EQ(datasets::split_lengths(5, {0.9, 0.1}), (std::vector<std::size_t>{5, 0}));
  EXPECT_THROW(datasets::split_lengths(5, {0.9, 0.2}), ValueError);
  EXPECT_THROW(datasets::split_lengths(5, {-0.1, 1.1}), ValueError);
}

}  // namespace athanor::data
