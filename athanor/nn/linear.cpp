#include "athanor/nn/linear.h"

#include "athanor/nn/init.h"

namespace athanor::nn {

namespace functional {

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  if (weight.dim() != 1) return athanor::linear(input, weight, bias);
  // One output without a dimension of its own.
  const Tensor out = input.matmul(weight);
  return bias.defined() ? out + bias : out;
}

Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight, const Tensor& bias) {
  ATHANOR_CHECK(weight.dim() == 3, "bilinear: weight must be (out_features, in1_features, in2_features), got shape ",
                weight.sizes());
  const std::int64_t out = weight.size(0), in1 = weight.size(1), in2 = weight.size(2);
  ATHANOR_CHECK(input1.dim() >= 1 && input1.dim() == input2.dim() && input1.size(-1) == in1 && input2.size(-1) == in2,
                "bilinear: inputs of shape ", input1.sizes(), " and ", input2.sizes(), " do not fit weight of shape ",
                weight.sizes());
  DimVector sizes(input1.sizes());
  ATHANOR_CHECK(input1.sizes().slice(0, sizes.size() - 1) == input2.sizes().slice(0, sizes.size() - 1),
                "bilinear: input batch dimensions do not match, got ", input1.sizes(), " and ", input2.sizes());
  const Tensor a = input1.reshape({-1, in1}), b = input2.reshape({-1, in2});
  // (rows, in1) @ (in1, out · in2), then each (out, in2) matrix times its row of b.
  const Tensor left = a.mm(weight.permute({1, 0, 2}).reshape({in1, out * in2})).reshape({a.size(0), out, in2});
  Tensor y = left.bmm(b.unsqueeze(2)).squeeze(2);
  if (bias.defined()) y = y + bias;
  sizes.back() = out;
  return y.reshape(sizes);
}

}  // namespace functional

LinearImpl::LinearImpl(const LinearOptions& options) : options(options) { reset(); }

void LinearImpl::reset() {
  ATHANOR_CHECK_VALUE(options.in_features() >= 0 && options.out_features() >= 0,
                      "Linear: in_features and out_features must not be negative, got ", options.in_features(), " and ",
                      options.out_features());
  weight = register_parameter("weight", empty({options.out_features(), options.in_features()}));
  bias = register_parameter("bias", options.bias() ? empty({options.out_features()}) : Tensor());
  reset_parameters();
}

void LinearImpl::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  init::fan_in_uniform_(bias, weight);
}

void LinearImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::Linear(in_features=" << options.in_features()
         << ", out_features=" << options.out_features() << ", bias=" << options.bias() << ")";
}

Tensor LinearImpl::forward(const Tensor& input) {
  return in_module(*this, [&] { return functional::linear(input, weight, bias); });
}

BilinearImpl::BilinearImpl(const BilinearOptions& options) : options(options) { reset(); }

void BilinearImpl::reset() {
  weight =
      register_parameter("weight", empty({options.out_features(), options.in1_features(), options.in2_features()}));
  bias = register_parameter("bias", options.bias() ? empty({options.out_features()}) : Tensor());
  reset_parameters();
}

void BilinearImpl::reset_parameters() {
  const double bound = 1.0 / std::sqrt(static_cast<double>(options.in1_features()));
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

void BilinearImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::Bilinear(in1_features=" << options.in1_features()
         << ", in2_features=" << options.in2_features() << ", out_features=" << options.out_features()
         << ", bias=" << options.bias() << ")";
}

Tensor BilinearImpl::forward(const Tensor& input1, const Tensor& input2) {
  return in_module(*this, [&] { return functional::bilinear(input1, input2, weight, bias); });
}

void IdentityImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::Identity()"; }

void FlattenImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::Flatten(start_dim=" << options.start_dim() << ", end_dim=" << options.end_dim() << ")";
}
Tensor FlattenImpl::forward(const Tensor& input) {
  return in_module(*this, [&] { return input.flatten(options.start_dim(), options.end_dim()); });
}

void UnflattenImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::Unflatten(dim=" << options.dim() << ", unflattened_size={";
  for (std::size_t i = 0; i < options.sizes().size(); ++i) stream << (i ? ", " : "") << options.sizes()[i];
  stream << "})";
}
Tensor UnflattenImpl::forward(const Tensor& input) {
  return in_module(*this, [&] {
    const std::int64_t dim = wrap_dim(options.dim(), input.dim(), "unflatten");
    DimVector sizes;
    for (std::int64_t d = 0; d < input.dim(); ++d)
      if (d == dim)
        for (const auto s : options.sizes()) sizes.push_back(s);
      else
        sizes.push_back(input.size(d));
    std::int64_t product = 1;
    for (const auto s : options.sizes()) product *= s;
    ATHANOR_CHECK(product < 0 || product == input.size(dim), "unflatten: Provided sizes ", options.sizes(),
                  " don't multiply up to the size of dim ", dim, " (", input.size(dim), ") in the input tensor");
    return input.reshape(sizes);
  });
}

}  // namespace athanor::nn
