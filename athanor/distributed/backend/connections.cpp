#include "athanor/distributed/backend/connections.h"

namespace athanor::distributed {

Connections::Connections(const BackendOptions& options) : mesh_(options, &Arena::bytes) {
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

void Connections::leave() noexcept {
  if (!left_) mesh_.say_goodbye();
  left_ = true;
}

}  // namespace athanor::distributed
