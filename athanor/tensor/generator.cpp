#include "athanor/tensor/generator.h"

#include <mutex>

namespace athanor {

struct Generator::Impl {
  std::mutex mutex;
  PhiloxState state;
};

Generator::Generator(std::uint64_t seed) : impl_(std::make_shared<Impl>()) { impl_->state = {seed, 0}; }

void Generator::set_current_seed(std::uint64_t seed) { set_state({seed, 0}); }
std::uint64_t Generator::current_seed() const { return state().seed; }

PhiloxState Generator::reserve(std::uint64_t count) {
  const std::lock_guard lock(impl_->mutex);
  const PhiloxState start = impl_->state;
  impl_->state.offset += count;
  return start;
}

PhiloxState Generator::state() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->state;
}

void Generator::set_state(PhiloxState state) {
  const std::lock_guard lock(impl_->mutex);
  impl_->state = state;
}

Generator Generator::clone() const {
  Generator copy(0);
  copy.set_state(state());
  return copy;
}

Generator& default_generator() {
  static Generator generator(0x5eed5eedULL);
  return generator;
}

void manual_seed(std::uint64_t seed) { default_generator().set_current_seed(seed); }

}  // namespace athanor
