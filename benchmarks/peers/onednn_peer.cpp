// Plain oneDNN as a peer: matrix products and convolutions by its primitives, created once and executed. "conv" rows
// have activations in an ordinary layout (channels first, or channels last behind '@') and weights in the layout oneDNN
// chooses; "conv_blocked" rows leave every layout to oneDNN, as inside a chain of layers. Speaks the protocol of
// benchmarks/protocol.h; threads from OMP_NUM_THREADS.
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "benchmarks/protocol.h"

namespace {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

Context& context() {
  static Context instance;
  return instance;
}

/// Memory filled with small ones, so that no product is denormal.
memory filled(const memory::desc& desc, memory::data_type type) {
  memory result(desc, context().engine);
  const std::size_t bytes = desc.get_size();
  if (type == memory::data_type::bf16)
    std::fill_n(static_cast<std::uint16_t*>(result.get_data_handle()), bytes / 2, std::uint16_t{0x3c00});
  else
    std::fill_n(static_cast<float*>(result.get_data_handle()), bytes / 4, 0.01f);
  return result;
}

bench::Body executing(dnnl::primitive primitive, Arguments arguments) {
  return [primitive = std::move(primitive), arguments = std::move(arguments)] {
    primitive.execute(context().stream, arguments);
    context().stream.wait();
  };
}

dnnl::matmul::primitive_desc matmul_desc(const memory::desc& a, const memory::desc& b, const memory::desc& c) {
#if DNNL_VERSION_MAJOR >= 3
  return {context().engine, a, b, c};
#else
  return {dnnl::matmul::desc(a, b, c), context().engine};
#endif
}

void add_gemm_rows(bench::Program& program) {
  for (const auto& [name, type] : {std::pair{"f32", memory::data_type::f32}, {"bf16", memory::data_type::bf16}})
    for (const std::int64_t n : {64, 128, 256, 512, 1024, 2048, 4096}) {
      const double flop = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
      program.add(std::string("gemm.") + name + "/" + std::to_string(n), "FLOP", flop, [n, type = type] {
        const memory::desc desc({n, n}, type, memory::format_tag::ab);
        return executing(dnnl::matmul(matmul_desc(desc, desc, desc)), {{DNNL_ARG_SRC, filled(desc, type)},
                                                                       {DNNL_ARG_WEIGHTS, filled(desc, type)},
                                                                       {DNNL_ARG_DST, filled(desc, type)}});
      });
    }
}

enum class Layout { kChannelsFirst, kChannelsLast, kBlocked };

struct Conv {
  std::string net;
  std::int64_t batch, c, size, k, r, stride, pad;
  Layout layout = Layout::kChannelsFirst;

  std::int64_t out() const { return (size + 2 * pad - r) / stride + 1; }
  bool first() const { return c == 1 || c == 3; }
  double flop() const { return 2.0 * static_cast<double>(batch * k * c * r * r * out() * out()); }
  std::string name(const std::string& pass) const {
    const auto s = [](std::int64_t v) { return std::to_string(v); };
    return (layout == Layout::kBlocked ? "conv_blocked." : "conv.") + pass + "/" + net + ".b" + s(batch) + "c" + s(c) +
           "x" + s(size) + "k" + s(k) + "r" + s(r) + "s" + s(stride) +
           (layout == Layout::kChannelsLast ? "@channels_last" : "");
  }
  memory::format_tag tag() const {
    return layout == Layout::kChannelsFirst  ? memory::format_tag::nchw
           : layout == Layout::kChannelsLast ? memory::format_tag::nhwc
                                             : memory::format_tag::any;
  }
  memory::desc src() const { return {{batch, c, size, size}, memory::data_type::f32, tag()}; }
  memory::desc weights() const { return {{k, c, r, r}, memory::data_type::f32, memory::format_tag::any}; }
  memory::desc dst() const { return {{batch, k, out(), out()}, memory::data_type::f32, tag()}; }
};

#if DNNL_VERSION_MAJOR >= 3
#define CONV_DESC(Type, ...) \
  dnnl::Type::primitive_desc { context().engine, __VA_ARGS__ }
#else
#define CONV_DESC(Type, ...) \
  dnnl::Type::primitive_desc { dnnl::Type::desc(__VA_ARGS__), context().engine }
#endif
#if DNNL_VERSION_MAJOR >= 3
#define CONV_DESC_BACKWARD(Type, hint, ...) \
  dnnl::Type::primitive_desc { context().engine, __VA_ARGS__, hint }
#else
#define CONV_DESC_BACKWARD(Type, hint, ...) \
  dnnl::Type::primitive_desc { dnnl::Type::desc(__VA_ARGS__), context().engine, hint }
#endif

struct ConvGeometry {
  memory::dims strides, padding;
  explicit ConvGeometry(const Conv& conv) : strides{conv.stride, conv.stride}, padding{conv.pad, conv.pad} {}
};

dnnl::convolution_forward::primitive_desc forward_desc(const Conv& conv) {
  const ConvGeometry g(conv);
  return CONV_DESC(convolution_forward, dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
                   conv.src(), conv.weights(), conv.dst(), g.strides, g.padding, g.padding);
}

memory filled_f32(const memory::desc& desc) { return filled(desc, memory::data_type::f32); }

bench::Body forward(const Conv& conv) {
  const auto desc = forward_desc(conv);
  return executing(dnnl::convolution_forward(desc), {{DNNL_ARG_SRC, filled_f32(desc.src_desc())},
                                                     {DNNL_ARG_WEIGHTS, filled_f32(desc.weights_desc())},
                                                     {DNNL_ARG_DST, filled_f32(desc.dst_desc())}});
}

bench::Body backward_weights(const Conv& conv) {
  const ConvGeometry g(conv);
  const auto desc =
      CONV_DESC_BACKWARD(convolution_backward_weights, forward_desc(conv), dnnl::algorithm::convolution_direct,
                         conv.src(), conv.weights(), conv.dst(), g.strides, g.padding, g.padding);
  return executing(dnnl::convolution_backward_weights(desc),
                   {{DNNL_ARG_SRC, filled_f32(desc.src_desc())},
                    {DNNL_ARG_DIFF_DST, filled_f32(desc.diff_dst_desc())},
                    {DNNL_ARG_DIFF_WEIGHTS, filled_f32(desc.diff_weights_desc())}});
}

bench::Body backward_data(const Conv& conv) {
  const ConvGeometry g(conv);
  const auto desc =
      CONV_DESC_BACKWARD(convolution_backward_data, forward_desc(conv), dnnl::algorithm::convolution_direct, conv.src(),
                         conv.weights(), conv.dst(), g.strides, g.padding, g.padding);
  return executing(dnnl::convolution_backward_data(desc), {{DNNL_ARG_WEIGHTS, filled_f32(desc.weights_desc())},
                                                           {DNNL_ARG_DIFF_DST, filled_f32(desc.diff_dst_desc())},
                                                           {DNNL_ARG_DIFF_SRC, filled_f32(desc.diff_src_desc())}});
}

bench::Body backward(const Conv& conv) {
  if (conv.first()) return backward_weights(conv);  // a net's first layer has no gradient for its input
  return [by_data = backward_data(conv), by_weights = backward_weights(conv)] {
    by_data();
    by_weights();
  };
}

void add_conv_rows(bench::Program& program) {
  std::vector<Conv> convs = {{"mnist", 64, 1, 28, 32, 3, 1, 0},  {"mnist", 64, 32, 26, 64, 3, 1, 0},
                             {"mnist", 128, 1, 28, 10, 5, 1, 0}, {"mnist", 128, 10, 12, 20, 5, 1, 0},
                             {"small", 16, 3, 64, 64, 4, 2, 1},  {"small", 8, 8, 28, 16, 3, 2, 1},
                             {"small", 4, 32, 24, 64, 5, 1, 2}};
  // Convolutions of ResNet-50 at 224 x 224: input channels, input size, output channels, kernel, stride.
  const std::int64_t resnet50[][5] = {
      {3, 224, 64, 7, 2},     {64, 56, 64, 1, 1},   {64, 56, 64, 3, 1},    {64, 56, 256, 1, 1},   {256, 56, 64, 1, 1},
      {256, 56, 128, 1, 1},   {128, 56, 128, 3, 2}, {128, 28, 512, 1, 1},  {256, 56, 512, 1, 2},  {512, 28, 128, 1, 1},
      {128, 28, 128, 3, 1},   {512, 28, 256, 1, 1}, {256, 28, 256, 3, 2},  {256, 14, 1024, 1, 1}, {512, 28, 1024, 1, 2},
      {1024, 14, 256, 1, 1},  {256, 14, 256, 3, 1}, {1024, 14, 512, 1, 1}, {512, 14, 512, 3, 2},  {512, 7, 2048, 1, 1},
      {1024, 14, 2048, 1, 2}, {2048, 7, 512, 1, 1}, {512, 7, 512, 3, 1}};
  for (const auto& s : resnet50) convs.push_back({"resnet50", 8, s[0], s[1], s[2], s[3], s[4], s[3] / 2});
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast, Layout::kBlocked})
    for (Conv conv : convs) {
      conv.layout = layout;
      program.add(conv.name("forward"), "FLOP", conv.flop(), [conv] { return forward(conv); });
      program.add(conv.name("backward"), "FLOP", conv.flop() * (conv.first() ? 1 : 2),
                  [conv] { return backward(conv); });
    }
}

}  // namespace

int main() {
  const dnnl_version_t* version = dnnl_version();
  bench::Program program(
      "onednn",
      std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch),
      omp_get_max_threads());
  add_gemm_rows(program);
  add_conv_rows(program);
  return program.serve();
}
