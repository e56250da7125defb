#include "athanor/distributed/algorithms/remote.h"

#include <algorithm>

#include "athanor/distributed/algorithms/span.h"

namespace athanor::distributed {

namespace {

constexpr std::size_t kWindow = std::size_t{512} << 10;
// A sum grows in blocks of so much, whole elements of every dtype and whole cache lines.
constexpr std::size_t kBlock = std::size_t{64} << 10;
constexpr std::size_t kSmall = std::size_t{32} << 10;

}  // namespace

// The growing combination of one's own values with what the others send, left to right in the order of the members.
class RemoteCollectives::Sum {
 public:
  Sum(RemoteCollectives& all, Exchange& exchange, char* out, const char* own, std::size_t bytes,
      const Reduction& reduction)
      : out_(out),
        own_(own),
        bytes_(bytes),
        reduction_(reduction),
        me_(all.me_),
        windows_(all.members_.size()),
        in_(all.members_.size()) {
    for (int place = 0; place < all.size(); ++place) {
      if (place == me_) continue;
      Window& window = windows_[static_cast<std::size_t>(place)];
      window.room = CacheLines(std::min(kWindow, bytes));
      window.total = bytes;
      window.consumed = &formed_;
      exchange.recv(all.rank_at(place), window);
    }
  }
  // True if it grew.
  bool grow() {
    std::size_t there = bytes_;
    for (std::size_t place = 0; place < windows_.size(); ++place)
      if (static_cast<int>(place) != me_) there = std::min(there, windows_[place].received);
    bool grew = false;
    while (formed_ < there) {
      const std::size_t now = std::min(kBlock - formed_ % kBlock, bytes_ - formed_);
      if (formed_ + now > there) break;
      for (std::size_t place = 0; place < windows_.size(); ++place)
        in_[place] = static_cast<int>(place) == me_
                         ? own_ + formed_
                         : windows_[place].room.data() + formed_ % windows_[place].room.size();
      reduction_(out_ + formed_, in_.data(), static_cast<int>(in_.size()),
                 static_cast<std::int64_t>(now / item_size(reduction_.dtype())));
      formed_ += now;
      grew = true;
    }
    return grew;
  }
  const std::size_t* formed() const { return &formed_; }

 private:
  char* out_;
  const char* own_;
  std::size_t bytes_, formed_ = 0;
  const Reduction& reduction_;
  int me_;
  std::vector<Window> windows_;
  std::vector<const void*> in_;
};

RemoteCollectives::RemoteCollectives(Links& links, std::span<const int> members) : links_(links), members_(members) {
  while (members_[static_cast<std::size_t>(me_)] != links.mesh().rank()) ++me_;
}

// Dissemination: after round k everyone has heard, directly or not, of 2^k ranks.
void RemoteCollectives::barrier(const Call& call) {
  for (int distance = 1; distance < size(); distance *= 2) {
    Exchange exchange(links_, call);
    exchange.send(rank_at((me_ + distance) % size()), nullptr, 0);
    exchange.recv(rank_at((me_ - distance + size()) % size()), nullptr, 0);
    exchange.run();
  }
}

// A binomial tree; what has come is passed on at once.
void RemoteCollectives::broadcast(const Call& call, Span data, int root) {
  const int from_root = (me_ - root + size()) % size();
  const auto rank_from_root = [&](int distance) { return rank_at((root + distance) % size()); };
  Exchange exchange(links_, call);
  std::size_t arrived = data.bytes();
  int reach = 1;  // the least power of two above this place: the parent is where its highest bit is off
  while (reach <= from_root) reach *= 2;
  if (from_root != 0) {
    arrived = 0;
    exchange.recv(rank_from_root(from_root - reach / 2), data.data, data.bytes(), &arrived);
  }
  for (int distance = reach; from_root + distance < size(); distance *= 2)
    exchange.send(rank_from_root(from_root + distance), data.data, data.bytes(), from_root == 0 ? nullptr : &arrived);
  exchange.run();
}

void RemoteCollectives::all_reduce(const Call& call, Span data, const Reduction& reduction) {
  const std::size_t bytes = data.bytes();
  if (bytes * static_cast<std::size_t>(size() - 1) <= kSmall) return small_all_reduce(call, data, reduction);
  // Each forms its share of the result and passes it on while it grows. What comes back for the others' shares
  // overwrites only values that they must have read before.
  const std::size_t lines = (bytes + 63) / 64, each = (lines + members_.size() - 1) / members_.size() * 64;
  const auto begin = [&](int place) { return std::min(bytes, static_cast<std::size_t>(place) * each); };
  const auto length = [&](int place) { return begin(place + 1) - begin(place); };
  Exchange exchange(links_, call);
  char* own = bytes_of(data) + begin(me_);
  for (int i = 1; i < size(); ++i) {
    const int place = (me_ + i) % size();
    exchange.send(rank_at(place), bytes_of(data) + begin(place), length(place));
  }
  Sum sum(*this, exchange, own, own, length(me_), reduction);
  for (int i = 1; i < size(); ++i) {
    const int place = (me_ + i) % size();
    exchange.send(rank_at(place), own, length(me_), sum.formed());
    exchange.recv(rank_at(place), bytes_of(data) + begin(place), length(place));
  }
  exchange.run([&] { return sum.grow(); });
}

void RemoteCollectives::small_all_reduce(const Call& call, Span data, const Reduction& reduction) {
  const std::size_t bytes = data.bytes();
  Exchange exchange(links_, call);
  std::vector<char> room(bytes * members_.size());
  std::vector<const void*> in(members_.size());
  for (int place = 0; place < size(); ++place) {
    char* theirs = room.data() + static_cast<std::size_t>(place) * bytes;
    in[static_cast<std::size_t>(place)] = place == me_ ? data.data : theirs;
    if (place == me_) continue;
    exchange.send(rank_at(place), data.data, bytes);
    exchange.recv(rank_at(place), theirs, bytes);
  }
  exchange.run();
  if (bytes > 0) reduction(data.data, in.data(), size(), data.count);
}

void RemoteCollectives::reduce(const Call& call, Span data, const Reduction& reduction, int root) {
  Exchange exchange(links_, call);
  if (me_ != root) {
    exchange.send(rank_at(root), data.data, data.bytes());
    return exchange.run();
  }
  Sum sum(*this, exchange, bytes_of(data), bytes_of(data), data.bytes(), reduction);
  exchange.run([&] { return sum.grow(); });
}

void RemoteCollectives::all_gather(const Call& call, Parts out, Span in) {
  copy_own(out[static_cast<std::size_t>(me_)], in);
  Exchange exchange(links_, call);
  for (int i = 1; i < size(); ++i) {
    const int to = (me_ + i) % size(), from = (me_ - i + size()) % size();
    exchange.send(rank_at(to), in.data, in.bytes());
    exchange.recv(rank_at(from), out[static_cast<std::size_t>(from)].data, out[static_cast<std::size_t>(from)].bytes());
  }
  exchange.run();
}

void RemoteCollectives::gather(const Call& call, Parts out, Span in, int root) {
  Exchange exchange(links_, call);
  if (me_ != root) {
    exchange.send(rank_at(root), in.data, in.bytes());
  } else {
    copy_own(out[static_cast<std::size_t>(me_)], in);
    for (int from = 0; from < size(); ++from)
      if (from != me_)
        exchange.recv(rank_at(from), out[static_cast<std::size_t>(from)].data,
                      out[static_cast<std::size_t>(from)].bytes());
  }
  exchange.run();
}

void RemoteCollectives::scatter(const Call& call, Span out, Parts in, int root) {
  Exchange exchange(links_, call);
  if (me_ != root) {
    exchange.recv(rank_at(root), out.data, out.bytes());
  } else {
    copy_own(out, in[static_cast<std::size_t>(me_)]);
    for (int to = 0; to < size(); ++to)
      if (to != me_)
        exchange.send(rank_at(to), in[static_cast<std::size_t>(to)].data, in[static_cast<std::size_t>(to)].bytes());
  }
  exchange.run();
}

void RemoteCollectives::reduce_scatter(const Call& call, Span out, Parts in, const Reduction& reduction) {
  Exchange exchange(links_, call);
  for (int i = 1; i < size(); ++i) {
    const int to = (me_ + i) % size();
    exchange.send(rank_at(to), in[static_cast<std::size_t>(to)].data, in[static_cast<std::size_t>(to)].bytes());
  }
  Sum sum(*this, exchange, bytes_of(out), bytes_of(in[static_cast<std::size_t>(me_)]), out.bytes(), reduction);
  exchange.run([&] { return sum.grow(); });
}

void RemoteCollectives::all_to_all(const Call& call, Parts out, Parts in) {
  copy_own(out[static_cast<std::size_t>(me_)], in[static_cast<std::size_t>(me_)]);
  Exchange exchange(links_, call);
  for (int i = 1; i < size(); ++i) {
    const int to = (me_ + i) % size(), from = (me_ - i + size()) % size();
    exchange.send(rank_at(to), in[static_cast<std::size_t>(to)].data, in[static_cast<std::size_t>(to)].bytes());
    exchange.recv(rank_at(from), out[static_cast<std::size_t>(from)].data, out[static_cast<std::size_t>(from)].bytes());
  }
  exchange.run();
}

}  // namespace athanor::distributed
