#include "athanor/optim/lbfgs.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace athanor::optim {
namespace {

double largest(const Tensor& v) { return v.numel() == 0 ? 0 : v.abs().max().item<double>(); }
double product(const Tensor& a, const Tensor& b) { return a.dot(b).item<double>(); }

/// A place on the line of search: distance, loss, gradient there and its part along the line.
struct Point {
  double t = 0, loss = 0;
  Tensor gradient;
  double slope = 0;
};

/// Where the cubic through two points with their slopes has its minimum, kept within [low, high].
double cubic_minimum(const Point& a, const Point& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const Point& left = a.t <= b.t ? a : b;
  const Point& right = a.t <= b.t ? b : a;
  const double t = right.t - (right.t - left.t) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2));
  return std::min(std::max(t, low), high);
}

/// Finds a step length that fulfils the strong Wolfe conditions.
template <class Evaluate>
class LineSearch {
 public:
  LineSearch(Evaluate evaluate, Point start, double reach, double tolerance, std::int64_t limit)
      : evaluate_(std::move(evaluate)), start_(std::move(start)), reach_(reach), tolerance_(tolerance), limit_(limit) {}

  Point run(double t) {
    if (!bracket(t)) refine();
    return ends_[low_];
  }
  std::int64_t evaluations() const { return evaluations_; }

 private:
  Point at(double t) {
    ++evaluations_;
    return evaluate_(t);
  }
  bool too_high(const Point& p) const { return p.loss > start_.loss + 1e-4 * p.t * start_.slope; }
  bool flat_enough(const Point& p) const { return std::abs(p.slope) <= -0.9 * start_.slope; }

  /// Walks on until the ends enclose a good point; true if it met one.
  bool bracket(double t) {
    Point previous = start_, now = at(t);
    bool found = false;
    for (; iterations_ < limit_; ++iterations_) {
      if (too_high(now) || (iterations_ > 1 && now.loss >= previous.loss)) {
        ends_ = {previous, now};
        return order();
      }
      if (flat_enough(now)) {
        ends_ = {now, now};
        found = true;
        break;
      }
      if (now.slope >= 0) {
        ends_ = {previous, now};
        return order();
      }
      const double next = cubic_minimum(previous, now, now.t + 0.01 * (now.t - previous.t), now.t * 10);
      previous = std::move(now);
      now = at(next);
    }
    if (!found) ends_ = {start_, now};
    order();
    return found;
  }

  /// Notes which end is lower. Never a solution.
  bool order() {
    low_ = ends_[0].loss <= ends_[1].loss ? 0 : 1;
    return false;
  }

  /// Shrinks the interval.
  void refine() {
    bool crept = false;
    while (iterations_ < limit_) {
      const auto [left, right] = std::minmax(ends_[0].t, ends_[1].t);
      if ((right - left) * reach_ < tolerance_) return;
      double t = cubic_minimum(ends_[0], ends_[1], left, right);
      // Twice in a row near an end, or beyond it, is no progress: go a tenth of the way inside.
      const double margin = 0.1 * (right - left);
      if (std::min(right - t, t - left) < margin) {
        if (crept || t >= right || t <= left) {
          t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
          crept = false;
        } else {
          crept = true;
        }
      } else {
        crept = false;
      }
      Point now = at(t);
      ++iterations_;
      const int high = 1 - low_;
      if (too_high(now) || now.loss >= ends_[low_].loss) {
        ends_[high] = std::move(now);
        order();
        continue;
      }
      const bool done = flat_enough(now);
      if (!done && now.slope * (ends_[high].t - ends_[low_].t) >= 0) ends_[high] = ends_[low_];
      ends_[low_] = std::move(now);
      if (done) return;
    }
  }

  Evaluate evaluate_;
  Point start_;
  double reach_, tolerance_;
  std::int64_t limit_, iterations_ = 0, evaluations_ = 0;
  std::array<Point, 2> ends_;
  int low_ = 0;
};

std::string numbered(const char* name, std::int64_t i) { return std::string(name) + "." + std::to_string(i); }

/// The last differences of parameters and gradients, kept in the state as old_dirs.i (of gradients), old_stps.i (of
/// parameters) and ro.i.
class History {
 public:
  explicit History(ParamState& state) : state_(state) { size_ = static_cast<std::int64_t>(state_.numbers["history"]); }
  std::int64_t size() const { return size_; }
  Tensor& y(std::int64_t i) { return state_.tensors[numbered("old_dirs", i)]; }
  Tensor& s(std::int64_t i) { return state_.tensors[numbered("old_stps", i)]; }
  double& ro(std::int64_t i) { return state_.numbers[numbered("ro", i)]; }
  void push(Tensor dy, Tensor ds, double r, std::int64_t limit) {
    while (size_ > 0 && size_ >= limit) drop_oldest();
    if (limit <= 0) return;
    y(size_) = std::move(dy), s(size_) = std::move(ds), ro(size_) = r;
    state_.numbers["history"] = static_cast<double>(++size_);
  }

 private:
  void drop_oldest() {
    for (std::int64_t i = 0; i + 1 < size_; ++i) y(i) = y(i + 1), s(i) = s(i + 1), ro(i) = ro(i + 1);
    --size_;
    state_.tensors.erase(numbered("old_dirs", size_));
    state_.tensors.erase(numbered("old_stps", size_));
    state_.numbers.erase(numbered("ro", size_));
    state_.numbers["history"] = static_cast<double>(size_);
  }
  ParamState& state_;
  std::int64_t size_ = 0;
};

/// Minus the gradient times the approximate inverse of the Hessian.
Tensor quasi_newton(History& history, const Tensor& gradient, double scale) {
  const std::int64_t n = history.size();
  std::vector<double> alpha(static_cast<std::size_t>(n));
  Tensor q = gradient.neg();
  for (std::int64_t i = n - 1; i >= 0; --i) {
    double& a = alpha[static_cast<std::size_t>(i)];
    a = product(history.s(i), q) * history.ro(i);
    q.add_(history.y(i), -a);
  }
  q.mul_(scale);
  for (std::int64_t i = 0; i < n; ++i) {
    const double beta = product(history.y(i), q) * history.ro(i);
    q.add_(history.s(i), alpha[static_cast<std::size_t>(i)] - beta);
  }
  return q;
}

}  // namespace

std::unique_ptr<OptimizerOptions> LBFGSOptions::clone() const { return std::make_unique<LBFGSOptions>(*this); }

std::unique_ptr<OptimizerOptions> LBFGSOptions::initial() const { return std::make_unique<LBFGSOptions>(); }

std::map<std::string, double> LBFGSOptions::values() const {
  return {{"lr", lr_},
          {"max_iter", static_cast<double>(max_iter_)},
          {"max_eval", static_cast<double>(max_eval_.value_or(-1))},
          {"tolerance_grad", tolerance_grad_},
          {"tolerance_change", tolerance_change_},
          {"history_size", static_cast<double>(history_size_)},
          {"strong_wolfe", line_search_fn_ ? 1.0 : 0.0},
          {"maximize", maximize_ ? 1.0 : 0.0}};
}

void LBFGSOptions::set_values(const std::map<std::string, double>& values) {
  const auto take = [&](const char* name, auto&& assign) {
    if (const auto it = values.find(name); it != values.end()) assign(it->second);
  };
  const auto whole = [](double v) { return static_cast<std::int64_t>(std::clamp(v, -1.0, 1e15)); };
  take("lr", [&](double v) { lr_ = v; });
  take("max_iter", [&](double v) { max_iter_ = whole(v); });
  take("max_eval", [&](double v) { max_eval_ = v < 0 ? std::nullopt : std::optional<std::int64_t>(whole(v)); });
  take("tolerance_grad", [&](double v) { tolerance_grad_ = v; });
  take("tolerance_change", [&](double v) { tolerance_change_ = v; });
  take("history_size", [&](double v) { history_size_ = whole(v); });
  take("strong_wolfe",
       [&](double v) { line_search_fn_ = v != 0 ? std::optional<std::string>("strong_wolfe") : std::nullopt; });
  take("maximize", [&](double v) { maximize_ = v != 0; });
}

LBFGS::LBFGS(std::vector<OptimizerParamGroup> groups, LBFGSOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<LBFGSOptions>(defaults)) {
  ATHANOR_CHECK_VALUE(param_groups_.size() == 1, "LBFGS doesn't support per-parameter options (parameter groups); got ",
                      param_groups_.size(), " groups");
  ATHANOR_CHECK_VALUE(defaults.lr() >= 0, "Invalid learning rate: ", defaults.lr());
  ATHANOR_CHECK_VALUE(!defaults.line_search_fn() || *defaults.line_search_fn() == "strong_wolfe",
                      "LBFGS: only 'strong_wolfe' is supported as line_search_fn, got '",
                      defaults.line_search_fn().value_or(""), "'");
}

std::unique_ptr<OptimizerParamState> LBFGS::make_state() const { return std::make_unique<LBFGSParamState>(); }

bool LBFGS::state_fits(const Tensor& state, const Tensor&) const {
  std::int64_t total = 0;
  for (const Tensor& p : params()) total += p.numel();
  return state.dim() == 1 && state.numel() == total;
}

Tensor LBFGS::flat_gradient() const {
  const Tensor& first = params()[0];
  std::vector<Tensor> parts;
  for (const Tensor& p : params()) {
    const Tensor g = p.grad().defined() ? p.grad() : zeros_like(p);
    parts.push_back(g.detach().reshape({-1}).to(TensorOptions(first.device()).dtype(first.dtype())));
  }
  Tensor flat = cat(parts);
  return static_cast<const LBFGSOptions&>(param_groups_[0].options()).maximize() ? flat.neg() : flat;
}

void LBFGS::move(double length, const Tensor& direction) {
  std::int64_t start = 0;
  for (Tensor& p : param_groups_[0].params()) {
    const Tensor part = direction.slice(0, start, start + p.numel()).view(p.sizes());
    p.add_(part.to(TensorOptions(p.device()).dtype(p.dtype())), length);
    start += p.numel();
  }
}

double LBFGS::evaluate(const LossClosure& closure) {
  const double loss = run_closure(closure).item<double>();
  return static_cast<const LBFGSOptions&>(param_groups_[0].options()).maximize() ? -loss : loss;
}

Tensor LBFGS::step(LossClosure closure) {
  ATHANOR_CHECK_VALUE(closure != nullptr, "LBFGS: step() needs a closure that computes the loss again");
  ATHANOR_CHECK_VALUE(param_groups_.size() == 1, "LBFGS doesn't support per-parameter options (parameter groups)");
  const NoGradGuard off;
  const auto& o = static_cast<const LBFGSOptions&>(param_groups_[0].options());
  const std::int64_t max_eval = o.max_eval().value_or(o.max_iter() * 5 / 4);
  Tensor first_loss = run_closure(closure);
  if (params().empty()) return first_loss;
  double loss = first_loss.item<double>() * (o.maximize() ? -1 : 1);
  std::int64_t evaluations = 1;
  ParamState& state = state_of(params()[0]);
  auto& numbers = state.numbers;
  ++numbers["func_evals"];
  Tensor gradient = flat_gradient();
  bool optimal = largest(gradient) <= o.tolerance_grad();
  if (optimal) return first_loss;

  History history(state);
  Tensor direction = state.tensors["d"], previous_gradient = state.tensors["prev_flat_grad"];
  double length = numbers["t"], scale = numbers.try_emplace("H_diag", 1.0).first->second;
  double previous_loss = numbers["prev_loss"];
  for (std::int64_t i = 1; i <= o.max_iter(); ++i) {
    if (++numbers["n_iter"] == 1) {
      direction = gradient.neg();
    } else {
      Tensor y = gradient.sub(previous_gradient), s = direction.mul(length);
      const double ys = product(y, s);
      if (ys > 1e-10) {
        scale = ys / product(y, y);
        history.push(std::move(y), std::move(s), 1 / ys, o.history_size());
      }
      direction = quasi_newton(history, gradient, scale);
    }
    previous_gradient = gradient.clone();
    previous_loss = loss;
    length = numbers["n_iter"] == 1 ? std::min(1.0, 1 / gradient.abs().sum().item<double>()) * o.lr() : o.lr();
    const double slope = product(gradient, direction);
    if (slope > -o.tolerance_change()) break;

    std::int64_t used = 0;
    if (o.line_search_fn()) {
      std::vector<Tensor> start;
      for (const Tensor& p : params()) start.push_back(p.clone());
      LineSearch search(
          [&](double t) {
            move(t, direction);
            Point here{t, evaluate(closure), flat_gradient(), 0};
            here.slope = product(here.gradient, direction);
            for (std::size_t k = 0; k < start.size(); ++k) param_groups_[0].params()[k].copy_(start[k]);
            return here;
          },
          Point{0, loss, gradient, slope}, largest(direction), o.tolerance_change(), max_eval - evaluations);
      const Point found = search.run(length);
      loss = found.loss, gradient = found.gradient, length = found.t, used = search.evaluations();
      move(length, direction);
      optimal = largest(gradient) <= o.tolerance_grad();
    } else {
      move(length, direction);
      if (i != o.max_iter()) {  // after the last iteration nobody asks
        loss = evaluate(closure);
        gradient = flat_gradient();
        optimal = largest(gradient) <= o.tolerance_grad();
        used = 1;
      }
    }
    evaluations += used;
    numbers["func_evals"] += static_cast<double>(used);
    if (i == o.max_iter() || evaluations >= max_eval || optimal) break;
    if (largest(direction) * std::abs(length) <= o.tolerance_change()) break;
    if (std::abs(loss - previous_loss) < o.tolerance_change()) break;
  }
  state.tensors["d"] = direction;
  state.tensors["prev_flat_grad"] = previous_gradient;
  numbers["t"] = length, numbers["H_diag"] = scale, numbers["prev_loss"] = previous_loss;
  return first_loss;
}

}  // namespace athanor::optim
