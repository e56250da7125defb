#pragma once
/// Libraries that are loaded when they are first used, so that programs which do not need them start without them.

#include <initializer_list>
#include <string>
#include <type_traits>

namespace athanor::io::detail {

class SharedLibrary {
 public:
  /// Loads the first of `names` that there is, for the life of the process. Throws NotImplementedError with `advice`.
  SharedLibrary(std::initializer_list<const char*> names, std::string advice);
  /// Throws NotImplementedError if the library lacks the function.
  template <class Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<std::remove_reference_t<Function>>(address(name));
  }

 private:
  void* address(const char* name) const;
  void* handle_ = nullptr;
  std::string advice_;
};

}  // namespace athanor::io::detail
