// Random tensors and dropout. Numbers come from a counter-based generator: a call reserves its offsets when it is made,
// so results depend on the order of calls only.
#include "athanor/ops/random.h"

#include <cmath>
#include <limits>

#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/random.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/pointwise_op.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce_extreme.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/view.h"
#include "athanor/tensor/largest_finite.h"

namespace athanor::ops {

namespace {

PhiloxState reserve(const std::optional<Generator>& generator, std::int64_t n, int bits) {
  Generator g = generator ? *generator : default_generator();
  return g.reserve(random_blocks(n, bits));
}

/// Checks that self may be filled in place.
void begin_fill(const Tensor& self, const char* op) {
  ATHANOR_CHECK(self.defined(), op, ": expected a tensor, got an undefined one");
  check_inplace(self, op);
  check_no_internal_overlap(self, op);
}

void check_floating(const Tensor& self, const char* op) {
  ATHANOR_CHECK_TYPE(NotImplementedError, self.is_floating_point(), op, ": not implemented for ",
                     dtype_name(self.dtype()), "; expected a floating dtype");
}

void fill_floating(const char* op, const Tensor& self, RandomOp kind, double a, double b,
                   const std::optional<Generator>& generator) {
  const CallScope scope(op, profiler::detail::Form::Plain, self);
  begin_fill(self, op);
  if (kind != RandomOp::Geometric) check_floating(self, op);
  const PhiloxState state = reserve(generator, self.numel(), random_bits(self.dtype()));
  launch(random_kernel, kind, self, a, b, state);
  record_overwrite(self);
}

/// Greatest integer up to which a dtype holds all of them.
std::int64_t last_exact_integer(DType t) {
  switch (t) {
    case DType::Byte:
      return 255;
    case DType::Char:
      return 127;
    case DType::Short:
      return 32767;
    case DType::Int:
      return std::numeric_limits<std::int32_t>::max();
    case DType::Long:
      return std::numeric_limits<std::int64_t>::max();
    case DType::Bool:
      return 1;
    case DType::Half:
      return std::int64_t{1} << 11;
    case DType::BFloat16:
      return std::int64_t{1} << 8;
    case DType::Float:
      return std::int64_t{1} << 24;
    default:
      return std::int64_t{1} << 53;
  }
}

std::int64_t first_exact_integer(DType t) {
  if (t == DType::Byte || t == DType::Bool) return 0;
  return is_floating_point(t) ? -last_exact_integer(t) : -last_exact_integer(t) - 1;
}

/// Fills with integers low … last, both included.
void fill_integers(const char* op, const Tensor& self, std::int64_t low, std::int64_t last,
                   const std::optional<Generator>& generator) {
  const CallScope scope(op, profiler::detail::Form::Plain, self);
  begin_fill(self, op);
  ATHANOR_CHECK(low <= last, op, ": expects 'from' to be less than 'to', but got from=", low, " >= to=", last + 1);
  ATHANOR_CHECK(low >= first_exact_integer(self.dtype()) && last <= last_exact_integer(self.dtype()), op, ": [", low,
                ", ", last, "] is out of bounds for ", dtype_name(self.dtype()), ", which holds the integers from ",
                first_exact_integer(self.dtype()), " to ", last_exact_integer(self.dtype()));
  const std::uint64_t range = static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(low) + 1;
  const PhiloxState state = reserve(generator, self.numel(), random_integer_bits(range));
  launch(random_integer_kernel, self, low, range, state);
  record_overwrite(self);
}

void check_probability(const char* op, double p) {
  ATHANOR_CHECK(p >= 0 && p <= 1, op, ": expects p to be in [0, 1], but got p=", p);
}

}  // namespace

// Fillers.

/// Uniform in [from, to).
ATHANOR_FUNCTION("uniform_(Tensor self, float from=0, float to=1, *, Generator? generator=None) -> Tensor | method");
void uniform_(const Tensor& self, double from, double to, std::optional<Generator> generator) {
  ATHANOR_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  const double most = self.defined() && self.is_floating_point() ? largest_finite(self.dtype()) : 0;
  ATHANOR_CHECK(std::isnan(from + to) || most == 0 || (from >= -most && to <= most), "uniform_: ", from, " to ", to,
                " is out of bounds for ", dtype_name(self.dtype()));
  fill_floating("uniform_", self, RandomOp::Uniform, from, to, generator);
}

/// Draws each element from the normal distribution with mean and std.
ATHANOR_FUNCTION("normal_(Tensor self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor | method");
void normal_(const Tensor& self, double mean, double std, std::optional<Generator> generator) {
  ATHANOR_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  fill_floating("normal_", self, RandomOp::Normal, mean, std, generator);
}

/// exp of a normal of this mean and std.
ATHANOR_FUNCTION(
    "log_normal_(Tensor self, float mean=1, float std=2, *, Generator? generator=None) -> Tensor | method");
void log_normal_(const Tensor& self, double mean, double std, std::optional<Generator> generator) {
  ATHANOR_CHECK(std > 0, "log_normal_ expects std > 0.0, but found std=", std);
  fill_floating("log_normal_", self, RandomOp::LogNormal, mean, std, generator);
}

/// Draws each element from the exponential distribution with rate lambd.
ATHANOR_FUNCTION("exponential_(Tensor self, float lambd=1, *, Generator? generator=None) -> Tensor | method");
void exponential_(const Tensor& self, double lambd, std::optional<Generator> generator) {
  ATHANOR_CHECK(lambd > 0, "exponential_ expects lambda > 0.0, but found lambda=", lambd);
  fill_floating("exponential_", self, RandomOp::Exponential, lambd, 0, generator);
}

/// Draws each element from the Cauchy distribution.
ATHANOR_FUNCTION(
    "cauchy_(Tensor self, float median=0, float sigma=1, *, Generator? generator=None) -> Tensor | method");
void cauchy_(const Tensor& self, double median, double sigma, std::optional<Generator> generator) {
  ATHANOR_CHECK(sigma > 0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  fill_floating("cauchy_", self, RandomOp::Cauchy, median, sigma, generator);
}

/// The number of trials until the first success, each with probability p.
ATHANOR_FUNCTION("geometric_(Tensor self, float p, *, Generator? generator=None) -> Tensor | method");
void geometric_(const Tensor& self, double p, std::optional<Generator> generator) {
  ATHANOR_CHECK(p > 0 && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  fill_floating("geometric_", self, RandomOp::Geometric, p, 0, generator);
}

/// Integers from 0 to the last that the dtype holds exactly.
ATHANOR_FUNCTION("random_(Tensor self, *, Generator? generator=None) -> Tensor | method");
void random_(const Tensor& self, std::optional<Generator> generator) {
  fill_integers("random_", self, 0, last_exact_integer(self.dtype()), generator);
}

/// Integers in [0, to).
ATHANOR_FUNCTION("random_.to(Tensor self, int to, *, Generator? generator=None) -> Tensor | method");
void random_(const Tensor& self, std::int64_t to, std::optional<Generator> generator) {
  ATHANOR_CHECK(to > 0, "random_ expects 'from' to be less than 'to', but got from=0 >= to=", to);
  fill_integers("random_", self, 0, to - 1, generator);
}

/// Integers in [from, to), or up to the last that the dtype holds.
ATHANOR_FUNCTION("random_.from(Tensor self, int from, int? to, *, Generator? generator=None) -> Tensor | method");
void random_(const Tensor& self, std::int64_t from, std::optional<std::int64_t> to,
             std::optional<Generator> generator) {
  ATHANOR_CHECK(!to || from < *to, "random_ expects 'from' to be less than 'to', but got from=", from,
                " >= to=", to.value_or(0));
  fill_integers("random_", self, from, to ? *to - 1 : last_exact_integer(self.dtype()), generator);
}

/// 1 with probability p, else 0.
ATHANOR_FUNCTION("bernoulli_.float(Tensor self, float p=0.5, *, Generator? generator=None) -> Tensor | method");
void bernoulli_(const Tensor& self, double p, std::optional<Generator> generator) {
  check_probability("bernoulli_", p);
  begin_fill(self, "bernoulli_");
  launch(bernoulli_kernel, self, p, reserve(generator, self.numel(), 32));
  record_overwrite(self);
}

/// 1 with the probability that p gives for the element.
ATHANOR_FUNCTION("bernoulli_.Tensor(Tensor self, Tensor p, *, Generator? generator=None) -> Tensor | method");
void bernoulli_(const Tensor& self, const Tensor& p, std::optional<Generator> generator) {
  begin_fill(self, "bernoulli_");
  check_floating(p, "bernoulli_");
  const Tensor each = without_overlap(expand(detach(p), self.sizes()), self);
  launch(bernoulli_tensor_kernel, self, each, reserve(generator, self.numel(), 32));
  record_overwrite(self);
}

// Creation.

namespace {

TensorOptions without_grad(const TensorOptions& options) { return options.requires_grad(false); }

TensorOptions integer_by_default(const TensorOptions& options) {
  return options.has_dtype() ? options : options.dtype(DType::Long);
}

Tensor finish_random(const Tensor& t, const TensorOptions& options) {
  if (options.requires_grad()) set_requires_grad(t, true);
  return t;
}

}  // namespace

/// Uniform in [0, 1).
ATHANOR_FUNCTION("rand(int[] size, TensorOptions options={}) -> Tensor | out");
Tensor rand(IntArrayRef size, const TensorOptions& options) { return rand(size, std::nullopt, options); }
ATHANOR_FUNCTION("rand.generator(int[] size, Generator? generator, TensorOptions options={}) -> Tensor | out");
Tensor rand(IntArrayRef size, std::optional<Generator> generator, const TensorOptions& options) {
  const Tensor t = empty(size, without_grad(options));
  uniform_(t, 0, 1, std::move(generator));
  return finish_random(t, options);
}

/// Standard normal.
ATHANOR_FUNCTION("randn(int[] size, TensorOptions options={}) -> Tensor | out");
Tensor randn(IntArrayRef size, const TensorOptions& options) { return randn(size, std::nullopt, options); }
ATHANOR_FUNCTION("randn.generator(int[] size, Generator? generator, TensorOptions options={}) -> Tensor | out");
Tensor randn(IntArrayRef size, std::optional<Generator> generator, const TensorOptions& options) {
  const Tensor t = empty(size, without_grad(options));
  normal_(t, 0, 1, std::move(generator));
  return finish_random(t, options);
}

/// Integers in [0, high) or [low, high); int64 unless options say otherwise.
ATHANOR_FUNCTION("randint(int high, int[] size, TensorOptions options={}) -> Tensor | out");
Tensor randint(std::int64_t high, IntArrayRef size, const TensorOptions& options) {
  return randint(0, high, size, std::nullopt, options);
}
ATHANOR_FUNCTION(
    "randint.generator(int high, int[] size, Generator? generator, TensorOptions options={}) -> Tensor | out");
Tensor randint(std::int64_t high, IntArrayRef size, std::optional<Generator> generator, const TensorOptions& options) {
  return randint(0, high, size, std::move(generator), options);
}
ATHANOR_FUNCTION("randint.low(int low, int high, int[] size, TensorOptions options={}) -> Tensor | out");
Tensor randint(std::int64_t low, std::int64_t high, IntArrayRef size, const TensorOptions& options) {
  return randint(low, high, size, std::nullopt, options);
}
ATHANOR_FUNCTION(
    "randint.low_generator(int low, int high, int[] size, Generator? generator, TensorOptions options={}) -> Tensor | "
    "out");
Tensor randint(std::int64_t low, std::int64_t high, IntArrayRef size, std::optional<Generator> generator,
               const TensorOptions& options) {
  const Tensor t = empty(size, without_grad(integer_by_default(options)));
  random_(t, low, std::optional<std::int64_t>(high), std::move(generator));
  return finish_random(t, options);
}

/// A random order of 0 … n - 1; int64 unless options say otherwise.
ATHANOR_FUNCTION("randperm(int n, TensorOptions options={}) -> Tensor | out");
Tensor randperm(std::int64_t n, const TensorOptions& options) { return randperm(n, std::nullopt, options); }
ATHANOR_FUNCTION("randperm.generator(int n, Generator? generator, TensorOptions options={}) -> Tensor | out");
Tensor randperm(std::int64_t n, std::optional<Generator> generator, const TensorOptions& options) {
  ATHANOR_CHECK(n >= 0, "randperm: n must be non-negative, got ", n);
  const TensorOptions o = without_grad(integer_by_default(options));
  ATHANOR_CHECK(n == 0 || n - 1 <= last_exact_integer(o.dtype()), "randperm: n is too large for ",
                dtype_name(o.dtype()), ", got ", n);
  const Tensor t = empty({n}, o);
  launch(randperm_kernel, t, reserve(generator, n, 64));
  return finish_random(t, options);
}

/// A tensor of numbers drawn evenly from [0, 1) of the input's shape, and of its dtype and device unless others are
/// given.
ATHANOR_FUNCTION("rand_like(Tensor self, TensorOptions options={}) -> Tensor | function");
Tensor rand_like(const Tensor& self, const TensorOptions& options) {
  const Tensor t = empty_like(self, without_grad(options));
  uniform_(t, 0, 1, std::nullopt);
  return finish_random(t, options);
}
/// A tensor of numbers from the normal distribution of the input's shape, and of its dtype and device unless others are
/// given.
ATHANOR_FUNCTION("randn_like(Tensor self, TensorOptions options={}) -> Tensor | function");
Tensor randn_like(const Tensor& self, const TensorOptions& options) {
  const Tensor t = empty_like(self, without_grad(options));
  normal_(t, 0, 1, std::nullopt);
  return finish_random(t, options);
}
/// A tensor of integers drawn evenly from low (0) up to, but not including, high of the input's shape, and of its dtype
/// and device unless others are given.
ATHANOR_FUNCTION("randint_like(Tensor self, int high, TensorOptions options={}) -> Tensor | function");
Tensor randint_like(const Tensor& self, std::int64_t high, const TensorOptions& options) {
  return randint_like(self, 0, high, options);
}
ATHANOR_FUNCTION("randint_like.low(Tensor self, int low, int high, TensorOptions options={}) -> Tensor | function");
Tensor randint_like(const Tensor& self, std::int64_t low, std::int64_t high, const TensorOptions& options) {
  const Tensor t = empty_like(self, without_grad(options));
  random_(t, low, std::optional<std::int64_t>(high), std::nullopt);
  return finish_random(t, options);
}

// Draws from given distributions. Their gradients with respect to the parameters are zero, except normal's.

/// 1 with the probability that self gives, else 0; in self's dtype.
ATHANOR_FUNCTION("bernoulli(Tensor self, *, Generator? generator=None) -> Tensor | out any_dtype refuses_grad");
Tensor bernoulli(const Tensor& self, std::optional<Generator> generator) {
  Tensor out = empty_like(self, {});
  bernoulli_(out, self, std::move(generator));
  return out;
}
/// 1 with probability p, in self's shape and dtype.
ATHANOR_FUNCTION("bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor");
Tensor bernoulli(const Tensor& self, double p, std::optional<Generator> generator) {
  Tensor out = empty_like(self, {});
  bernoulli_(out, p, std::move(generator));
  return out;
}

namespace {

Tensor standard_normal(IntArrayRef size, const Tensor& like, std::optional<Generator> generator) {
  return randn(size, std::move(generator), like.options());
}

void check_std(const Tensor& std) {
  check_floating(std, "normal");
  ATHANOR_CHECK(std.numel() == 0 || min(detach(std)).item().toDouble() >= 0,
                "normal expects all elements of std >= 0.0");
}

}  // namespace

/// Numbers from the normal distribution; mean and std are numbers or tensors that broadcast.
ATHANOR_FUNCTION(
    "normal.float_float(float mean, float std, int[] size, *, Generator? generator=None, "
    "TensorOptions options={}) -> Tensor | out");
Tensor normal(double mean, double std, IntArrayRef size, std::optional<Generator> generator,
              const TensorOptions& options) {
  const Tensor t = empty(size, without_grad(options));
  normal_(t, mean, std, std::move(generator));
  return finish_random(t, options);
}
ATHANOR_FUNCTION(
    "normal.Tensor_float(Tensor mean, float std=1, *, Generator? generator=None) -> Tensor | out refuses_grad");
Tensor normal(const Tensor& mean, double std, std::optional<Generator> generator) {
  ATHANOR_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  const Tensor z = standard_normal(mean.sizes(), mean, std::move(generator));
  return detach(add(mul(z, std), detach(mean)));
}
ATHANOR_FUNCTION(
    "normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor | out refuses_grad");
Tensor normal(double mean, const Tensor& std, std::optional<Generator> generator) {
  check_std(std);
  const Tensor z = standard_normal(std.sizes(), std, std::move(generator));
  return detach(add(mul(z, detach(std)), mean));
}
ATHANOR_FUNCTION(
    "normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor | out refuses_grad");
Tensor normal(const Tensor& mean, const Tensor& std, std::optional<Generator> generator) {
  check_std(std);
  const DimVector shape = broadcast_shapes(mean.sizes(), std.sizes(), "normal");
  const Tensor z = standard_normal(shape, mean, std::move(generator));
  return detach(add(mul(z, detach(std)), detach(mean)));
}

/// num_samples indices drawn with the weights of self (one row, or each row of a matrix).
ATHANOR_FUNCTION(
    "multinomial(Tensor self, int num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor | out "
    "own_dtype");
Tensor multinomial(const Tensor& self, std::int64_t num_samples, bool replacement, std::optional<Generator> generator) {
  ATHANOR_CHECK(self.dim() == 1 || self.dim() == 2, "multinomial: prob_dist must be 1 or 2 dim, got shape ",
                self.sizes());
  check_floating(self, "multinomial");
  ATHANOR_CHECK(num_samples > 0, "multinomial: cannot sample n_sample <= 0 samples, got ", num_samples);
  const std::int64_t n = self.size(-1);
  ATHANOR_CHECK(replacement || num_samples <= n, "multinomial: cannot sample n_sample > prob_dist.size(-1) samples ",
                "without replacement, got ", num_samples, " of ", n);
  const Tensor weights = self.dim() == 1 ? unsqueeze(detach(self), 0) : detach(self);
  const Tensor out = empty({weights.size(0), num_samples}, TensorOptions(DType::Long).device(self.device()));
  const std::int64_t draws = replacement ? out.numel() : weights.numel();
  launch(multinomial_kernel, out, weights, replacement, reserve(generator, draws, 64));
  return self.dim() == 1 ? squeeze(out, 0) : out;
}

// Dropout.

/// self / (1 - p) where the numbers of (seed, offset) keep an element, else 0. Its gradient is itself.
struct DropoutState {
  ATHANOR_OP("_dropout(Tensor self, float p, int seed, int offset) -> Tensor | inplace function");
  static constexpr const char* grad_name = "NativeDropoutBackward0";
  double p;
  std::int64_t seed, offset;
  Meta infer(const Tensor& self) {
    check_floating(self, "dropout");
    return pointwise_meta("dropout", self.dtype(), {&self});
  }
  void run(const Tensor& out, const Tensor& self) {
    const PhiloxState state{static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(offset)};
    launch(dropout_kernel, out, Tensor(), self, p, state);
  }
  void grad(GradCall& g) { g.set(0, _dropout(g.grad(), p, seed, offset)); }
};

namespace {

struct DropoutSeed {
  explicit DropoutSeed(std::int64_t n) {
    const PhiloxState s = reserve(std::nullopt, n, 32);
    seed = static_cast<std::int64_t>(s.seed);
    offset = static_cast<std::int64_t>(s.offset);
  }
  std::int64_t seed, offset;
};

void check_dropout(const char* op, double p) {
  ATHANOR_CHECK_VALUE(p >= 0 && p <= 1, op, " probability has to be between 0 and 1, but got ", p);
}

/// Noise of shape (N, C, 1, …): whole channels live or die.
DimVector feature_noise_shape(const char* op, const Tensor& self) {
  ATHANOR_CHECK(self.dim() >= 2, op, ": Feature dropout requires at least 2 dimensions in the input, got shape ",
                self.sizes());
  DimVector shape(static_cast<std::size_t>(self.dim()), 1);
  shape[0] = self.size(0);
  shape[1] = self.size(1);
  return shape;
}

/// What dropout multiplies by: 0 or 1 / (1 - p).
Tensor dropout_noise(IntArrayRef shape, const Tensor& like, double p) {
  const Tensor noise = ones(shape, like.options());
  if (p == 1) return mul(noise, 0);
  const DropoutSeed s(noise.numel());
  return _dropout(noise, p, s.seed, s.offset);
}

/// Dropped elements take SELU's negative limit, and an affine map restores mean and variance (Klambauer et al.,
/// "Self-normalizing neural networks", NIPS 2017).
Tensor alpha_dropped(const Tensor& self, IntArrayRef noise_shape, double p) {
  if (p == 1) return mul(self, 0);
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  Tensor kept = empty(noise_shape, self.options());
  bernoulli_(kept, 1 - p, std::nullopt);
  const Tensor shift = add(mul(sub(kept, 1), kAlpha * a), kAlpha * a * p);
  return add(mul(self, mul(kept, a)), shift);
}

}  // namespace

/// In training, zeroes elements with probability p and scales the rest by 1 / (1 - p).
ATHANOR_FUNCTION("dropout(Tensor self, float p, bool train) -> Tensor | function");
Tensor dropout(const Tensor& self, double p, bool train) {
  check_dropout("dropout", p);
  if (!train || p == 0 || self.numel() == 0) return self;
  if (p == 1) return mul(self, 0);
  const DropoutSeed s(self.numel());
  return _dropout(self, p, s.seed, s.offset);
}
/// Sets elements to zero with probability p and divides the others by 1 - p, if train.
ATHANOR_FUNCTION("dropout_(Tensor self, float p, bool train) -> Tensor | function");
void dropout_(const Tensor& self, double p, bool train) {
  check_dropout("dropout", p);
  if (!train || p == 0 || self.numel() == 0) return;
  if (p == 1) return mul_(self, 0);
  const DropoutSeed s(self.numel());
  _dropout_(self, p, s.seed, s.offset);
}

/// Dropout of whole channels (dim 1).
ATHANOR_FUNCTION("feature_dropout(Tensor self, float p, bool train) -> Tensor | function");
Tensor feature_dropout(const Tensor& self, double p, bool train) {
  check_dropout("feature_dropout", p);
  if (!train || p == 0 || self.numel() == 0) return self;
  return mul(self, dropout_noise(feature_noise_shape("feature_dropout", self), self, p));
}
/// Sets whole channels to zero with probability p and divides the others by 1 - p, if train.
ATHANOR_FUNCTION("feature_dropout_(Tensor self, float p, bool train) -> Tensor | function");
void feature_dropout_(const Tensor& self, double p, bool train) {
  check_dropout("feature_dropout", p);
  if (!train || p == 0 || self.numel() == 0) return;
  mul_(self, dropout_noise(feature_noise_shape("feature_dropout", self), self, p));
}

/// Dropout for self-normalizing nets: mean and variance are kept.
ATHANOR_FUNCTION("alpha_dropout(Tensor self, float p, bool train) -> Tensor | inplace function");
Tensor alpha_dropout(const Tensor& self, double p, bool train) {
  check_dropout("alpha_dropout", p);
  return !train || p == 0 || self.numel() == 0 ? self : alpha_dropped(self, self.sizes(), p);
}
/// alpha_dropout of whole channels (dim 1).
ATHANOR_FUNCTION("feature_alpha_dropout(Tensor self, float p, bool train) -> Tensor | inplace function");
Tensor feature_alpha_dropout(const Tensor& self, double p, bool train) {
  check_dropout("feature_alpha_dropout", p);
  return !train || p == 0 || self.numel() == 0
             ? self
             : alpha_dropped(self, feature_noise_shape("feature_alpha_dropout", self), p);
}

/// leaky_relu with a slope drawn from [lower, upper) for each element; their mean when not training.
ATHANOR_FUNCTION(
    "rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, "
    "Generator? generator=None) -> Tensor | inplace function");
Tensor rrelu(const Tensor& self, const Scalar& lower, const Scalar& upper, bool training,
             std::optional<Generator> generator) {
  if (!is_floating_point(self.dtype())) fail_not_floating("rrelu", self.dtype());
  const double low = lower.toDouble(), high = upper.toDouble();
  ATHANOR_CHECK(low <= high, "rrelu: Lower bound should be less than or equal to the upper bound, got ", low, " and ",
                high);
  const Tensor negative = le(self, 0);
  if (!training) return where(negative, mul(self, (low + high) / 2), self);
  const Tensor slope = empty_like(detach(self), {});
  uniform_(slope, low, high, std::move(generator));
  return where(negative, mul(self, slope), self);
}

}  // namespace athanor::ops

#include "athanor/ops/random.glue.inc"
