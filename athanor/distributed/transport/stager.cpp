#include "athanor/distributed/transport/stager.h"

#include <algorithm>

#include "athanor/device/cpu/combine.h"
#include "athanor/profiler/recording.h"

namespace athanor::distributed {

namespace {

// Less is as fast either way, and too short to be timed.
constexpr std::size_t kLeast = std::size_t{8} << 10;
// The other way is tried in so many copies at the beginning, and in one of so many later.
constexpr std::uint32_t kFirst = 8, kSeldom = 64;
// A cost that was not met again grows by so much with each copy that is timed.
constexpr double kForget = 1.05;

}  // namespace

bool Stager::bypassing_may_pay() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

bool Stager::choose() {
  const bool best = bypasses();
  const std::uint32_t number = copies_++;
  if (number < kFirst) return number % 2 == 1;
  return number % kSeldom == 0 ? !best : best;
}

void Stager::copy(void* to, const void* from, std::size_t bytes) {
  if (!may_bypass_ || bytes < kLeast) return cpu::copy_bytes(to, from, bytes);
  const bool bypass = choose();
  const std::uint64_t begin = profiler::detail::ticks();
  cpu::copy_bytes(to, from, bytes, bypass);
  const double cost = static_cast<double>(profiler::detail::ticks() - begin) / static_cast<double>(bytes);
  double& known = bypass ? bypassing_ : ordinary_;
  known = known > 0 ? std::min(cost, kForget * known) : cost;
}

}  // namespace athanor::distributed
