#pragma once
/// Linear, Bilinear, Identity, Flatten, Unflatten.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

struct LinearOptions {
  LinearOptions(std::int64_t in_features, std::int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  ATHANOR_ARG(std::int64_t, in_features);
  ATHANOR_ARG(std::int64_t, out_features);
  ATHANOR_ARG(bool, bias) = true;
};

struct BilinearOptions {
  BilinearOptions(std::int64_t in1_features, std::int64_t in2_features, std::int64_t out_features)
      : in1_features_(in1_features), in2_features_(in2_features), out_features_(out_features) {}
  ATHANOR_ARG(std::int64_t, in1_features);
  ATHANOR_ARG(std::int64_t, in2_features);
  ATHANOR_ARG(std::int64_t, out_features);
  ATHANOR_ARG(bool, bias) = true;
};

struct FlattenOptions {
  ATHANOR_ARG(std::int64_t, start_dim) = 1;
  ATHANOR_ARG(std::int64_t, end_dim) = -1;
};

struct UnflattenOptions {
  UnflattenOptions(std::int64_t dim, std::vector<std::int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  ATHANOR_ARG(std::int64_t, dim);
  ATHANOR_ARG(std::vector<std::int64_t>, sizes);
};

namespace functional {
/// input (…, in) times weightᵀ (out, in), plus bias; a weight (in) gives a result (…).
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias = {});
/// result_k = input1ᵀ weight_k input2 + bias_k; weight (out, in1, in2).
Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight, const Tensor& bias = {});
}  // namespace functional

/// y = x weightᵀ + bias. First values: uniform within ±1/sqrt(in_features).
class LinearImpl : public Cloneable<LinearImpl> {
 public:
  LinearImpl(std::int64_t in_features, std::int64_t out_features)
      : LinearImpl(LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const LinearOptions& options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  LinearOptions options;
  Tensor weight, bias;
};
ATHANOR_LIBRARY_MODULE(Linear);

/// y = x1ᵀ weight x2 + bias.
class BilinearImpl : public Cloneable<BilinearImpl> {
 public:
  BilinearImpl(std::int64_t in1_features, std::int64_t in2_features, std::int64_t out_features)
      : BilinearImpl(BilinearOptions(in1_features, in2_features, out_features)) {}
  explicit BilinearImpl(const BilinearOptions& options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input1, const Tensor& input2);

  BilinearOptions options;
  Tensor weight, bias;
};
ATHANOR_LIBRARY_MODULE(Bilinear);

/// Gives back its input.
class IdentityImpl : public Cloneable<IdentityImpl> {
 public:
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input) { return input; }
};
ATHANOR_LIBRARY_MODULE(Identity);

/// Merges dims start_dim … end_dim; by default all but the batch.
class FlattenImpl : public Cloneable<FlattenImpl> {
 public:
  explicit FlattenImpl(const FlattenOptions& options = {}) : options(options) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  FlattenOptions options;
};
ATHANOR_LIBRARY_MODULE(Flatten);

/// Splits one dim into several; one size may be -1.
class UnflattenImpl : public Cloneable<UnflattenImpl> {
 public:
  UnflattenImpl(std::int64_t dim, std::vector<std::int64_t> sizes)
      : UnflattenImpl(UnflattenOptions(dim, std::move(sizes))) {}
  explicit UnflattenImpl(UnflattenOptions options) : options(std::move(options)) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  UnflattenOptions options;
};
ATHANOR_LIBRARY_MODULE(Unflatten);

}  // namespace athanor::nn
