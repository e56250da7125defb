#pragma once
/// FreeList: `class Node : public FreeList<Node>` takes its memory from a short per-thread list of freed nodes, so that
/// creating and deleting one costs a few nanoseconds. An object may be deleted on another thread: it then joins that
/// thread's list. Lists are bounded, are emptied when their thread ends, and are not used after that (objects of static
/// storage deleted at process exit go straight to the heap). A forked child keeps the list of its only thread.

#include <cstddef>
#include <cstdint>
#include <new>

namespace athanor {

/// Mixin giving T, the class that derives from it, operator new and delete. Objects of classes derived from T that are
/// larger go to the heap. At most `kLimit` freed objects are kept per thread and type.
template <class T, std::uint32_t kLimit = 512>
class FreeList {
 public:
  static void* operator new(std::size_t bytes) {
#if !defined(__SANITIZE_ADDRESS__)
    List& list = list_;
    if (Link* p = list.head; p != nullptr && bytes == sizeof(T)) [[likely]] {
      list.head = p->next;
      --list.count;
      return p;
    }
#endif
    return heap_new(bytes);
  }

  static void operator delete(void* p, std::size_t bytes) noexcept {
#if !defined(__SANITIZE_ADDRESS__)
    List& list = list_;
    if (bytes == sizeof(T) && (list.count < list.limit || open_list(list))) [[likely]] {
      list.head = ::new (p) Link{list.head};
      ++list.count;
      return;
    }
#endif
    heap_delete(p, bytes);
  }

  /// A class with an operator new of its own hides the global placement form.
  static void* operator new(std::size_t, void* place) noexcept { return place; }
  static void operator delete(void*, void*) noexcept {}

  /// Freed objects the calling thread holds.
  static std::uint32_t kept() { return list_.count; }

 private:
  struct Link {
    Link* next;
  };
  // Constant-initialized and trivially destroyed: reading it is one instruction and always allowed.
  struct List {
    Link* head;
    std::uint32_t count;
    std::uint32_t limit;  // 0 until the clean-up at thread exit is arranged, and again after it ran
    bool closed;
  };
  struct Cleaner {
    ~Cleaner() {
      List& list = list_;
      list.limit = 0;
      list.closed = true;
      while (Link* p = list.head) {
        list.head = p->next;
        heap_delete(p, sizeof(T));
      }
      list.count = 0;
    }
  };

  static constexpr bool over_aligned() { return alignof(T) > __STDCPP_DEFAULT_NEW_ALIGNMENT__; }
  [[gnu::noinline]] static void* heap_new(std::size_t bytes) {
    static_assert(sizeof(T) >= sizeof(Link));
    if constexpr (over_aligned())
      return ::operator new (bytes, std::align_val_t{alignof(T)});
    else
      return ::operator new(bytes);
  }
  [[gnu::noinline]] static void heap_delete(void* p, std::size_t bytes) noexcept {
    if constexpr (over_aligned())
      ::operator delete (p, bytes, std::align_val_t{alignof(T)});
    else
      ::operator delete(p, bytes);
  }
  [[gnu::noinline, gnu::cold]] static bool open_list(List& list) noexcept {
    if (list.closed || list.limit != 0) return false;
    static thread_local Cleaner cleaner;
    static_cast<void>(&cleaner);
    list.limit = kLimit;
    return true;
  }

  static inline constinit thread_local List list_ __attribute__((tls_model("initial-exec"))) = {nullptr, 0, 0, false};
};

}  // namespace athanor
