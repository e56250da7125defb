// The control channel beside another library's backend: the native backend's connections and its barrier.
#include "athanor/distributed/backend/connections.h"
#include "athanor/distributed/backend/native.h"

namespace athanor::distributed {

namespace {

class NativeControl final : public ControlChannel, private Connections {
 public:
  explicit NativeControl(const BackendOptions& options) : Connections(options) {}

  void compare(const Call& call) override {
    mesh_.check();
    if (call.op == OpType::AllToAll) return compare_pairs(call);
    if (one_host()) return local_->barrier(call);
    RemoteCollectives(*links_, everyone_).barrier(call);
  }
  void look() override { mesh_.look(); }
  void look_for(std::chrono::milliseconds patience) override {
    const Deadline deadline = Deadline::after(patience);
    while (!mesh_.broken() && !deadline.expired()) mesh_.sleep(Bell::Messages, {}, deadline);
    mesh_.look();
  }
  std::vector<int> lost_ranks() override { return mesh_.lost_ranks(); }
  void abort(const std::string& reason) noexcept override { mesh_.abort(reason); }
  void shutdown() noexcept override { leave(); }
  StateTalk* talk() override { return &mesh_; }

 private:
  // What each pair of ranks is about to exchange is no part of the fingerprint.
  void compare_pairs(const Call& call) {
    std::vector<std::int64_t> own;
    for (const std::int64_t count : call.parts) own.push_back(count * static_cast<std::int64_t>(item_size(call.dtype)));
    std::vector<std::int64_t> table(own.size() * everyone_.size());
    const auto row = static_cast<std::int64_t>(own.size());
    std::vector<Span> out;
    std::vector<const std::int64_t*> rows;
    for (const int r : everyone_) {
      rows.push_back(table.data() + row * r);
      out.push_back({table.data() + row * r, row, DType::Long});
    }
    const Span in{own.data(), row, DType::Long};
    if (one_host())
      local_->all_gather(call, out, in);
    else
      RemoteCollectives(*links_, everyone_).all_gather(call, out, in);
    mesh_.check_pairs(rows, call);
  }
};

}  // namespace

std::unique_ptr<ControlChannel> make_control_channel(const BackendOptions& options) {
  return std::make_unique<NativeControl>(options);
}

}  // namespace athanor::distributed
