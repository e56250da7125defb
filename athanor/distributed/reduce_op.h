#pragma once
/// ReduceOp: how a collective combines what the ranks bring.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "athanor/tensor/dtype.h"

namespace athanor::distributed {

/// A commutative and associative combination of values. All ranks get the same bits, and get them again in every run:
/// within a host values are combined in the order of ranks; half types are summed in float32 and rounded once.
class ReduceOp {
 public:
  enum Kind : std::uint8_t {
    SUM,
    AVG,      ///< the sum divided by the number of ranks; floating-point dtypes only
    PRODUCT,  ///< bool: and
    MIN,      ///< NaN wins
    MAX,      ///< NaN wins
    BAND,     ///< bitwise; integers and bool only
    BOR,
    BXOR,
    PREMUL_SUM,  ///< each rank's values times a factor of its own, then the sum; see premul_sum()
    USER,        ///< see user()
  };
  /// `inout[i] = combine(inout[i], in[i])` for `count` elements of `dtype`. Must be commutative and associative; runs
  /// on any thread, several calls at a time.
  using Function = std::function<void(void* inout, const void* in, std::int64_t count, DType dtype)>;

  ReduceOp(Kind kind = SUM);  // NOLINT(google-explicit-constructor): ReduceOp::SUM is passed where a ReduceOp is taken
  /// Floating-point dtypes only.
  static ReduceOp premul_sum(double factor);
  /// An operator of the program's own, for backends that take one (tcp, mpi). `name` is compared between ranks.
  static ReduceOp user(std::string name, Function function);

  Kind kind() const { return kind_; }
  double factor() const { return factor_; }
  const Function& function() const { return user_->function; }
  /// Empty but for user-defined operators. Lives as long as any copy of the operator.
  std::string_view user_name() const { return user_ ? std::string_view(user_->name) : std::string_view(); }
  /// "SUM", "PREMUL_SUM(0.5)", "USER(name)".
  std::string text() const;
  /// Of the kind and the user operator's name, not of the factor, which may differ between ranks.
  std::uint64_t identity() const;
  bool operator==(Kind kind) const { return kind_ == kind; }

 private:
  struct User {
    std::string name;
    Function function;
  };
  Kind kind_;
  double factor_ = 1;
  std::shared_ptr<const User> user_;
};

/// "SUM".
const char* reduce_name(ReduceOp::Kind kind);
/// Whether the operator has a meaning for values of the dtype: bitwise ones need integers, AVG and PREMUL_SUM floating
/// values.
bool reduces(ReduceOp::Kind kind, DType dtype);

}  // namespace athanor::distributed
