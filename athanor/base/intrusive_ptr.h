#pragma once
/// Reference-counted objects with the count inside the object: one word per pointer, no control block.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace athanor {

/// Base of objects held by IntrusivePtr. The count starts at 0; the last holder calls `T::destroy(T*)` if T has one,
/// else deletes. Counting is thread-safe; the object's own members are not made so. A T whose shares are given up in
/// another way, as where there are weak references, does it in `T::give_up(T*)`, which also takes null.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) {}
  RefCounted& operator=(const RefCounted&) { return *this; }
  std::uint32_t use_count() const { return refs_.load(std::memory_order_relaxed); }
  /// Takes a share unless the last one is already gone; for holders of weak references, under their lock.
  bool try_retain() const {
    std::uint32_t n = refs_.load(std::memory_order_relaxed);
    while (n != 0)
      if (refs_.compare_exchange_weak(n, n + 1, std::memory_order_acq_rel)) return true;
    return false;
  }

 protected:
  /// Gives up one share; true if none is left. A sole owner needs no atomic write: nobody else can take a share
  /// meanwhile, unless through a weak reference.
  bool give_up_share(bool has_weak_references = false) const {
    if (refs_.load(std::memory_order_acquire) == 1 && !has_weak_references) return true;
    return refs_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

 private:
  template <class T>
  friend class IntrusivePtr;
  mutable std::atomic<std::uint32_t> refs_{0};
};

template <class T>
class IntrusivePtr {
 public:
  constexpr IntrusivePtr() = default;
  constexpr IntrusivePtr(std::nullptr_t) {}
  /// Takes a share of `p`.
  explicit IntrusivePtr(T* p) : p_(p) { retain(); }
  IntrusivePtr(const IntrusivePtr& o) : p_(o.p_) { retain(); }
  IntrusivePtr(IntrusivePtr&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> IntrusivePtr(const IntrusivePtr<U>& o) : p_(o.get()) { retain(); }
  template <class U>
  requires std::is_convertible_v<U*, T*> IntrusivePtr(IntrusivePtr<U>&& o)
  noexcept : p_(o.release()) {}
  IntrusivePtr& operator=(const IntrusivePtr& o) {
    IntrusivePtr(o).swap(*this);
    return *this;
  }
  IntrusivePtr& operator=(IntrusivePtr&& o) noexcept {
    IntrusivePtr(std::move(o)).swap(*this);
    return *this;
  }
  ~IntrusivePtr() { drop(); }

  T* get() const { return p_; }
  T& operator*() const { return *p_; }
  T* operator->() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  void reset() { IntrusivePtr().swap(*this); }
  void swap(IntrusivePtr& o) noexcept { std::swap(p_, o.p_); }
  /// Gives up the pointer without dropping its share.
  T* release() { return std::exchange(p_, nullptr); }
  /// Takes over a share that `release` gave up.
  static IntrusivePtr adopt(T* p) {
    IntrusivePtr r;
    r.p_ = p;
    return r;
  }
  /// Takes a share of an object that only this thread knows yet, which needs no atomic addition.
  static IntrusivePtr first(T* p) {
    p->refs_.store(p->refs_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return adopt(p);
  }
  friend bool operator==(const IntrusivePtr& a, const IntrusivePtr& b) { return a.p_ == b.p_; }
  friend bool operator==(const IntrusivePtr& a, std::nullptr_t) { return a.p_ == nullptr; }

 private:
  void retain() {
    if (p_) p_->refs_.fetch_add(1, std::memory_order_relaxed);
  }
  void drop() {
    if constexpr (requires { T::give_up(p_); })
      T::give_up(p_);
    else if (p_ && p_->give_up_share())
      dispose();
  }
  void dispose() {
    if constexpr (requires { T::destroy(p_); })
      T::destroy(p_);
    else
      delete p_;
  }
  T* p_ = nullptr;
};

/// A new T. Its constructor must not have made `this` known to another thread: the first share is not taken atomically.
template <class T, class... Args>
IntrusivePtr<T> make_intrusive(Args&&... args) {
  return IntrusivePtr<T>::first(new T(std::forward<Args>(args)...));
}

}  // namespace athanor
