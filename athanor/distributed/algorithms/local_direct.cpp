// Collectives within a host that read the other ranks' own memory, without staging.
#include <algorithm>
#include <exception>

#include "athanor/distributed/algorithms/local.h"
#include "athanor/distributed/algorithms/span.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

constexpr int kEveryone = -1, kNobody = -2;
// Less is faster in two copies without the kernel.
constexpr std::size_t kDirect = std::size_t{16} << 10;
// What is read of all the others at once, to be combined while it is in the cache.
constexpr std::size_t kScratch = std::size_t{256} << 10, kLeastBlock = std::size_t{16} << 10;

}  // namespace

// Where this rank's data lies, for the others, and where theirs does.
class LocalCollectives::Shown {
 public:
  Shown(Arena& arena, const Call& call, const void* data) : arena_(arena), call_(call), step_(arena.next_step()) {
    const std::uint64_t address = address_of(data);
    arena.publish(step_, call, &address, sizeof address);
  }
  ~Shown() {
    if (std::uncaught_exceptions() > exceptions_) arena_.give_up();
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  std::uint64_t by(int place) const {
    arena_.await(place, step_, call_);
    std::uint64_t address = 0;
    std::memcpy(&address, arena_.payload(place, step_), sizeof address);
    return address;
  }
  /// This rank has read what it needs, and waits for the ranks that read from it.
  void close(int reader) const {
    const std::uint64_t done = arena_.next_step();
    arena_.publish(done, call_);
    if (reader == kEveryone) arena_.await_all(done, call_);
    if (reader >= 0) arena_.await(reader, done, call_);
  }

 private:
  Arena& arena_;
  const Call& call_;
  std::uint64_t step_;
  int exceptions_ = std::uncaught_exceptions();
};

bool LocalCollectives::direct(std::size_t bytes) const { return bytes >= kDirect && peers_.usable(); }

void LocalCollectives::read(const Call& call, int place, void* to, std::uint64_t address, std::size_t bytes) {
  std::string problem;
  try {
    peers_.read(place, to, address, bytes);
    if (!arena_.has_given_up(place)) return;
    problem = str(arena_.mesh().rank_text(arena_.group_rank(place)), " has given up");
  } catch (const DistNetworkError& error) {
    problem = str(error.what(), ". Memory of a device cannot be read this way; ATHANOR_SINGLE_COPY=0 does without");
  }
  // The memory of a process that ends goes before its connections, which say more; and so does what ended a call.
  Mesh& mesh = arena_.mesh();
  const Deadline grace = call.deadline.sooner(Deadline::after(std::chrono::seconds(1)));
  while (!mesh.broken() && !grace.expired()) mesh.sleep(Bell::Collective, {}, grace);
  mesh.check();
  mesh.abort(str(mesh.rank_text(mesh.rank()), " failed in ", call.text(), ": ", problem));
  mesh.check();
}

// This rank's part in the list of parts that `place` has shown.
Span LocalCollectives::part_for_me(const Call& call, int place, std::uint64_t list) {
  Span part;
  read(call, place, &part, list + static_cast<std::size_t>(arena_.me()) * sizeof(Span), sizeof part);
  return part;
}

void LocalCollectives::direct_broadcast(const Call& call, Span data, int root) {
  const Shown shown(arena_, call, data.data);
  if (arena_.me() != root) read(call, root, data.data, shown.by(root), data.bytes());
  shown.close(arena_.me() == root ? kEveryone : kNobody);
}

void LocalCollectives::direct_all_gather(const Call& call, Parts out, Span in) {
  const int n = arena_.ranks(), me = arena_.me();
  const Shown shown(arena_, call, in.data);
  copy_own(out[static_cast<std::size_t>(me)], in, in.bytes() * out.size() > kBeyondCache);
  for (int k = 1; k < n; ++k) {
    const int place = (me + k) % n;
    const Span& to = out[static_cast<std::size_t>(place)];
    read(call, place, to.data, shown.by(place), to.bytes());
  }
  shown.close(kEveryone);
}

void LocalCollectives::direct_gather(const Call& call, Parts out, Span in, int root) {
  const Shown shown(arena_, call, in.data);
  if (arena_.me() != root) return shown.close(root);
  copy_own(out[static_cast<std::size_t>(root)], in);
  for (int place = 0; place < arena_.ranks(); ++place) {
    const Span& to = out[static_cast<std::size_t>(place)];
    if (place != root) read(call, place, to.data, shown.by(place), to.bytes());
  }
  shown.close(kNobody);
}

void LocalCollectives::direct_scatter(const Call& call, Span out, Parts in, int root) {
  const Shown shown(arena_, call, in.data());
  if (arena_.me() == root)
    copy_own(out, in[static_cast<std::size_t>(root)]);
  else
    read(call, root, out.data, address_of(part_for_me(call, root, shown.by(root)).data), out.bytes());
  shown.close(arena_.me() == root ? kEveryone : kNobody);
}

void LocalCollectives::direct_all_to_all(const Call& call, Parts out, Parts in) {
  const int n = arena_.ranks(), me = arena_.me();
  const Shown shown(arena_, call, in.data());
  copy_own(out[static_cast<std::size_t>(me)], in[static_cast<std::size_t>(me)]);
  for (int k = 1; k < n; ++k) {
    const int place = (me + k) % n;
    const Span& to = out[static_cast<std::size_t>(place)];
    read(call, place, to.data, address_of(part_for_me(call, place, shown.by(place)).data), to.bytes());
  }
  shown.close(kEveryone);
}

// `addresses`: where every rank has the values; nothing for this rank, whose are at `own`.
void LocalCollectives::combine_from_all(const Call& call, char* out, const char* own,
                                        const std::vector<std::uint64_t>& addresses, std::size_t bytes,
                                        const Reduction& reduction, bool stream) {
  const int n = arena_.ranks(), me = arena_.me();
  const std::size_t others = static_cast<std::size_t>(n - 1),
                    block = std::max(kScratch / others / 64 * 64, kLeastBlock);
  scratch_.resize(others * block + 64);
  char* scratch = scratch_.data() + (64 - address_of(scratch_.data()) % 64) % 64;
  std::vector<const void*> sources(static_cast<std::size_t>(n));
  for (std::size_t done = 0; done < bytes; done += block) {
    const std::size_t now = std::min(block, bytes - done);
    char* room = scratch;
    for (int place = 0; place < n; ++place) {
      const void*& source = sources[static_cast<std::size_t>(place)];
      source = place == me ? own + done : room;
      if (place == me) continue;
      read(call, place, room, addresses[static_cast<std::size_t>(place)] + done, now);
      room += block;
    }
    reduction(out + done, sources.data(), n, static_cast<std::int64_t>(now / item_size(reduction.dtype())), stream);
  }
}

void LocalCollectives::direct_reduce_scatter(const Call& call, Span out, Parts in, const Reduction& reduction) {
  const int n = arena_.ranks(), me = arena_.me();
  const Shown shown(arena_, call, in.data());
  std::vector<std::uint64_t> addresses(static_cast<std::size_t>(n));
  for (int place = 0; place < n; ++place)
    if (place != me)
      addresses[static_cast<std::size_t>(place)] = address_of(part_for_me(call, place, shown.by(place)).data);
  combine_from_all(call, bytes_of(out), bytes_of(in[static_cast<std::size_t>(me)]), addresses, out.bytes(), reduction,
                   out.bytes() > kBeyondCache);
  shown.close(kEveryone);
}

// Each adds up a share in its own memory; then all read the others' shares.
void LocalCollectives::direct_all_reduce(const Call& call, Span data, const Reduction& reduction) {
  const int n = arena_.ranks(), me = arena_.me();
  const Shown shown(arena_, call, data.data);
  std::vector<std::uint64_t> addresses(static_cast<std::size_t>(n));
  const auto share_of = [&](int place) { return Share(data.bytes(), place, n, data.bytes()); };
  const Share mine = share_of(me);
  for (int place = 0; place < n; ++place)
    if (place != me) addresses[static_cast<std::size_t>(place)] = shown.by(place) + mine.begin;
  char* own = bytes_of(data) + mine.begin;
  combine_from_all(call, own, own, addresses, mine.size, reduction, false);
  const std::uint64_t added = arena_.next_step();
  arena_.publish(added, call);
  for (int k = 1; k < n; ++k) {
    const int place = (me + k) % n;
    const Share share = share_of(place);
    arena_.await(place, added, call);
    read(call, place, bytes_of(data) + share.begin,
         addresses[static_cast<std::size_t>(place)] - mine.begin + share.begin, share.size);
  }
  shown.close(kEveryone);
}

}  // namespace athanor::distributed
