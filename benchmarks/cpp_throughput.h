#pragma once
/// Throughput rows in C++, written with libtorch's names so that the same text serves Athanor and libtorch; the names
/// and counts are those of peers/torch_peer.py. Include after cpp_rows.h. "B" rows count each operand read once and
/// each result written once; "new" rows allocate their result.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "cpp_rows.h"

namespace bench {

inline constexpr std::int64_t kWidth = 1024;  // last dimension of the matrices

/// One of the sizes at which throughput is measured.
struct Size {
  std::string name;
  std::int64_t n;
  std::int64_t rows() const { return n / kWidth; }
  double bytes(double streams) const { return 4.0 * streams * static_cast<double>(n); }
};

inline void add_pointwise_rows(Program& program, const Size& size) {
  struct Operands {
    Tensor x, y, z, out;
  };
  using Op = std::function<void(Operands&)>;
  const auto add = [&](const std::string& name, int streams, Op op) {
    program.add(name + "/" + size.name, "B", size.bytes(streams), [n = size.n, op = std::move(op)] {
      auto operands = std::make_shared<Operands>(
          Operands{torch::randn({n}), torch::randn({n}), torch::randn({n}), torch::zeros({n})});
      return without_grad([operands, op] { op(*operands); });
    });
  };
  add("copy.out", 2, [](auto& t) { t.out.copy_(t.x); });
  add("clone.new", 2, [](auto& t) { Tensor r = t.x.clone(); });
  add("add.out", 3, [](auto& t) { torch::add_out(t.out, t.x, t.y); });
  add("add.new", 3, [](auto& t) { Tensor r = t.x + t.y; });
  add("muladd.new", 4, [](auto& t) { Tensor r = t.x * t.y + t.z; });
  add("addcmul.out", 4, [](auto& t) { torch::addcmul_out(t.out, t.z, t.x, t.y); });
  add("relu.new", 2, [](auto& t) { Tensor r = torch::relu(t.x); });
  add("exp.out", 2, [](auto& t) { torch::exp_out(t.out, t.x); });
  add("exp.new", 2, [](auto& t) { Tensor r = torch::exp(t.x); });
  add("tanh.out", 2, [](auto& t) { torch::tanh_out(t.out, t.x); });
  add("tanh.new", 2, [](auto& t) { Tensor r = torch::tanh(t.x); });
  add("sigmoid.new", 2, [](auto& t) { Tensor r = torch::sigmoid(t.x); });
  add("gelu.new", 2, [](auto& t) { Tensor r = torch::gelu(t.x); });
  add("cat.new", 2, [n = size.n](auto& t) {
    Tensor r = torch::cat({t.x.narrow(0, 0, n / 2), t.y.narrow(0, 0, n / 2)});
  });
}

inline void add_broadcast_rows(Program& program, const Size& size) {
  struct Operands {
    Tensor m, row, column, out;
  };
  using Op = std::function<void(Operands&)>;
  const auto add = [&](const std::string& name, Op op) {
    program.add(name + "/" + size.name, "B", size.bytes(2), [rows = size.rows(), op = std::move(op)] {
      auto operands = std::make_shared<Operands>(Operands{torch::randn({rows, kWidth}), torch::randn({kWidth}),
                                                          torch::randn({rows, 1}), torch::zeros({rows, kWidth})});
      return without_grad([operands, op] { op(*operands); });
    });
  };
  add("broadcast_row.out", [](auto& t) { torch::add_out(t.out, t.m, t.row); });
  add("broadcast_row.new", [](auto& t) { Tensor r = t.m + t.row; });
  add("broadcast_column.out", [](auto& t) { torch::add_out(t.out, t.m, t.column); });
  add("broadcast_column.new", [](auto& t) { Tensor r = t.m + t.column; });
}

inline void add_reduction_rows(Program& program, const Size& size) {
  using Op = std::function<void(const Tensor&)>;
  const auto add = [&](const std::string& name, int streams, Op op) {
    program.add(name + "/" + size.name, "B", size.bytes(streams), [rows = size.rows(), op = std::move(op)] {
      return without_grad([m = torch::randn({rows, kWidth}), op] { op(m); });
    });
  };
  add("sum.all", 1, [](const auto& m) { Tensor r = m.sum(); });
  add("sum.last", 1, [](const auto& m) { Tensor r = m.sum(1); });
  add("sum.first", 1, [](const auto& m) { Tensor r = m.sum(0); });
  add("mean.last", 1, [](const auto& m) { Tensor r = m.mean(1); });
  add("amax.all", 1, [](const auto& m) { Tensor r = m.max(); });
  add("max_index.last", 1, [](const auto& m) { auto r = m.max(1); });
  add("argmax.last", 1, [](const auto& m) { Tensor r = m.argmax(1); });
  add("softmax.last", 2, [](const auto& m) { Tensor r = torch::softmax(m, 1); });
  add("log_softmax.last", 2, [](const auto& m) { Tensor r = torch::log_softmax(m, 1); });
  program.add("layer_norm.last/" + size.name, "B", size.bytes(2), [rows = size.rows()] {
    return without_grad([m = torch::randn({rows, kWidth}), w = torch::ones({kWidth}), b = torch::zeros({kWidth})] {
      Tensor r = torch::layer_norm(m, {kWidth}, w, b);
    });
  });
}

inline void add_movement_rows(Program& program, const Size& size) {
  const std::int64_t n = size.n, rows = size.rows();
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
  const auto add = [&](const std::string& name, const std::string& unit, double items, std::function<Body()> make) {
    program.add(name + "/" + size.name, unit, items, [make = std::move(make)] { return without_grad(make()); });
  };
  add("transpose.new", "B", 8.0 * static_cast<double>(side * side), [side]() -> Body {
    return [square = torch::randn({side, side})] { Tensor r = square.t().contiguous(); };
  });
  add("add_transposed.new", "B", 12.0 * static_cast<double>(side * side), [side]() -> Body {
    return [x = torch::randn({side, side}), y = torch::randn({side, side})] { Tensor r = x.t() + y; };
  });
  const std::int64_t narrow = n / 64;
  add("broadcast_narrow.new", "B", 8.0 * static_cast<double>(narrow * 64), [narrow]() -> Body {
    return [m = torch::randn({narrow, 64}), column = torch::randn({narrow, 1})] { Tensor r = m + column; };
  });
  add("erfinv.new", "B", 8.0 * static_cast<double>(n),
      [n]() -> Body { return [x = torch::rand({n}) * 1.9 - 0.95] { Tensor r = torch::erfinv(x); }; });
  add("lgamma.new", "B", 8.0 * static_cast<double>(n),
      [n]() -> Body { return [x = torch::rand({n}) * 10] { Tensor r = torch::lgamma(x); }; });
  add("index_rows.new", "B", 8.0 * static_cast<double>(rows * kWidth), [rows]() -> Body {
    return [m = torch::randn({rows, kWidth}), index = torch::randint(0, rows, {rows}, torch::kLong)] {
      Tensor r = m.index_select(0, index);
    };
  });
  add("index_elements.new", "B", 16.0 * static_cast<double>(n), [n]() -> Body {
    return [x = torch::randn({n}), index = torch::randint(0, n, {n}, torch::kLong)] {
      Tensor r = x.index_select(0, index);
    };
  });
  add("gather.new", "B", 16.0 * static_cast<double>(rows * kWidth), [rows]() -> Body {
    return [m = torch::randn({rows, kWidth}), index = torch::randint(0, kWidth, {rows, kWidth}, torch::kLong)] {
      Tensor r = m.gather(1, index);
    };
  });
  add("sort", "element", static_cast<double>(n),
      [n]() -> Body { return [x = torch::randn({n})] { auto r = torch::sort(x); }; });
  const auto line = [&](const std::string& name, std::function<void(const Tensor&)> op) {
    add(name, "element", static_cast<double>(n), [n, op]() -> Body { return [x = torch::randn({n}), op] { op(x); }; });
  };
  const auto matrix = [&](const std::string& name, std::function<void(const Tensor&)> op) {
    add(name, "element", static_cast<double>(rows * kWidth), [rows, op]() -> Body {
      return [m = torch::randn({rows, kWidth}), op] { op(m); };
    });
  };
  matrix("sort.last", [](const Tensor& m) { auto r = torch::sort(m, 1); });
  line("cumsum", [](const Tensor& x) { Tensor r = torch::cumsum(x, 0); });
  matrix("cumsum.last", [](const Tensor& m) { Tensor r = torch::cumsum(m, 1); });
  line("topk", [](const Tensor& x) { auto r = torch::topk(x, 100); });
  matrix("topk.last", [](const Tensor& m) { auto r = torch::topk(m, 5); });
  line("median", [](const Tensor& x) { Tensor r = torch::median(x); });
  matrix("median.last", [](const Tensor& m) { auto r = torch::median(m, 1); });
  add("unique", "element", static_cast<double>(n),
      [n]() -> Body { return [x = torch::randint(0, 1000, {n}, torch::kLong)] { auto r = torch::_unique2(x); }; });
  line("unique.float", [](const Tensor& x) { auto r = torch::_unique2(x); });
  add("searchsorted", "element", static_cast<double>(n), [n]() -> Body {
    return [keys = std::get<0>(torch::sort(torch::randn({100000}))), x = torch::randn({n})] {
      Tensor r = torch::searchsorted(keys, x);
    };
  });
  add("randperm", "element", static_cast<double>(n), [n]() -> Body { return [n] { Tensor r = torch::randperm(n); }; });
  add("uniform.fill", "element", static_cast<double>(n),
      [n]() -> Body { return [x = torch::zeros({n})]() mutable { x.uniform_(); }; });
  add("normal.fill", "element", static_cast<double>(n),
      [n]() -> Body { return [x = torch::zeros({n})]() mutable { x.normal_(); }; });
}

inline void add_gemm_rows(Program& program) {
  const auto add = [&](const std::string& name, torch::ScalarType type, std::int64_t n) {
    const auto flop = 2.0 * std::pow(static_cast<double>(n), 3);
    program.add("gemm." + name + "/" + std::to_string(n), "FLOP", flop, [n, type] {
      return without_grad(
          [a = torch::randn({n, n}).to(type), b = torch::randn({n, n}).to(type)] { Tensor c = torch::mm(a, b); });
    });
  };
  for (const std::int64_t n : {64, 128, 256, 512, 1024, 2048, 4096}) {
    add("f32", torch::kFloat, n);
    add("bf16", torch::kBFloat16, n);
  }
  for (const std::int64_t n : {256, 1024}) add("f64", torch::kDouble, n);
}

struct ConvShape {
  std::string net;
  std::int64_t batch, c, size, k, r, stride, pad;
  std::int64_t out() const { return (size + 2 * pad - r) / stride + 1; }
  bool first() const { return c == 1 || c == 3; }
  double flop() const { return 2.0 * static_cast<double>(batch * k * c * r * r * out() * out()); }
  std::string name() const {
    const auto s = [](std::int64_t v) { return std::to_string(v); };
    return net + ".b" + s(batch) + "c" + s(c) + "x" + s(size) + "k" + s(k) + "r" + s(r) + "s" + s(stride);
  }
};

/// Those of the MNIST nets, other small ones, and those of ResNet-50 at 224 x 224.
inline std::vector<ConvShape> conv_shapes() {
  std::vector<ConvShape> shapes = {{"mnist", 64, 1, 28, 32, 3, 1, 0},  {"mnist", 64, 32, 26, 64, 3, 1, 0},
                                   {"mnist", 128, 1, 28, 10, 5, 1, 0}, {"mnist", 128, 10, 12, 20, 5, 1, 0},
                                   {"small", 16, 3, 64, 64, 4, 2, 1},  {"small", 8, 8, 28, 16, 3, 2, 1},
                                   {"small", 4, 32, 24, 64, 5, 1, 2}};
  // Input channels, input size, output channels, kernel, stride.
  const std::int64_t resnet50[][5] = {
      {3, 224, 64, 7, 2},     {64, 56, 64, 1, 1},   {64, 56, 64, 3, 1},    {64, 56, 256, 1, 1},   {256, 56, 64, 1, 1},
      {256, 56, 128, 1, 1},   {128, 56, 128, 3, 2}, {128, 28, 512, 1, 1},  {256, 56, 512, 1, 2},  {512, 28, 128, 1, 1},
      {128, 28, 128, 3, 1},   {512, 28, 256, 1, 1}, {256, 28, 256, 3, 2},  {256, 14, 1024, 1, 1}, {512, 28, 1024, 1, 2},
      {1024, 14, 256, 1, 1},  {256, 14, 256, 3, 1}, {1024, 14, 512, 1, 1}, {512, 14, 512, 3, 2},  {512, 7, 2048, 1, 1},
      {1024, 14, 2048, 1, 2}, {2048, 7, 512, 1, 1}, {512, 7, 512, 3, 1}};
  for (const auto& s : resnet50) shapes.push_back({"resnet50", 8, s[0], s[1], s[2], s[3], s[4], s[3] / 2});
  return shapes;
}

using Layout = torch::MemoryFormat;

inline Body conv_forward(const ConvShape& s, Layout layout) {
  return without_grad([s, x = torch::randn({s.batch, s.c, s.size, s.size}).contiguous(layout),
                       w = torch::randn({s.k, s.c, s.r, s.r}).contiguous(layout)] {
    Tensor y = torch::conv2d(x, w, {}, s.stride, s.pad);
  });
}

/// Gradients of the weights and, but for a net's first layer, of the input.
inline Body conv_backward(const ConvShape& s, Layout layout) {
  Tensor x = torch::randn({s.batch, s.c, s.size, s.size}).contiguous(layout);
  const Tensor w = torch::randn({s.k, s.c, s.r, s.r}).contiguous(layout).requires_grad_();
  x.requires_grad_(!s.first());
  const Tensor y = torch::conv2d(x, w, {}, s.stride, s.pad);
  const std::vector<Tensor> wanted = s.first() ? std::vector<Tensor>{w} : std::vector<Tensor>{x, w};
  return [y, wanted, gradient = torch::randn({s.batch, s.k, s.out(), s.out()}).contiguous(layout)] {
    auto gradients = torch::autograd::grad({y}, wanted, {gradient}, /*retain_graph=*/true);
  };
}

inline void add_conv_rows(Program& program) {
  for (const ConvShape& s : conv_shapes()) {
    for (const Layout layout : {Layout::Contiguous, Layout::ChannelsLast}) {
      const std::string name = s.name() + (layout == Layout::ChannelsLast ? "@channels_last" : "");
      program.add("conv.forward/" + name, "FLOP", s.flop(), [s, layout] { return conv_forward(s, layout); });
      program.add("conv.backward/" + name, "FLOP", s.flop() * (s.first() ? 1 : 2),
                  [s, layout] { return conv_backward(s, layout); });
    }
  }
}

inline void add_throughput_rows(Program& program) {
  for (const Size& size : {Size{"1e6", 1000000}, Size{"1e8", 100000000}}) {
    add_pointwise_rows(program, size);
    add_broadcast_rows(program, size);
    add_reduction_rows(program, size);
    add_movement_rows(program, size);
  }
  add_gemm_rows(program);
  add_conv_rows(program);
}

}  // namespace bench
