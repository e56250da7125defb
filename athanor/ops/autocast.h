#pragma once
/// Automatic mixed precision, by PyTorch's lists for the CPU: inside a region, products, convolutions and linear layers
/// compute in a half type; losses, products of elements (prod), traces, systems of equations, pooling over volumes, and
/// padding by what a tensor holds in float32; everything else in what it is given. On cuda devices products with
/// vectors compute in the half type, too, and softmax in float32.
///
///     {
///       autocast::AutocastGuard guard;  // bfloat16
///       loss = cross_entropy(net->forward(x), y);
///     }
///     loss.backward();
///
/// An op lists itself by deriving from `Autocast<AutocastTo::Lower>` (or Float32); its operands are cast by
/// differentiable ops before it runs. In-place and out= forms compute alike and convert to the dtype of their tensor.
/// float64 is never cast, and normalization layers take half inputs with float32 parameters and statistics as they are.
/// The cast of a leaf that requires grad is kept until the outermost region ends, so that a weight used twice is cast
/// once; one that changes in between is cast again. All state belongs to the calling thread; checkpoint() recomputes
/// with that of its forward.

#include "athanor/tensor/tensor_base.h"

namespace athanor::detail {
/// Whether the calling thread is inside a region.
extern thread_local bool autocast_on __attribute__((tls_model("initial-exec")));
}  // namespace athanor::detail

namespace athanor::autocast {

/// What a thread has switched on.
struct State {
  bool enabled = false;
  bool cache = true;
  DType dtype = DType::BFloat16;
};
State state();
void set_state(const State& state);

/// Sets the state for its scope. Throws ValueError for a dtype that is not bfloat16 or float16.
class AutocastGuard {
 public:
  explicit AutocastGuard(bool enabled = true, DType dtype = DType::BFloat16, bool cache = true);
  explicit AutocastGuard(const State& state);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  State previous_;
};

// libtorch's functions. There is one state for all devices.
bool is_autocast_enabled(DeviceType device = DeviceType::CPU);
void set_autocast_enabled(DeviceType device, bool enabled);
DType get_autocast_dtype(DeviceType device = DeviceType::CPU);
void set_autocast_dtype(DeviceType device, DType dtype);
bool is_autocast_cache_enabled();
void set_autocast_cache_enabled(bool enabled);
/// Regions made by hand: what they kept is dropped when the count falls to 0 and the program calls clear_cache().
int increment_nesting();
int decrement_nesting();
void clear_cache();
/// Number of casts that are kept.
std::size_t cache_size();

}  // namespace athanor::autocast

namespace athanor::ops {

enum class AutocastTo { Lower, Float32 };

/// `t` as an op of that list takes it; `t` itself if it is not a floating tensor of up to 32 bits.
TensorBase autocast_operand(const TensorBase& t, AutocastTo to);
/// For composites: `t` in float32 inside an autocast region.
inline TensorBase autocast_to_float(const TensorBase& t) {
  return __builtin_expect(athanor::detail::autocast_on, 0) ? autocast_operand(t, AutocastTo::Float32) : t;
}

/// Base of the ops on one of the lists; see op.h for ready() and prepare().
template <AutocastTo to>
struct Autocast {
  template <class... In>
  static bool ready(const In&...) {
    return !athanor::detail::autocast_on;
  }
  template <class... In>
  static void prepare(In&... in) {
    if (athanor::detail::autocast_on) ((in = autocast_operand(in, to)), ...);
  }
};

/// Base of those that PyTorch lists for CUDA alone: on the host they compute in what they are given.
template <AutocastTo to>
struct AutocastOnCuda : Autocast<to> {
  template <class... In>
  static void prepare(TensorBase& first, In&... in) {
    if (first.defined() && first.device().is_cuda()) Autocast<to>::prepare(first, in...);
  }
};

}  // namespace athanor::ops
