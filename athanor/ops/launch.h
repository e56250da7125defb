#pragma once
/// launch(kernel, args...): runs a kernel on the device of its tensor arguments. On the host it is a plain call; on a
/// queued device the arguments are captured by value and the call runs later, in order. No op knows the difference.

#include <memory>
#include <tuple>
#include <type_traits>

#include "athanor/ops/hidden.h"
#include "athanor/ops/kernels/kernel.h"
#include "athanor/tensor/tensor_base.h"

namespace athanor {

namespace detail {

/// Views of a list of tensors, alive for one call.
class ViewArray {
 public:
  explicit ViewArray(TensorBaseList tensors) {
    views_.reserve(tensors.size());
    for (const auto& t : tensors) views_.push_back(view_of(t));
  }
  explicit ViewArray(const std::vector<Stored>& tensors) {
    views_.reserve(tensors.size());
    for (const auto& t : tensors) views_.push_back(t.view());
  }
  operator ArrayRef<View>() const { return {views_.data(), views_.size()}; }

 private:
  SmallVector<View, 8> views_;
};

inline View kernel_argument(const TensorBase& t) { return view_of(t); }
inline View kernel_argument(const Stored& s) { return s.view(); }
inline ViewArray kernel_argument(const TensorBaseList& list) { return ViewArray(list); }
inline ViewArray kernel_argument(const std::vector<TensorBase>& list) { return ViewArray(TensorBaseList(list)); }
inline ViewArray kernel_argument(const std::vector<Stored>& list) { return ViewArray(list); }
template <class T>
requires(!std::is_convertible_v<T, TensorBaseList> &&
         !std::is_base_of_v<TensorBase, T>) const T& kernel_argument(const T& value) {
  return value;
}

inline const TensorImpl* queued_impl(const TensorBase& t) {
  return t.impl() && !t.impl()->device.is_host() ? t.impl() : nullptr;
}
inline const TensorImpl* queued_impl(const Stored& s) { return queued_impl(s.tensor()); }
inline const TensorImpl* queued_impl(const TensorBaseList& list) {
  for (const auto& t : list)
    if (const auto* i = queued_impl(t)) return i;
  return nullptr;
}
inline const TensorImpl* queued_impl(const std::vector<TensorBase>& list) { return queued_impl(TensorBaseList(list)); }
inline const TensorImpl* queued_impl(const std::vector<Stored>& list) {
  for (const auto& s : list)
    if (const auto* i = queued_impl(s)) return i;
  return nullptr;
}
template <class T>
requires(!std::is_convertible_v<T, TensorBaseList> &&
         !std::is_base_of_v<TensorBase, T>) const TensorImpl* queued_impl(const T&) {
  return nullptr;
}

/// A view with its own geometry, and the value itself where it is a host scalar.
struct OwnedView {
  View view;
  DimVector dims;
  alignas(8) unsigned char value[8];
  bool by_value = false;
  const View& fix() {
    view.sizes = dims.data();
    view.strides = dims.data() + view.ndim;
    if (by_value) view.data = value;
    return view;
  }
};
struct OwnedViews {
  std::vector<OwnedView> owned;
  std::vector<View> views;
  ArrayRef<View> fix() {
    views.clear();
    for (auto& o : owned) views.push_back(o.fix());
    return {views.data(), views.size()};
  }
};

/// Captures operands for a queued call and notes what it reads, writes and waits for.
class Capture {
 public:
  /// The first `outputs` tensors are written, or updated.
  Capture(Queue* queue, Task* task, int outputs, KernelOutputs kind)
      : queue_(queue), task_(task), outputs_left_(outputs), kind_(kind) {}
  OwnedView operator()(const TensorBase& t);
  OwnedView operator()(const Stored& s);
  OwnedViews operator()(const TensorBaseList& list);
  OwnedViews operator()(const std::vector<TensorBase>& list) { return (*this)(TensorBaseList(list)); }
  OwnedViews operator()(const std::vector<Stored>& list);
  template <class T>
  requires(!std::is_convertible_v<T, TensorBaseList> && !std::is_base_of_v<TensorBase, T>) auto operator()(
      const T& value) {
    if constexpr (std::is_same_v<T, IntArrayRef> || std::is_same_v<T, std::vector<std::int64_t>>)
      return DimVector(IntArrayRef(value));
    else
      return value;
  }
  /// Some operand's storage is known to the host by address: the call must end before launch returns.
  bool exposed() const { return exposed_; }
  /// An output is host memory: the caller's thread runs the task itself, once what it reads has been made.
  bool host_output() const { return host_output_; }
  void wait_for_sources();
  /// Call once the task is enqueued: storages of other queues must outlive it.
  void note_foreign_uses() {
    for (const auto& s : foreign_) s->add_foreign_use(queue_->record());
  }

 private:
  OwnedView capture(const TensorBase& t, const View& view);
  template <class List>
  OwnedViews capture_list(const List& list);

  Queue* queue_;
  Task* task_;
  std::vector<IntrusivePtr<Storage>> foreign_;
  SmallVector<Storage*, 4> sources_;
  int outputs_left_;
  KernelOutputs kind_;
  bool exposed_ = false;
  bool host_output_ = false;
};

inline const View& replay(OwnedView& v) { return v.fix(); }
inline ArrayRef<View> replay(OwnedViews& v) { return v.fix(); }
template <class T>
const T& replay(T& value) {
  return value;
}

void run_exposed(Queue* queue);

template <class Function, class... Captured>
struct KernelTask final : Task {
  KernelTask(const char* op, Function f) : Task(op), function(f) {}
  void run() override {
    std::apply([&](auto&... a) { function(replay(a)...); }, *arguments);
  }
  Function function;
  std::unique_ptr<std::tuple<Captured...>> arguments;
};

template <int Outputs, class K, class... Args>
[[gnu::noinline]] void launch_queued(const K& kernel, const TensorImpl* where, const Args&... args) {
  Queue* queue = queue_of(where->device);
  using TaskType = KernelTask<typename K::Function, decltype(std::declval<Capture&>()(args))...>;
  auto task = std::make_unique<TaskType>(kernel.name(), kernel.get(queue->kernels()));
  Capture capture(queue, task.get(), Outputs, kernel.outputs());
  // Braces: the order of captures is the order of arguments.
  task->arguments.reset(new std::tuple<decltype(std::declval<Capture&>()(args))...>{capture(args)...});
  if (capture.host_output()) {
    capture.wait_for_sources();
    task->run();
    return;
  }
  const bool exposed = capture.exposed();
  queue->enqueue(std::move(task));
  capture.note_foreign_uses();
  if (exposed) run_exposed(queue);
}

}  // namespace detail

/// The first `Outputs` arguments are written (or updated, where the kernel says so). Undefined tensors become undefined
/// views.
template <int Outputs = 1, class K, class... Args>
inline void launch(const K& kernel, const Args&... args) {
  const TensorImpl* queued = nullptr;
  ((queued = queued ? queued : detail::queued_impl(args)), ...);
  if (__builtin_expect(queued != nullptr, 0)) {
    detail::launch_queued<Outputs>(kernel, queued, args...);
    return;
  }
  kernel.get(DeviceType::CPU)(detail::kernel_argument(args)...);
}

}  // namespace athanor
