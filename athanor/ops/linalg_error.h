#pragma once
#include "athanor/base/error.h"

namespace athanor {

/// A matrix that has no inverse, or no Cholesky factor: solve, inv, cholesky and what needs them.
class __attribute__((visibility("default"))) LinAlgError : public Error {
 public:
  using Error::Error;
};

}  // namespace athanor
