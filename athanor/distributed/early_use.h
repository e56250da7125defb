#pragma once
/// EarlyUse: notices that a program uses a tensor before a receive into it has been waited for (debug mode). Not part
/// of the interface.

#include <memory>
#include <string>

#include "athanor/ops/tensor.h"

namespace athanor::distributed {

/// Watches from its making on. Sees ops, item() and the calls of process groups, from any thread, and which elements
/// they use; not what goes through data_ptr(), for which it fills the tensor with values that show: NaN, -1, true.
class EarlyUse {
 public:
  explicit EarlyUse(const Tensor& tensor);
  ~EarlyUse();
  EarlyUse(const EarlyUse&) = delete;
  EarlyUse& operator=(const EarlyUse&) = delete;

  /// Ends the watch and returns who was first to use the tensor, empty if nobody.
  std::string end();

  /// A call of a process group is about to use the tensor.
  static void note(const char* call, const Tensor& tensor) noexcept;

  /// What this thread uses meanwhile is no use of the program's.
  class Own {
   public:
    Own();
    ~Own();
    Own(const Own&) = delete;
    Own& operator=(const Own&) = delete;

   private:
    bool before_;
  };

  struct Watched;

 private:
  std::unique_ptr<Watched> watched_;
};

}  // namespace athanor::distributed
