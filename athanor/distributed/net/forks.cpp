#include "athanor/distributed/net/forks.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

namespace athanor::distributed {

namespace {

std::atomic<unsigned> generation_now = 0;

struct Kept {
  std::mutex mutex;
  std::set<int> descriptors;
};
Kept& kept() {
  static auto* one = new Kept;  // sockets may be closed while statics are destroyed
  return *one;
}

// Only what is safe in the child of a process with several threads; the mutex is held since before the fork.
void replace_in_child() {
  generation_now.fetch_add(1, std::memory_order_relaxed);
  const std::set<int>& descriptors = kept().descriptors;
  if (descriptors.empty()) return;
  int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) {  // no descriptor is free: the first of these becomes so
    ::close(*descriptors.begin());
    nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  }
  if (nothing < 0) return;
  for (const int fd : descriptors)
    if (fd != nothing) ::dup3(nothing, fd, O_CLOEXEC);
  if (!descriptors.contains(nothing)) ::close(nothing);
}

// Registered before main: a thread may fork while another one makes the first connection.
[[maybe_unused]] const int at_fork = ::pthread_atfork([] { kept().mutex.lock(); }, [] { kept().mutex.unlock(); },
                                                      [] {
                                                        replace_in_child();
                                                        kept().mutex.unlock();
                                                      });

}  // namespace

unsigned fork_generation() { return generation_now.load(std::memory_order_relaxed); }

void keep_from_children(int fd) {
  const std::lock_guard lock(kept().mutex);
  kept().descriptors.insert(fd);
}

void share_with_children(int fd) noexcept {
  const std::lock_guard lock(kept().mutex);
  kept().descriptors.erase(fd);
}

}  // namespace athanor::distributed
