#include "athanor/device/cpu/onednn_conv.h"

#include <cstring>
#include <mutex>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/hidden_layout.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/onednn_cache.h"
#include "athanor/device/cpu/onednn_conv_rule.h"
#include "athanor/tensor/allocator.h"

namespace athanor::onednn {
#ifdef ATHANOR_STD_THREAD_POOL

int conv_block(const detail::ConvCall&, ConvPass) { return 0; }
bool takes_conv(const detail::ConvCall&, ConvPass) { return false; }
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

/// Everything a primitive depends on.
using Key = std::array<std::int64_t, 31>;

/// Weights in tiles of 16 × 16 or, without AVX-512, 8 × 8, which oneDNN's reorders move far below the memory's speed:
/// the gradient that backward_weights makes, and what the other two passes read.
enum class Tiles { None, Gradient, Input, Forward };

/// One order of an operand, with the memory object that calls tell where it lies: making one takes longer.
struct Order {
  memory::desc desc;
  memory object;
  void prepare() { object = memory(desc, cpu_engine(), nullptr); }
  const memory& at(const void* data) const {
    object.set_data_handle(const_cast<void*>(data));
    return object;
  }
};

struct Operand {
  Order wanted, given;  ///< as the primitive wants it and as the tensor has it
  bool apart = false;   ///< they differ
  void prepare() {
    apart = wanted.desc != given.desc;
    wanted.prepare(), given.prepare();
  }
};

struct Primitive {
  dnnl::primitive run;
  Operand x, y, w;
  Order bias;
  dnnl::reorder in_x, in_y, in_w, out;  ///< between the two orders, where they differ
  Tiles tiles = Tiles::None;            ///< instead of in_w or out
  int side = 0;                         ///< of tiles: channels
  bool input_major = false;             ///< of tiles: those of one input channel lie together
  int out_block = 0;                    ///< channels of a block, where a large activation is turned instead of `out`
  std::int64_t form = 0;                ///< number of w's two orders
  bool usable = false;
};

memory::data_type type_of(DType t) { return t == DType::Float ? memory::data_type::f32 : memory::data_type::bf16; }

struct Geometry {
  memory::dims x, y, w, stride, dilation, pad, far;

  explicit Geometry(const ConvShape& s)
      : x{s.batch, s.x_channels * s.groups}, y{s.batch, s.y_channels * s.groups}, w{s.y_channels, s.x_channels} {
    if (s.groups > 1) w.insert(w.begin(), s.groups);
    for (int e = has_volumes(s) ? 0 : 1; e < detail::kAxes; ++e) {
      x.push_back(s.x[e]), y.push_back(s.y[e]), w.push_back(s.kernel[e]);
      stride.push_back(s.stride[e]), dilation.push_back(s.dil[e] - 1), pad.push_back(s.pad[e]);
      // oneDNN wants the far padding that makes the sizes fit exactly; what a stride leaves over counts as negative.
      far.push_back((s.y[e] - 1) * s.stride[e] + s.dil[e] * (s.kernel[e] - 1) + 1 - s.x[e] - s.pad[e]);
    }
  }
};

memory::desc given_desc(const memory::dims& dims, memory::data_type type, const ConvData& d) {
  if (d.block) return {dims, type, d.block == 16 ? memory::format_tag::nChw16c : memory::format_tag::nChw8c};
  memory::dims steps{d.batch_step, d.channel_step};
  steps.insert(steps.end(), d.step.end() - static_cast<std::ptrdiff_t>(dims.size() - 2), d.step.end());
  return {dims, type, steps};
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
  const auto made = forward_desc(g, p.x.wanted.desc, p.w.wanted.desc, p.bias.desc, p.y.wanted.desc);
  p.x.wanted.desc = made.src_desc(), p.w.wanted.desc = made.weights_desc(), p.y.wanted.desc = made.dst_desc();
  p.run = dnnl::convolution_forward(made);
}

void choose_input(Primitive& p, const Geometry& g) {
  const auto hint = forward_desc(g, p.x.wanted.desc, p.w.wanted.desc, memory::desc(), p.y.wanted.desc);
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_backward_data::primitive_desc made(cpu_engine(), algorithm, p.x.wanted.desc, p.w.wanted.desc,
                                                             p.y.wanted.desc, g.stride, g.dilation, g.pad, g.far, hint);
#else
  const dnnl::convolution_backward_data::primitive_desc made(
      dnnl::convolution_backward_data::desc(algorithm, p.x.wanted.desc, p.w.wanted.desc, p.y.wanted.desc, g.stride,
                                            g.dilation, g.pad, g.far),
      cpu_engine(), hint);
#endif
  p.x.wanted.desc = made.diff_src_desc(), p.w.wanted.desc = made.weights_desc(), p.y.wanted.desc = made.diff_dst_desc();
  p.run = dnnl::convolution_backward_data(made);
}

void choose_weight(Primitive& p, const Geometry& g) {
  const auto hint = forward_desc(g, p.x.wanted.desc, p.w.wanted.desc, p.bias.desc, p.y.wanted.desc);
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_backward_weights::primitive_desc made(cpu_engine(), algorithm, p.x.wanted.desc,
                                                                p.w.wanted.desc, p.bias.desc, p.y.wanted.desc, g.stride,
                                                                g.dilation, g.pad, g.far, hint);
#else
  const dnnl::convolution_backward_weights::primitive_desc made(
      dnnl::convolution_backward_weights::desc(algorithm, p.x.wanted.desc, p.w.wanted.desc, p.bias.desc,
                                               p.y.wanted.desc, g.stride, g.dilation, g.pad, g.far),
      cpu_engine(), hint);
#endif
  p.x.wanted.desc = made.src_desc(), p.w.wanted.desc = made.diff_weights_desc(), p.y.wanted.desc = made.diff_dst_desc();
  p.run = dnnl::convolution_backward_weights(made);
}

constexpr std::int64_t kTileGrain = 128;  // channels

dnnl::reorder reorder_between(const memory::desc& from, const memory::desc& to) {
  if (from == to) return {};
  return dnnl::reorder(dnnl::reorder::primitive_desc(cpu_engine(), from, cpu_engine(), to));
}

void choose_tiles(Primitive& p, const ConvCall& call, const Geometry& g, Pass pass) {
  const ConvShape& s = call.shape;
  const auto& w = call.w;
  const bool dense =
      w.step[2] == 1 && w.step[1] == s.kernel[2] && w.x_step == s.taps() && w.y_step == s.x_channels * s.taps();
  if (s.groups != 1 || has_volumes(s) || !dense || call.dtype != DType::Float) return;
  using Tag = memory::format_tag;
  const auto is = [&](Tag tag, int side) {
    if (s.x_channels % side || s.y_channels % side || p.w.wanted.desc != memory::desc(g.w, memory::data_type::f32, tag))
      return false;
    p.side = side;
    return true;
  };
  if (pass == Pass::Input) {
    p.input_major = is(Tag::IOhw16o16i, 16);
    if (p.input_major || is(Tag::OIhw16o16i, 16) || is(Tag::OIhw8o8i, 8)) p.tiles = Tiles::Input;
  } else if (is(Tag::OIhw16i16o, 16) || is(Tag::OIhw8i8o, 8)) {
    p.tiles = pass == Pass::Forward ? Tiles::Forward : Tiles::Gradient;
  }
}

/// A weight of y × x channels and `taps` taps, in rows and in tiles of kSide × kSide channels.
struct TiledWeight {
  float* rows;   ///< (y, x, taps)
  float* tiles;  ///< (y / kSide, x / kSide, taps, kSide, kSide), the first two turned round if input_major
  std::int64_t y, x, taps;
  bool input_major;

  /// Calls body(tile, rows, room) for each group of kSide × kSide channels; room has a group's size.
  template <std::int64_t kSide, class F>
  void each(F&& body) const {
    const std::int64_t size = kSide * kSide * taps, across = x / kSide;
    const std::int64_t grain = std::max<std::int64_t>(1, kTileGrain / kSide / taps);
    parallel_for(0, y / kSide, grain, [&](std::int64_t begin, std::int64_t end) {
      const cpu::HostBuffer<float> room(size);
      for (; begin < end; ++begin)
        for (std::int64_t i = 0; i < across; ++i) {
          const std::int64_t at = input_major ? i * (y / kSide) + begin : begin * across + i;
          body(tiles + at * size, rows + (begin * kSide * x + i * kSide) * taps, room.data());
        }
    });
  }
};

/// Rows (a, b) of kSide to rows (b, a).
template <std::int64_t kSide>
void swap_rows(float* to, const float* from, std::int64_t a, std::int64_t b) {
  for (std::int64_t i = 0; i < a; ++i)
    for (std::int64_t j = 0; j < b; ++j)
      std::memcpy(to + (j * a + i) * kSide, from + (i * b + j) * kSide, kSide * sizeof(float));
}

/// From tiles of kSide x by kSide y, which are lost if the rows are to be added to.
template <std::int64_t kSide>
void rows_from_tiles(const TiledWeight& w, bool accumulate) {
  const auto transpose = cpu::block_ops().transpose[2];
  const std::int64_t row = w.x * w.taps, part = kSide * w.taps;
  w.each<kSide>([&](float* tile, float* rows, float* room) {
    if (w.taps > 1) swap_rows<kSide>(room, tile, w.taps, kSide);
    const float* const from = w.taps > 1 ? room : tile;
    if (!accumulate) return transpose(rows, row, from, kSide, part, kSide, false);
    float* const turned = w.taps > 1 ? tile : room;
    transpose(turned, part, from, kSide, part, kSide, false);
    for (std::int64_t r = 0; r < kSide; ++r)
      for (std::int64_t i = 0; i < part; ++i) rows[r * row + i] += turned[r * part + i];
  });
}

/// To tiles of kSide x by kSide y.
template <std::int64_t kSide>
void forward_tiles_from_rows(const TiledWeight& w) {
  const auto transpose = cpu::block_ops().transpose[2];
  w.each<kSide>([&](float* tile, const float* rows, float* room) {
    transpose(w.taps > 1 ? room : tile, kSide, rows, w.x * w.taps, kSide, kSide * w.taps, false);
    if (w.taps > 1) swap_rows<kSide>(tile, room, kSide, w.taps);
  });
}

/// To tiles of kSide y by kSide x.
template <std::int64_t kSide>
void input_tiles_from_rows(const TiledWeight& w) {
  const auto transpose = cpu::block_ops().transpose[2];
  w.each<kSide>([&](float* tile, const float* rows, float* room) {
    if (w.taps == 1) {
      for (std::int64_t r = 0; r < kSide; ++r) std::memcpy(tile + r * kSide, rows + r * w.x, kSide * sizeof(float));
      return;
    }
    transpose(room, kSide, rows, w.x * w.taps, kSide, kSide * w.taps, false);
    for (std::int64_t t = 0; t < w.taps; ++t)
      transpose(tile + t * kSide * kSide, kSide, room + t * kSide, w.taps * kSide, kSide, kSide, false);
  });
}

/// The channels of a block if a large activation of the primitive has blocks, the tensor planes, neither gaps; else 0.
/// oneDNN's reorders write through the cache.
int block_to_turn(const memory::dims& dims, memory::data_type type, const memory::desc& given,
                  const memory::desc& wanted) {
  using Tag = memory::format_tag;
  if (dims.size() != 4 || given.get_size() <= cpu::kPastCache || given != memory::desc(dims, type, Tag::nchw)) return 0;
  for (const auto& [block, tag] : {std::pair{16, Tag::nChw16c}, std::pair{8, Tag::nChw8c}})
    if (dims[1] % block == 0 && wanted == memory::desc(dims, type, tag)) return block;
  return 0;
}

/// Numbers of the orders of weights that this process has met: what is kept in one can serve every primitive.
std::int64_t number_of(const memory::desc& given, const memory::desc& wanted) {
  static std::mutex mutex;
  static auto& known = *new std::vector<std::pair<memory::desc, memory::desc> >;
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < known.size(); ++i)
    if (known[i].first == given && known[i].second == wanted) return static_cast<std::int64_t>(i);
  known.emplace_back(given, wanted);
  return static_cast<std::int64_t>(known.size()) - 1;
}

Primitive make(const ConvCall& call, Pass pass, Layout layout) {
  Primitive p;
  try {
    const Geometry g(call.shape);
    const auto type = type_of(call.dtype);
    const auto& w = call.w;
    ConvData x = call.x;
    // oneDNN tells orders by strides, also by that of a single channel.
    const bool single = call.shape.x_channels == 1 && call.shape.groups == 1;
    if (single && call.y.channel_step == 1 && layout == Layout::AsGiven) x.channel_step = 1;
    p.x.given.desc = given_desc(g.x, type, x);
    p.y.given.desc = given_desc(g.y, type, call.y);
    memory::dims steps{w.y_step, w.x_step};
    steps.insert(steps.end(), w.step.end() - static_cast<std::ptrdiff_t>(g.stride.size()), w.step.end());
    if (call.shape.groups > 1) steps.insert(steps.begin(), w.y_step * call.shape.y_channels);
    p.w.given.desc = memory::desc(g.w, type, steps);
    constexpr auto any = memory::format_tag::any;
    p.x.wanted.desc = layout == Layout::AsGiven ? p.x.given.desc : memory::desc(g.x, type, any);
    p.y.wanted.desc = layout == Layout::AsGiven ? p.y.given.desc : memory::desc(g.y, type, any);
    p.w.wanted.desc = memory::desc(g.w, type, any);
    if (call.bias) p.bias.desc = memory::desc({g.y[1]}, type, memory::format_tag::a);
    if (pass == Pass::Forward) choose_forward(p, g);
    if (pass == Pass::Input) choose_input(p, g);
    if (pass == Pass::Weight) choose_weight(p, g);
    choose_tiles(p, call, g, pass);
    if (pass == Pass::Forward) p.out_block = block_to_turn(g.y, type, p.y.given.desc, p.y.wanted.desc);
    if (pass == Pass::Input) p.out_block = block_to_turn(g.x, type, p.x.given.desc, p.x.wanted.desc);
    p.form = number_of(p.w.given.desc, p.w.wanted.desc);
    if (pass != Pass::Input) p.in_x = reorder_between(p.x.given.desc, p.x.wanted.desc);
    if (pass != Pass::Forward) p.in_y = reorder_between(p.y.given.desc, p.y.wanted.desc);
    if (pass != Pass::Weight) p.in_w = reorder_between(p.w.given.desc, p.w.wanted.desc);
    if (pass == Pass::Forward) p.out = reorder_between(p.y.wanted.desc, p.y.given.desc);
    if (pass == Pass::Input) p.out = reorder_between(p.x.wanted.desc, p.x.given.desc);
    if (pass == Pass::Weight) p.out = reorder_between(p.w.wanted.desc, p.w.given.desc);
    for (Operand* o : {&p.x, &p.y, &p.w}) o->prepare();
    if (call.bias) p.bias.prepare();
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
          static_cast<std::int64_t>(c.dtype) * 8 + (c.bias ? 4 : 0) + (c.x.step[2] == 1 ? 2 : 0) +
              (c.y.step[2] == 1 ? 1 : 0),
          team,
          s.batch,
          s.groups,
          s.x_channels,
          s.y_channels,
          s.x[0],
          s.x[1],
          s.x[2],
          s.y[0],
          s.y[1],
          s.y[2],
          s.kernel[0],
          s.kernel[1],
          s.kernel[2],
          s.stride[0],
          s.stride[1],
          s.stride[2],
          s.pad[0],
          s.pad[1],
          s.pad[2],
          s.dil[0],
          s.dil[1],
          s.dil[2],
          c.w.y_step,
          c.w.x_step,
          c.w.step[0],
          c.w.step[1],
          c.w.step[2]};
}

/// An operand in the order that the primitive wants: the tensor's own memory where that fits, else a block of its own.
class Wanted {
 public:
  Wanted(const Operand& operand, void* given) : bytes_(operand.apart ? operand.wanted.desc.get_size() : 0) {
    own_ = host_allocator().allocate(bytes_);
    memory_ = &operand.wanted.at(operand.apart ? own_ : given);
  }
  ~Wanted() { host_allocator().deallocate(own_, bytes_); }
  Wanted(const Wanted&) = delete;
  Wanted& operator=(const Wanted&) = delete;
  const memory& get() const { return *memory_; }

 private:
  std::size_t bytes_;
  void* own_ = nullptr;
  const memory* memory_;
};

template <std::size_t kCount>
void execute(const dnnl::primitive& primitive, const dnnl_exec_arg_t (&arguments)[kCount], std::size_t count = kCount) {
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive.get(), call_stream().get(), static_cast<int>(count), arguments),
      "could not execute a primitive");
}

void move(const dnnl::reorder& reorder, const memory& from, const memory& to) {
  execute(reorder, {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}});
}

TiledWeight tiled(const Primitive& p, const ConvCall& call, void* tiles) {
  const ConvShape& s = call.shape;
  return {static_cast<float*>(call.w.data),
          static_cast<float*>(tiles),
          s.y_channels,
          s.x_channels,
          s.taps(),
          p.input_major};
}

/// Writes the weight in the primitive's order.
void reorder_weight(const Primitive& p, const ConvCall& call, const memory& to) {
  const bool narrow = p.side == 8;
  const auto weight = [&] { return tiled(p, call, to.get_data_handle()); };
  if (p.tiles == Tiles::Forward) return (narrow ? forward_tiles_from_rows<8> : forward_tiles_from_rows<16>)(weight());
  if (p.tiles == Tiles::Input) return (narrow ? input_tiles_from_rows<8> : input_tiles_from_rows<16>)(weight());
  move(p.in_w, p.w.given.at(call.w.data), to);
}

/// The weight that a pass reads, in the primitive's order: as it is, as kept from an earlier call, or made now.
class ReadWeight {
 public:
  ReadWeight(const Primitive& p, const ConvCall& call, Pass pass) {
    if (!p.w.apart) {
      p.w.wanted.at(call.w.data);
      return;
    }
    const KeptForms::Key key{static_cast<std::int64_t>(pass), p.form, reinterpret_cast<std::int64_t>(call.w.data)};
    KeptForms* const forms = call.kept ? call.kept->forms.get() : nullptr;
    const std::size_t bytes = p.w.wanted.desc.get_size();
    if (forms) kept_ = forms->find(key, call.kept->changes);
    const bool ready = static_cast<bool>(kept_);
    if (forms && !ready) kept_ = forms->room(key, call.kept->changes, bytes);
    if (!kept_) own_ = cpu::HostBuffer<char>(static_cast<std::int64_t>(bytes));
    const memory& to = p.w.wanted.at(kept_ ? kept_->data() : own_.data());
    if (ready) return;
    reorder_weight(p, call, to);
    if (kept_) forms->keep(key, call.kept->changes, kept_);
  }

 private:
  IntrusivePtr<KeptForm> kept_;
  cpu::HostBuffer<char> own_;
};

void run_weight(const Primitive& p, const ConvCall& call, const memory& x, const memory& y) {
  const Wanted w(p.w, call.w.data);
  execute(p.run,
          {{DNNL_ARG_SRC, x.get()},
           {DNNL_ARG_DIFF_DST, y.get()},
           {DNNL_ARG_DIFF_WEIGHTS, w.get().get()},
           {DNNL_ARG_DIFF_BIAS, call.bias ? p.bias.at(call.bias).get() : nullptr}},
          call.bias ? 4 : 3);
  if (p.tiles == Tiles::Gradient)
    (p.side == 8 ? rows_from_tiles<8> : rows_from_tiles<16>)(tiled(p, call, w.get().get_data_handle()),
                                                             call.accumulate);
  else if (p.w.apart)
    move(p.out, w.get(), p.w.given.at(call.w.data));
}

void run(const Primitive& p, const ConvCall& call, Pass pass) {
  const bool forward = pass == Pass::Forward;
  const Wanted x(p.x, call.x.data), y(p.y, call.y.data);
  if (p.in_x.get(true)) move(p.in_x, p.x.given.at(call.x.data), x.get());
  if (p.in_y.get(true)) move(p.in_y, p.y.given.at(call.y.data), y.get());
  if (pass == Pass::Weight) return run_weight(p, call, x.get(), y.get());
  const ReadWeight w(p, call, pass);
  execute(p.run,
          {{forward ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, x.get().get()},
           {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y.get().get()},
           {DNNL_ARG_WEIGHTS, p.w.wanted.object.get()},
           {DNNL_ARG_BIAS, call.bias ? p.bias.at(call.bias).get() : nullptr}},
          call.bias ? 4 : 3);
  const Operand& out = forward ? p.y : p.x;
  if (!out.apart) return;
  const memory& made = forward ? y.get() : x.get();
  void* const to = forward ? call.y.data : call.x.data;
  if (!p.out_block) return move(p.out, made, out.given.at(to));
  const ConvShape& s = call.shape;
  const std::int64_t channels = s.groups * (forward ? s.y_channels : s.x_channels);
  const std::int64_t plane = forward ? s.y_pixels() : s.x[1] * s.x[2];
  cpu::turn(to, made.get_data_handle(), s.batch * channels / p.out_block, plane, p.out_block, item_size(call.dtype));
}

bool convolve(const ConvCall& call, Pass pass) {
  if (call.bias && (call.bias_step != 1 || pass == Pass::Input)) return false;
  const Layout layout = layout_for(call, pass);
  if (layout == Layout::None) return false;
  const Call running;
  if (!running.admitted()) return false;
  const int team = use_team();
  thread_local RecentlyUsed<Key, Primitive, 256> primitives;  // large nets have some 180
  const Primitive& p = primitives.get(key_of(call, pass, layout, team), [&] { return make(call, pass, layout); });
  if (!p.usable || (call.accumulate && p.tiles != Tiles::Gradient)) return false;
  run(p, call, pass);
  return true;
}

}  // namespace

int conv_block(const ConvCall& call, ConvPass pass) {
  const int block = block_of_processor();
  const ConvShape& s = call.shape;
  if (!block || s.x_channels % block || s.y_channels % block) return 0;
  return layout_for(call, pass) == Layout::Blocked ? block : 0;
}
bool takes_conv(const ConvCall& call, ConvPass pass) { return layout_for(call, pass) != Layout::None; }
bool conv_forward(const ConvCall& call) { return convolve(call, Pass::Forward); }
bool conv_input(const ConvCall& call) { return convolve(call, Pass::Input); }
bool conv_weight(const ConvCall& call) { return convolve(call, Pass::Weight); }

#endif
}  // namespace athanor::onednn
