#include "athanor/ops/launch.h"

#include "athanor/tensor/fence.h"

namespace athanor::detail {

OwnedView Capture::operator()(const TensorBase& t) { return capture(t, view_of(t)); }

OwnedView Capture::operator()(const Stored& s) {
  // Uses by other queues are noted with the storage, which gives a hidden layout's bytes back without asking.
  const bool at_home = !s.tensor().defined() || queue_of(s.tensor().device()) == queue_;
  return capture(s.tensor(), at_home ? s.view() : view_of(s.tensor()));
}

OwnedView Capture::capture(const TensorBase& t, const View& view) {
  OwnedView o;
  const bool is_output = outputs_left_-- > 0;
  if (!t.defined()) return o;
  o.view = view;
  o.dims = DimVector(t.impl()->dims, t.impl()->dims + 2 * t.impl()->ndim);
  Storage& storage = *t.storage();
  if (t.device().is_host()) {
    if (t.numel() == 1 && !is_output) {
      std::memcpy(o.value, o.view.data, t.itemsize());
      o.by_value = true;
    } else {
      host_output_ = host_output_ || is_output;
      exposed_ = true;  // a copy between host and queue: the host's side must not change meanwhile
    }
    return o;
  }
  exposed_ = exposed_ || storage.host_exposed();
  Queue* home = queue_of(t.device());
  if (is_output) {
    task_->writes.push_back({storage.validity(), t.nbytes() == storage.nbytes(), home == queue_});
    if (kind_ == kUpdates) task_->reads.push_back(storage.validity());
  } else {
    task_->reads.push_back(storage.validity());
    sources_.push_back(&storage);
  }
  if (home != queue_) {
    // A source's values are there after its last write. What its queue has been given since need not be over: a
    // pipeline's next stage goes on while this one works on other micro-batches.
    task_->after.push_back(
        is_output ? home->record() : QueuePoint(home, storage.validity()->last_write.load(std::memory_order_relaxed)));
    foreign_.push_back(t.storage());
  }
  for (const QueuePoint& e : is_output ? storage.pending_foreign_uses() : foreign_writes(storage))
    task_->after.push_back(e);
  return o;
}

template <class List>
OwnedViews Capture::capture_list(const List& list) {
  // A list counts as one argument: all of it is written, or nothing.
  const int before = outputs_left_;
  OwnedViews all;
  for (const auto& t : list) {
    outputs_left_ = before > 0 ? 1 : 0;
    all.owned.push_back((*this)(t));
  }
  outputs_left_ = before - 1;
  return all;
}

OwnedViews Capture::operator()(const TensorBaseList& list) { return capture_list(list); }
OwnedViews Capture::operator()(const std::vector<Stored>& list) { return capture_list(list); }

void Capture::wait_for_sources() {
  for (Storage* s : sources_) s->wait_for_values();
}

void run_exposed(Queue* queue) { queue->synchronize(); }

}  // namespace athanor::detail
