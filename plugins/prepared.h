#pragma once
/// Values made ready for a library that only knows plain reductions: PREMUL_SUM's factors are applied before, AVG's
/// division after, and half types travel as float32 so that they are rounded once.

#include <utility>
#include <vector>

#include "athanor/device/cpu/combine.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/distributed/backend.h"

namespace athanor::distributed::plugins {

inline cpu::Combine combine_of(ReduceOp::Kind kind) {
  switch (kind) {
    case ReduceOp::PRODUCT:
      return cpu::Combine::Product;
    case ReduceOp::MIN:
      return cpu::Combine::Min;
    case ReduceOp::MAX:
      return cpu::Combine::Max;
    case ReduceOp::BAND:
      return cpu::Combine::And;
    case ReduceOp::BOR:
      return cpu::Combine::Or;
    case ReduceOp::BXOR:
      return cpu::Combine::Xor;
    default:
      return cpu::Combine::Sum;
  }
}

class Prepared {
 public:
  /// `keep`: data is not written to, not even in passing.
  Prepared(Span data, const ReduceOp& op, bool keep) : op_(op), values_(data) {
    const bool wide = is_half(data.dtype) && !(op == ReduceOp::USER);
    if (wide) {
      room_.resize(static_cast<std::size_t>(data.count) * sizeof(float));
      values_ = {room_.data(), data.count, DType::Float};
      const auto* bits = static_cast<const std::uint16_t*>(data.data);
      const auto& ops = cpu::block_ops();
      (data.dtype == DType::Half ? ops.half_to_float : ops.bfloat16_to_float)(static_cast<float*>(values_.data), bits,
                                                                              data.count);
    } else if (keep) {
      room_.resize(data.bytes());
      values_.data = room_.data();
      cpu::copy_bytes(values_.data, data.data, data.bytes());
    }
    if (op == ReduceOp::PREMUL_SUM) cpu::scale(values_.data, values_.data, values_.count, values_.dtype, op.factor());
  }

  /// What is to be reduced, in place.
  const Span& values() const { return values_; }
  /// Puts the result of `ranks` ranks into `out`.
  void finish(Span out, int ranks) const { finish_part(values_, out, ranks); }
  /// The same for a result that lies elsewhere, in the dtype of values().
  void finish_part(Span result, Span out, int ranks) const {
    const void* in[] = {result.data};
    if (op_ == ReduceOp::AVG) cpu::combine(result.data, in, 1, result.count, result.dtype, cpu::Combine::Sum, ranks);
    if (result.dtype != out.dtype) {
      const auto& ops = cpu::block_ops();
      (out.dtype == DType::Half ? ops.float_to_half : ops.float_to_bfloat16)(
          static_cast<std::uint16_t*>(out.data), static_cast<const float*>(result.data), out.count);
    } else if (result.data != out.data) {
      cpu::copy_bytes(out.data, result.data, out.bytes());
    }
  }

 private:
  const ReduceOp& op_;
  Span values_;
  std::vector<char> room_;
};

/// All parts in one piece of memory, one after the other.
class Joined {
 public:
  Joined(Parts parts, bool filled) : parts_(parts) {
    std::size_t total = 0;
    for (const Span& part : parts) total += part.bytes();
    room_.resize(total);
    if (filled) move(true);
  }
  char* data() { return room_.data(); }
  void take_apart() { move(false); }

 private:
  void move(bool together) {
    char* at = room_.data();
    for (const Span& part : parts_) {
      cpu::copy_bytes(together ? at : part.data, together ? part.data : at, part.bytes());
      at += part.bytes();
    }
  }
  Parts parts_;
  std::vector<char> room_;
};

}  // namespace athanor::distributed::plugins
