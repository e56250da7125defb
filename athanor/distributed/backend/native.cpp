#include "athanor/distributed/backend/native.h"

#include <algorithm>
#include <cstring>

#include "athanor/distributed/algorithms/span.h"
#include "athanor/distributed/backend/connections.h"
#include "athanor/distributed/backend/messages.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// Values times the factor of PREMUL_SUM, in memory of their own unless that would be the result's.
class Premultiplied {
 public:
  Premultiplied(const ReduceOp& op, Span& data, bool in_place) {
    if (!(op == ReduceOp::PREMUL_SUM) || data.count == 0) return;
    void* to = data.data;
    if (!in_place) {
      room_ = CacheLines(data.bytes());
      to = room_.data();
    }
    cpu::scale(to, data.data, data.count, data.dtype, op.factor());
    data.data = to;
  }

 private:
  CacheLines room_;
};

class NativeBackend final : public Backend, public GroupWatch, private Connections {
 public:
  explicit NativeBackend(const BackendOptions& options)
      : Backend(options.rank, options.size),
        Connections(options),
        messages_(mesh_, local_ ? &local_->arena() : nullptr, local_ ? &local_->peers() : nullptr) {
    for (const int leader : mesh_.leaders()) {
      int ranks = 0;
      for (int r = 0; r < mesh_.size(); ++r) ranks += mesh_.leader_of(r) == leader ? 1 : 0;
      most_on_a_host_ = std::max(most_on_a_host_, ranks);
    }
  }
  ~NativeBackend() override { leave(); }

  std::string name() const override { return "tcp"; }
  void look() override { mesh_.look(); }
  bool compares_fingerprints() const override { return true; }
  bool supports(const ReduceOp& op, DType dtype) const override {
    return op == ReduceOp::USER || Backend::supports(op, dtype);
  }

  void barrier(const Call& call) override {
    if (alone()) return;
    run(call, [&] {
      if (one_host()) return local_->barrier(call);
      if (local_) local_->barrier(call);
      if (leads()) RemoteCollectives(*links_, mesh_.leaders()).barrier(call);
      if (local_) local_->barrier(call);
    });
  }

  void broadcast(const Call& call, Span data, int root) override {
    if (alone()) return;
    run(call, [&] {
      if (one_host()) return local_->broadcast(call, data, root);
      const std::vector<int> hosts = representatives(root);
      const int mine = hosts[host_index(rank(), hosts)];
      if (mine == rank())
        RemoteCollectives(*links_, hosts).broadcast(call, data, static_cast<int>(host_index(root, hosts)));
      if (local_) local_->broadcast(call, data, place_of(mine));
    });
  }

  void all_reduce(const Call& call, Span data, const ReduceOp& op) override {
    run(call, [&] {
      const Premultiplied values(op, data, true);
      const Reduction reduction(op, data.dtype, size());
      if (alone()) return;
      if (one_host()) return local_->all_reduce(call, data, reduction);
      const auto [of_host, of_hosts] = reduction.stages(most_on_a_host_);
      reduce_on_host(call, data, of_host, 0);
      if (leads()) RemoteCollectives(*links_, mesh_.leaders()).all_reduce(call, data, of_hosts);
      if (local_) local_->broadcast(call, data, 0);
    });
  }

  void reduce(const Call& call, Span data, const ReduceOp& op, int root) override {
    run(call, [&] {
      const Premultiplied values(op, data, rank() == root);
      const Reduction reduction(op, data.dtype, size());
      if (alone()) return;
      if (one_host()) return local_->reduce(call, data, reduction, root);
      const std::vector<int> hosts = representatives(root);
      const int mine = hosts[host_index(rank(), hosts)];
      const auto [of_host, of_hosts] = reduction.stages(most_on_a_host_);
      CacheLines room;
      // The sum of a host other than the root's has no tensor to live in.
      if (mine == rank() && rank() != root && (local_ || of_host.divides())) {
        room = CacheLines(data.bytes());
        cpu::copy_bytes(room.data(), data.data, data.bytes());
        data.data = room.data();
      }
      reduce_on_host(call, data, of_host, local_ ? place_of(mine) : 0);
      if (mine == rank())
        RemoteCollectives(*links_, hosts).reduce(call, data, of_hosts, static_cast<int>(host_index(root, hosts)));
    });
  }

  void all_gather(const Call& call, Parts out, Span in) override {
    run(call, [&] {
      if (alone()) return copy_own(out[0], in);
      if (one_host()) return local_->all_gather(call, out, in);
      if (by_hosts()) return all_gather_by_hosts(call, out, in);
      RemoteCollectives(*links_, everyone_).all_gather(call, out, in);
    });
  }

  void gather(const Call& call, Parts out, Span in, int root) override {
    run(call, [&] {
      if (alone()) return copy_own(out[0], in);
      if (one_host()) return local_->gather(call, out, in, root);
      RemoteCollectives(*links_, everyone_).gather(call, out, in, root);
    });
  }

  void scatter(const Call& call, Span out, Parts in, int root) override {
    run(call, [&] {
      if (alone()) return copy_own(out, in[0]);
      if (one_host()) return local_->scatter(call, out, in, root);
      RemoteCollectives(*links_, everyone_).scatter(call, out, in, root);
    });
  }

  void reduce_scatter(const Call& call, Span out, Parts in, const ReduceOp& op) override {
    run(call, [&] {
      std::vector<Span> parts(in.begin(), in.end());
      std::vector<Premultiplied> values;
      for (Span& part : parts) values.emplace_back(op, part, false);
      const Reduction reduction(op, out.dtype, size());
      if (alone()) return copy_own(out, parts[0]);
      if (one_host()) return local_->reduce_scatter(call, out, parts, reduction);
      if (by_hosts()) return reduce_scatter_by_hosts(call, out, parts, reduction);
      RemoteCollectives(*links_, everyone_).reduce_scatter(call, out, parts, reduction);
    });
  }

  void all_to_all(const Call& call, Parts out, Parts in) override {
    run(call, [&] {
      if (alone()) return copy_own(out[0], in[0]);
      if (one_host()) return local_->all_to_all(call, out, in);
      RemoteCollectives(*links_, everyone_).all_to_all(call, out, in);
    });
  }

  std::unique_ptr<P2pRequest> isend(const Call& call, Span data, int to, std::uint32_t tag) override {
    return messages_.isend(call, data, to, tag);
  }
  std::unique_ptr<P2pRequest> irecv(const Call& call, Span data, int from, std::uint32_t tag) override {
    return messages_.irecv(call, data, from, tag);
  }
  void progress(std::chrono::milliseconds patience) override { messages_.progress(patience); }

  std::shared_ptr<void> allocate_shared(const Call& call, std::size_t bytes) override {
    if (!one_host() || alone()) return nullptr;
    std::shared_ptr<void> memory;
    run(call, [&] { memory = local_->allocate_shared(call, bytes); });
    return memory;
  }

  std::vector<int> lost_ranks() override { return mesh_.lost_ranks(); }
  void abort(const std::string& reason) noexcept override { mesh_.abort(reason); }
  void shutdown() noexcept override { leave(); }
  StateTalk* talk() override { return &mesh_; }

 private:
  bool alone() const { return size() == 1; }
  bool leads() const { return mesh_.leader_of(rank()) == rank(); }

  // Several hosts, one of them at least with several ranks, whose values cross the network once.
  bool by_hosts() const { return static_cast<int>(mesh_.leaders().size()) < size(); }

  // Room for a part of each rank, those of a host side by side.
  class HostParts {
   public:
    HostParts(const Mesh& mesh, Parts like) : mesh_(mesh), parts_(like.begin(), like.end()) {
      std::int64_t count = 0;
      for (const Span& part : like) count += part.count;
      const DType dtype = like[0].dtype;
      const auto item = static_cast<std::int64_t>(item_size(dtype));
      room_ = CacheLines(static_cast<std::size_t>(count * item));
      whole = {room_.data(), count, dtype};
      char* at = room_.data();
      for (const int leader : mesh.leaders()) {
        Span& host = hosts.emplace_back(Span{at, 0, dtype});
        for (int r = 0; r < mesh.size(); ++r) {
          if (mesh.leader_of(r) != leader) continue;
          of(r).data = at;
          host.count += of(r).count;
          at += of(r).bytes();
        }
      }
    }
    Span& of(int rank) { return parts_[static_cast<std::size_t>(rank)]; }
    std::vector<Span> of_this_host() {
      std::vector<Span> own;
      for (const int r : mesh_.local_ranks()) own.push_back(of(r));
      return own;
    }
    Span& own_host() {
      const auto& leaders = mesh_.leaders();
      return hosts[static_cast<std::size_t>(std::find(leaders.begin(), leaders.end(), mesh_.leader_of(mesh_.rank())) -
                                            leaders.begin())];
    }
    Span whole;
    std::vector<Span> hosts;  // by host

   private:
    const Mesh& mesh_;
    std::vector<Span> parts_;
    CacheLines room_;
  };

  void all_gather_by_hosts(const Call& call, Parts out, Span in) {
    HostParts room(mesh_, out);
    if (local_)
      local_->all_gather(call, room.of_this_host(), in);
    else
      copy_own(room.of(rank()), in);
    if (leads()) RemoteCollectives(*links_, mesh_.leaders()).all_gather(call, room.hosts, room.own_host());
    if (local_) local_->broadcast(call, room.whole, 0);
    for (const int r : everyone_) copy_own(out[static_cast<std::size_t>(r)], room.of(r));
  }

  void reduce_scatter_by_hosts(const Call& call, Span out, Parts in, const Reduction& reduction) {
    HostParts room(mesh_, in);
    for (const int r : everyone_) copy_own(room.of(r), in[static_cast<std::size_t>(r)]);
    const auto [of_host, of_hosts] = reduction.stages(most_on_a_host_);
    reduce_on_host(call, room.whole, of_host, 0);
    if (leads())
      RemoteCollectives(*links_, mesh_.leaders()).reduce_scatter(call, room.own_host(), room.hosts, of_hosts);
    // Parts may differ in size, which scatter's may not.
    if (local_) local_->broadcast(call, room.own_host(), 0);
    copy_own(out, room.of(rank()));
  }

  // The first of two stages, of a rank alone on its host too. `root`: a place among the host's ranks.
  void reduce_on_host(const Call& call, Span data, const Reduction& reduction, int root) {
    if (local_) return local_->reduce(call, data, reduction, root);
    if (reduction.divides() && data.count > 0) reduction(data.data, &data.data, 1, data.count);
  }

  // One rank of each host, by host: the root of its own host, the lowest of the others.
  std::vector<int> representatives(int root) const {
    std::vector<int> hosts = mesh_.leaders();
    for (int& host : hosts)
      if (host == mesh_.leader_of(root)) host = root;
    return hosts;
  }
  std::size_t host_index(int rank, const std::vector<int>& hosts) const {
    std::size_t index = 0;
    while (mesh_.leader_of(hosts[index]) != mesh_.leader_of(rank)) ++index;
    return index;
  }
  int place_of(int rank) const {
    const auto& local = mesh_.local_ranks();
    return static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
  }

  // Any error breaks the group: the others must not wait for what will not come.
  template <class Body>
  void run(const Call& call, Body&& body) {
    mesh_.check();
    try {
      body();
    } catch (const std::exception& error) {
      mesh_.abort(str(mesh_.rank_text(rank()), " failed in ", call.text(), ": ", error.what()));
      throw;
    }
  }

  Messages messages_;
  int most_on_a_host_ = 1;
};

}  // namespace

std::unique_ptr<Backend> make_native_backend(const BackendOptions& options) {
  return std::make_unique<NativeBackend>(options);
}

}  // namespace athanor::distributed
