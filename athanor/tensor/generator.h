#pragma once
/// Generator: the state of counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as
/// easy as 1, 2, 3", SC 2011). A kernel takes (seed, offset) by value; the numbers depend on nothing else.

#include <cstdint>
#include <memory>

namespace athanor {

struct PhiloxState {
  std::uint64_t seed;
  std::uint64_t offset;
};

/// A handle: copies share their state. Thread-safe.
class Generator {
 public:
  explicit Generator(std::uint64_t seed);
  /// Restarts the sequence of `seed`.
  void set_current_seed(std::uint64_t seed);
  std::uint64_t current_seed() const;
  /// Reserves `count` offsets and returns where they start.
  PhiloxState reserve(std::uint64_t count);
  PhiloxState state() const;
  void set_state(PhiloxState state);
  /// A generator with its own copy of the state.
  Generator clone() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The generator that ops use when none is given; seeded with a fixed value until manual_seed.
Generator& default_generator();
/// Seeds the default generator.
void manual_seed(std::uint64_t seed);

}  // namespace athanor
