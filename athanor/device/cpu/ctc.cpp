// Connectionist temporal classification: forward and backward variables in log space, one sequence per task.
#include "athanor/ops/kernels/ctc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "athanor/base/parallel.h"

namespace athanor::cpu {
namespace {

template <class T>
constexpr T kNever = -std::numeric_limits<T>::infinity();

/// log(e^a + e^b + e^c).
template <class T>
T log_sum(T a, T b, T c) {
  const T m = std::max(a, std::max(b, c));
  if (m == kNever<T>) return m;
  return m + std::log(std::exp(a - m) + std::exp(b - m) + std::exp(c - m));
}

/// One sequence: its labels with blanks between and around them, and where its numbers lie.
template <class T>
class Sequence {
 public:
  Sequence(const View& log_probs, const View& targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
           std::int64_t blank, std::int64_t n)
      : steps(input_lengths[static_cast<std::size_t>(n)]),
        count(target_lengths[static_cast<std::size_t>(n)]),
        states(2 * count + 1),
        blank_(blank),
        probs_(log_probs.ptr<T>() + n * log_probs.stride(1)),
        time_(log_probs.stride(0)),
        class_(log_probs.stride(2)) {
    std::int64_t at = 0;
    if (targets.ndim == 1)
      for (std::int64_t i = 0; i < n; ++i) at += target_lengths[static_cast<std::size_t>(i)];
    const std::int64_t first = targets.ndim == 1 ? at * targets.stride(0) : n * targets.stride(0);
    const std::int64_t step = targets.stride(-1);
    labels_.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t label = targets.dtype == DType::Long ? targets.ptr<std::int64_t>()[first + i * step]
                                                              : targets.ptr<std::int32_t>()[first + i * step];
      ATHANOR_CHECK(label >= 0 && label < log_probs.size(2) && label != blank, "ctc_loss: label ", label,
                    " of sequence ", n, " is not a class other than the blank ", blank, " of the ", log_probs.size(2),
                    " in log_probs");
      labels_.push_back(label);
    }
  }
  std::int64_t label(std::int64_t s) const { return s % 2 ? labels_[static_cast<std::size_t>(s / 2)] : blank_; }
  T log_prob(std::int64_t t, std::int64_t s) const { return probs_[t * time_ + label(s) * class_]; }
  /// Whether state s may follow s - 2 at once: not past a label that a blank must part from its like.
  bool may_skip(std::int64_t s) const { return s % 2 == 1 && s >= 2 && label(s) != label(s - 2); }

  std::int64_t steps, count, states;

 private:
  std::int64_t blank_;
  const T* probs_;
  std::int64_t time_, class_;
  std::vector<std::int64_t> labels_;
};

template <class T>
T fill_alpha(const Sequence<T>& q, T* alpha, std::int64_t width) {
  if (q.steps == 0) return q.count == 0 ? T(0) : -kNever<T>;
  std::fill_n(alpha, q.steps * width, kNever<T>);
  for (std::int64_t s = 0; s < std::min<std::int64_t>(2, q.states); ++s) alpha[s] = q.log_prob(0, s);
  for (std::int64_t t = 1; t < q.steps; ++t) {
    const T* before = alpha + (t - 1) * width;
    for (std::int64_t s = 0; s < q.states; ++s) {
      const T step = s > 0 ? before[s - 1] : kNever<T>, skip = q.may_skip(s) ? before[s - 2] : kNever<T>;
      alpha[t * width + s] = log_sum(before[s], step, skip) + q.log_prob(t, s);
    }
  }
  const T* last = alpha + (q.steps - 1) * width;
  return -log_sum(last[q.states - 1], q.states > 1 ? last[q.states - 2] : kNever<T>, kNever<T>);
}

template <class T>
void forward(const View& loss, const View& alpha, const View& log_probs, const View& targets, IntArrayRef input_lengths,
             IntArrayRef target_lengths, std::int64_t blank) {
  const std::int64_t width = alpha.size(2), room = alpha.size(1) * width;
  parallel_for(0, loss.numel, 1 + 4096 / (room + 1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) {
      const Sequence<T> q(log_probs, targets, input_lengths, target_lengths, blank, n);
      T* own = alpha.ptr<T>() + n * room;
      std::fill_n(own, room, kNever<T>);
      loss.ptr<T>()[n] = fill_alpha(q, own, width);
    }
  });
}

/// Adds to `occupied` (T, C), log probabilities, those of being in a state of each class, from alpha and beta.
template <class T>
void fill_occupied(const Sequence<T>& q, const T* alpha, std::int64_t width, T* occupied, std::int64_t classes) {
  std::vector<T> beta(static_cast<std::size_t>(q.states), kNever<T>), next(beta);
  auto at = [](std::vector<T>& v, std::int64_t s) -> T& { return v[static_cast<std::size_t>(s)]; };
  for (std::int64_t t = q.steps; t-- > 0;) {
    for (std::int64_t s = 0; s < q.states; ++s) {
      // beta leaves out the probability of step t itself, which alpha has.
      T b = kNever<T>;
      if (t == q.steps - 1) {
        b = s >= q.states - 2 ? T(0) : kNever<T>;
      } else {
        auto follow = [&](std::int64_t to) { return at(next, to) + q.log_prob(t + 1, to); };
        b = log_sum(follow(s), s + 1 < q.states ? follow(s + 1) : kNever<T>,
                    s + 2 < q.states && q.may_skip(s + 2) ? follow(s + 2) : kNever<T>);
      }
      at(beta, s) = b;
      T& o = occupied[t * classes + q.label(s)];
      o = log_sum(o, alpha[t * width + s] + b, kNever<T>);
    }
    std::swap(beta, next);
  }
}

template <class T>
void backward(const View& dlog_probs, const View& grad, const View& loss, const View& alpha, const View& log_probs,
              const View& targets, IntArrayRef input_lengths, IntArrayRef target_lengths, std::int64_t blank,
              bool zero_infinity) {
  const std::int64_t width = alpha.size(2), room = alpha.size(1) * width, classes = log_probs.size(2);
  parallel_for(0, loss.numel, 1 + 4096 / (room + 1), [&](std::int64_t first, std::int64_t last) {
    std::vector<T> occupied;
    for (std::int64_t n = first; n < last; ++n) {
      const Sequence<T> q(log_probs, targets, input_lengths, target_lengths, blank, n);
      occupied.assign(static_cast<std::size_t>(log_probs.size(0) * classes), kNever<T>);
      const T nll = loss.ptr<T>()[n * loss.stride(0)], g = grad.ptr<T>()[n * grad.stride(0)];
      const bool impossible = nll == -kNever<T>;
      if (!impossible && q.steps > 0) fill_occupied(q, alpha.ptr<T>() + n * room, width, occupied.data(), classes);
      for (std::int64_t t = 0; t < log_probs.size(0); ++t)
        for (std::int64_t c = 0; c < classes; ++c) {
          T d = -std::exp(occupied[static_cast<std::size_t>(t * classes + c)] + nll) * g;
          if (impossible) d = zero_infinity || t >= q.steps ? T(0) : std::numeric_limits<T>::quiet_NaN();
          dlog_probs.ptr<T>()[(t * loss.numel + n) * classes + c] = d;
        }
    }
  });
}

void ctc_loss_cpu(const View& loss, const View& alpha, const View& log_probs, const View& targets,
                  IntArrayRef input_lengths, IntArrayRef target_lengths, std::int64_t blank) {
  (loss.dtype == DType::Float ? forward<float> : forward<double>)(loss, alpha, log_probs, targets, input_lengths,
                                                                  target_lengths, blank);
}
void ctc_loss_backward_cpu(const View& dlog_probs, const View& grad, const View& loss, const View& alpha,
                           const View& log_probs, const View& targets, IntArrayRef input_lengths,
                           IntArrayRef target_lengths, std::int64_t blank, bool zero_infinity) {
  (loss.dtype == DType::Float ? backward<float> : backward<double>)(dlog_probs, grad, loss, alpha, log_probs, targets,
                                                                    input_lengths, target_lengths, blank,
                                                                    zero_infinity);
}

ATHANOR_REGISTER_KERNEL(ctc_loss_kernel, CPU, &ctc_loss_cpu);
ATHANOR_REGISTER_KERNEL(ctc_loss_backward_kernel, CPU, &ctc_loss_backward_cpu);

}  // namespace
}  // namespace athanor::cpu
