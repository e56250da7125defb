#include "athanor/base/free_list.h"

namespace athanor::detail {

constinit thread_local FreeBlocks free_blocks[kFreeBlockSizes] __attribute__((tls_model("initial-exec"))) = {};

namespace {

struct Cleaner {
  ~Cleaner() {
    for (std::size_t i = 0; i < kFreeBlockSizes; ++i) {
      FreeBlocks& list = free_blocks[i];
      list.limit = 0;
      list.closed = true;
      while (FreeBlock* p = list.head) {
        list.head = p->next;
        ::operator delete(p, (i + 1) * kFreeBlockStep);
      }
      list.count = 0;
    }
  }
};

}  // namespace

bool open_free_blocks(FreeBlocks& list) noexcept {
  if (list.closed || list.limit != 0) return false;
  static thread_local Cleaner cleaner;
  static_cast<void>(&cleaner);
  list.limit = kFreeBlockLimit;
  return true;
}

}  // namespace athanor::detail
