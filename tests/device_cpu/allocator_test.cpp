#include "athanor/tensor/allocator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/device/cpu/cpu_allocator.h"
#include "athanor/device/cpu/page_heap.h"

namespace athanor {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCaches = false;
#else
constexpr bool kCaches = true;
#endif

std::int64_t allocated() { return host_allocator().stats().allocated; }

TEST(HostAllocator, SizeClassesCoverTheirSizesWithLittleWaste) {
  for (std::size_t bytes = 1; bytes <= (std::size_t{1} << 20); bytes += 1 + bytes / 100) {
    const unsigned c = detail::host_class(bytes);
    const std::size_t block = detail::host_class_bytes(c);
    ASSERT_GE(block, bytes);
    ASSERT_EQ(block % 64, 0U);
    if (bytes > 512) {
      ASSERT_LE(static_cast<double>(block - bytes), 0.125 * static_cast<double>(bytes) + 1e-9) << bytes;
    }
    if (c > 0) {
      ASSERT_LT(detail::host_class_bytes(c - 1), bytes);
    }
    ASSERT_EQ(detail::host_class(block), c);
  }
}

TEST(HostAllocator, BlocksAreAlignedWritableAndDisjoint) {
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  std::size_t n = 1;
  for (int i = 0; i < 60; ++i) {
    auto* p = static_cast<unsigned char*>(host_allocate(n));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0U);
    std::memset(p, i, n);
    blocks.emplace_back(p, n);
    n = n * 13 / 10 + 1;
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [p, size] = blocks[i];
    for (std::size_t k = 0; k < size; k += 1 + size / 64) ASSERT_EQ(p[k], i);
    ASSERT_EQ(p[size - 1], i);
    host_deallocate(p, size);
  }
}

TEST(HostAllocator, ZeroBytesAreNull) {
  EXPECT_EQ(host_allocate(0), nullptr);
  host_deallocate(nullptr, 0);
  host_deallocate(nullptr, 100);
}

TEST(HostAllocator, ReusesFreedBlocks) {
  if (!kCaches) GTEST_SKIP() << "nothing is cached under the address sanitizer";
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{300}, std::size_t{32768}, std::size_t{100000},
                                  std::size_t{3} << 20, std::size_t{50} << 20}) {
    void* first = host_allocate(bytes);
    host_deallocate(first, bytes);
    void* second = host_allocate(bytes);
    EXPECT_EQ(first, second) << bytes;
    host_deallocate(second, bytes);
  }
}

TEST(HostAllocator, CountsWhatIsHandedOut) {
  const std::int64_t before = allocated();
  host_allocator().reset_peak();
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{5000}, std::size_t{200000}, std::size_t{8} << 20})
    blocks.emplace_back(host_allocate(bytes), bytes);
  const std::int64_t during = allocated() - before;
  EXPECT_GE(during, 64 + 5000 + 200000 + (8 << 20));
  EXPECT_LE(during, static_cast<std::int64_t>(1.125 * (64 + 5000 + 200000 + (8 << 20))));
  for (auto [p, bytes] : blocks) host_deallocate(p, bytes);
  EXPECT_EQ(allocated(), before);
  EXPECT_GE(host_allocator().stats().peak_allocated, before + (8 << 20));
}

TEST(HostAllocator, EmptyCacheGivesMemoryBack) {
  if (!kCaches) GTEST_SKIP() << "nothing is cached under the address sanitizer";
  std::vector<void*> small;
  for (int i = 0; i < 100000; ++i) small.push_back(host_allocate(256));
  void* big = host_allocate(std::size_t{64} << 20);
  host_deallocate(big, std::size_t{64} << 20);
  for (void* p : small) host_deallocate(p, 256);
  EXPECT_GE(host_allocator().stats().cached, (64 << 20) + 100000 * 256);
  host_allocator().empty_cache();
  EXPECT_LE(host_allocator().stats().cached, 8 << 20);
}

TEST(HostAllocator, KeepsTheCacheWithinItsLimit) {
  if (!kCaches) GTEST_SKIP() << "nothing is cached under the address sanitizer";
  auto& allocator = cpu::caching_allocator();
  const auto previous = static_cast<std::size_t>(allocator.stats().cache_limit);
  allocator.empty_cache();
  const std::int64_t base = allocator.stats().cached;
  allocator.set_cache_limit(std::size_t{32} << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(host_allocate(std::size_t{8} << 20));
  for (void* p : blocks) host_deallocate(p, std::size_t{8} << 20);
  EXPECT_LE(allocator.stats().cached, base + (34 << 20));
  EXPECT_GE(allocator.stats().cached, 30 << 20);
  for (void*& p : blocks) p = host_allocate(200000);
  for (void* p : blocks) host_deallocate(p, 200000);
  allocator.set_cache_limit(previous);
}

TEST(HostAllocator, RefusesAbsurdSizes) {
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2, std::size_t{1} << 62}) {
    try {
      host_allocate(bytes);
      FAIL() << "expected OutOfMemoryError";
    } catch (const OutOfMemoryError& e) {
      EXPECT_NE(std::string(e.what()).find(std::to_string(bytes)), std::string::npos) << e.what();
    }
  }
}

TEST(HostAllocator, ObeysTheLimitAndNamesIt) {
  Allocator& allocator = host_allocator();
  const auto now = static_cast<std::size_t>(allocated());
  allocator.set_limit(now + (std::size_t{20} << 20));
  void* p = host_allocate(std::size_t{10} << 20);
  try {
    host_allocate(std::size_t{16} << 20);
    ADD_FAILURE() << "expected OutOfMemoryError";
  } catch (const OutOfMemoryError& e) {
    EXPECT_NE(std::string(e.what()).find("16777216 bytes"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("the limit is"), std::string::npos) << e.what();
  }
  host_deallocate(p, std::size_t{10} << 20);
  p = host_allocate(std::size_t{16} << 20);
  host_deallocate(p, std::size_t{16} << 20);
  allocator.set_limit(0);
}

TEST(HostAllocator, BlocksFreedOnAnotherThreadAreCountedOnce) {
  const std::int64_t before = allocated();
  std::vector<void*> blocks;
  for (int i = 0; i < 5000; ++i) blocks.push_back(host_allocate(1000));
  std::thread other([&] {
    for (void* p : blocks) host_deallocate(p, 1000);
  });
  other.join();
  EXPECT_EQ(allocated(), before);
}

struct Item {
  unsigned char* p;
  std::size_t bytes;
  unsigned char mark;
};

// Threads allocate, mark, pass blocks on to each other through a shared queue, check the marks and free.
void stress(int seed, std::mutex& mutex, std::deque<Item>& queue, int& damaged) {
  std::mt19937 rng(static_cast<unsigned>(seed));
  for (int i = 0; i < 4000; ++i) {
    const std::size_t limit = i % 64 == 0 ? 3 << 20 : i % 8 == 0 ? 100000 : 2000;
    const std::size_t bytes = 1 + rng() % limit;
    Item mine{static_cast<unsigned char*>(host_allocate(bytes)), bytes, static_cast<unsigned char>(rng())};
    mine.p[0] = mine.p[bytes / 2] = mine.p[bytes - 1] = mine.mark;
    Item taken{nullptr, 0, 0};
    {
      const std::lock_guard guard(mutex);
      queue.push_back(mine);
      if (queue.size() > 50) {
        const std::size_t at = rng() % queue.size();
        taken = queue[at];
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    if (taken.p == nullptr) continue;
    const bool intact =
        taken.p[0] == taken.mark && taken.p[taken.bytes / 2] == taken.mark && taken.p[taken.bytes - 1] == taken.mark;
    host_deallocate(taken.p, taken.bytes);
    if (!intact) {
      const std::lock_guard guard(mutex);
      ++damaged;
    }
  }
}

TEST(HostAllocator, SurvivesThreadsThatTradeBlocks) {
  const std::int64_t before = allocated();
  std::mutex mutex;
  std::deque<Item> queue;
  int damaged = 0;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) threads.emplace_back([&, t] { stress(round * 10 + t, mutex, queue, damaged); });
    host_allocator().empty_cache();
    for (auto& t : threads) t.join();
  }
  for (const Item& item : queue) host_deallocate(item.p, item.bytes);
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(allocated(), before);
}

TEST(HostAllocator, WorksInAForkedChildWhileOthersAllocate) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      host_deallocate(host_allocate(100), 100);
      host_deallocate(host_allocate(100000), 100000);
      host_deallocate(host_allocate(3 << 20), 3 << 20);
    }
  });
  void* kept = host_allocate(500);
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      host_deallocate(kept, 500);
      for (std::size_t n = 1; n < (std::size_t{4} << 20); n *= 3) {
        auto* p = static_cast<char*>(host_allocate(n));
        p[0] = p[n - 1] = 1;
        host_deallocate(p, n);
      }
      host_allocator().empty_cache();
      _exit(allocated() >= 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
  host_deallocate(kept, 500);
}

struct LateFree {
  void* p = nullptr;
  ~LateFree() { host_deallocate(p, 777); }
};
LateFree static_block;

TEST(HostAllocator, BlocksMayOutliveTheirThreadAndMain) {
  static_block.p = host_allocate(777);
  const std::int64_t before = allocated();
  std::thread t([] {
    thread_local LateFree late;  // destroyed after the thread's cache, which is made later
    late.p = host_allocate(777);
  });
  t.join();
  EXPECT_EQ(allocated(), before);
}

TEST(PageHeap, SplitsAndJoinsRanges) {
  cpu::PageHeap heap(cpu::kHugePageBytes);
  auto* a = static_cast<char*>(heap.allocate(4096));
  auto* b = static_cast<char*>(heap.allocate(8192));
  auto* c = static_cast<char*>(heap.allocate(4096));
  EXPECT_EQ(heap.mapped_bytes(), cpu::kHugePageBytes);
  EXPECT_EQ(b, a + 4096);
  heap.deallocate(a, 4096);
  heap.deallocate(c, 4096);
  heap.deallocate(b, 8192);
  EXPECT_EQ(heap.free_bytes(), cpu::kHugePageBytes);
  EXPECT_EQ(heap.allocate(cpu::kHugePageBytes), a) << "the range is whole again";
  heap.deallocate(a, cpu::kHugePageBytes);
  heap.release(0);
  EXPECT_EQ(heap.mapped_bytes(), 0U);
}

TEST(PageHeap, TakesTheBestFit) {
  cpu::PageHeap heap(cpu::kHugePageBytes);
  std::vector<char*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(static_cast<char*>(heap.allocate(65536)));
  heap.deallocate(blocks[1], 65536);
  heap.deallocate(blocks[4], 65536);
  heap.deallocate(blocks[5], 65536);
  EXPECT_EQ(heap.allocate(131072), blocks[4]);
  EXPECT_EQ(heap.allocate(65536), blocks[1]);
  for (int i : {0, 1, 2, 3, 4, 5, 6, 7}) heap.deallocate(blocks[static_cast<std::size_t>(i)], 65536);
  heap.release(0);
  EXPECT_EQ(heap.mapped_bytes(), 0U);
}

TEST(PageHeap, ReleaseKeepsPagesInUse) {
  cpu::PageHeap heap(0);
  const std::size_t size = 4 * cpu::kHugePageBytes;
  auto* p = static_cast<char*>(heap.allocate(size));
  std::memset(p, 7, size);
  heap.deallocate(p, cpu::kHugePageBytes + 4096);
  heap.deallocate(p + 3 * cpu::kHugePageBytes, cpu::kHugePageBytes);
  heap.release(0);
  EXPECT_EQ(heap.mapped_bytes(), 2 * cpu::kHugePageBytes);
  EXPECT_EQ(heap.free_bytes(), 4096U);
  for (std::size_t i = cpu::kHugePageBytes + 4096; i < 3 * cpu::kHugePageBytes; i += 4096) ASSERT_EQ(p[i], 7);
  heap.deallocate(p + cpu::kHugePageBytes + 4096, 2 * cpu::kHugePageBytes - 4096);
  heap.release(0);
  EXPECT_EQ(heap.mapped_bytes(), 0U);
}

}  // namespace
}  // namespace athanor
