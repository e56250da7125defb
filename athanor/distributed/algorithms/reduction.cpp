#include "athanor/distributed/algorithms/reduction.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace athanor::distributed {

Reduction::Reduction(const ReduceOp& op, DType dtype, int ranks) : dtype_(dtype) {
  switch (op.kind()) {
    case ReduceOp::SUM:
    case ReduceOp::PREMUL_SUM:
      break;
    case ReduceOp::AVG:
      divisor_ = ranks;
      break;
    case ReduceOp::PRODUCT:
      combine_ = cpu::Combine::Product;
      break;
    case ReduceOp::MIN:
      combine_ = cpu::Combine::Min;
      break;
    case ReduceOp::MAX:
      combine_ = cpu::Combine::Max;
      break;
    case ReduceOp::BAND:
      combine_ = cpu::Combine::And;
      break;
    case ReduceOp::BOR:
      combine_ = cpu::Combine::Or;
      break;
    case ReduceOp::BXOR:
      combine_ = cpu::Combine::Xor;
      break;
    case ReduceOp::USER:
      user_ = &op.function();
      break;
  }
}

Reduction::Stages Reduction::stages(int most) const {
  Stages both{*this, *this};
  both.first.divisor_ = 1;
  if (dtype_ == DType::Half && divides())
    while (both.first.divisor_ < most) both.first.divisor_ *= 2;
  both.second.divisor_ = divisor_ / both.first.divisor_;
  return both;
}

void Reduction::operator()(void* out, const void* const* in, int n, std::int64_t count, bool stream) const {
  if (user_ != nullptr) return apply_user(out, in, n, count);
  cpu::combine(out, in, n, count, dtype_, combine_, divisor_, stream);
}

void Reduction::apply_user(void* out, const void* const* in, int n, std::int64_t count) const {
  constexpr std::int64_t kBlock = 8192;
  const std::size_t item = item_size(dtype_);
  std::vector<char> room(static_cast<std::size_t>(std::min(count, kBlock)) * item);
  for (std::int64_t done = 0; done < count; done += kBlock) {
    const std::int64_t now = std::min(kBlock, count - done);
    const std::size_t offset = static_cast<std::size_t>(done) * item, bytes = static_cast<std::size_t>(now) * item;
    std::memcpy(room.data(), static_cast<const char*>(in[0]) + offset, bytes);
    for (int k = 1; k < n; ++k) (*user_)(room.data(), static_cast<const char*>(in[k]) + offset, now, dtype_);
    std::memcpy(static_cast<char*>(out) + offset, room.data(), bytes);
  }
}

}  // namespace athanor::distributed
