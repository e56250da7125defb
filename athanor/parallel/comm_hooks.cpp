#include "athanor/parallel/comm_hooks.h"

#include "athanor/distributed/groups.h"
#include "athanor/ops/factory.h"
#include "athanor/parallel/agreement.h"

namespace athanor::nn::parallel::comm_hooks {

using distributed::ReduceOp;

namespace {

std::future<Tensor> ready(Tensor tensor) {
  std::promise<Tensor> promise;
  promise.set_value(std::move(tensor));
  return promise.get_future();
}

// The result of `then()` when somebody asks.
template <class Then>
std::future<Tensor> later(Then then) {
  return std::async(std::launch::deferred, [then = std::move(then)]() mutable {
    const NoGradGuard off;
    return then();
  });
}

std::future<Tensor> average(const ProcessGroupPtr& group, const Tensor& values) {
  auto work = distributed::group_or_default(group)->all_reduce(
      values, ReduceOp::AVG, true, call_for("DistributedDataParallel's communication hook"));
  return later([work, values] {
    work->wait();
    return values;
  });
}

}  // namespace

std::future<Tensor> allreduce_hook(const ProcessGroupPtr& group, GradBucket& bucket) {
  return average(group, bucket.buffer());
}

std::future<Tensor> internals::compressed(DType dtype, GradBucket& bucket, const CommHook& hook) {
  Tensor whole = bucket.buffer();
  bucket.set_buffer(whole.to(dtype));
  std::future<Tensor> inner = hook(bucket);
  bucket.set_buffer(whole);
  return later([whole, inner = std::move(inner)]() mutable {
    Tensor(whole).copy_(inner.get());
    return whole;
  });
}

std::future<Tensor> fp16_compress_hook(const ProcessGroupPtr& group, GradBucket& bucket) {
  return internals::compressed(kHalf, bucket, [&](GradBucket& b) { return allreduce_hook(group, b); });
}
std::future<Tensor> bf16_compress_hook(const ProcessGroupPtr& group, GradBucket& bucket) {
  return internals::compressed(kBFloat16, bucket, [&](GradBucket& b) { return allreduce_hook(group, b); });
}

PowerSGDState::PowerSGDState(ProcessGroupPtr group, const PowerSGDOptions& options)
    : group_(std::move(group)), options_(options), generator_(options.random_seed) {
  ATHANOR_CHECK_VALUE(options.matrix_approximation_rank >= 1, "PowerSGDState: matrix_approximation_rank is ",
                      options.matrix_approximation_rank, ", expected at least 1");
  ATHANOR_CHECK_VALUE(!(options.use_error_feedback || options.warm_start) || options.start_powerSGD_iter > 1,
                      "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because "
                      "PowerSGD can only be applied after the first two iterations in DDP; got ",
                      options.start_powerSGD_iter);
}

double PowerSGDState::compression_rate() const {
  return sent_ == 0 ? 1.0 : static_cast<double>(elements_) / static_cast<double>(sent_);
}

/// One bucket in one step.
class PowerSGDStep {
 public:
  PowerSGDStep(PowerSGDState& state, GradBucket& bucket)
      : state_(state), bucket_(bucket), group_(distributed::group_or_default(state.group_)) {}

  void run() {
    remember_error();
    sort_out();
    average_plain();
    for (Low& low : low_) low.left = low.matrix.matmul(low.right);
    sum_up(&Low::left);
    for (Low& low : low_) {
      orthogonalize(low.left);
      low.right = low.matrix.t().matmul(low.left);
    }
    sum_up(&Low::right);
    for (Low& low : low_) {
      low.right.div_(group_->size());
      low.gradient.copy_(low.left.matmul(low.right.t()).reshape(low.gradient.sizes()));
      if (state_.options_.warm_start) state_.right_[{bucket_.index(), low.place}] = low.right;
    }
    if (before_.defined()) state_.errors_[bucket_.index()] = before_ - bucket_.buffer();
  }

 private:
  struct Low {
    std::size_t place;
    Tensor gradient, matrix, left, right;
  };

  void remember_error() {
    if (!state_.options_.use_error_feedback) return;
    const Tensor& error = state_.errors_[bucket_.index()];
    if (error.defined()) Tensor(bucket_.buffer()).add_(error);
    before_ = bucket_.buffer().clone();
  }

  void sort_out() {
    const std::vector<Tensor> gradients = bucket_.gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const Tensor& g = gradients[i];
      const std::int64_t rows = g.dim() > 1 ? g.size(0) : 1, columns = rows > 0 ? g.numel() / rows : 0;
      const std::int64_t rank = std::min({rows, columns, state_.options_.matrix_approximation_rank});
      const bool worth =
          g.dim() > 1 && static_cast<double>((rows + columns) * rank) * state_.options_.min_compression_rate <
                             static_cast<double>(rows * columns);
      state_.elements_ += g.numel();
      state_.sent_ += worth ? (rows + columns) * rank : g.numel();
      if (worth)
        low_.push_back({i, g, g.reshape({rows, columns}), {}, right_of(i, columns, rank, g)});
      else
        plain_.push_back(g);
    }
  }

  // The same on all ranks.
  Tensor right_of(std::size_t place, std::int64_t columns, std::int64_t rank, const Tensor& like) {
    const Tensor& last = state_.right_[{bucket_.index(), place}];
    Tensor right = last.defined()
                       ? last.clone()
                       : randn({columns, rank}, state_.generator_, TensorOptions(kDouble)).to(like.options());
    orthogonalize(right);
    return right;
  }

  void average_plain() {
    if (plain_.empty()) return;
    std::vector<Tensor> flat;
    for (const Tensor& t : plain_) flat.push_back(t.reshape({-1}));
    const Tensor all = cat(flat);
    group_->all_reduce(all, ReduceOp::AVG, false, call_for("DistributedDataParallel's powerSGD_hook"));
    std::int64_t at = 0;
    for (Tensor& t : plain_) {
      t.copy_(all.narrow(0, at, t.numel()).view(t.sizes()));
      at += t.numel();
    }
  }

  void sum_up(Tensor Low::*factor) {
    if (low_.empty()) return;
    std::vector<Tensor> flat;
    for (Low& low : low_) flat.push_back((low.*factor).reshape({-1}));
    const Tensor all = cat(flat);
    group_->all_reduce(all, ReduceOp::SUM, false, call_for("DistributedDataParallel's powerSGD_hook"));
    std::int64_t at = 0;
    for (Low& low : low_) {
      Tensor& f = low.*factor;
      f = all.narrow(0, at, f.numel()).view(f.sizes());
      at += f.numel();
    }
  }

  // Gram and Schmidt; a column without length stays zero.
  void orthogonalize(Tensor& matrix) const {
    for (std::int64_t i = 0; i < matrix.size(1); ++i) {
      Tensor column = matrix.narrow(1, i, 1);
      const double norm = column.to(kDouble).norm().item<double>() + state_.options_.orthogonalization_epsilon;
      if (norm > 0) column.div_(norm);
      if (i + 1 == matrix.size(1)) break;
      Tensor rest = matrix.narrow(1, i + 1, matrix.size(1) - i - 1);
      rest.sub_(column * (column * rest).sum(0, true));
    }
  }

  PowerSGDState& state_;
  GradBucket& bucket_;
  ProcessGroupPtr group_;
  std::vector<Tensor> plain_;
  std::vector<Low> low_;
  Tensor before_;
};

std::future<Tensor> powerSGD_hook(const std::shared_ptr<PowerSGDState>& state, GradBucket& bucket) {
  ATHANOR_CHECK(state, "powerSGD_hook: the state is null");
  const bool compress = state->iter_ >= state->options_.start_powerSGD_iter;
  if (bucket.is_last()) ++state->iter_;
  if (!compress) return allreduce_hook(state->group_, bucket);
  PowerSGDStep(*state, bucket).run();
  return ready(bucket.buffer());
}

}  // namespace athanor::nn::parallel::comm_hooks
