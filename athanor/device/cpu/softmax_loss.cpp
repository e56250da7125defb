// Losses over classes: cross entropy of logits, and negative log likelihood.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/softmax_simd.h"
#include "athanor/ops/kernels/softmax.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kBlock = 256;   // positions whose losses are summed together
constexpr std::int64_t kGrain = 8192;  // logits for which a second thread pays

double load_one(const View& v, std::int64_t offset) {
  if (v.dtype == DType::Float) return static_cast<double>(v.ptr<const float>()[offset]);
  if (v.dtype == DType::Double) return v.ptr<const double>()[offset];
  double x = 0;
  load_line(&x, DType::Double, element(v.data, offset, v.item_size()), v.dtype, 1, 1);
  return x;
}
void store_one(const View& v, std::int64_t offset, double x) {
  if (v.dtype == DType::Double) {
    v.ptr<double>()[offset] = x;
    return;
  }
  store_line(element(v.data, offset, v.item_size()), v.dtype, 1, &x, DType::Double, 1);
}

/// `v` with a dim of size 1 at `axis`, so that it has the rank of the logits. Absent views stay absent.
class WithAxis {
 public:
  WithAxis(const View& v, int axis) : view_(v) {
    if (!v.defined()) return;
    sizes_.assign(v.sizes, v.sizes + v.ndim);
    strides_.assign(v.strides, v.strides + v.ndim);
    sizes_.insert(static_cast<std::size_t>(axis), 1);
    strides_.insert(static_cast<std::size_t>(axis), 0);
    view_.sizes = sizes_.data();
    view_.strides = strides_.data();
    ++view_.ndim;
  }
  const View* get() const { return &view_; }

 private:
  DimVector sizes_, strides_;
  View view_;
};

/// What the losses share: where the classes of each position lie, its target and its weight.
class ClassLoss {
 public:
  ClassLoss(const char* name, const View& scores, const View& target, const View& weight, const View& a, const View& b,
            const ClassLossParams& params)
      : name_(name),
        params_(params),
        scores_(scores),
        target_(target),
        axis_(scores.ndim > 1 ? 1 : 0),
        lines_(make_lines(scores, target, a, b)),
        classes_(lines_.length),
        compute_(scores.dtype == DType::Double ? DType::Double : DType::Float) {
    if (weight.defined()) {
      weights_.resize(static_cast<std::size_t>(classes_));
      load_line(weights_.data(), DType::Double, weight.data, weight.dtype, weight.strides[0], classes_);
      if (compute_ == DType::Float) {
        float_weights_.assign(weights_.begin(), weights_.end());
        typed_weights_ = float_weights_.data();
      } else {
        typed_weights_ = weights_.data();
      }
    }
  }

  std::int64_t positions() const { return lines_.count; }
  std::int64_t classes() const { return classes_; }
  const Lines& lines() const { return lines_; }
  DType compute() const { return compute_; }
  const void* typed_weights() const { return typed_weights_; }
  std::int64_t grain() const { return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, classes_)); }
  double weight_of(std::int64_t c) const { return weights_.empty() ? 1.0 : weights_[static_cast<std::size_t>(c)]; }
  double weight_sum() const {
    double sum = 0;
    for (const double w : weights_) sum += w;
    return weights_.empty() ? static_cast<double>(classes_) : sum;
  }
  /// The target of position i, or -1 if it is to be ignored.
  std::int64_t target(std::int64_t i) const {
    const std::int64_t t = target_.ptr<const std::int64_t>()[lines_.offset(1, i)];
    if (t == params_.ignore_index) return -1;
    ATHANOR_CHECK_INDEX(t >= 0 && t < classes_, name_, ": target ", t, " is out of bounds for ", classes_, " classes");
    return t;
  }
  /// The scores of position i as dense elements of the computing dtype, in `room` unless they are so already.
  const void* scores(std::int64_t i, void* room) const {
    const void* p = element(scores_.data, lines_.offset(0, i), scores_.item_size());
    if (scores_.dtype == compute_ && lines_.stride == 1) return p;
    load_line(room, compute_, p, scores_.dtype, lines_.stride, classes_);
    return room;
  }
  /// Calls position(i, loss, weight) for every position, which fills both; stores or reduces the losses.
  template <class F>
  void reduce(const View& loss, const View& total_weight, int loss_operand, F&& position) const {
    const std::int64_t n = positions(), blocks = (n + kBlock - 1) / kBlock;
    struct Sums {
      double loss = 0, weight = 0;
    };
    SmallVector<Sums, 16> sums(static_cast<std::size_t>(blocks));
    const bool each = params_.reduction == LossReduction::None;
    parallel_for(0, blocks, (grain() + kBlock - 1) / kBlock, [&](std::int64_t b, std::int64_t e) {
      std::vector<double> room(static_cast<std::size_t>(classes_));
      for (; b < e; ++b) {
        Sums s;
        for (std::int64_t i = b * kBlock; i < std::min(n, (b + 1) * kBlock); ++i) {
          double one = 0, weight = 0;
          position(i, room.data(), one, weight);
          s.loss += one;
          s.weight += weight;
          if (each) store_one(loss, lines_.offset(loss_operand, i), one);
        }
        sums[static_cast<std::size_t>(b)] = s;
      }
    });
    Sums all;
    for (const Sums& s : sums) {
      all.loss += s.loss;
      all.weight += s.weight;
    }
    store_one(total_weight, 0, all.weight);
    if (!each) store_one(loss, 0, params_.reduction == LossReduction::Mean ? all.loss / all.weight : all.loss);
  }
  /// Factor of each position's gradient; with no reduction it is multiplied by the position's own gradient.
  double gradient_scale(const View& grad, const View& total_weight) const {
    switch (params_.reduction) {
      case LossReduction::None:
        return 1;
      case LossReduction::Sum:
        return load_one(grad, 0);
      case LossReduction::Mean:
        return load_one(grad, 0) / load_one(total_weight, 0);
    }
    return 1;
  }

 private:
  Lines make_lines(const View& scores, const View& target, const View& a, const View& b) const {
    const WithAxis t(target, axis_), x(a, axis_), y(b, axis_);
    const View* views[] = {&scores, t.get(), x.get(), y.get()};
    return Lines(views, 4, axis_);
  }

  const char* name_;
  const ClassLossParams& params_;
  const View& scores_;
  const View& target_;
  int axis_;
  Lines lines_;
  std::int64_t classes_;
  DType compute_;
  std::vector<double> weights_;
  std::vector<float> float_weights_;
  const void* typed_weights_ = nullptr;
};

void cross_entropy_cpu(const View& loss, const View& lse, const View& total_weight, const View& logits,
                       const View& target, const View& weight, const ClassLossParams& params) {
  const bool each = params.reduction == LossReduction::None;
  const ClassLoss job("cross_entropy", logits, target, weight, lse, each ? loss : View{}, params);
  const CrossEntropyFns fns = cross_entropy_fns(job.compute());
  const double smooth = params.label_smoothing, share = smooth / static_cast<double>(job.classes());
  const double weight_sum = job.weight_sum();
  job.reduce(loss, total_weight, 3, [&](std::int64_t i, void* room, double& one, double& w) {
    const std::int64_t t = job.target(i);
    double sum = 0, dot = 0;
    if (t >= 0) {
      const void* x = job.scores(i, room);
      fns.row(x, job.typed_weights(), job.classes(), smooth != 0, &sum, &dot);
      const double at =
          job.compute() == DType::Double ? static_cast<const double*>(x)[t] : static_cast<const float*>(x)[t];
      w = job.weight_of(t);
      one = (1 - smooth) * w * (sum - at);
      if (smooth != 0) one += share * (weight_sum * sum - dot);
    }
    store_one(lse, job.lines().offset(2, i), sum);
  });
}

void cross_entropy_backward_cpu(const View& dlogits, const View& grad, const View& logits, const View& lse,
                                const View& total_weight, const View& target, const View& weight,
                                const ClassLossParams& params) {
  const bool each = params.reduction == LossReduction::None;
  const ClassLoss job("cross_entropy_backward", logits, target, weight, lse, each ? grad : View{}, params);
  const View* both[] = {&logits, &dlogits};
  const Lines places(both, 2, logits.ndim > 1 ? 1 : 0);  // the same order: it follows the logits' strides
  const CrossEntropyFns fns = cross_entropy_fns(job.compute());
  const std::int64_t n = job.classes();
  const double smooth = params.label_smoothing, share = smooth / static_cast<double>(n);
  const double scale = job.gradient_scale(grad, total_weight), weight_sum = job.weight_sum();
  const bool direct = dlogits.dtype == job.compute() && places.line_stride[1] == 1;
  parallel_for(0, job.positions(), job.grain(), [&](std::int64_t b, std::int64_t e) {
    std::vector<double> room(static_cast<std::size_t>(n)), result(direct ? 0 : static_cast<std::size_t>(n));
    for (std::int64_t i = b; i < e; ++i) {
      char* const to = element(dlogits.data, places.offset(1, i), dlogits.item_size());
      void* const d = direct ? static_cast<void*>(to) : result.data();
      const std::int64_t t = job.target(i);
      if (t < 0) {
        std::memset(d, 0, static_cast<std::size_t>(n) * item_size(job.compute()));
      } else {
        const double g = each ? load_one(grad, job.lines().offset(3, i)) : scale, hit = (1 - smooth) * job.weight_of(t);
        fns.backward(d, job.scores(i, room.data()), smooth != 0 ? job.typed_weights() : nullptr, n,
                     load_one(lse, job.lines().offset(2, i)), g * (hit + share * weight_sum), g * share);
        if (job.compute() == DType::Double)
          static_cast<double*>(d)[t] -= g * hit;
        else
          static_cast<float*>(d)[t] -= static_cast<float>(g * hit);
      }
      if (!direct) store_line(to, dlogits.dtype, places.line_stride[1], d, job.compute(), n);
    }
  });
}

void nll_loss_cpu(const View& loss, const View& total_weight, const View& log_probs, const View& target,
                  const View& weight, const ClassLossParams& params) {
  const bool each = params.reduction == LossReduction::None;
  const ClassLoss job("nll_loss", log_probs, target, weight, each ? loss : View{}, View{}, params);
  job.reduce(loss, total_weight, 2, [&](std::int64_t i, void*, double& one, double& w) {
    const std::int64_t t = job.target(i);
    if (t < 0) return;
    w = job.weight_of(t);
    one = -w * load_one(log_probs, job.lines().offset(0, i) + t * job.lines().stride);
  });
}

void nll_loss_backward_cpu(const View& dlog_probs, const View& grad, const View& total_weight, const View& target,
                           const View& weight, const ClassLossParams& params) {
  const bool each = params.reduction == LossReduction::None;
  const ClassLoss job("nll_loss_backward", dlog_probs, target, weight, each ? grad : View{}, View{}, params);
  const double scale = job.gradient_scale(grad, total_weight);
  const Lines& lines = job.lines();
  const std::int64_t size = static_cast<std::int64_t>(dlog_probs.item_size());
  if (dlog_probs.contiguous)
    parallel_for(0, dlog_probs.numel * size, 1 << 17, [&](std::int64_t b, std::int64_t e) {
      std::memset(dlog_probs.ptr<char>() + b, 0, static_cast<std::size_t>(e - b));
    });
  parallel_for(0, job.positions(), job.grain(), [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t i = b; i < e; ++i) {
      const std::int64_t base = lines.offset(0, i), t = job.target(i);
      if (!dlog_probs.contiguous)
        for (std::int64_t c = 0; c < job.classes(); ++c) store_one(dlog_probs, base + c * lines.stride, 0);
      if (t < 0) continue;
      const double g = each ? load_one(grad, lines.offset(2, i)) : scale;
      store_one(dlog_probs, base + t * lines.stride, -job.weight_of(t) * g);
    }
  });
}

}  // namespace

ATHANOR_REGISTER_KERNEL(cross_entropy_kernel, CPU, &cross_entropy_cpu);
ATHANOR_REGISTER_KERNEL(cross_entropy_backward_kernel, CPU, &cross_entropy_backward_cpu);
ATHANOR_REGISTER_KERNEL(nll_loss_kernel, CPU, &nll_loss_cpu);
ATHANOR_REGISTER_KERNEL(nll_loss_backward_kernel, CPU, &nll_loss_backward_cpu);

}  // namespace athanor::cpu
