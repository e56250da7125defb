#include "athanor/tensor/generator.h"

#include <mutex>
#include <utility>

#include "athanor/tensor/generator_scope.h"

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

namespace {
constinit thread_local Generator* of_this_thread = nullptr;
}  // namespace

detail::GeneratorScope::GeneratorScope()
    : own_(default_generator().clone()), before_(std::exchange(of_this_thread, &own_)) {}
detail::GeneratorScope::~GeneratorScope() { of_this_thread = before_; }

Generator& default_generator() {
  if (of_this_thread) return *of_this_thread;
  // Never destroyed, like the other objects here that a forked child may need first: registering what runs at the end
  // of the program takes a lock of the C library that a thread of the parent may have held.
  static Generator& generator = *new Generator(0x5eed5eedULL);
  return generator;
}

void manual_seed(std::uint64_t seed) { default_generator().set_current_seed(seed); }

}  // namespace athanor
