#include "athanor/distributed/flight_recorder.h"

#include <algorithm>
#include <mutex>

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// Words of a slot.
enum Word : std::size_t { kWhat, kRootLine, kSequence, kCount, kFile, kScheduled, kStarted, kEnded, kShape };
constexpr unsigned kStateShift = 24;

std::int64_t nanoseconds(FlightRecorder::Clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

// "1.2 s", "350 ms", "12 us".
std::string duration_text(std::int64_t ns) {
  const std::int64_t tenths = ns / 100'000'000;
  if (tenths >= 10) return str(static_cast<double>(tenths) / 10, " s");
  if (ns >= 1'000'000) return str(ns / 1'000'000, " ms");
  return str(std::max<std::int64_t>(ns, 0) / 1000, " us");
}

// All recorders, for the signal. Never destroyed: the signal may come at any time.
struct Recorders {
  std::mutex mutex;
  std::vector<const FlightRecorder*> list;
};
Recorders& recorders() {
  static auto* all = new Recorders;
  return *all;
}

}  // namespace

std::string FlightRecord::text(std::int64_t now_ns) const {
  std::string out = sequence != 0 ? str("#", sequence, " ") : "";
  out += op_name(op);
  if (op == OpType::AllReduce || op == OpType::Reduce || op == OpType::ReduceScatter)
    out += str("(", reduce_name(reduce), ")");
  if (op == OpType::Send) out += str(" to rank ", root);
  if (op == OpType::Recv) out += root >= 0 ? str(" from rank ", root) : " from any rank";
  if (op != OpType::Send && op != OpType::Recv && root >= 0) out += str(" with root ", root);
  if (op != OpType::Barrier) {
    out += str(" of ", dtype_name(dtype), " ",
               IntArrayRef(shape.data(), static_cast<std::size_t>(std::min(ndim, kMaxDims))));
    if (ndim > kMaxDims) out += str(" and ", ndim - kMaxDims, " dimensions more");
  }
  const std::string_view path = file;
  if (line == 0 && !path.empty()) out += str(" in ", path);
  if (line != 0) out += str(" at ", path.substr(path.rfind('/') + 1), ":", line);
  switch (state) {
    case CallState::Scheduled:
      return out + str(": waiting for its turn since ", duration_text(now_ns - scheduled_ns));
    case CallState::Started:
      return out + str(": in it since ", duration_text(now_ns - started_ns));
    case CallState::Completed:
      return out + str(": completed in ", duration_text(ended_ns - started_ns));
    case CallState::Failed:
      return out + str(": failed after ", duration_text(ended_ns - started_ns));
  }
  return out;
}

FlightRecorder::FlightRecorder(std::string group, int rank, int size)
    : group_(std::move(group)), rank_(rank), size_(size), slots_(std::make_unique<Slot[]>(kCapacity)) {
  const std::lock_guard lock(recorders().mutex);
  recorders().list.push_back(this);
}

FlightRecorder::~FlightRecorder() {
  const std::lock_guard lock(recorders().mutex);
  std::erase(recorders().list, this);
}

std::uint64_t FlightRecorder::ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(nanoseconds(Clock::now()));
#endif
}

std::uint64_t FlightRecorder::note(const Call& call, CallState state) {
  const std::uint64_t ticket = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[ticket % kCapacity];
  slot.ticket.store(0, std::memory_order_release);
  const auto put = [&slot](std::size_t word, std::uint64_t value) {
    slot.words[word].store(value, std::memory_order_relaxed);
  };
  const std::size_t ndim = call.shape.size();
  put(kWhat, static_cast<std::uint64_t>(call.op) | static_cast<std::uint64_t>(call.dtype) << 8 |
                 static_cast<std::uint64_t>(call.reduce) << 16 | static_cast<std::uint64_t>(state) << kStateShift |
                 static_cast<std::uint64_t>(ndim) << 32);
  put(kRootLine, static_cast<std::uint32_t>(call.root) | static_cast<std::uint64_t>(call.where.line()) << 32);
  put(kSequence, call.sequence);
  put(kCount, static_cast<std::uint64_t>(call.count));
  put(kFile, reinterpret_cast<std::uintptr_t>(call.where.file_name()));
  const std::uint64_t at = ticks();
  put(kScheduled, at);
  put(kStarted, state == CallState::Scheduled ? 0 : at);
  put(kEnded, 0);
  for (std::size_t i = 0; i < std::min<std::size_t>(ndim, FlightRecord::kMaxDims); ++i)
    put(kShape + i, static_cast<std::uint64_t>(call.shape[i]));
  slot.ticket.store(ticket, std::memory_order_release);
  return ticket;
}

void FlightRecorder::set_state(Slot& slot, CallState state) {
  // One writer at a time: whoever carries the call out.
  const std::uint64_t what = slot.words[kWhat].load(std::memory_order_relaxed);
  slot.words[kWhat].store((what & ~(std::uint64_t{0xff} << kStateShift)) | static_cast<std::uint64_t>(state)
                                                                               << kStateShift,
                          std::memory_order_relaxed);
}

void FlightRecorder::started(std::uint64_t ticket) {
  Slot& slot = slots_[ticket % kCapacity];
  if (slot.ticket.load(std::memory_order_relaxed) != ticket) return;  // overwritten by now
  slot.words[kStarted].store(ticks(), std::memory_order_relaxed);
  set_state(slot, CallState::Started);
}

void FlightRecorder::ended(std::uint64_t ticket, bool well) {
  Slot& slot = slots_[ticket % kCapacity];
  if (slot.ticket.load(std::memory_order_relaxed) != ticket) return;
  slot.words[kEnded].store(ticks(), std::memory_order_relaxed);
  set_state(slot, well ? CallState::Completed : CallState::Failed);
}

std::vector<FlightRecord> FlightRecorder::records() const {
  std::vector<FlightRecord> result;
  // How long a tick is shows by now.
  const double passed_ns = static_cast<double>(nanoseconds(Clock::now()) - nanoseconds(first_time_));
  const double passed_ticks = std::max(1.0, static_cast<double>(ticks() - first_ticks_));
  const auto time_of = [&](std::uint64_t at) -> std::int64_t {
    if (at == 0) return 0;
    const double since = static_cast<double>(at - first_ticks_) / passed_ticks * passed_ns;
    return nanoseconds(first_time_) + static_cast<std::int64_t>(since);
  };
  const std::uint64_t end = next_.load(std::memory_order_acquire);
  for (std::uint64_t ticket = end > kCapacity ? end - kCapacity : 1; ticket < end; ++ticket) {
    const Slot& slot = slots_[ticket % kCapacity];
    if (slot.ticket.load(std::memory_order_acquire) != ticket) continue;
    std::array<std::uint64_t, kWords> w;
    for (std::size_t i = 0; i < kWords; ++i) w[i] = slot.words[i].load(std::memory_order_acquire);
    if (slot.ticket.load(std::memory_order_relaxed) != ticket) continue;
    FlightRecord r;
    r.op = static_cast<OpType>(w[kWhat] & 0xff);
    r.dtype = static_cast<DType>(w[kWhat] >> 8 & 0xff);
    r.reduce = static_cast<ReduceOp::Kind>(w[kWhat] >> 16 & 0xff);
    r.state = static_cast<CallState>(w[kWhat] >> kStateShift & 0xff);
    r.ndim = static_cast<std::int32_t>(w[kWhat] >> 32);
    r.root = static_cast<std::int32_t>(w[kRootLine] & 0xffffffffu);
    r.line = static_cast<std::uint32_t>(w[kRootLine] >> 32);
    r.sequence = w[kSequence];
    r.count = static_cast<std::int64_t>(w[kCount]);
    r.file = reinterpret_cast<const char*>(static_cast<std::uintptr_t>(w[kFile]));
    r.scheduled_ns = time_of(w[kScheduled]);
    r.started_ns = time_of(w[kStarted]);
    r.ended_ns = time_of(w[kEnded]);
    for (int i = 0; i < FlightRecord::kMaxDims; ++i)
      r.shape[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(w[kShape + static_cast<std::size_t>(i)]);
    result.push_back(r);
  }
  return result;
}

std::string FlightRecorder::text(std::size_t most) const {
  std::vector<FlightRecord> all = records();
  if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(most));
  std::string out = str("group '", group_, "', rank ", rank_, " of ", size_, ", the last ", all.size(), " calls:\n");
  const std::int64_t now = nanoseconds(Clock::now());
  for (const FlightRecord& record : all) out += str("  ", record.text(now), "\n");
  return out;
}

std::optional<FlightRecord> FlightRecorder::current() const {
  std::optional<FlightRecord> first;
  for (const FlightRecord& record : records())
    if (record.sequence != 0 && (record.state == CallState::Started || record.state == CallState::Failed))
      if (!first || record.sequence < first->sequence) first = record;
  return first;
}

std::string FlightRecorder::state_text() const {
  std::optional<FlightRecord> last;
  for (const FlightRecord& record : records())
    if (record.state == CallState::Completed && record.sequence != 0 && (!last || record.sequence > last->sequence))
      last = record;
  const std::int64_t now = nanoseconds(Clock::now());
  std::string out = last ? str("completed up to number ", last->sequence) : std::string("completed none");
  if (const auto call = current()) return out + str("; then ", call->text(now));
  if (last) out += str(" (", last->text(now), ")");
  return out + "; in no call now";
}

void internals::for_each_flight_recorder(const std::function<void(const FlightRecorder&)>& act) {
  const std::lock_guard lock(recorders().mutex);
  for (const FlightRecorder* recorder : recorders().list) act(*recorder);
}

std::string flight_records_text() {
  std::string out = "flight recorder of Athanor:\n";
  internals::for_each_flight_recorder([&](const FlightRecorder& recorder) { out += recorder.text(); });
  return out;
}

}  // namespace athanor::distributed
