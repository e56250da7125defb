#include "athanor/tape/anomaly.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <cstdlib>

namespace athanor::autograd {
namespace {

std::atomic<bool> enabled_flag{false}, nan_flag{true};

std::string symbol_of(void* address) {
  Dl_info info{};
  if (!dladdr(address, &info) || !info.dli_sname) return info.dli_fname ? std::string("? in ") + info.dli_fname : "?";
  int status = 0;
  char* name = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  std::string out = status == 0 && name ? name : info.dli_sname;
  std::free(name);
  return out;
}

}  // namespace

bool anomaly_enabled() { return enabled_flag.load(std::memory_order_relaxed); }
bool anomaly_checks_nan() { return nan_flag.load(std::memory_order_relaxed); }
void set_anomaly(bool enabled, bool check_nan) {
  enabled_flag = enabled;
  nan_flag = check_nan;
}

std::string current_backtrace() {
  constexpr int kMost = 24, kOwnFrames = 2;
  void* frames[kMost];
  const int n = backtrace(frames, kMost);
  std::string out;
  for (int i = kOwnFrames; i < n; ++i) out += "  " + symbol_of(frames[i]) + "\n";
  return out;
}

}  // namespace athanor::autograd
