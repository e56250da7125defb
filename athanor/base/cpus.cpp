#include "athanor/base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>

namespace athanor {
namespace {

// 0 if there is none.
int cgroup_quota() {
  std::FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "r");
  if (!f) return 0;
  long long quota = 0, period = 0;
  const int got = std::fscanf(f, "%lld %lld", &quota, &period);
  std::fclose(f);
  if (got != 2 || quota <= 0 || period <= 0) return 0;
  return static_cast<int>((quota + period - 1) / period);
}

}  // namespace

int usable_cpus() {
  cpu_set_t set;
  int n = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
  if (const int quota = cgroup_quota(); quota != 0) n = std::min(n, quota);
  return std::max(n, 1);
}

}  // namespace athanor
