#pragma once
/// FreeList: `class Node : public FreeList<Node>` takes its memory from a short per-thread list of freed blocks, so
/// that creating and deleting one costs a few nanoseconds. Types whose sizes round to the same number of bytes share a
/// list: a list per type would need more static thread-local memory than a process has left for libraries that it loads
/// later, as Python does. An object may be deleted on another thread: its block then joins that thread's list. Lists
/// are bounded, are emptied when their thread ends, and are not used after that (objects of static storage deleted at
/// process exit go straight to the heap). A forked child keeps the lists of its only thread.

#include <cstddef>
#include <cstdint>
#include <new>

namespace athanor {

namespace detail {

struct FreeBlock {
  FreeBlock* next;
};
// Constant-initialized and trivially destroyed: reading it is one instruction and always allowed.
struct FreeBlocks {
  FreeBlock* head;
  std::uint32_t count;
  std::uint16_t limit;  // 0 until the clean-up at thread exit is arranged, and again after it ran
  bool closed;
};
inline constexpr std::size_t kFreeBlockStep = 16, kFreeBlockSizes = 32;
inline constexpr std::uint16_t kFreeBlockLimit = 1024;
extern constinit thread_local FreeBlocks free_blocks[kFreeBlockSizes] __attribute__((tls_model("initial-exec")));
/// Arranges the clean-up at thread exit; false if the list is full, or its thread is ending.
[[gnu::cold]] bool open_free_blocks(FreeBlocks& list) noexcept;

}  // namespace detail

/// Mixin giving T, the class that derives from it, operator new and delete. Objects larger than 512 bytes, with a large
/// alignment, or of classes derived from T that are larger go to the heap. At most `kLimit` freed blocks are kept per
/// thread and size.
template <class T>
class FreeList {
 public:
  static constexpr std::uint32_t kLimit = detail::kFreeBlockLimit;

  static void* operator new(std::size_t bytes) {
#if !defined(__SANITIZE_ADDRESS__)
    if constexpr (is_listed()) {
      detail::FreeBlocks& list = blocks();
      if (detail::FreeBlock* p = list.head; p != nullptr && bytes == sizeof(T)) [[likely]] {
        list.head = p->next;
        --list.count;
        return p;
      }
      if (bytes == sizeof(T)) bytes = rounded();
    }
#endif
    return heap_new(bytes);
  }

  static void operator delete(void* p, std::size_t bytes) noexcept {
#if !defined(__SANITIZE_ADDRESS__)
    if constexpr (is_listed()) {
      detail::FreeBlocks& list = blocks();
      if (bytes == sizeof(T) && (list.count < list.limit || detail::open_free_blocks(list))) [[likely]] {
        list.head = ::new (p) detail::FreeBlock{list.head};
        ++list.count;
        return;
      }
      if (bytes == sizeof(T)) bytes = rounded();
    }
#endif
    heap_delete(p, bytes);
  }

  /// A class with an operator new of its own hides the global placement form.
  static void* operator new(std::size_t, void* place) noexcept { return place; }
  static void operator delete(void*, void*) noexcept {}

  /// Freed blocks of this size that the calling thread holds.
  static std::uint32_t kept() { return is_listed() ? blocks().count : 0; }

 private:
  static constexpr bool over_aligned() { return alignof(T) > __STDCPP_DEFAULT_NEW_ALIGNMENT__; }
  static constexpr std::size_t rounded() {
    return (sizeof(T) + detail::kFreeBlockStep - 1) / detail::kFreeBlockStep * detail::kFreeBlockStep;
  }
  static constexpr bool is_listed() {
    return !over_aligned() && rounded() <= detail::kFreeBlockStep * detail::kFreeBlockSizes;
  }
  static detail::FreeBlocks& blocks() {
    constexpr std::size_t place = is_listed() ? rounded() / detail::kFreeBlockStep - 1 : 0;
    return detail::free_blocks[place];
  }
  [[gnu::noinline]] static void* heap_new(std::size_t bytes) {
    if constexpr (over_aligned())
      return ::operator new (bytes, std::align_val_t{alignof(T)});
    else
      return ::operator new(bytes);
  }
  [[gnu::noinline]] static void heap_delete(void* p, std::size_t bytes) noexcept {
#if defined(__cpp_sized_deallocation)
    if constexpr (over_aligned())
      ::operator delete (p, bytes, std::align_val_t{alignof(T)});
    else
      ::operator delete(p, bytes);
#else  // Clang before 19 declares the sized forms on request only
    static_cast<void>(bytes);
    if constexpr (over_aligned())
      ::operator delete (p, std::align_val_t{alignof(T)});
    else
      ::operator delete(p);
#endif
  }
};

}  // namespace athanor
