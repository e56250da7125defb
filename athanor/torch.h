#pragma once
/// libtorch's names for programs written against it: namespaces torch, at, c10 and the macros. What an alias cannot do:
/// a program may not reopen namespace torch.

#include <algorithm>
#include <atomic>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string_view>
#include <variant>

#include "athanor/athanor.h"
#include "athanor/base/warning.h"
#include "athanor/data/chunk_dataset.h"
#include "athanor/io/pt.h"
#include "athanor/tape/anomaly.h"

namespace athanor {

template <class T>
using optional = std::optional<T>;
using std::make_optional;
using std::make_unique;
using std::nullopt;
using string_view = std::string_view;
using Dtype = DType;
template <class T>
using intrusive_ptr = IntrusivePtr<T>;

/// Its arguments one after the other, each as a stream shows it.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (void)(out << ... << args);
  return out.str();
}
template <class T>
std::string to_string(const T& value) {
  return str(value);
}
template <class Container>
std::string Join(const std::string& between, const Container& parts) {
  std::ostringstream out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) out << between;
    first = false;
    out << part;
  }
  return out.str();
}

namespace detail {
inline std::string check_message(const char* expected) { return expected; }
template <class... Args>
std::string check_message(const char*, const Args&... args) {
  return athanor::str(args...);
}

template <DType t>
struct ElementOf;
#define ATHANOR_ELEMENT_OF(type_, name) \
  template <>                           \
  struct ElementOf<DType::name> {       \
    using type = type_;                 \
  };
ATHANOR_FORALL_DTYPES(ATHANOR_ELEMENT_OF)
#undef ATHANOR_ELEMENT_OF
template <DType t>
using element_t = typename ElementOf<t>::type;

/// The numbers of a loop.
template <class T>
class IntegerRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = T;
    explicit Iterator(T at) : at_(at) {}
    T operator*() const { return at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++at_;
      return before;
    }
    friend bool operator==(Iterator a, Iterator b) { return a.at_ == b.at_; }

   private:
    T at_;
  };
  IntegerRange(T begin, T end) : begin_(begin), end_(std::max(begin, end)) {}
  Iterator begin() const { return Iterator(begin_); }
  Iterator end() const { return Iterator(end_); }

 private:
  T begin_, end_;
};
}  // namespace detail

/// 0 … end - 1, for a loop; none if end is negative.
template <class T>
requires std::is_integral_v<T>
auto irange(T end) { return detail::IntegerRange<T>(T(0), end); }
/// begin … end - 1, of end's type.
template <class T, class U>
requires(std::is_integral_v<T>&& std::is_integral_v<U>) auto irange(T begin, U end) {
  return detail::IntegerRange<U>(static_cast<U>(begin), end);
}

// Element types. libtorch's TypeMeta is the dtype itself here.
struct TypeMeta {
  template <class T>
  static constexpr DType Make() {
    return dtype_of_v<T>;
  }
};
inline DType typeMetaToScalarType(DType t) { return t; }
inline DType scalarTypeToTypeMeta(DType t) { return t; }
template <class T>
using CppTypeToScalarType = dtype_of<T>;
inline const char* toString(DType t) { return dtype_libtorch_name(t); }
inline bool isFloatingType(DType t) { return is_floating_point(t); }
inline bool isIntegralType(DType t, bool include_bool = false) { return is_integral(t, include_bool); }
inline bool isComplexType(DType) { return false; }
inline DType promoteTypes(DType a, DType b) { return promote_types(a, b); }
inline bool canCast(DType from, DType to) { return can_cast(from, to); }

// Of tensors.
inline bool is_floating_point(const Tensor& t) { return t.is_floating_point(); }
inline bool is_complex(const Tensor&) { return false; }
inline bool is_signed(const Tensor& t) { return is_signed(t.scalar_type()); }
/// A tensor without dims of the scalar's own kind: float64, int64 or bool.
inline Tensor scalar_to_tensor(const Scalar& s, const Device& device = kCPU) {
  const DType t = s.isBoolean() ? kBool : s.isIntegral(false) ? kLong : kDouble;
  return scalar_tensor(s, TensorOptions().dtype(t).device(device));
}
inline std::ostream& print(std::ostream& out, const Tensor& t, std::int64_t /*line width: the printer's own*/) {
  return out << t;
}
inline void print(const Tensor& t, std::int64_t = 80) { std::cout << t; }
/// `dim` from 0 on; of a tensor without dims 0 and -1 are 0, unless `wrap_scalar` is false.
inline std::int64_t maybe_wrap_dim(std::int64_t dim, std::int64_t dims, bool wrap_scalar = true) {
  ATHANOR_CHECK_INDEX(dims > 0 || wrap_scalar, "maybe_wrap_dim: dim ", dim, " of a tensor without dims");
  return wrap_dim(dim, dims, "maybe_wrap_dim");
}
inline std::vector<std::int64_t> infer_size(IntArrayRef a, IntArrayRef b) {
  const auto sizes = broadcast_shapes(a, b, "infer_size");
  return {sizes.begin(), sizes.end()};
}
inline std::vector<std::int64_t> infer_size(IntArrayRef shape, std::int64_t numel) {
  const auto sizes = infer_size(shape, numel, "infer_size");
  return {sizes.begin(), sizes.end()};
}
template <class Iterator>
std::int64_t multiply_integers(Iterator begin, Iterator end) {
  return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
}
template <class Container>
std::int64_t multiply_integers(const Container& sizes) {
  return multiply_integers(std::begin(sizes), std::end(sizes));
}

/// Settings of the whole program. Ops always give the same result for the same input here, so that asking for it
/// changes nothing; there is no cuDNN to set.
class Context {
 public:
  static bool hasCUDA() { return cuda::is_available(); }
  bool deterministicAlgorithms() const { return true; }
  void setDeterministicAlgorithms(bool, bool = false) {}
  bool benchmarkCuDNN() const { return false; }
  void setBenchmarkCuDNN(bool) {}
  bool deterministicCuDNN() const { return true; }
  void setDeterministicCuDNN(bool) {}
  bool allowTF32CuBLAS() const { return false; }
  void setAllowTF32CuBLAS(bool) {}
  bool allowTF32CuDNN() const { return false; }
  void setAllowTF32CuDNN(bool) {}
};
inline Context& globalContext() {
  static Context context;
  return context;
}
inline bool hasCUDA() { return cuda::is_available(); }

// Below autograd nothing is recorded; here by turning gradients off, which AutoGradMode may turn on again.
using AutoDispatchBelowAutograd = NoGradGuard;
using AutoDispatchBelowADInplaceOrView = NoGradGuard;

// Threads. Ops do not run beside each other in a thread pool of their own, so that pool has one thread.
/// combine(… combine(f(part 1, identity), f(part 2, identity)) …) over parts of at least `grain` numbers.
template <class T, class F, class Combine>
T parallel_reduce(std::int64_t begin, std::int64_t end, std::int64_t grain, const T& identity, const F& f,
                  const Combine& combine) {
  const std::int64_t n = end - begin, unit = std::max<std::int64_t>(grain, 1);
  if (n <= 0) return identity;
  const std::int64_t parts = std::clamp<std::int64_t>(n / unit, 1, in_parallel_region() ? 1 : get_num_threads());
  struct Part {
    T value;  // of its own: the elements of a vector of bool share their bytes
  };
  std::vector<Part> results(static_cast<std::size_t>(parts), Part{identity});
  parallel_for(0, parts, 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t p = from; p < to; ++p)
      results[static_cast<std::size_t>(p)].value = f(begin + n * p / parts, begin + n * (p + 1) / parts, identity);
  });
  T all = results.front().value;
  for (std::size_t p = 1; p < results.size(); ++p) all = combine(all, results[p].value);
  return all;
}
inline void init_num_threads() {}
inline int get_num_interop_threads() { return 1; }
inline void set_num_interop_threads(int) {}

// Of templates.
template <bool... values>
struct all_of : std::bool_constant<(values && ...)> {};
template <bool... values>
struct any_of : std::bool_constant<(values || ...)> {};
template <bool condition, class T = void>
using enable_if_t = std::enable_if_t<condition, T>;
template <bool condition, class T = void>
using disable_if_t = std::enable_if_t<!condition, T>;
namespace detail {
template <class T>
using is_module = std::is_base_of<nn::Module, std::decay_t<T>>;
template <class M, class T = void>
using enable_if_module_t = std::enable_if_t<is_module<M>::value, T>;
template <class M, class T = void>
using disable_if_module_t = std::enable_if_t<!is_module<M>::value, T>;
template <class... Ts>
constexpr bool check_not_lvalue_references() {
  return ((!std::is_lvalue_reference_v<Ts> || std::is_const_v<std::remove_reference_t<Ts>>)&&...);
}
}  // namespace detail

namespace enumtype {
/// "kMean" of an option or of a variant of the choices.
template <class... Choices>
std::string get_enum_name(const OneOf<Choices...>& choice) {
  return choice.name();
}
template <class... Choices>
std::string get_enum_name(const std::variant<Choices...>& choice) {
  return std::visit([](auto c) { return std::string(decltype(c)::text); }, choice);
}
}  // namespace enumtype

namespace autograd {
using tensor_list = variable_list;
using athanor::AutoGradMode;
using athanor::GradMode;
using athanor::InferenceMode;
using athanor::Node;
using athanor::NoGradGuard;
namespace profiler {
using athanor::profiler::RecordProfile;
}  // namespace profiler
}  // namespace autograd

/// libtorch's names of what has others here.
inline Tensor linalg_diagonal(const Tensor& x, std::int64_t offset = 0, std::int64_t dim1 = -2,
                              std::int64_t dim2 = -1) {
  return x.diagonal(offset, dim1, dim2);
}
inline Tensor linalg_matmul(const Tensor& a, const Tensor& b) { return matmul(a, b); }
inline Tensor linalg_vecdot(const Tensor& a, const Tensor& b, std::int64_t dim = -1) { return (a * b).sum(dim); }

namespace linalg {
inline Tensor cholesky(const Tensor& x) { return linalg_cholesky(x); }
inline Tensor cross(const Tensor& a, const Tensor& b, std::int64_t dim = -1) { return linalg_cross(a, b, dim); }
inline Tensor det(const Tensor& x) { return linalg_det(x); }
inline std::tuple<Tensor, Tensor> eigh(const Tensor& x, std::string_view uplo = "L") { return linalg_eigh(x, uplo); }
inline Tensor eigvalsh(const Tensor& x, std::string_view uplo = "L") { return linalg_eigvalsh(x, uplo); }
inline Tensor inv(const Tensor& x) { return linalg_inv(x); }
inline Tensor& inv_out(Tensor& out, const Tensor& x) { return linalg_inv_out(out, x); }
inline Tensor matrix_norm(const Tensor& x, const Scalar& ord, IntArrayRef dim = {-2, -1}, bool keepdim = false,
                          std::optional<DType> dtype = {}) {
  return linalg_matrix_norm(x, ord, dim, keepdim, dtype);
}
inline Tensor matrix_norm(const Tensor& x, std::string_view ord = "fro", IntArrayRef dim = {-2, -1},
                          bool keepdim = false, std::optional<DType> dtype = {}) {
  return linalg_matrix_norm(x, ord, dim, keepdim, dtype);
}
inline Tensor matrix_power(const Tensor& x, std::int64_t n) { return linalg_matrix_power(x, n); }
inline Tensor multi_dot(TensorList tensors) { return linalg_multi_dot(tensors); }
inline Tensor norm(const Tensor& x, const std::optional<Scalar>& ord = {}, OptionalIntArrayRef dim = {},
                   bool keepdim = false, std::optional<DType> dtype = {}) {
  return linalg_norm(x, ord, dim, keepdim, dtype);
}
inline Tensor norm(const Tensor& x, std::string_view ord, OptionalIntArrayRef dim = {}, bool keepdim = false,
                   std::optional<DType> dtype = {}) {
  return linalg_norm(x, ord, dim, keepdim, dtype);
}
inline std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& a, const Tensor& b, std::optional<double> cond,
                                                        std::optional<std::string_view> driver) {
  return linalg_lstsq(a, b, cond, driver);
}
inline Tensor matrix_rank(const Tensor& x, double tol, bool hermitian = false) {
  return linalg_matrix_rank(x, tol, hermitian);
}
inline Tensor pinv(const Tensor& x, double rcond = 1e-15, bool hermitian = false) {
  return linalg_pinv(x, rcond, hermitian);
}
inline std::tuple<Tensor, Tensor> qr(const Tensor& x, std::string_view mode = "reduced") { return linalg_qr(x, mode); }
inline std::tuple<Tensor, Tensor> slogdet(const Tensor& x) { return linalg_slogdet(x); }
inline Tensor solve(const Tensor& a, const Tensor& b, bool left = true) { return linalg_solve(a, b, left); }
inline Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left = true, bool ones = false) {
  return linalg_solve_triangular(a, b, upper, left, ones);
}
inline std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& x, bool full_matrices = true) {
  return linalg_svd(x, full_matrices);
}
inline Tensor svdvals(const Tensor& x) { return linalg_svdvals(x); }
inline Tensor vector_norm(const Tensor& x, const Scalar& ord = 2, OptionalIntArrayRef dim = {}, bool keepdim = false,
                          std::optional<DType> dtype = {}) {
  return linalg_vector_norm(x, ord, dim, keepdim, dtype);
}
}  // namespace linalg

// Generators of one's own.
struct CPUGeneratorImpl {};
/// libtorch's way to make a generator.
template <class Impl>
requires std::is_same_v<Impl, CPUGeneratorImpl> Generator make_generator(std::uint64_t seed = 67280421310721) {
  return Generator(seed);
}
namespace detail {
inline Generator createCPUGenerator(std::uint64_t seed = 67280421310721) { return Generator(seed); }
inline Generator getDefaultCPUGenerator() { return default_generator(); }
}  // namespace detail

namespace special {
inline Tensor digamma(const Tensor& x) { return x.digamma(); }
inline Tensor erf(const Tensor& x) { return x.erf(); }
inline Tensor erfc(const Tensor& x) { return x.erfc(); }
inline Tensor erfinv(const Tensor& x) { return x.erfinv(); }
inline Tensor exp2(const Tensor& x) { return x.exp2(); }
inline Tensor expit(const Tensor& x) { return x.sigmoid(); }
inline Tensor expm1(const Tensor& x) { return x.expm1(); }
inline Tensor gammaln(const Tensor& x) { return x.lgamma(); }
inline Tensor log1p(const Tensor& x) { return x.log1p(); }
inline Tensor log_softmax(const Tensor& x, std::int64_t dim, std::optional<DType> dtype = {}) {
  return x.log_softmax(dim, dtype);
}
inline Tensor logit(const Tensor& x, std::optional<double> eps = {}) { return x.logit(eps); }
inline Tensor logsumexp(const Tensor& x, IntArrayRef dims, bool keepdim = false) { return x.logsumexp(dims, keepdim); }
inline Tensor polygamma(std::int64_t n, const Tensor& x) { return athanor::polygamma(n, x); }
inline Tensor psi(const Tensor& x) { return x.digamma(); }
inline Tensor round(const Tensor& x) { return x.round(); }
inline Tensor sinc(const Tensor& x) { return x.sinc(); }
inline Tensor softmax(const Tensor& x, std::int64_t dim, std::optional<DType> dtype = {}) {
  return x.softmax(dim, dtype);
}
inline Tensor xlogy(const Tensor& x, const Tensor& y) { return athanor::xlogy(x, y); }
inline Tensor xlogy(const Tensor& x, const Scalar& y) { return athanor::xlogy(x, y); }
inline Tensor xlogy(const Scalar& x, const Tensor& y) { return athanor::xlogy(x, y); }
}  // namespace special

namespace optim {
/// Base of the options of an optimizer of one's own, as libtorch has it. Of the fields the learning rate is known here,
/// if there is one called lr: schedules set it and state_dict holds it.
template <class Derived>
class OptimizerCloneableOptions : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
  double get_lr() const override {
    if constexpr (requires(const Derived& d) { d.lr(); })
      return static_cast<const Derived&>(*this).lr();
    else
      ATHANOR_THROW(NotImplementedError, "get_lr: these options have no lr; override get_lr and set_lr");
  }
  void set_lr(double lr) override {
    if constexpr (requires(Derived & d) { d.lr(lr); })
      static_cast<Derived&>(*this).lr(lr);
    else
      ATHANOR_THROW(NotImplementedError, "set_lr: these options have no lr; override get_lr and set_lr");
  }
  std::map<std::string, double> values() const override {
    if constexpr (requires(const Derived& d) { d.lr(); }) return {{"lr", get_lr()}};
    return {};
  }
  void set_values(const std::map<std::string, double>& values) override {
    if (const auto lr = values.find("lr"); lr != values.end()) set_lr(lr->second);
  }
  /// libtorch's hooks of archives; this library keeps what values() names.
  virtual void serialize(serialize::InputArchive&) {}
  virtual void serialize(serialize::OutputArchive&) const {}
};
}  // namespace optim

}  // namespace athanor

namespace torch = athanor;
namespace at = athanor;
namespace c10 = athanor;
namespace caffe2 = athanor;

#define FORWARD_HAS_DEFAULT_ARGS(...) ATHANOR_FORWARD_HAS_DEFAULT_ARGS(__VA_ARGS__)
#define TORCH_MODULE(Name) ATHANOR_MODULE(Name)
#define TORCH_MODULE_IMPL(Name, ImplType) ATHANOR_MODULE_IMPL(Name, ImplType)
#define TORCH_ARG(T, name) ATHANOR_ARG(T, name)
/// Names what happens in the rest of the scope; inputs are not kept.
#define RECORD_FUNCTION(name, ...) const ::athanor::profiler::RecordFunction athanor_record_function_scope(name)

// Checks. The message is what a stream makes of the arguments; without any, it names the condition.
#define ATHANOR_TORCH_CHECK(type, condition, expected, ...) \
  (__builtin_expect(static_cast<bool>(condition), 1)        \
       ? void()                                             \
       : ATHANOR_THROW(type, ::athanor::detail::check_message(expected __VA_OPT__(, ) __VA_ARGS__)))
#define TORCH_CHECK(condition, ...) \
  ATHANOR_TORCH_CHECK(Error, condition, "Expected " #condition " to be true, but got false." __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_WITH(type, condition, ...) \
  ATHANOR_TORCH_CHECK(type, condition, "Expected " #condition " to be true, but got false." __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) TORCH_CHECK_WITH(IndexError, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) TORCH_CHECK_WITH(ValueError, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) TORCH_CHECK_WITH(TypeError, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
  TORCH_CHECK_WITH(NotImplementedError, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_LINALG(condition, ...) TORCH_CHECK_WITH(LinAlgError, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) \
  TORCH_CHECK(condition, "internal assertion failed: " #condition " " __VA_OPT__(, ) __VA_ARGS__)
#ifdef NDEBUG
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(condition, ...) static_cast<void>(sizeof(static_cast<bool>(condition)))
#else
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(condition, ...) TORCH_INTERNAL_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
#define AT_ASSERT(condition, ...) TORCH_INTERNAL_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_CHECK(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ERROR(...) TORCH_CHECK(false, "" __VA_OPT__(, ) __VA_ARGS__)

#define TORCH_WARN(...) \
  ::athanor::warn(      \
      ::athanor::Warning({__func__, __FILE_NAME__, __LINE__}, ::athanor::str("" __VA_OPT__(, ) __VA_ARGS__)))
#define TORCH_WARN_DEPRECATION(...) TORCH_WARN(__VA_ARGS__)
/// The first time this line is reached.
#define TORCH_WARN_ONCE(...)                                                                                  \
  do {                                                                                                        \
    static std::atomic<bool> athanor_warned = false;                                                          \
    if (!athanor_warned.exchange(true) || ::athanor::WarningUtils::get_warnAlways()) TORCH_WARN(__VA_ARGS__); \
  } while (false)

// Runs a lambda with scalar_t as the C++ type of a dtype; TypeError for a dtype that is not listed.
#define AT_PRIVATE_CASE_TYPE_USING_HINT(dtype, hint, ...)              \
  case dtype: {                                                        \
    using hint [[maybe_unused]] = ::athanor::detail::element_t<dtype>; \
    return __VA_ARGS__();                                              \
  }
#define AT_DISPATCH_CASE(dtype, ...) AT_PRIVATE_CASE_TYPE_USING_HINT(dtype, scalar_t, __VA_ARGS__)
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                                            \
  [&] {                                                                                                                \
    const ::athanor::DType athanor_dtype = TYPE;                                                                       \
    switch (athanor_dtype) {                                                                                           \
      __VA_ARGS__                                                                                                      \
      default:                                                                                                         \
        ATHANOR_THROW(NotImplementedError, "\"", NAME, "\" not implemented for '", ::athanor::toString(athanor_dtype), \
                      "'");                                                                                            \
    }                                                                                                                  \
  }()
#define AT_DISPATCH_CASE_FLOATING_TYPES(...)              \
  AT_DISPATCH_CASE(::athanor::DType::Double, __VA_ARGS__) \
  AT_DISPATCH_CASE(::athanor::DType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)            \
  AT_DISPATCH_CASE(::athanor::DType::Byte, __VA_ARGS__) \
  AT_DISPATCH_CASE(::athanor::DType::Char, __VA_ARGS__) \
  AT_DISPATCH_CASE(::athanor::DType::Int, __VA_ARGS__)  \
  AT_DISPATCH_CASE(::athanor::DType::Long, __VA_ARGS__) \
  AT_DISPATCH_CASE(::athanor::DType::Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...)        \
  AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(T1, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(T1, T2, TYPE, NAME, ...)                                    \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                                    \
                     AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__) \
                         AT_DISPATCH_CASE(T2, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND3(T1, T2, T3, TYPE, NAME, ...)                                \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                                    \
                     AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__) \
                         AT_DISPATCH_CASE(T2, __VA_ARGS__) AT_DISPATCH_CASE(T3, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES_AND(T1, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES_AND2(T1, T2, TYPE, NAME, ...)                                    \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                                    \
                     AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__) \
                         AT_DISPATCH_CASE(T2, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES_AND3(T1, T2, T3, TYPE, NAME, ...)                                \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                                    \
                     AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__) \
                         AT_DISPATCH_CASE(T2, __VA_ARGS__) AT_DISPATCH_CASE(T3, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(T1, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(T1, T2, TYPE, NAME, ...)                                    \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                               \
                     AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__) \
                         AT_DISPATCH_CASE(T2, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND3(T1, T2, T3, TYPE, NAME, ...)                                \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                               \
                     AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__) \
                         AT_DISPATCH_CASE(T2, __VA_ARGS__) AT_DISPATCH_CASE(T3, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND(::athanor::DType::Half, TYPE, NAME, __VA_ARGS__)
#define AT_DISPATCH_INDEX_TYPES(TYPE, NAME, ...)                                                  \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                                  \
                     AT_PRIVATE_CASE_TYPE_USING_HINT(::athanor::DType::Int, index_t, __VA_ARGS__) \
                         AT_PRIVATE_CASE_TYPE_USING_HINT(::athanor::DType::Long, index_t, __VA_ARGS__))
