#include "athanor/distributed/reduce_op.h"

#include <functional>

namespace athanor::distributed {

using athanor::detail::str;

namespace {

constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM", "USER"};

}  // namespace

const char* reduce_name(ReduceOp::Kind kind) { return kNames[kind]; }

bool reduces(ReduceOp::Kind kind, DType dtype) {
  switch (kind) {
    case ReduceOp::AVG:
    case ReduceOp::PREMUL_SUM:
      return is_floating_point(dtype);
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      return is_integral(dtype, true);
    default:
      return true;
  }
}

ReduceOp::ReduceOp(Kind kind) : kind_(kind) {
  ATHANOR_CHECK_VALUE(kind != PREMUL_SUM, "ReduceOp: PREMUL_SUM needs a factor, use ReduceOp::premul_sum(factor)");
  ATHANOR_CHECK_VALUE(kind != USER, "ReduceOp: USER needs a name and a function, use ReduceOp::user(name, function)");
}

ReduceOp ReduceOp::premul_sum(double factor) {
  ReduceOp op;
  op.kind_ = PREMUL_SUM;
  op.factor_ = factor;
  return op;
}

ReduceOp ReduceOp::user(std::string name, Function function) {
  ATHANOR_CHECK_VALUE(!name.empty(), "ReduceOp::user: the operator needs a name, by which the ranks compare it");
  ATHANOR_CHECK_VALUE(function != nullptr, "ReduceOp::user: operator '", name, "' has no function");
  ReduceOp op;
  op.kind_ = USER;
  op.user_ = std::make_shared<const User>(User{std::move(name), std::move(function)});
  return op;
}

std::string ReduceOp::text() const {
  if (kind_ == PREMUL_SUM) return str("PREMUL_SUM(", factor_, ")");
  if (kind_ == USER) return str("USER(", user_->name, ")");
  return kNames[kind_];
}

std::uint64_t ReduceOp::identity() const {
  // FNV-1a: the same in every process, whatever its standard library.
  std::uint64_t h = 0xcbf29ce484222325u ^ kind_;
  if (user_)
    for (const char c : user_->name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace athanor::distributed
