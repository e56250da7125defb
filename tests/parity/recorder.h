#pragma once
/// Notes the calls of ops: names, arguments, results and gradients, for a comparison with PyTorch.
///
/// The program defines every op's function anew (recorders.inc, generated). Calls from its own code reach those, since
/// the linker prefers a program's symbols to a library's; the library's calls among its own ops do not. So what is
/// noted is exactly what the rows of the op table call, with the arguments that they pass, and nothing in the library
/// or the rows is there for it.

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "athanor/io/tensor_io.h"

namespace athanor::parity {

/// What has been noted: a line of JSON per call, and the tensors that the lines name by number.
class Recorder {
 public:
  /// Whether a call made now is to be noted.
  static bool wants_calls();
  /// Notes calls while it lives; `row` is the label that their lines carry.
  class Noting {
   public:
    explicit Noting(std::string row);
    ~Noting();
  };
  /// Writes calls.jsonl and tensors.safetensors.
  static void write(const std::string& folder);
};

/// The function that `own`, a recorder, hides: the library's. Both have one mangled name.
void* hidden_function(void* own);
template <class Function>
Function next(Function own) {
  return reinterpret_cast<Function>(hidden_function(reinterpret_cast<void*>(own)));
}

class Call {
 public:
  Call(const char* name, const char* overload);

  void note(const char* name, const TensorBase& t);
  void note(const char* name, const TensorBaseList& list);
  void note(const char* name, std::int64_t v);
  void note(const char* name, bool v);
  void note(const char* name, double v);
  void note(const char* name, const Scalar& v);
  void note(const char* name, std::string_view v);
  void note(const char* name, IntArrayRef v);
  void note(const char* name, const OptionalIntArrayRef& v);
  void note(const char* name, ArrayRef<double> v);
  void note(const char* name, DType v);
  void note(const char* name, Device v);
  void note(const char* name, MemoryFormat v);
  void note(const char* name, const TensorOptions& v);
  void note(const char* name, const std::optional<Generator>& v);
  template <class T>
  void note(const char* name, const std::optional<T>& v) {
    if (v)
      note(name, *v);
    else
      note_none(name);
  }

  /// The leaf that stands for an argument when the op is run again for its gradients.
  const TensorBase& leaf(const TensorBase& t) const;
  TensorBaseList leaves(const TensorBaseList& list);

  /// Runs the op, notes its results and, run again on leaves, its gradients.
  template <class Real, class Again>
  auto run(Real&& real, Again&& again) {
    const Quiet quiet;
    auto result = real();
    using Result = decltype(result);
    if constexpr (std::is_same_v<Result, bool> || std::is_arithmetic_v<Result> || std::is_same_v<Result, Scalar>) {
      note("result", result);
    } else {
      note_results(tensors_of(result));
      note_gradients([&] { return tensors_of(again()); });
    }
    finish();
    return result;
  }

 private:
  /// Calls made by a recorded op are not recorded.
  struct Quiet {
    Quiet();
    ~Quiet();
    bool before;
  };
  using Tensors = std::vector<TensorBase>;
  static Tensors tensors_of(const TensorBase& t) { return {t}; }
  static Tensors tensors_of(const Tensors& list) { return list; }
  template <class... T>
  static Tensors tensors_of(const std::tuple<T...>& t) {
    return std::apply([](const auto&... e) { return Tensors{e...}; }, t);
  }

  void note_none(const char* name);
  void put(const char* name, const std::string& json);
  std::string store(const TensorBase& t);
  std::string store_all(const Tensors& list);
  void note_results(const Tensors& results);
  void note_gradients(const std::function<Tensors()>& again);
  void finish();

  /// Whether gradients with respect to an argument are noted; compare.py has the same rule.
  bool differentiable(std::string_view argument) const;

  std::string_view op_;
  std::string text_;
  bool too_large_ = false;
  std::vector<std::pair<TensorBase, TensorBase>> leaves_;  ///< argument and leaf
  std::vector<Tensors> lists_;
};

}  // namespace athanor::parity
