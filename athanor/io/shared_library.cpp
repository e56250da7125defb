#include "athanor/io/shared_library.h"

#include <dlfcn.h>

#include "athanor/base/error.h"

namespace athanor::io::detail {

SharedLibrary::SharedLibrary(std::initializer_list<const char*> names, std::string advice)
    : advice_(std::move(advice)) {
  for (const char* name : names)
    if (!handle_) handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  ATHANOR_CHECK_TYPE(NotImplementedError, handle_, advice_);
}

void* SharedLibrary::address(const char* name) const {
  void* function = ::dlsym(handle_, name);
  ATHANOR_CHECK_TYPE(NotImplementedError, function, advice_, " (the one installed has no ", name, ")");
  return function;
}

}  // namespace athanor::io::detail
