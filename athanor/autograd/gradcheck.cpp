#include "athanor/autograd/gradcheck.h"

#include <cmath>
#include <random>

namespace athanor::autograd {

namespace {

/// The elements of a tensor as doubles, in row-major order.
std::vector<double> values_of(const Tensor& t) {
  NoGradGuard guard;
  const Tensor flat = t.detach().to(kDouble).contiguous();
  if (flat.numel() == 0) return {};
  const double* p = flat.data_ptr<double>();
  return std::vector<double>(p, p + flat.numel());
}

/// The address of element i (row-major) of a float64 tensor.
double* element(const Tensor& t, std::int64_t i) {
  std::int64_t offset = 0;
  for (std::int64_t d = t.dim(); d-- > 0; i /= t.size(d)) offset += i % t.size(d) * t.stride(d);
  return t.data_ptr<double>() + offset;
}

/// jacobian[input element][output element]
using Jacobian = std::vector<std::vector<double>>;

bool is_checked(const Tensor& t) { return t.defined() && t.requires_grad() && t.is_floating_point(); }

void check_input(const Tensor& t, std::size_t index) {
  ATHANOR_CHECK_VALUE(t.dtype() == kDouble, "gradcheck: input ", index, " is ", dtype_name(t.dtype()),
                      "; finite differences need float64");
  ATHANOR_CHECK_VALUE(t.device().is_host(), "gradcheck: input ", index, " is on ", t.device(), "; expected the host");
  for (std::int64_t d = 0; d < t.dim(); ++d)
    ATHANOR_CHECK_VALUE(t.size(d) <= 1 || t.stride(d) != 0, "gradcheck: input ", index,
                        " has several elements at one place in memory; pass a clone");
}

/// Derivatives of every output with respect to one input, by central differences.
std::vector<Jacobian> numeric_jacobians(const CheckedFunction& fn, const variable_list& inputs, const Tensor& input,
                                        std::size_t outputs, double eps) {
  std::vector<Jacobian> result(outputs);
  for (std::int64_t i = 0; i < input.numel(); ++i) {
    double* x = element(input, i);
    const double before = *x;
    *x = before + eps;
    std::vector<std::vector<double>> above;
    for (const Tensor& o : fn(inputs)) above.push_back(values_of(o));
    *x = before - eps;
    // Read before x is restored: an output may be a view of it.
    std::vector<std::vector<double>> below;
    for (const Tensor& o : fn(inputs)) below.push_back(values_of(o));
    *x = before;
    for (std::size_t o = 0; o < outputs; ++o) {
      std::vector<double> row = std::move(below[o]);
      ATHANOR_CHECK(row.size() == above[o].size(), "gradcheck: output ", o, " changes its size with its input");
      for (std::size_t k = 0; k < row.size(); ++k) row[k] = (above[o][k] - row[k]) / (2 * eps);
      result[o].push_back(std::move(row));
    }
  }
  return result;
}

/// Derivatives of one output with respect to every checked input, by backward passes.
std::vector<Jacobian> analytic_jacobians(const Tensor& output, const variable_list& checked) {
  std::vector<Jacobian> result;
  for (const Tensor& x : checked)
    result.emplace_back(static_cast<std::size_t>(x.numel()),
                        std::vector<double>(static_cast<std::size_t>(output.numel()), 0.0));
  for (std::int64_t k = 0; k < output.numel(); ++k) {
    const Tensor one = zeros(output.sizes(), TensorOptions(output.dtype()));
    *element(one, k) = 1;
    const variable_list grads = grad({output}, checked, {one}, true, false, true);
    for (std::size_t i = 0; i < checked.size(); ++i) {
      if (!grads[i].defined()) continue;
      ATHANOR_CHECK(grads[i].sizes() == checked[i].sizes(), "gradcheck: gradient of shape ", grads[i].sizes(),
                    " for an input of shape ", checked[i].sizes());
      const std::vector<double> g = values_of(grads[i]);
      for (std::size_t e = 0; e < g.size(); ++e) result[i][e][static_cast<std::size_t>(k)] = g[e];
    }
  }
  return result;
}

std::string first_rows(const Jacobian& j) {
  std::string text;
  const std::size_t rows = std::min<std::size_t>(j.size(), 6);
  for (std::size_t r = 0; r < rows; ++r) {
    text += "\n  [";
    const std::size_t columns = std::min<std::size_t>(j[r].size(), 6);
    for (std::size_t c = 0; c < columns; ++c) text += (c ? ", " : "") + athanor::detail::str(j[r][c]);
    text += columns < j[r].size() ? ", …]" : "]";
  }
  return rows < j.size() ? text + "\n  …" : text;
}

/// Empty if the two agree, else a report.
std::string compare(const Jacobian& numeric, const Jacobian& analytic, const GradCheckOptions& options) {
  double worst = -1;
  std::size_t at_row = 0, at_column = 0;
  for (std::size_t r = 0; r < numeric.size(); ++r)
    for (std::size_t c = 0; c < numeric[r].size(); ++c) {
      const double n = numeric[r][c], a = analytic[r][c], difference = std::fabs(a - n);
      if (difference <= options.atol + options.rtol * std::fabs(n) || (std::isinf(n) && a == n)) continue;
      const double size = std::isnan(difference) ? INFINITY : difference;
      if (size <= worst) continue;
      worst = size;
      at_row = r;
      at_column = c;
    }
  if (worst < 0) return {};
  return athanor::detail::str("greatest difference ", worst, " at input element ", at_row, ", output element ",
                              at_column, ": numeric ", numeric[at_row][at_column], ", analytic ",
                              analytic[at_row][at_column], "\nnumeric:", first_rows(numeric),
                              "\nanalytic:", first_rows(analytic));
}

std::string find_fault(const CheckedFunction& fn, const variable_list& inputs, const GradCheckOptions& options) {
  variable_list checked;
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_checked(inputs[i])) continue;
    check_input(inputs[i], i);
    checked.push_back(inputs[i]);
    index.push_back(i);
  }
  ATHANOR_CHECK_VALUE(!checked.empty(), "gradcheck: expects at least one input tensor to require gradient");
  const variable_list outputs = fn(inputs);
  std::vector<std::vector<Jacobian>> numeric;  // [input][output]
  for (const Tensor& x : checked) numeric.push_back(numeric_jacobians(fn, inputs, x, outputs.size(), options.eps));
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].is_floating_point()) continue;
    std::vector<Jacobian> analytic;
    if (outputs[o].requires_grad()) {
      ATHANOR_CHECK_VALUE(outputs[o].dtype() == kDouble, "gradcheck: output ", o, " is ", outputs[o].dtype(),
                          "; expected float64");
      analytic = analytic_jacobians(outputs[o], checked);
      const std::vector<Jacobian> again = analytic_jacobians(outputs[o], checked);
      GradCheckOptions same = options;
      same.atol = options.nondet_tol;
      same.rtol = 0;
      for (std::size_t i = 0; i < checked.size(); ++i)
        if (const std::string fault = compare(analytic[i], again[i], same);
            !fault.empty() && compare(analytic[i], analytic[i], same).empty())
          return athanor::detail::str("two backward passes differ for output ", o, ", input ", index[i], ": ", fault);
    } else {
      for (const Tensor& x : checked)
        analytic.emplace_back(static_cast<std::size_t>(x.numel()),
                              std::vector<double>(static_cast<std::size_t>(outputs[o].numel()), 0.0));
    }
    for (std::size_t i = 0; i < checked.size(); ++i)
      if (const std::string fault = compare(numeric[i][o], analytic[i], options); !fault.empty())
        return athanor::detail::str("Jacobian mismatch for output ", o, " with respect to input ", index[i], ": ",
                                    fault);
  }
  return {};
}

Tensor random_like(const Tensor& t, std::mt19937_64& numbers) {
  Tensor out = zeros(t.sizes(), TensorOptions(t.dtype()));
  std::uniform_real_distribution<double> draw(-1, 1);
  for (std::int64_t i = 0; i < out.numel(); ++i) *element(out, i) = draw(numbers);
  return out;
}

}  // namespace

bool gradcheck(const CheckedFunction& fn, const variable_list& inputs, const GradCheckOptions& options) {
  const std::string fault = find_fault(fn, inputs, options);
  if (fault.empty()) return true;
  if (options.raise_exception) ATHANOR_THROW(Error, "gradcheck: ", fault);
  return false;
}

bool gradgradcheck(const CheckedFunction& fn, const variable_list& inputs, const variable_list& grad_outputs,
                   const GradCheckOptions& options) {
  variable_list seeds = grad_outputs;
  if (seeds.empty()) {
    std::mt19937_64 numbers(1);
    for (const Tensor& o : fn(inputs))
      if (o.requires_grad()) seeds.push_back(random_like(o, numbers));
  }
  for (Tensor& s : seeds) s = s.detach().requires_grad_();
  variable_list all = inputs;
  all.insert(all.end(), seeds.begin(), seeds.end());
  const std::size_t count = inputs.size();
  const CheckedFunction gradients = [&fn, count](const variable_list& given) {
    const variable_list in(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(count));
    variable_list outputs, wanted;
    for (const Tensor& o : fn(in))
      if (o.requires_grad()) outputs.push_back(o);
    for (const Tensor& x : in)
      if (is_checked(x)) wanted.push_back(x);
    const variable_list weights(given.begin() + static_cast<std::ptrdiff_t>(count), given.end());
    ATHANOR_CHECK(weights.size() == outputs.size(), "gradgradcheck: got ", weights.size(), " grad_outputs for ",
                  outputs.size(), " outputs that require grad");
    variable_list grads = grad(outputs, wanted, weights, true, true, true);
    for (std::size_t i = 0; i < grads.size(); ++i)
      if (!grads[i].defined()) grads[i] = zeros_like(wanted[i]);
    return grads;
  };
  const std::string fault = find_fault(gradients, all, options);
  if (fault.empty()) return true;
  if (options.raise_exception)
    ATHANOR_THROW(Error, "gradgradcheck (inputs from ", count, " on are the gradients of the outputs): ", fault);
  return false;
}

}  // namespace athanor::autograd
