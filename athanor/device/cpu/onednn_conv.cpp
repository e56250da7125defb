#include "athanor/device/cpu/onednn_conv.h"

#include <cstring>
#include <unordered_map>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/conv_winograd.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/onednn_cache.h"
#include "athanor/tensor/allocator.h"

namespace athanor::onednn {
#ifdef ATHANOR_STD_THREAD_POOL

int conv_block(const detail::ConvCall&, ConvPass) { return 0; }
bool conv_forward(const detail::ConvCall&) { return false; }
bool conv_input(const detail::ConvCall&) { return false; }
bool conv_weight(const detail::ConvCall&) { return false; }

#else
namespace {

using detail::ConvCall;
using detail::ConvData;
using detail::ConvShape;
using dnnl::memory;

using Pass = ConvPass;
/// How activations are handed over: as they are, or in blocks of channels after a reorder.
enum class Layout : std::int64_t { None, AsGiven, Blocked };

bool channels_last(const ConvData& d, const ConvShape& s, const std::array<std::int64_t, 3>& size,
                   std::int64_t channels) {
  return !d.block && channels * s.groups > 1 && d.channel_step == 1 && d.step[2] == channels * s.groups &&
         d.step[1] == size[2] * d.step[2] && d.batch_step == size[1] * d.step[1];
}
bool channels_first(const ConvData& d, const ConvShape& s, const std::array<std::int64_t, 3>& size,
                    std::int64_t channels) {
  return d.step[2] == 1 && d.step[1] == size[2] && d.channel_step == size[1] * size[2] &&
         d.batch_step == channels * s.groups * d.channel_step;
}

/// The rule. Winograd's 3 × 3 and the kernels for few channels are ours; the rest of the large ones are oneDNN's.
Layout layout_for_plain(const ConvCall& call, Pass pass) {
  const ConvShape& s = call.shape;
  const bool half = call.dtype == DType::BFloat16;
  if ((call.dtype != DType::Float && !half) || call.epilogue != Epilogue::None) return Layout::None;
  if (s.x[0] != 1 || s.y[0] != 1 || s.kernel[0] != 1 || s.pad[0] != 0 || s.batch == 0) return Layout::None;
  const double work = static_cast<double>(s.batch * s.groups * s.x_channels * s.y_channels) *
                      static_cast<double>(s.taps() * s.y_pixels());
  if (work < 4e6 || s.y_channels < 16) return Layout::None;
  const bool last = channels_last(call.x, s, s.x, s.x_channels) && channels_last(call.y, s, s.y, s.y_channels);
  const bool first = channels_first(call.x, s, s.x, s.x_channels) && channels_first(call.y, s, s.y, s.y_channels);
  if (!last && !first) return Layout::None;
  if (s.x_channels < 16) {
    // A net's first layer: large kernels of a stride.
    if (half || s.groups > 1 || s.stride[1] == 1 || s.y_channels < 32) return Layout::None;
    return pass == Pass::Input ? Layout::AsGiven : Layout::Blocked;
  }
  if (last) return half || !winograd_fits(call) ? Layout::AsGiven : Layout::None;
  if (half) return Layout::Blocked;
  // Tiles of 4 × 4 do not fit small planes, and many channels make the transforms of the filters dear.
  const bool small = s.y_pixels() < 100 && s.x_channels >= 256 && s.y_channels >= 256;
  if (winograd_fits(call)) return small ? Layout::Blocked : Layout::None;
  const bool strided = s.stride[1] > 1 || s.stride[2] > 1;
  if (s.taps() == 1 && s.groups == 1 && s.pad[1] == 0 && s.pad[2] == 0) {
    if (strided) return pass == Pass::Forward || s.y_pixels() <= 400 ? Layout::Blocked : Layout::AsGiven;
    return s.y_pixels() > 400 ? Layout::AsGiven : Layout::Blocked;
  }
  return strided || s.y_channels > 32 ? Layout::Blocked : Layout::None;
}

bool known_block(const ConvData& d) { return d.block == 0 || d.block == 8 || d.block == 16; }

Layout layout_for(const ConvCall& call, Pass pass) {
  if (!known_block(call.x) || !known_block(call.y)) return Layout::None;
  const Layout l = layout_for_plain(call, pass);
  return l == Layout::AsGiven && (call.x.block || call.y.block) ? Layout::Blocked : l;
}

/// Everything a primitive depends on.
using Key = std::array<std::int64_t, 24>;

/// Weights of 1 × 1 in tiles of 16 × 16, which oneDNN's reorders move far below the memory's speed: the gradient that
/// backward_weights makes, and what backward_data reads.
enum class Tiles { None, Gradient, Input };

struct Primitive {
  dnnl::primitive run;
  memory::desc x, y, w, bias;              ///< as the primitive wants them
  memory::desc given_x, given_y, given_w;  ///< as the tensors have them
  dnnl::reorder in_x, in_y, in_w, out;     ///< between the two, where they differ
  Tiles tiles = Tiles::None;               ///< instead of in_w or out
  bool usable = false;
};

memory::data_type type_of(DType t) { return t == DType::Float ? memory::data_type::f32 : memory::data_type::bf16; }

struct Geometry {
  memory::dims x, y, w, stride, dilation, pad, far;

  explicit Geometry(const ConvShape& s)
      : x{s.batch, s.x_channels * s.groups, s.x[1], s.x[2]},
        y{s.batch, s.y_channels * s.groups, s.y[1], s.y[2]},
        w{s.y_channels, s.x_channels, s.kernel[1], s.kernel[2]},
        stride{s.stride[1], s.stride[2]},
        dilation{s.dil[1] - 1, s.dil[2] - 1},
        pad{s.pad[1], s.pad[2]} {
    if (s.groups > 1) w.insert(w.begin(), s.groups);
    // oneDNN wants the far padding that makes the sizes fit exactly; what a stride leaves over counts as negative.
    for (int e = 1; e < detail::kAxes; ++e)
      far.push_back((s.y[e] - 1) * s.stride[e] + s.dil[e] * (s.kernel[e] - 1) + 1 - s.x[e] - s.pad[e]);
  }
};

memory::desc given_desc(const memory::dims& dims, memory::data_type type, const ConvData& d) {
  if (d.block) return {dims, type, d.block == 16 ? memory::format_tag::nChw16c : memory::format_tag::nChw8c};
  return {dims, type, {d.batch_step, d.channel_step, d.step[1], d.step[2]}};
}

dnnl::convolution_forward::primitive_desc forward_desc(const Geometry& g, const memory::desc& x, const memory::desc& w,
                                                       const memory::desc& b, const memory::desc& y) {
  constexpr auto kind = dnnl::prop_kind::forward_training;
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), kind, algorithm, x, w, b, y, g.stride, g.dilation, g.pad, g.far};
#else
  return {dnnl::convolution_forward::desc(kind, algorithm, x, w, b, y, g.stride, g.dilation, g.pad, g.far),
          cpu_engine()};
#endif
}

void choose_forward(Primitive& p, const Geometry& g) {
  const auto made = forward_desc(g, p.x, p.w, p.bias, p.y);
  p.x = made.src_desc(), p.w = made.weights_desc(), p.y = made.dst_desc();
  p.run = dnnl::convolution_forward(made);
}

void choose_input(Primitive& p, const Geometry& g) {
  const auto hint = forward_desc(g, p.x, p.w, memory::desc(), p.y);
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_backward_data::primitive_desc made(cpu_engine(), algorithm, p.x, p.w, p.y, g.stride,
                                                             g.dilation, g.pad, g.far, hint);
#else
  const dnnl::convolution_backward_data::primitive_desc made(
      dnnl::convolution_backward_data::desc(algorithm, p.x, p.w, p.y, g.stride, g.dilation, g.pad, g.far), cpu_engine(),
      hint);
#endif
  p.x = made.diff_src_desc(), p.w = made.weights_desc(), p.y = made.diff_dst_desc();
  p.run = dnnl::convolution_backward_data(made);
}

void choose_weight(Primitive& p, const Geometry& g) {
  const auto hint = forward_desc(g, p.x, p.w, p.bias, p.y);
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_backward_weights::primitive_desc made(cpu_engine(), algorithm, p.x, p.w, p.bias, p.y,
                                                                g.stride, g.dilation, g.pad, g.far, hint);
#else
  const dnnl::convolution_backward_weights::primitive_desc made(
      dnnl::convolution_backward_weights::desc(algorithm, p.x, p.w, p.bias, p.y, g.stride, g.dilation, g.pad, g.far),
      cpu_engine(), hint);
#endif
  p.x = made.src_desc(), p.w = made.diff_weights_desc(), p.y = made.diff_dst_desc();
  p.run = dnnl::convolution_backward_weights(made);
}

dnnl::reorder reorder_between(const memory::desc& from, const memory::desc& to) {
  if (from == to) return {};
  return dnnl::reorder(dnnl::reorder::primitive_desc(cpu_engine(), from, cpu_engine(), to));
}

Tiles tiles_of(const Primitive& p, const ConvCall& call, const Geometry& g, Pass pass) {
  const ConvShape& s = call.shape;
  const bool dense = call.w.x_step == 1 && call.w.y_step == s.x_channels;
  if (s.taps() != 1 || s.groups != 1 || !dense || call.dtype != DType::Float || pass == Pass::Forward)
    return Tiles::None;
  if (s.x_channels % 16 || s.y_channels % 16) return Tiles::None;
  const bool input = pass == Pass::Input;
  const auto tag = input ? memory::format_tag::IOhw16o16i : memory::format_tag::OIhw16i16o;
  if (!(p.w == memory::desc(g.w, memory::data_type::f32, tag))) return Tiles::None;
  return input ? Tiles::Input : Tiles::Gradient;
}

constexpr std::int64_t kTile = 16, kTileGrain = 8;

/// `from`, (y / 16, x / 16, 16 of x, 16 of y), as rows of x.
void rows_from_tiles(float* to, const float* from, std::int64_t y, std::int64_t x) {
  const auto transpose = cpu::block_ops().transpose[2];
  parallel_for(0, y / kTile, kTileGrain, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin)
      for (std::int64_t i = 0; i < x / kTile; ++i)
        transpose(to + begin * kTile * x + i * kTile, x, from + (begin * (x / kTile) + i) * kTile * kTile, kTile, kTile,
                  kTile, false);
  });
}

/// Rows of x as (x / 16, y / 16, 16 of y, 16 of x).
void tiles_from_rows(float* to, const float* from, std::int64_t y, std::int64_t x) {
  parallel_for(0, y / kTile, kTileGrain, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin)
      for (std::int64_t i = 0; i < x / kTile; ++i)
        for (std::int64_t r = 0; r < kTile; ++r)
          std::memcpy(to + ((i * (y / kTile) + begin) * kTile + r) * kTile, from + (begin * kTile + r) * x + i * kTile,
                      kTile * sizeof(float));
  });
}

Primitive make(const ConvCall& call, Pass pass, Layout layout) {
  Primitive p;
  try {
    const Geometry g(call.shape);
    const auto type = type_of(call.dtype);
    const auto& w = call.w;
    p.given_x = given_desc(g.x, type, call.x);
    p.given_y = given_desc(g.y, type, call.y);
    memory::dims steps{w.y_step, w.x_step, w.step[1], w.step[2]};
    if (call.shape.groups > 1) steps.insert(steps.begin(), w.y_step * call.shape.y_channels);
    p.given_w = memory::desc(g.w, type, steps);
    constexpr auto any = memory::format_tag::any;
    p.x = layout == Layout::AsGiven ? p.given_x : memory::desc(g.x, type, any);
    p.y = layout == Layout::AsGiven ? p.given_y : memory::desc(g.y, type, any);
    p.w = memory::desc(g.w, type, any);
    if (call.bias) p.bias = memory::desc({g.y[1]}, type, memory::format_tag::a);
    if (pass == Pass::Forward) choose_forward(p, g);
    if (pass == Pass::Input) choose_input(p, g);
    if (pass == Pass::Weight) choose_weight(p, g);
    p.tiles = tiles_of(p, call, g, pass);
    if (pass != Pass::Input) p.in_x = reorder_between(p.given_x, p.x);
    if (pass != Pass::Forward) p.in_y = reorder_between(p.given_y, p.y);
    if (pass != Pass::Weight) p.in_w = reorder_between(p.given_w, p.w);
    if (pass == Pass::Forward) p.out = reorder_between(p.y, p.given_y);
    if (pass == Pass::Input) p.out = reorder_between(p.x, p.given_x);
    if (pass == Pass::Weight) p.out = reorder_between(p.w, p.given_w);
    p.usable = true;
  } catch (const dnnl::error&) {
    p.usable = false;  // no kernel for this processor or these sizes
  }
  return p;
}

Key key_of(const ConvCall& c, Pass pass, Layout layout, int team) {
  const ConvShape& s = c.shape;
  // The strides of the activations follow from the sizes: they are channels-first or channels-last throughout.
  return {static_cast<std::int64_t>(pass) + 4 * (c.x.block + 32 * c.y.block),
          static_cast<std::int64_t>(layout),
          static_cast<std::int64_t>(c.dtype) * 4 + (c.bias ? 2 : 0) + (c.x.step[2] == 1 ? 1 : 0),
          team,
          s.batch,
          s.groups,
          s.x_channels,
          s.y_channels,
          s.x[1],
          s.x[2],
          s.y[1],
          s.y[2],
          s.kernel[1],
          s.kernel[2],
          s.stride[1],
          s.stride[2],
          s.pad[1],
          s.pad[2],
          s.dil[1],
          s.dil[2],
          c.w.y_step,
          c.w.x_step,
          c.w.step[1],
          c.w.step[2]};
}

/// Memory in the primitive's layout: the tensor's own where that fits, else a block of its own.
class Operand {
 public:
  Operand(const memory::desc& wanted, bool apart, void* given) : bytes_(apart ? wanted.get_size() : 0) {
    own_ = host_allocator().allocate(bytes_);
    memory_ = memory(wanted, cpu_engine(), apart ? own_ : given);
  }
  ~Operand() { host_allocator().deallocate(own_, bytes_); }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  const memory& get() const { return memory_; }

 private:
  std::size_t bytes_;
  void* own_ = nullptr;
  memory memory_;
};

void move(dnnl::stream& stream, const dnnl::reorder& reorder, const memory& from, const memory& to) {
  if (!reorder.get(true)) return;
  memory source = from, target = to;
  reorder.execute(stream, source, target);
}

void execute(const Primitive& p, const ConvCall& call, Pass pass) {
  dnnl::stream stream(cpu_engine());
  const Operand x(p.x, !(p.x == p.given_x), call.x.data), y(p.y, !(p.y == p.given_y), call.y.data),
      w(p.w, !(p.w == p.given_w), call.w.data);
  const memory given_x(p.given_x, cpu_engine(), call.x.data), given_y(p.given_y, cpu_engine(), call.y.data),
      given_w(p.given_w, cpu_engine(), call.w.data);
  move(stream, p.in_x, given_x, x.get());
  move(stream, p.in_y, given_y, y.get());
  if (p.tiles == Tiles::Input)
    tiles_from_rows(static_cast<float*>(w.get().get_data_handle()), static_cast<const float*>(call.w.data),
                    call.shape.y_channels, call.shape.x_channels);
  else
    move(stream, p.in_w, given_w, w.get());
  std::unordered_map<int, memory> arguments;
  const auto put = [&](int plain, int gradient, bool is_gradient, const memory& m) {
    arguments.emplace(is_gradient ? gradient : plain, m);
  };
  put(DNNL_ARG_SRC, DNNL_ARG_DIFF_SRC, pass == Pass::Input, x.get());
  put(DNNL_ARG_DST, DNNL_ARG_DIFF_DST, pass != Pass::Forward, y.get());
  put(DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_WEIGHTS, pass == Pass::Weight, w.get());
  if (call.bias)
    put(DNNL_ARG_BIAS, DNNL_ARG_DIFF_BIAS, pass == Pass::Weight,
        memory(p.bias, cpu_engine(), const_cast<void*>(call.bias)));
  p.run.execute(stream, arguments);
  if (pass == Pass::Forward) move(stream, p.out, y.get(), given_y);
  if (pass == Pass::Input) move(stream, p.out, x.get(), given_x);
  if (p.tiles == Tiles::Gradient)
    rows_from_tiles(static_cast<float*>(call.w.data), static_cast<const float*>(w.get().get_data_handle()),
                    call.shape.y_channels, call.shape.x_channels);
  else if (pass == Pass::Weight)
    move(stream, p.out, w.get(), given_w);
}

bool convolve(const ConvCall& call, Pass pass) {
  if (call.bias && (call.bias_step != 1 || pass == Pass::Input)) return false;
  const Layout layout = layout_for(call, pass);
  if (layout == Layout::None) return false;
  const int team = use_team();
  thread_local RecentlyUsed<Key, Primitive> primitives;
  const Primitive& p = primitives.get(key_of(call, pass, layout, team), [&] { return make(call, pass, layout); });
  if (!p.usable) return false;
  execute(p, call, pass);
  return true;
}

/// The blocks that oneDNN's kernels for this processor like.
int block_of_processor() {
  static const int block = [] {
    const auto isa = dnnl::get_effective_cpu_isa();
    const auto at_least = [&](dnnl::cpu_isa wanted) {
      return (static_cast<unsigned>(isa) & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
    };
    return at_least(dnnl::cpu_isa::avx512_core) ? 16 : at_least(dnnl::cpu_isa::avx2) ? 8 : 0;
  }();
  return block;
}

}  // namespace

int conv_block(const ConvCall& call, ConvPass pass) {
  const int block = block_of_processor();
  const ConvShape& s = call.shape;
  if (!block || s.x_channels % block || s.y_channels % block) return 0;
  return layout_for(call, pass) == Layout::Blocked ? block : 0;
}
bool conv_forward(const ConvCall& call) { return convolve(call, Pass::Forward); }
bool conv_input(const ConvCall& call) { return convolve(call, Pass::Input); }
bool conv_weight(const ConvCall& call) { return convolve(call, Pass::Weight); }

#endif
}  // namespace athanor::onednn
