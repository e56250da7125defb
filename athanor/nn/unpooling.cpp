#include "athanor/nn/unpooling.h"

namespace athanor::nn {

namespace functional {

namespace {

/// The spatial sizes of the result: those asked for, if max pooling could have made this input from them.
template <std::size_t D>
DimVector unpooled_size(const char* op, const Tensor& input, const MaxUnpoolFuncOptions<D>& o) {
  const auto n = static_cast<std::int64_t>(D);
  ATHANOR_CHECK(input.dim() == n + 1 || input.dim() == n + 2, op, ": expected input (batch, channels, spatial…) or ",
                "(channels, spatial…) of ", n, " spatial dims, got shape ", input.sizes());
  DimVector usual;
  for (std::size_t d = 0; d < D; ++d)
    usual.push_back((input.size(input.dim() - n + static_cast<std::int64_t>(d)) - 1) * (*o.stride())[d] +
                    (*o.kernel_size())[d] - 2 * (*o.padding())[d]);
  if (!o.output_size()) return usual;
  std::vector<std::int64_t> wanted = *o.output_size();
  if (wanted.size() == D + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  ATHANOR_CHECK_VALUE(wanted.size() == D, op, ": output_size should be a sequence containing ", D, " or ", D + 2,
                      " elements, but it has a length of ", o.output_size()->size());
  for (std::size_t d = 0; d < D; ++d) {
    const std::int64_t least = usual[d] - (*o.stride())[d], most = usual[d] + (*o.stride())[d];
    ATHANOR_CHECK_VALUE(wanted[d] > least && wanted[d] < most, op, ": invalid output_size ", IntArrayRef(wanted),
                        " (dim ", d, " must be between ", least, " and ", most, ")");
  }
  return DimVector(IntArrayRef(wanted));
}

/// Sizes and samples of fractional pooling, as asked for or as they come.
template <std::size_t D>
std::pair<DimVector, Tensor> fractional_plan(const char* op, const Tensor& input,
                                             const FractionalMaxPoolOptions<D>& o) {
  const auto n = static_cast<std::int64_t>(D);
  ATHANOR_CHECK_VALUE(o.output_size() || o.output_ratio(), op,
                      " requires specifying either an output_size or an output_ratio");
  ATHANOR_CHECK(input.dim() == n + 1 || input.dim() == n + 2, op, ": expected input (batch, channels, spatial…) or ",
                "(channels, spatial…) of ", n, " spatial dims, got shape ", input.sizes());
  DimVector size;
  for (std::size_t d = 0; d < D; ++d)
    size.push_back(o.output_size() ? (**o.output_size())[d]
                                   : static_cast<std::int64_t>(static_cast<double>(input.size(
                                                                   input.dim() - n + static_cast<std::int64_t>(d))) *
                                                               (**o.output_ratio())[d]));
  Tensor samples = o._random_samples();
  if (!samples.defined()) {
    const bool single = input.dim() == n + 1;
    samples = rand({single ? 1 : input.size(0), input.size(single ? 0 : 1), n},
                   TensorOptions(input.dtype()).device(input.device()));
  }
  return {size, samples};
}

}  // namespace

Tensor max_unpool1d(const Tensor& input, const Tensor& indices, const MaxUnpool1dFuncOptions& o) {
  const DimVector size = unpooled_size<1>("max_unpool1d", input, o);
  return athanor::max_unpool2d(input.unsqueeze(-2), indices.unsqueeze(-2), {1, size[0]}).squeeze(-2);
}
Tensor max_unpool2d(const Tensor& input, const Tensor& indices, const MaxUnpool2dFuncOptions& o) {
  return athanor::max_unpool2d(input, indices, unpooled_size<2>("max_unpool2d", input, o));
}
Tensor max_unpool3d(const Tensor& input, const Tensor& indices, const MaxUnpool3dFuncOptions& o) {
  return athanor::max_unpool3d(input, indices, unpooled_size<3>("max_unpool3d", input, o), o.stride(), o.padding());
}

std::tuple<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& input,
                                                              const FractionalMaxPool2dFuncOptions& o) {
  const auto [size, samples] = fractional_plan<2>("fractional_max_pool2d", input, o);
  return athanor::fractional_max_pool2d(input, o.kernel_size(), size, samples);
}
std::tuple<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& input,
                                                              const FractionalMaxPool3dFuncOptions& o) {
  const auto [size, samples] = fractional_plan<3>("fractional_max_pool3d", input, o);
  return athanor::fractional_max_pool3d(input, o.kernel_size(), size, samples);
}
Tensor fractional_max_pool2d(const Tensor& input, const FractionalMaxPool2dFuncOptions& o) {
  return std::get<0>(fractional_max_pool2d_with_indices(input, o));
}
Tensor fractional_max_pool3d(const Tensor& input, const FractionalMaxPool3dFuncOptions& o) {
  return std::get<0>(fractional_max_pool3d_with_indices(input, o));
}

}  // namespace functional

#define ATHANOR_UNPOOL_LAYER(D)                                                                                      \
  void MaxUnpool##D##dImpl::pretty_print(std::ostream& stream) const {                                               \
    stream << "torch::nn::MaxUnpool" #D "d(kernel_size=" << options.kernel_size() << ", stride=" << options.stride() \
           << ", padding=" << options.padding() << ")";                                                              \
  }                                                                                                                  \
  Tensor MaxUnpool##D##dImpl::forward(const Tensor& input, const Tensor& indices,                                    \
                                      const std::optional<std::vector<std::int64_t>>& output_size) {                 \
    return in_module(*this, [&] {                                                                                    \
      return functional::max_unpool##D##d(input, indices,                                                            \
                                          functional::MaxUnpool##D##dFuncOptions(options.kernel_size())              \
                                              .stride(options.stride())                                              \
                                              .padding(options.padding())                                            \
                                              .output_size(output_size));                                            \
    });                                                                                                              \
  }
ATHANOR_UNPOOL_LAYER(1)
ATHANOR_UNPOOL_LAYER(2)
ATHANOR_UNPOOL_LAYER(3)

#define ATHANOR_FRACTIONAL_LAYER(D)                                                                                \
  FractionalMaxPool##D##dImpl::FractionalMaxPool##D##dImpl(FractionalMaxPool##D##dOptions options)                 \
      : options(std::move(options)) {                                                                              \
    reset();                                                                                                       \
  }                                                                                                                \
  void FractionalMaxPool##D##dImpl::reset() {                                                                      \
    _random_samples = register_buffer("_random_samples", options._random_samples());                               \
    ATHANOR_CHECK_VALUE(options.output_size() || options.output_ratio(),                                           \
                        "FractionalMaxPool" #D "d requires specifying either an output size, or a pooling ratio"); \
    ATHANOR_CHECK_VALUE(!options.output_size() || !options.output_ratio(),                                         \
                        "only one of output_size and output_ratio may be specified");                              \
    if (options.output_ratio())                                                                                    \
      for (const double r : **options.output_ratio())                                                              \
        ATHANOR_CHECK_VALUE(r > 0 && r < 1, "output_ratio must be between 0 and 1 (got ", r, ")");                 \
  }                                                                                                                \
  void FractionalMaxPool##D##dImpl::pretty_print(std::ostream& stream) const {                                     \
    stream << "torch::nn::FractionalMaxPool" #D "d()";                                                             \
  }                                                                                                                \
  Tensor FractionalMaxPool##D##dImpl::forward(const Tensor& input) {                                               \
    return std::get<0>(forward_with_indices(input));                                                               \
  }                                                                                                                \
  std::tuple<Tensor, Tensor> FractionalMaxPool##D##dImpl::forward_with_indices(const Tensor& input) {              \
    return in_module(*this, [&] {                                                                                  \
      return functional::fractional_max_pool##D##d_with_indices(                                                   \
          input, FractionalMaxPool##D##dOptions(options)._random_samples(_random_samples));                        \
    });                                                                                                            \
  }
ATHANOR_FRACTIONAL_LAYER(2)
ATHANOR_FRACTIONAL_LAYER(3)
#undef ATHANOR_UNPOOL_LAYER
#undef ATHANOR_FRACTIONAL_LAYER

}  // namespace athanor::nn
