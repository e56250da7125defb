// all_reduce within a host. Five forms: by size, values beside the step's number; one phase, in which everyone adds
// everything; two phases, in which everyone adds a share and passes it on; the same with the work on three chunks
// woven together; and in place, in memory that all can reach.
#include <algorithm>

#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/distributed/algorithms/local.h"
#include "athanor/distributed/algorithms/span.h"

namespace athanor::distributed {

namespace {

constexpr std::size_t kOnePhase = std::size_t{256} << 10;  // bytes that a rank reads
// What a rank adds up of a chunk: in its second cache, together with what it reads for it.
constexpr std::size_t kChunkShare = std::size_t{256} << 10;
constexpr std::size_t kSumBlock = std::size_t{32} << 10;  // passed on while it is in the first cache
// From here on the data comes from memory.
constexpr std::size_t kWoven = std::size_t{8} << 20;
// A chunk's shares, and what is done of each before the next: little enough to be asked for ahead, so that memory works
// while what the others wrote comes from their caches.
constexpr std::size_t kWovenShare = std::size_t{128} << 10, kWovenBlock = 1024;
// So many steps lie between a chunk's coming in, its being added up and its leaving: ranks need not keep pace.
constexpr std::int64_t kWovenLag = 2;
constexpr int kFewRanks = 16;
// Staged sums of less are in the caches all the time.
constexpr std::size_t kDirectAllReduce = std::size_t{4} << 20;

// A list of one pointer per rank, without an allocation where ranks are few.
class Sources {
 public:
  explicit Sources(int n) {
    if (n > kFewRanks) many_.resize(static_cast<std::size_t>(n));
  }
  const void*& operator[](int i) { return data()[i]; }
  const void** data() { return many_.empty() ? few_ : many_.data(); }

 private:
  const void* few_[kFewRanks];
  std::vector<const void*> many_;
};

}  // namespace

void LocalCollectives::all_reduce(const Call& call, Span data, const Reduction& reduction) {
  const std::size_t bytes = data.bytes();
  if (bytes <= Arena::kPayload) return tiny_all_reduce(call, data, reduction);
  if (bytes * static_cast<std::size_t>(arena_.ranks() - 1) <= kOnePhase)
    return one_phase_all_reduce(call, data, reduction);
  if (last_shared_ > 0 && in_place_all_reduce(call, data, reduction)) return;
  if (bytes >= kDirectAllReduce && !peers_.staged_sums() && direct(bytes))
    return direct_all_reduce(call, data, reduction);
  // Its blocks are too short for an operator of the program's own, each call of which costs something.
  if (bytes >= kWoven && !reduction.user_defined()) return woven_all_reduce(call, data, reduction);
  two_phase_all_reduce(call, data, reduction);
}

void LocalCollectives::tiny_all_reduce(const Call& call, Span data, const Reduction& reduction) {
  const int n = arena_.ranks();
  const std::uint64_t step = arena_.next_step();
  arena_.publish(step, call, data.data, data.bytes());
  Sources in(n);
  for (int place = 0; place < n; ++place) {
    if (place != arena_.me()) arena_.await(place, step, call);
    in[place] = arena_.payload(place, step);
  }
  if (data.count > 0) reduction(data.data, in.data(), n, data.count);
}

void LocalCollectives::one_phase_all_reduce(const Call& call, Span data, const Reduction& reduction) {
  const int n = arena_.ranks(), me = arena_.me();
  const std::uint64_t step = arena_.next_step();
  const int room = arena_.claim_room(call);
  stager_.copy(arena_.room(me, room), data.data, data.bytes());
  arena_.publish(step, call);
  Sources in(n);
  for (int place = 0; place < n; ++place) {
    if (place != me) arena_.await(place, step, call);
    in[place] = place == me ? data.data : arena_.room(place, room);
  }
  reduction(data.data, in.data(), n, data.count);
  arena_.free_room_at(step + 1);
}

// Chunk after chunk, two under way: while the others still add their shares of one chunk, the next is copied in.
void LocalCollectives::two_phase_all_reduce(const Call& call, Span data, const Reduction& reduction) {
  const int n = arena_.ranks(), me = arena_.me();
  const std::size_t bytes = data.bytes(), item = item_size(data.dtype);
  // As few as there can be, all alike but for the last.
  const std::size_t most = std::min(Arena::kRoom, kChunkShare * static_cast<std::size_t>(n));
  const std::size_t fewest = (bytes + most - 1) / most;
  const std::size_t chunk = ((bytes + fewest - 1) / fewest + 63) / 64 * 64;
  const std::size_t chunks = (bytes + chunk - 1) / chunk;
  char* base = static_cast<char*>(data.data);
  Sources in(n);
  std::uint64_t copied[2] = {}, added[2] = {};
  int room_of[2] = {};

  // Shares have the same bounds in all chunks: a rank's sums in one are still read when others write to the next but
  // one.
  const auto share_of = [&](std::size_t k, int place) {
    return Share(chunk, place, n, std::min(chunk, bytes - k * chunk));
  };
  const auto copy_in = [&](std::size_t k) {
    // The shares in a room were read before the others published the sums of the chunk before: only the first two
    // chunks may meet what an earlier collective left.
    const int room = k < 2 ? arena_.claim_room(call) : arena_.next_room();
    for (int place = 0; place < n; ++place) {
      const Share share = share_of(k, place);
      if (place != me && share.size > 0)
        stager_.copy(arena_.room(me, room) + share.begin, base + k * chunk + share.begin, share.size);
    }
    room_of[k % 2] = room;
    copied[k % 2] = arena_.next_step();
    arena_.publish(copied[k % 2], call);
  };
  const auto add = [&](std::size_t k) {
    const Share share = share_of(k, me);
    const int room = room_of[k % 2];
    arena_.await_all(copied[k % 2], call);
    char* own = base + k * chunk + share.begin;
    char* sum = arena_.room(me, room) + share.begin;
    for (std::size_t done = 0; done < share.size; done += kSumBlock) {
      const std::size_t now = std::min(kSumBlock, share.size - done);
      for (int place = 0; place < n; ++place)
        in[place] = (place == me ? own : arena_.room(place, room) + share.begin) + done;
      reduction(own + done, in.data(), n, static_cast<std::int64_t>(now / item));
      stager_.copy(sum + done, own + done, now);
    }
    added[k % 2] = arena_.next_step();
    arena_.publish(added[k % 2], call);
  };
  const auto copy_out = [&](std::size_t k) {
    for (int i = 1; i < n; ++i) {
      const int place = (me + i) % n;
      const Share share = share_of(k, place);
      arena_.await(place, added[k % 2], call);
      cpu::copy_bytes(base + k * chunk + share.begin, arena_.room(place, room_of[k % 2]) + share.begin, share.size);
    }
  };
  copy_in(0);
  for (std::size_t k = 0; k < chunks; ++k) {
    add(k);
    if (k + 1 < chunks) copy_in(k + 1);
    copy_out(k);
  }
  // The last chunk has been read when everyone goes on to another step, the one before it when the last was added up.
  const std::uint64_t last = added[(chunks - 1) % 2];
  arena_.free_room_at(last + 1);
  if (chunks > 1) arena_.free_other_room_at(last);
}

// One chunk of woven_all_reduce, as one rank sees it: where it is in its data and in all ranks' rooms.
struct LocalCollectives::WovenChunk {
  char* data;
  std::size_t at;         // in the rooms
  std::size_t bytes = 0;  // 0: no such chunk
};

class LocalCollectives::Weaver {
 public:
  Weaver(Arena& arena, const Reduction& reduction, std::size_t share, bool bypass)
      : arena_(arena), reduction_(reduction), share_(share), bypass_(bypass), in_(arena.ranks()) {}

  /// Brings one chunk in, adds up this rank's share of another and takes the others' sums of a third.
  void step(const WovenChunk& in, const WovenChunk& sum, const WovenChunk& out) {
    for (std::size_t at = 0; at < share_; at += kWovenBlock) {
      for (int place = 0; place < arena_.ranks(); ++place)
        if (place != arena_.me()) bring_in(in, place, at);
      add(sum, at);
      for (int place = 0; place < arena_.ranks(); ++place)
        if (place != arena_.me()) take_out(out, place, at);
    }
    cpu::block_ops().stream_fence();
  }

 private:
  struct Block {
    std::size_t begin, size;
  };
  Block block_of(const WovenChunk& chunk, int place, std::size_t at) const {
    const std::size_t begin = static_cast<std::size_t>(place) * share_ + at;
    if (begin >= chunk.bytes) return {begin, 0};
    return {begin, std::min({kWovenBlock, share_ - at, chunk.bytes - begin})};
  }
  // Both rooms of a rank, one behind the other.
  char* room(int place, std::size_t at) const { return arena_.room(place, 0) + at; }
  static void ask_for(const char* data) {
    for (std::size_t line = 0; line < kWovenBlock; line += 64) __builtin_prefetch(data + line);
  }
  static void copy(char* to, const char* from, std::size_t size, bool stream) {
    if (stream)
      cpu::block_ops().stream(to, from, static_cast<std::int64_t>(size));
    else
      std::memcpy(to, from, size);
  }

  void bring_in(const WovenChunk& chunk, int place, std::size_t at) const {
    const Block block = block_of(chunk, place, at);
    if (block.size == 0) return;
    const char* from = chunk.data + block.begin;
    ask_for(from + kWovenBlock);
    copy(room(arena_.me(), chunk.at + block.begin), from, block.size, bypass_);
  }
  void add(const WovenChunk& chunk, std::size_t at) {
    const Block block = block_of(chunk, arena_.me(), at);
    if (block.size == 0) return;
    char* own = chunk.data + block.begin;
    ask_for(own + kWovenBlock);
    for (int place = 0; place < arena_.ranks(); ++place)
      in_[place] = place == arena_.me() ? own : room(place, chunk.at + block.begin);
    reduction_(own, in_.data(), arena_.ranks(), static_cast<std::int64_t>(block.size / item_size(reduction_.dtype())));
    copy(room(arena_.me(), chunk.at + block.begin), own, block.size, bypass_);
  }
  void take_out(const WovenChunk& chunk, int place, std::size_t at) const {
    const Block block = block_of(chunk, place, at);
    if (block.size > 0) copy(chunk.data + block.begin, room(place, chunk.at + block.begin), block.size, true);
  }

  Arena& arena_;
  const Reduction& reduction_;
  std::size_t share_;
  bool bypass_;
  Sources in_;
};

// Two phases in one loop. A step brings in chunk k + lag, adds up chunk k and takes out the sums of chunk k - lag, for
// which all must have finished the step `lag` before. A chunk keeps its place in the rooms from its coming in to the
// end of the step in which it is taken out; who starts the step in which the place is used again knows that all have
// finished that one.
void LocalCollectives::woven_all_reduce(const Call& call, Span data, const Reduction& reduction) {
  constexpr std::int64_t kPlaces = 3 * kWovenLag;
  const auto n = static_cast<std::size_t>(arena_.ranks());
  const std::size_t most = 2 * Arena::kRoom / static_cast<std::size_t>(kPlaces) / n;
  const std::size_t share = std::min(kWovenShare, most / 64 * 64), chunk = share * n;
  const auto chunks = static_cast<std::int64_t>((data.bytes() + chunk - 1) / chunk);
  const auto chunk_at = [&](std::int64_t k) -> WovenChunk {
    if (k < 0 || k >= chunks) return {};
    const std::size_t begin = static_cast<std::size_t>(k) * chunk;
    return {bytes_of(data) + begin, static_cast<std::size_t>(k % kPlaces) * chunk,
            std::min(chunk, data.bytes() - begin)};
  };
  // Says that this rank has read what it needed of the collective before, whose rooms may be free with that only.
  arena_.publish(arena_.next_step(), call);
  arena_.claim_room(call);
  arena_.claim_room(call);
  // For what it learns of the stores; the first step copies it again.
  stager_.copy(arena_.room(arena_.me(), 0), data.data, share);
  Weaver weaver(arena_, reduction, share, stager_.bypasses());
  std::uint64_t step_of[kWovenLag] = {};
  for (std::int64_t k = -kWovenLag; k < chunks + kWovenLag; ++k) {
    std::uint64_t& step = step_of[(k + kWovenLag) % kWovenLag];
    if (k >= 0) arena_.await_all(step, call);
    weaver.step(chunk_at(k + kWovenLag), chunk_at(k), chunk_at(k - kWovenLag));
    step = arena_.next_step();
    arena_.publish(step, call);
  }
  const std::uint64_t last = step_of[(chunks - 1) % kWovenLag];
  arena_.free_room_at(last);
  arena_.free_other_room_at(last);
}

struct LocalCollectives::Shared {
  std::uint64_t id = 0;
  std::size_t bytes = 0;  // of each rank's part
  Segment segment;
  char* part(int place) const { return segment.data() + static_cast<std::size_t>(place) * bytes; }
};

std::shared_ptr<void> LocalCollectives::allocate_shared(const Call& call, std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const int n = arena_.ranks(), me = arena_.me();
  auto shared = std::make_shared<Shared>();
  shared->id = ++last_shared_;
  shared->bytes = bytes > kHugePage ? (bytes + kHugePage - 1) / kHugePage * kHugePage : (bytes + 4095) / 4096 * 4096;
  const std::size_t total = shared->bytes * static_cast<std::size_t>(n);
  // Nobody may hand over anything before all have come here.
  barrier(call);
  if (me == 0) {
    shared->segment = Segment::create(total);
    for (int place = 1; place < n; ++place)
      arena_.mesh().hand_descriptor(arena_.group_rank(place), shared->segment.fd(), call.deadline);
  } else {
    shared->segment = Segment::map(arena_.mesh().take_descriptor(call.deadline), total);
  }
  barrier(call);
  std::erase_if(shared_, [](const std::weak_ptr<Shared>& old) { return old.expired(); });
  shared_.push_back(shared);
  return {shared, shared->part(me)};
}

LocalCollectives::Place LocalCollectives::place_of(const Span& data) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(data.data);
  for (const std::weak_ptr<Shared>& known : shared_) {
    const std::shared_ptr<Shared> shared = known.lock();
    if (!shared) continue;
    const auto part = reinterpret_cast<std::uintptr_t>(shared->part(arena_.me()));
    if (begin >= part && begin + data.bytes() <= part + shared->bytes) return {shared->id, begin - part};
  }
  return {0, 0};
}

bool LocalCollectives::in_place_all_reduce(const Call& call, Span data, const Reduction& reduction) {
  const int n = arena_.ranks(), me = arena_.me();
  const Place mine = place_of(data);
  const std::uint64_t ready = arena_.next_step();
  arena_.publish(ready, call, &mine, sizeof mine);
  bool all = mine.id != 0;
  for (int place = 0; place < n; ++place) {
    if (place == me) continue;
    arena_.await(place, ready, call);
    Place theirs{};
    std::memcpy(&theirs, arena_.payload(place, ready), sizeof theirs);
    all = all && theirs.id == mine.id && theirs.offset == mine.offset;
  }
  if (!all) return false;
  std::shared_ptr<Shared> shared;
  for (const std::weak_ptr<Shared>& known : shared_)
    if (const auto held = known.lock(); held && held->id == mine.id) shared = held;
  // What one block adds up to is passed on to everyone while it is in the cache.
  constexpr std::size_t kBlock = std::size_t{32} << 10;
  const Share share(data.bytes(), me, n, data.bytes());
  Sources in(n);
  for (std::size_t done = 0; done < share.size; done += kBlock) {
    const std::size_t now = std::min(kBlock, share.size - done), offset = mine.offset + share.begin + done;
    for (int place = 0; place < n; ++place) in[place] = shared->part(place) + offset;
    char* own = shared->part(me) + offset;
    reduction(own, in.data(), n, static_cast<std::int64_t>(now / item_size(data.dtype)));
    for (int place = 0; place < n; ++place)
      if (place != me) std::memcpy(shared->part(place) + offset, own, now);
  }
  const std::uint64_t done = arena_.next_step();
  arena_.publish(done, call);
  arena_.await_all(done, call);
  return true;
}

}  // namespace athanor::distributed
