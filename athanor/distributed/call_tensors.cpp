#include "athanor/distributed/call_tensors.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "athanor/ops/kernels/copy.h"

namespace athanor::distributed {

using athanor::detail::str;
using athanor::detail::view_of;

namespace {

// Turns of a wait that add at most a tenth to it, and a thousandth of a second.
class Pauses {
 public:
  std::chrono::microseconds next() const {
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Deadline::Clock::now() - begin_);
    return std::clamp(waited / 10, std::chrono::microseconds(10), std::chrono::microseconds(1000));
  }

 private:
  Deadline::Clock::time_point begin_ = Deadline::Clock::now();
};

}  // namespace

struct CallTensor::OnQueue {
  OnQueue(const Tensor& t, Staged::Use call_use, CallOrder& order);
  ~OnQueue();
  void wait(const Call& call) const;
  void check_made() const;
  Storage& storage() const { return *target.storage(); }

  Staged::Use use;
  Tensor target;  // as the tensor was when the call was made
  Tensor memory;  // what the backend uses: the target itself, a copy of it made in its queue's order, or of the host
  std::vector<QueuePoint> before;
  std::shared_ptr<CallOrder::Place> place;
  bool closed = false;
};

CallTensor::OnQueue::OnQueue(const Tensor& t, Staged::Use call_use, CallOrder& order)
    : use(call_use), target(t.data()), memory(target) {
  const NoGradGuard no_grad;
  Queue* queue = athanor::detail::queue_of(t.device());
  storage().data();  // a hidden layout is restored before
  if (!target.is_contiguous())
    memory =
        use & Staged::In ? target.contiguous() : Tensor(athanor::detail::empty_tensor(t.sizes(), t.dtype(), Device()));
  const bool own_memory = memory.storage().get() == target.storage().get();
  if (use == Staged::In) {
    before = own_memory ? athanor::detail::foreign_writes(storage()) : std::vector<QueuePoint>();
    before.emplace_back(queue, memory.storage()->validity()->last_write.load(std::memory_order_relaxed));
    if (!own_memory) return;
  } else {
    before = storage().pending_foreign_uses();
    before.push_back(queue->record());
  }
  place = order.place();
  const athanor::detail::Fence& fence = place->fence;
  // The call's other tensors may be parts of the same storage.
  std::erase_if(before, [&](const QueuePoint& p) {
    return athanor::detail::is_fence(p) && p.ticket() == fence.point().ticket();
  });
  if (use == Staged::In)
    storage().add_foreign_use(fence.point());
  else
    athanor::detail::note_foreign_write(storage(), fence);
}

CallTensor::OnQueue::~OnQueue() {
  if (!closed && use != Staged::In && place && place->submitted.load(std::memory_order_relaxed))
    storage().validity()->set(std::make_shared<const std::string>(
        "a collective that was to write them; its Work has the reason, as has the log"));
}

void CallTensor::OnQueue::wait(const Call& call) const {
  Pauses pauses;
  for (const QueuePoint& p : before)
    while (!p.query()) {
      call.look();
      if (call.deadline.expired())
        throw DistError(
            athanor::detail::is_fence(p)
                ? str(op_name(call.op), ": after ", call.timeout.count(),
                      " ms another call of this rank still uses the same tensor on ", target.device())
                : str(op_name(call.op), ": after ", call.timeout.count(), " ms the work that this rank enqueued on ",
                      p.queue()->device(), " before the call is not done: this rank holds up the others"),
            ATHANOR_WHERE);
      const auto pause = std::min<Deadline::Clock::duration>(pauses.next(), call.deadline.remaining());
      if (athanor::detail::is_fence(p))
        athanor::detail::wait_for_fence(p, std::chrono::ceil<std::chrono::milliseconds>(pause));
      else
        std::this_thread::sleep_for(pause);
    }
}

void CallTensor::OnQueue::check_made() const {
  if (!(use & Staged::In) || memory.device().is_host()) return;
  const IntrusivePtr<Validity>& mark = memory.storage()->validity();
  if (!mark->invalid.load(std::memory_order_relaxed)) return;
  const auto why = mark->failure();
  ATHANOR_THROW(Error, "the values of a tensor on ", target.device(),
                " were to be sent, but the call that should have ",
                "made them failed; compute or fill it again. What failed: ", why ? *why : "");
}

CallTensor::CallTensor(const Tensor& tensor, Staged::Use use, CallOrder& order) : tensor_(tensor), use_(use) {
  if (!tensor.device().is_host()) on_queue_ = std::make_unique<OnQueue>(tensor, use, order);
}

CallTensor::CallTensor(CallTensor&&) noexcept = default;
CallTensor::~CallTensor() = default;

Span CallTensor::open(const Call& call) {
  if (!on_queue_) return on_host_.emplace(tensor_, use_).span();
  on_queue_->wait(call);
  on_queue_->check_made();
  const Tensor& memory = on_queue_->memory;
  return {view_of(memory).data, memory.numel(), memory.dtype()};
}

void CallTensor::close() {
  if (!on_queue_) return on_host_->write_back();
  OnQueue& q = *on_queue_;
  if (!(q.use & Staged::Out)) return;
  // The queue may hold work that waits for this call: it cannot carry the copy out.
  if (!q.target.is_contiguous()) copy_kernel.get(DeviceType::CPU)(view_of(q.target), view_of(q.memory));
  if (q.target.nbytes() == q.storage().nbytes()) q.storage().validity()->set(nullptr);
  q.closed = true;
}

CallTensors::CallTensors(TensorList tensors, Staged::Use use, CallOrder& order) {
  items_.reserve(tensors.size());
  for (const Tensor& t : tensors) items_.emplace_back(t, use, order);
}

Parts CallTensors::open(const Call& call) {
  spans_.reserve(items_.size());
  for (CallTensor& item : items_) spans_.push_back(item.open(call));
  return spans_;
}

void CallTensors::close() {
  for (CallTensor& item : items_) item.close();
}

}  // namespace athanor::distributed
