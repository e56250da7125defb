#include "athanor/distributed/algorithms/local.h"

#include <algorithm>

#include "athanor/distributed/algorithms/span.h"

namespace athanor::distributed {

namespace {

// A rank copies so much to its room before the others begin to read.
constexpr std::size_t kPiece = std::size_t{1} << 20;
static_assert(kPiece <= Arena::kRoom);
// Beyond that, two processors that copy are faster than one.
constexpr std::size_t kDirectBroadcast = std::size_t{8} << 20;

std::size_t largest(Parts parts) {
  std::size_t most = 0;
  for (const Span& part : parts) most = std::max(most, part.bytes());
  return most;
}

std::size_t piece_of(std::size_t total, std::size_t offset, std::size_t piece) {
  return offset < total ? std::min(piece, total - offset) : 0;
}

}  // namespace

void LocalCollectives::barrier(const Call& call) {
  const std::uint64_t step = arena_.next_step();
  arena_.publish(step, call);
  arena_.await_all(step, call);
}

void LocalCollectives::broadcast(const Call& call, Span data, int root) {
  const std::size_t bytes = data.bytes();
  if (bytes <= kDirectBroadcast && direct(bytes)) return direct_broadcast(call, data, root);
  const bool sends = arena_.me() == root;
  if (bytes <= Arena::kPayload) {
    const std::uint64_t step = arena_.next_step();
    arena_.publish(step, call, data.data, sends ? bytes : 0);
    if (sends) return;
    arena_.await(root, step, call);
    cpu::copy_bytes(data.data, arena_.payload(root, step), bytes);
    return;
  }
  const bool stream = bytes > kBeyondCache;
  // Small enough pieces let reading begin early.
  const std::size_t piece = std::clamp(bytes / 4 / 64 * 64, std::size_t{32} << 10, kPiece);
  for (std::size_t offset = 0; offset < bytes; offset += piece) {
    const std::size_t now = std::min(piece, bytes - offset);
    const std::uint64_t step = arena_.next_step();
    if (sends) {
      stager_.copy(arena_.room(root, arena_.claim_room(call)), bytes_of(data) + offset, now);
      arena_.publish(step, call);
    } else {
      const int room = arena_.next_room();
      arena_.publish(step, call);
      arena_.await(root, step, call);
      cpu::copy_bytes(bytes_of(data) + offset, arena_.room(root, room), now, stream);
    }
    arena_.free_room_at(step + 1);
  }
}

void LocalCollectives::reduce(const Call& call, Span data, const Reduction& reduction, int root) {
  const int n = arena_.ranks();
  const std::size_t bytes = data.bytes(), item = item_size(data.dtype);
  std::vector<const void*> in(static_cast<std::size_t>(n));
  const std::size_t piece = std::clamp(bytes / 4 / 64 * 64, std::size_t{32} << 10, kPiece);
  std::size_t offset = 0;
  do {
    const std::size_t now = std::min(piece, bytes - offset);
    const std::uint64_t step = arena_.next_step();
    if (arena_.me() != root) {
      const int room = arena_.claim_room(call);
      stager_.copy(arena_.room(arena_.me(), room), bytes_of(data) + offset, now);
      arena_.publish(step, call);
    } else {
      const int room = arena_.next_room();
      arena_.publish(step, call);
      arena_.await_all(step, call);
      for (int place = 0; place < n; ++place)
        in[static_cast<std::size_t>(place)] = place == root ? bytes_of(data) + offset : arena_.room(place, room);
      reduction(bytes_of(data) + offset, in.data(), n, static_cast<std::int64_t>(now / item));
    }
    arena_.free_room_at(step + 1);
    offset += piece;
  } while (offset < bytes);
}

void LocalCollectives::all_gather(const Call& call, Parts out, Span in) {
  const int n = arena_.ranks(), me = arena_.me();
  const std::size_t bytes = in.bytes(), most = largest(out);
  if (direct(most)) return direct_all_gather(call, out, in);
  const bool stream = most * out.size() > kBeyondCache;
  std::size_t offset = 0;
  do {
    const std::uint64_t step = arena_.next_step();
    const std::size_t mine = piece_of(bytes, offset, kPiece);
    const int room = arena_.claim_room(call);
    if (mine > 0) stager_.copy(arena_.room(me, room), bytes_of(in) + offset, mine);
    arena_.publish(step, call);
    if (offset == 0) copy_own(out[static_cast<std::size_t>(me)], in, stream);
    for (int k = 1; k < n; ++k) {
      const int place = (me + k) % n;
      const Span& to = out[static_cast<std::size_t>(place)];
      arena_.await(place, step, call);
      if (const std::size_t now = piece_of(to.bytes(), offset, kPiece); now > 0)
        cpu::copy_bytes(bytes_of(to) + offset, arena_.room(place, room), now, stream);
    }
    arena_.free_room_at(step + 1);
    offset += kPiece;
  } while (offset < most);
}

void LocalCollectives::gather(const Call& call, Parts out, Span in, int root) {
  const int n = arena_.ranks(), me = arena_.me();
  const std::size_t bytes = in.bytes();
  if (direct(bytes)) return direct_gather(call, out, in, root);
  const bool stream = bytes * static_cast<std::size_t>(n) > kBeyondCache;
  std::size_t offset = 0;
  do {
    const std::uint64_t step = arena_.next_step();
    const std::size_t now = std::min(kPiece, bytes - offset);
    if (me != root) {
      const int room = arena_.claim_room(call);
      if (now > 0) stager_.copy(arena_.room(me, room), bytes_of(in) + offset, now);
      arena_.publish(step, call);
    } else {
      const int room = arena_.next_room();
      arena_.publish(step, call);
      if (offset == 0) copy_own(out[static_cast<std::size_t>(me)], in, stream);
      for (int place = 0; place < n; ++place) {
        if (place == me) continue;
        arena_.await(place, step, call);
        cpu::copy_bytes(bytes_of(out[static_cast<std::size_t>(place)]) + offset, arena_.room(place, room), now, stream);
      }
    }
    arena_.free_room_at(step + 1);
    offset += kPiece;
  } while (offset < bytes);
}

void LocalCollectives::scatter(const Call& call, Span out, Parts in, int root) {
  const int n = arena_.ranks(), me = arena_.me();
  const std::size_t bytes = out.bytes(), piece = Arena::kRoom / static_cast<std::size_t>(n) / 64 * 64;
  if (direct(bytes)) return direct_scatter(call, out, in, root);
  std::size_t offset = 0;
  do {
    const std::uint64_t step = arena_.next_step();
    const std::size_t now = std::min(piece, bytes - offset);
    if (me == root) {
      char* room = arena_.room(me, arena_.claim_room(call));
      for (int place = 0; place < n; ++place)
        if (place != me && now > 0)
          stager_.copy(room + static_cast<std::size_t>(place) * piece,
                       bytes_of(in[static_cast<std::size_t>(place)]) + offset, now);
      arena_.publish(step, call);
      if (offset == 0) copy_own(out, in[static_cast<std::size_t>(me)], false);
    } else {
      const int room = arena_.next_room();
      arena_.publish(step, call);
      arena_.await(root, step, call);
      cpu::copy_bytes(bytes_of(out) + offset, arena_.room(root, room) + static_cast<std::size_t>(me) * piece, now);
    }
    arena_.free_room_at(step + 1);
    offset += piece;
  } while (offset < bytes);
}

void LocalCollectives::reduce_scatter(const Call& call, Span out, Parts in, const Reduction& reduction) {
  const int n = arena_.ranks(), me = arena_.me();
  const std::size_t most = largest(in), item = item_size(out.dtype);
  const std::size_t piece = Arena::kRoom / static_cast<std::size_t>(n) / 64 * 64;
  if (direct(most)) return direct_reduce_scatter(call, out, in, reduction);
  const bool stream = out.bytes() > kBeyondCache;
  std::vector<const void*> sources(static_cast<std::size_t>(n));
  std::size_t offset = 0;
  do {
    const std::uint64_t step = arena_.next_step();
    const int room = arena_.claim_room(call);
    for (int k = 1; k < n; ++k) {
      const int place = (me + k) % n;
      const Span& from = in[static_cast<std::size_t>(place)];
      if (const std::size_t now = piece_of(from.bytes(), offset, piece); now > 0)
        stager_.copy(arena_.room(me, room) + static_cast<std::size_t>(place) * piece, bytes_of(from) + offset, now);
    }
    arena_.publish(step, call);
    arena_.await_all(step, call);
    if (const std::size_t now = piece_of(out.bytes(), offset, piece); now > 0) {
      for (int place = 0; place < n; ++place)
        sources[static_cast<std::size_t>(place)] =
            place == me ? bytes_of(in[static_cast<std::size_t>(me)]) + offset
                        : arena_.room(place, room) + static_cast<std::size_t>(me) * piece;
      reduction(bytes_of(out) + offset, sources.data(), n, static_cast<std::int64_t>(now / item), stream);
    }
    arena_.free_room_at(step + 1);
    offset += piece;
  } while (offset < most);
}

// Each rank knows its own parts only: all show theirs, in bytes, to see whether they agree and how many steps there
// are.
std::size_t LocalCollectives::largest_of_all(const Call& call, Parts out, Parts in) {
  const std::uint64_t agreement = arena_.next_step();
  std::vector<std::int64_t> own;
  for (const Parts parts : {in, out})
    for (const Span& part : parts) own.push_back(static_cast<std::int64_t>(part.bytes()));
  const std::size_t bytes = own.size() * sizeof(std::int64_t);
  const bool beside = bytes <= Arena::kPayload;  // the step's number
  const int room = beside ? 0 : arena_.claim_room(call);
  if (!beside) std::memcpy(arena_.room(arena_.me(), room), own.data(), bytes);
  arena_.publish(agreement, call, own.data(), beside ? bytes : 0);
  arena_.await_all(agreement, call);
  std::vector<const std::int64_t*> rows;
  std::int64_t most = 0;
  for (int place = 0; place < arena_.ranks(); ++place) {
    const char* row = beside ? arena_.payload(place, agreement) : arena_.room(place, room);
    rows.push_back(reinterpret_cast<const std::int64_t*>(row));
    most = std::max(most, *std::max_element(rows.back(), rows.back() + in.size()));
  }
  arena_.mesh().check_pairs(rows, call);
  if (!beside) arena_.free_room_at(agreement + 1);
  return static_cast<std::size_t>(most);
}

void LocalCollectives::all_to_all(const Call& call, Parts out, Parts in) {
  const int n = arena_.ranks(), me = arena_.me();
  const std::size_t piece = Arena::kRoom / static_cast<std::size_t>(n) / 64 * 64;
  const std::size_t most = largest_of_all(call, out, in);
  if (direct(most)) return direct_all_to_all(call, out, in);
  copy_own(out[static_cast<std::size_t>(me)], in[static_cast<std::size_t>(me)], false);
  for (std::size_t offset = 0; offset < most; offset += piece) {
    const std::uint64_t step = arena_.next_step();
    const int room = arena_.claim_room(call);
    for (int k = 1; k < n; ++k) {
      const int place = (me + k) % n;
      const Span& from = in[static_cast<std::size_t>(place)];
      if (const std::size_t now = piece_of(from.bytes(), offset, piece); now > 0)
        stager_.copy(arena_.room(me, room) + static_cast<std::size_t>(place) * piece, bytes_of(from) + offset, now);
    }
    arena_.publish(step, call);
    for (int k = 1; k < n; ++k) {
      const int place = (me + k) % n;
      const Span& to = out[static_cast<std::size_t>(place)];
      arena_.await(place, step, call);
      if (const std::size_t now = piece_of(to.bytes(), offset, piece); now > 0)
        std::memcpy(bytes_of(to) + offset, arena_.room(place, room) + static_cast<std::size_t>(me) * piece, now);
    }
    arena_.free_room_at(step + 1);
  }
}

}  // namespace athanor::distributed
