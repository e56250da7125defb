#pragma once
/// Errors of work between processes. All are DistError; the subclasses carry PyTorch's names.

#include "athanor/base/error.h"

namespace athanor::distributed {

/// Something between processes went wrong: the message names the rank, the operation and the way out.
class __attribute__((visibility("default"))) DistError : public Error {
 public:
  using Error::Error;
};
/// A store operation failed or timed out.
class __attribute__((visibility("default"))) DistStoreError : public DistError {
 public:
  using DistError::DistError;
};
/// A connection could not be made or broke.
class __attribute__((visibility("default"))) DistNetworkError : public DistError {
 public:
  using DistError::DistError;
};
/// A collective or a point-to-point operation failed in its backend.
class __attribute__((visibility("default"))) DistBackendError : public DistError {
 public:
  using DistError::DistError;
};

}  // namespace athanor::distributed

namespace athanor {
using distributed::DistBackendError;
using distributed::DistError;
using distributed::DistNetworkError;
using distributed::DistStoreError;
}  // namespace athanor
