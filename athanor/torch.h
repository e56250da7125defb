#pragma once
/// libtorch's names for programs written against it: namespaces torch, at, c10 and the macros. What an alias cannot do:
/// a program may not reopen namespace torch.

#include <ostream>

#include "athanor/athanor.h"
#include "athanor/io/pt.h"
#include "athanor/profiler/profiler.h"

namespace athanor {
using detail::str;
template <class T>
using optional = std::optional<T>;
using std::make_optional;
using std::nullopt;
using Dtype = DType;
template <class T>
using intrusive_ptr = IntrusivePtr<T>;
namespace autograd {
using tensor_list = variable_list;
namespace profiler {
using athanor::profiler::RecordProfile;
}  // namespace profiler
}  // namespace autograd
/// "[2, 3]", as libtorch prints sizes.
template <class T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> values) {
  out << "[";
  for (std::size_t i = 0; i < values.size(); ++i) out << (i ? ", " : "") << values[i];
  return out << "]";
}
}  // namespace athanor

namespace torch = athanor;
namespace at = athanor;
namespace c10 = athanor;

#define FORWARD_HAS_DEFAULT_ARGS(...) ATHANOR_FORWARD_HAS_DEFAULT_ARGS(__VA_ARGS__)
#define TORCH_MODULE(Name) ATHANOR_MODULE(Name)
#define TORCH_MODULE_IMPL(Name, ImplType) ATHANOR_MODULE_IMPL(Name, ImplType)
#define TORCH_ARG(T, name) ATHANOR_ARG(T, name)
#define TORCH_CHECK(condition, ...) ATHANOR_CHECK(condition, "" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) \
  ATHANOR_CHECK(condition, "internal assertion failed: " #condition " " __VA_OPT__(, ) __VA_ARGS__)
#define AT_ASSERT(condition, ...) TORCH_INTERNAL_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__)
/// Names what happens in the rest of the scope; inputs are not kept.
#define RECORD_FUNCTION(name, ...) const ::athanor::profiler::RecordFunction athanor_record_function_scope(name)
#define TORCH_CHECK_INDEX(condition, ...) ATHANOR_CHECK_INDEX(condition, "" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) ATHANOR_CHECK_VALUE(condition, "" __VA_OPT__(, ) __VA_ARGS__)
