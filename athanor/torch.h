#pragma once
/// libtorch's names for programs written against it: namespaces torch, at, c10 and the macros. What an alias cannot do:
/// a program may not reopen namespace torch.

#include "athanor/athanor.h"

namespace athanor {
template <class T>
using optional = std::optional<T>;
using std::make_optional;
using std::nullopt;
using Dtype = DType;
template <class T>
using intrusive_ptr = IntrusivePtr<T>;
}  // namespace athanor

namespace torch = athanor;
namespace at = athanor;
namespace c10 = athanor;

#define TORCH_MODULE(Name) ATHANOR_MODULE(Name)
#define TORCH_MODULE_IMPL(Name, ImplType) ATHANOR_MODULE_IMPL(Name, ImplType)
#define TORCH_ARG(T, name) ATHANOR_ARG(T, name)
#define TORCH_CHECK(condition, ...) ATHANOR_CHECK(condition, "" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) ATHANOR_CHECK_INDEX(condition, "" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) ATHANOR_CHECK_VALUE(condition, "" __VA_OPT__(, ) __VA_ARGS__)
