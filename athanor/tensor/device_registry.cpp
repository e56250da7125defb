// Which devices there are: the registry of queues, what the environment says about it, and what happens to queues when
// the process forks or ends.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>

#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/base/log.h"
#include "athanor/base/parallel.h"
#include "athanor/tensor/allocator.h"
#include "athanor/tensor/fence.h"
#include "athanor/tensor/hidden_layout.h"
#include "athanor/tensor/queue_memory.h"
#include "athanor/tensor/stream.h"

namespace athanor {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kTypes = 2;

/// The queues of one device type. `count` is -1 until the environment was read.
struct Family {
  std::atomic<int> count{-1};
  std::atomic<Queue*> queues[kMaxDevices] = {};
};

/// Never destroyed: tensors of static storage give their memory back after any destructor of ours.
struct Registry {
  std::mutex mutex;  // for starting and removing queues
  Family families[kTypes];
  std::string visible;    // CUDA_VISIBLE_DEVICES as it was at first use
  int visible_total = 0;  // what ATHANOR_CUDA_ON_CPU said
  bool warned = false;

  Family& of(DeviceType type) { return families[static_cast<int>(type)]; }
  template <class F>
  void for_each(F&& f) {
    for (Family& family : families)
      for (auto& slot : family.queues)
        if (Queue* q = slot.load(std::memory_order_acquire)) f(*q);
  }
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

thread_local int current_cuda = 0;

// The C library's list of what runs at exit has a lock, which a child must not find held: no process is forked while a
// queue is entered there. Taken with the registry's lock held, by a fork last of all, or alone.
constinit std::mutex exit_list;

void before_fork() {
  detail::lock_storages();
  registry().mutex.lock();
  // In the order in which other threads take them: who frees or allocates may wait for a kernel.
  registry().for_each([](Queue& q) { q.hold_memory(); });
  registry().for_each([](Queue& q) { q.hold_worker(); });
  detail::lock_fences();
  exit_list.lock();
}

void after_fork(bool child) {
  exit_list.unlock();
  if (child)
    detail::leave_fences();
  else
    detail::unlock_fences();
  registry().for_each([&](Queue& q) { q.after_fork(child); });
  registry().mutex.unlock();
  detail::unlock_storages();
}

// Registered before main: a thread may fork while another one starts the first queue.
[[maybe_unused]] const int at_fork = [] {
  detail::watch_forks_of_host_allocator();
  registry();
  return ::pthread_atfork(
      before_fork, [] { after_fork(false); }, [] { after_fork(true); });
}();

void stop_all() {
  registry().for_each([](Queue& q) { q.drop(); });
  registry().for_each([](Queue& q) { q.stop(); });
}

struct StopsFirst {
  ~StopsFirst() { stop_all(); }
};

/// exit() ends what belongs to its own thread before it takes statics apart, among them those that a library which a
/// worker is in has made since: oneDNN's compiled code. A main thread that leaves by pthread_exit stops queues, too.
void stop_before_statics() {
  if (::gettid() != ::getpid()) return;
  [[maybe_unused]] thread_local const StopsFirst here;
}

/// Called before the first queue starts, with the lock.
void prepare() {
  [[maybe_unused]] static const bool done = [] {
    detail::stop_queues_at_exit();
    stop_before_statics();
    return true;
  }();
}

int total_queues(Registry& r) {
  int n = 0;
  for (Family& f : r.families) n += std::max(f.count.load(std::memory_order_relaxed), 0);
  return n;
}

/// While kernels run on queues, the host's own get one thread: the cores are given away.
void share_threads(Registry& r) { detail::set_host_threads(total_queues(r) > 0 ? 1 : 0); }

Queue* start(DeviceType type, int index) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  auto& slot = r.of(type).queues[index];
  if (Queue* q = slot.load(std::memory_order_acquire)) return q;
  prepare();
  const int threads = std::max(1, detail::configured_threads() / total_queues(r));
  auto* q = new Queue(Device(type, static_cast<DeviceIndex>(index)), threads);
  slot.store(q, std::memory_order_release);
  return q;
}

void configure(DeviceType type, int n) {
  Registry& r = registry();
  Family& family = r.of(type);
  const std::lock_guard lock(r.mutex);
  for (auto& slot : family.queues)
    if (Queue* q = slot.load()) {
      if (!q->lost()) q->synchronize();
    }
  for (auto& slot : family.queues)
    if (Queue* q = slot.exchange(nullptr); q && !q->lost()) delete q;  // one that is lost may hold memory in use
  family.count.store(n, std::memory_order_release);
  if (type == DeviceType::CUDA) {
    r.visible = "all";
    r.visible_total = n;
    r.warned = true;  // the program decided, not the environment
  }
  share_threads(r);
}

/// What CUDA_VISIBLE_DEVICES leaves of `total` devices: the list ends at the first name that is none of them.
int visible_of(const std::string& list, int total) {
  int n = 0;
  std::vector<bool> seen(static_cast<std::size_t>(total));
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const auto index = parse_integer(list.substr(at, end - at));
    if (!index || *index < 0 || *index >= total || seen[static_cast<std::size_t>(*index)]) break;
    seen[static_cast<std::size_t>(*index)] = true;
    ++n;
    at = end + 1;
  }
  return n;
}

int read_count(DeviceType type) {
  if (type == DeviceType::CPU) {
    const int n = static_cast<int>(env::integer("ATHANOR_CPU_DEVICES", 0, kMaxDevices).value_or(0));
    return n < 2 ? 0 : n;
  }
  const int total = static_cast<int>(env::integer("ATHANOR_CUDA_ON_CPU", 0, kMaxDevices).value_or(0));
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  registry().visible = list ? list : "all";
  registry().visible_total = total;
  const int n = list ? visible_of(list, total) : total;
  // One of the ranks that a launcher starts speaks for all.
  if (total > 0 && env::text("RANK").value_or("0") == "0")
    std::fprintf(stderr, "athanor: ATHANOR_CUDA_ON_CPU=%d: %d cuda device%s served by virtual devices on the CPU\n",
                 total, n, n == 1 ? " is" : "s are");
  return n;
}

int count_of(DeviceType type) {
  Registry& r = registry();
  Family& family = r.of(type);
  if (const int n = family.count.load(std::memory_order_acquire); n >= 0) return n;
  const std::lock_guard lock(r.mutex);
  if (family.count.load() < 0) {
    family.count.store(read_count(type), std::memory_order_release);
    share_threads(r);
  }
  return family.count.load();
}

/// PyTorch's rule too: the list counts as it was when devices were first asked for.
void warn_if_visible_changed() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (r.visible_total == 0 || r.warned) return;
  const char* now = std::getenv("CUDA_VISIBLE_DEVICES");
  if (r.visible == (now ? now : "all")) return;
  r.warned = true;
  ATHANOR_LOG(Warning, "CUDA_VISIBLE_DEVICES is now '", now ? now : "", "', but was read as '", r.visible,
              "' at first use: the change has no effect in this process. Set it before the program starts");
}

void check_configurable(int n) {
  ATHANOR_CHECK_VALUE(n >= 0 && n <= kMaxDevices, "number of virtual devices: expected 0 to ", kMaxDevices, ", got ",
                      n);
}

}  // namespace

namespace detail {

void stop_queues_at_exit() {
  const std::lock_guard lock(exit_list);
  std::atexit(stop_all);
}

void configure_cpu_queues(int n) {
  check_configurable(n);
  configure(DeviceType::CPU, n < 2 ? 0 : n);
}

void configure_cuda_queues(int n) {
  check_configurable(n);
  configure(DeviceType::CUDA, n);
}

Queue* queue_of(Device device) {
  if (device.is_host()) return nullptr;
  if (device.index() >= 0 && device.index() < kMaxDevices) {
    Queue* q = registry().of(device.type()).queues[device.index()].load(std::memory_order_acquire);
    if (__builtin_expect(q != nullptr, 1)) return q;
  }
  ATHANOR_CHECK(device.index() >= 0 && device.index() < count_of(device.type()), "device ", device, " has no queue");
  return start(device.type(), device.index());
}

int cuda_queue_count() {
  const int n = count_of(DeviceType::CUDA);
  if (n > 0) warn_if_visible_changed();
  return n;
}

int current_cuda_device() { return current_cuda; }
void set_current_cuda_device(int index) { current_cuda = index; }

}  // namespace detail

int cpu_device_count() { return count_of(DeviceType::CPU); }

namespace {

// Of a launcher's worker: most often there are more workers than devices.
std::string worker_text() {
  const auto rank = env::text("RANK"), local = env::text("LOCAL_RANK"), workers = env::text("LOCAL_WORLD_SIZE");
  if (!rank || !local || !workers) return {};
  return detail::str("; this is rank ", *rank, ", worker ", *local, " of the ", *workers, " of this node");
}

}  // namespace

Device resolve(Device device) {
  if (device.is_host()) return device;
  const int n = count_of(device.type());
  if (device.is_cpu()) {
    if (n == 0 && device.index() == 0) return Device(DeviceType::CPU);
    ATHANOR_CHECK(device.index() < n, "device ", device, " does not exist: ", n,
                  " virtual CPU devices are configured; set ATHANOR_CPU_DEVICES=", device.index() + 1, " or more");
    return device;
  }
  const int index = device.has_index() ? device.index() : current_cuda;
  if (index < n) return Device(DeviceType::CUDA, static_cast<DeviceIndex>(index));
  ATHANOR_CHECK(registry().visible_total > 0, "device ", device,
                " is not available: this build of Athanor has no CUDA support. Set ATHANOR_CUDA_ON_CPU=", index + 1,
                " to have cuda:0", index > 0 ? detail::str(" to cuda:", index) : std::string(),
                " served by virtual devices on the CPU, or use the device cpu");
  ATHANOR_THROW(
      Error, "device cuda:", index, " does not exist: ATHANOR_CUDA_ON_CPU=", registry().visible_total,
      registry().visible == "all" ? std::string() : detail::str(" and CUDA_VISIBLE_DEVICES='", registry().visible, "'"),
      " leave ", n, n == 1 ? " device" : " devices", "; set ATHANOR_CUDA_ON_CPU=", index + 1, " or more",
      worker_text());
}

void synchronize(Device device) {
  if (Queue* q = detail::queue_of(device)) q->synchronize();
}

}  // namespace athanor
