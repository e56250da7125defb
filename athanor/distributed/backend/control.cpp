// The control channel beside another library's backend: the native backend's connections and its barrier.
#include <optional>

#include "athanor/distributed/algorithms/local.h"
#include "athanor/distributed/algorithms/remote.h"
#include "athanor/distributed/backend/native.h"

namespace athanor::distributed {

namespace {

class NativeControl final : public ControlChannel {
 public:
  explicit NativeControl(const BackendOptions& options) : mesh_(options, &Arena::bytes) {
    if (mesh_.segment()) {
      Call set_up;
      set_up.op = OpType::Barrier;
      set_up.timeout = options.timeout;
      set_up.deadline = Deadline::after(options.timeout);
      local_.emplace(mesh_, set_up);
    }
    links_.emplace(mesh_, local_ ? &local_->arena() : nullptr);
    for (int r = 0; r < mesh_.size(); ++r) everyone_.push_back(r);
  }
  ~NativeControl() override { shutdown(); }

  void compare(const Call& call) override {
    mesh_.check();
    if (call.op == OpType::AllToAll) return compare_pairs(call);
    if (mesh_.leaders().size() == 1) return local_->barrier(call);
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
  void shutdown() noexcept override {
    if (!left_) mesh_.say_goodbye();
    left_ = true;
  }

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
    if (mesh_.leaders().size() == 1)
      local_->all_gather(call, out, in);
    else
      RemoteCollectives(*links_, everyone_).all_gather(call, out, in);
    mesh_.check_pairs(rows, call);
  }

  Mesh mesh_;
  std::optional<LocalCollectives> local_;
  std::optional<Links> links_;
  std::vector<int> everyone_;
  bool left_ = false;
};

}  // namespace

std::unique_ptr<ControlChannel> make_control_channel(const BackendOptions& options) {
  return std::make_unique<NativeControl>(options);
}

}  // namespace athanor::distributed
