#include "athanor/ops/autocast.h"

#include <unordered_map>
#include <utility>

#include "athanor/ops/copy.h"
#include "athanor/ops/history.h"
#include "athanor/ops/promote.h"

namespace athanor {

thread_local bool detail::autocast_on = false;

namespace autocast {
namespace {

/// A cast that is kept. The original is held, so that its address stays its own.
struct Kept {
  TensorBase original, cast;
  std::uint32_t version;
  bool recorded;  ///< made with grad mode on
};

using KeptCasts = std::unordered_map<const TensorImpl*, Kept>;
// Trivially destroyed: objects that outlive the thread's own may still use autocast, which then keeps nothing.
struct Local {
  State state;
  int nesting = 0;
  KeptCasts* kept = nullptr;
  bool ended = false;
};
constinit thread_local Local local_state;

Local& local() { return local_state; }

KeptCasts* kept_casts() {
  struct End {
    ~End() {
      local().ended = true;
      delete std::exchange(local().kept, nullptr);
    }
  };
  static thread_local const End end;
  static_cast<void>(&end);
  Local& l = local();
  if (!l.kept && !l.ended) l.kept = new KeptCasts;
  return l.kept;
}

void check_dtype(DType dtype) {
  ATHANOR_CHECK_VALUE(is_half(dtype), "autocast: expected bfloat16 or float16, got ", dtype);
}

/// Worth keeping: a weight, which the same region may use again.
bool is_weight(const TensorBase& t) { return t.requires_grad() && is_leaf(t); }

TensorBase kept_cast(const TensorBase& t, DType dtype) {
  KeptCasts* const kept = kept_casts();
  if (!kept) return ops::cast(t, dtype);
  const auto it = kept->find(t.impl());
  const bool record = GradMode::is_enabled();
  if (it != kept->end()) {
    const Kept& k = it->second;
    if (k.version == t._version() && k.recorded == record && k.cast.dtype() == dtype) return k.cast;
  }
  TensorBase cast = ops::cast(t, dtype);
  kept->insert_or_assign(t.impl(), Kept{t, cast, t._version(), record});
  return cast;
}

}  // namespace

State state() { return local().state; }

void set_state(const State& state) {
  check_dtype(state.dtype);
  local().state = state;
  athanor::detail::autocast_on = state.enabled;
}

AutocastGuard::AutocastGuard(bool enabled, DType dtype, bool cache) : AutocastGuard(State{enabled, cache, dtype}) {}

AutocastGuard::AutocastGuard(const State& now) : previous_(state()) {
  set_state(now);
  increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (decrement_nesting() == 0) clear_cache();
  local().state = previous_;
  athanor::detail::autocast_on = previous_.enabled;
}

bool is_autocast_enabled(DeviceType) { return local().state.enabled; }
void set_autocast_enabled(DeviceType, bool enabled) {
  State s = state();
  s.enabled = enabled;
  set_state(s);
}
DType get_autocast_dtype(DeviceType) { return local().state.dtype; }
void set_autocast_dtype(DeviceType, DType dtype) {
  State s = state();
  s.dtype = dtype;
  set_state(s);
}
bool is_autocast_cache_enabled() { return local().state.cache; }
void set_autocast_cache_enabled(bool enabled) { local().state.cache = enabled; }
int increment_nesting() { return ++local().nesting; }
int decrement_nesting() { return --local().nesting; }
void clear_cache() {
  if (KeptCasts* kept = local().kept) kept->clear();
}
std::size_t cache_size() { return local().kept ? local().kept->size() : 0; }

}  // namespace autocast

namespace ops {

TensorBase autocast_operand(const TensorBase& t, AutocastTo to) {
  if (!t.defined() || !is_floating_point(t.dtype()) || t.dtype() == DType::Double) return t;
  const autocast::State state = autocast::state();
  const DType dtype = to == AutocastTo::Float32 ? DType::Float : state.dtype;
  if (t.dtype() == dtype) return t;
  if (to == AutocastTo::Lower && state.cache && t.dtype() == DType::Float && autocast::is_weight(t))
    return autocast::kept_cast(t, dtype);
  return cast(t, dtype);
}

}  // namespace ops
}  // namespace athanor
