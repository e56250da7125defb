// Convolutions of many shapes, float32 where the name says nothing else, as rows that benchmarks/two_builds.py times
// with two builds of the library: how the rules of athanor/device/cpu/onednn_conv_rule.cpp and conv_pointwise.cpp were
// found.
//   cmake build -DATHANOR_LAB=ON && ninja -C build lab_conv_sweep
//   benchmarks/two_builds.py OLD --program lab_conv_sweep --rounds 3 --min-time 0.002 --filter '^planes/.*s2'
#include <array>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "athanor/athanor.h"
#include "benchmarks/protocol.h"

namespace {

using namespace athanor;
using bench::Body;

struct Shape {
  int dims;
  bool last;
  std::int64_t batch, size, from, to, kernel, stride, pad = 1;
  DType dtype = kFloat;

  std::vector<std::int64_t> sizes(std::int64_t first, std::int64_t second, std::int64_t rest) const {
    std::vector<std::int64_t> s{first, second};
    s.insert(s.end(), static_cast<std::size_t>(dims), rest);
    return s;
  }
  Tensor random(const std::vector<std::int64_t>& s) const {
    Tensor t = randn(s, TensorOptions(dtype));
    if (!last) return t;
    return t.contiguous(dims == 3 ? MemoryFormat::ChannelsLast3d : MemoryFormat::ChannelsLast);
  }
  Tensor call(const Tensor& x, const Tensor& w, const Tensor& bias = {}) const {
    const std::vector<std::int64_t> steps(static_cast<std::size_t>(dims), stride), around(steps.size(), pad);
    return dims == 3 ? conv3d(x, w, bias, steps, around) : conv2d(x, w, bias, steps, around);
  }
  std::int64_t out() const { return (size + 2 * pad - kernel) / stride + 1; }
  double work() const {
    double w = static_cast<double>(batch * from * to);
    for (int d = 0; d < dims; ++d) w *= static_cast<double>(kernel * out());
    return w;
  }
  std::string name(const char* pass) const {
    const auto s = [](std::int64_t v) { return std::to_string(v); };
    return std::string(dims == 3 ? "volumes/" : "planes/") + pass + "/n" + s(batch) + "x" + s(size) + "c" + s(from) +
           "k" + s(to) + "r" + s(kernel) + "s" + s(stride) + (pad == 1 ? "" : "p" + s(pad)) +
           (dtype == kDouble ? "@float64" : "") + (last ? "@channels_last" : "");
  }
};

Body forward(const Shape& s, bool biased = false) {
  return [s, x = s.random(s.sizes(s.batch, s.from, s.size)), w = s.random(s.sizes(s.to, s.from, s.kernel)),
          bias = biased ? randn({s.to}, TensorOptions(s.dtype)) : Tensor()] {
    const NoGradGuard off;
    const Tensor y = s.call(x, w, bias);
  };
}

/// The gradient of the input, or of the weight.
Body backward(const Shape& s, bool input) {
  const Tensor x = s.random(s.sizes(s.batch, s.from, s.size)).requires_grad_(input);
  const Tensor w = s.random(s.sizes(s.to, s.from, s.kernel)).requires_grad_(!input);
  const Tensor y = s.call(x, w);
  return [y, wanted = input ? x : w, gradient = s.random(s.sizes(s.batch, s.to, s.out()))] {
    const auto g = autograd::grad({y}, {wanted}, {gradient}, /*retain_graph=*/true);
  };
}

/// Sizes that keep changing: more than there is room for primitives.
Body sizes_in_turn() {
  const Shape one{2, false, 1, 0, 8, 16, 3, 2};
  std::vector<Tensor> inputs;
  for (std::int64_t i = 0; i < 400; ++i) inputs.push_back(randn({1, 8, 28 + i / 20, 28 + i % 20}));
  return [one, inputs, w = one.random(one.sizes(one.to, one.from, one.kernel)), at = std::size_t{0}]() mutable {
    const NoGradGuard off;
    const Tensor y = one.call(inputs[at++ % inputs.size()], w);
  };
}

void add_rows(bench::Program& program, const Shape& s) {
  const double flop = 2 * s.work();
  program.add(s.name("forward"), "FLOP", flop, [s] { return forward(s); });
  program.add(s.name("input"), "FLOP", flop, [s] { return backward(s, true); });
  program.add(s.name("weight"), "FLOP", flop, [s] { return backward(s, false); });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  set_num_threads(threads);
  bench::Program program("athanor", "sweep", threads);
  program.add("planes/forward/sizes_in_turn", "call", 1, sizes_in_turn);
  for (const int dims : {2, 3})
    for (const bool last : {false, true})
      for (const std::int64_t from : {1, 3, 4, 6, 10, 16, 20, 32, 48})
        for (const std::int64_t to : {1, 6, 8, 10, 16, 20, 32, 64})
          for (const std::int64_t kernel : {1, 2, 3, 4, 5, 7})
            for (const std::int64_t stride : {1, 2, 3}) {
              const Shape s{dims, last, 4, dims == 3 ? 10 : 24, from, to, kernel, stride};
              if ((kernel >= stride || kernel == 1) && s.work() >= 2e5 && s.work() <= 4e8) add_rows(program, s);
            }
  // As a ResNet halves its planes, in batches down to a single image.
  for (const bool last : {false, true})
    for (const std::int64_t from : {64, 128, 256, 512})
      for (const std::int64_t batch : {1, 8, 32})
        for (const std::int64_t kernel : {3, 4, 5})
          add_rows(program, {2, last, batch, 4096 / from, from, 2 * from, kernel, 2});
  // One tap, where nothing is padded.
  for (const DType dtype : {kFloat, kDouble})
    for (const bool last : {false, true})
      for (const std::int64_t batch : {1, 8, 64, 512})
        for (const std::int64_t size : {1, 2, 3, 4, 5, 7, 10, 14, 28, 56})
          for (const std::int64_t from : {3, 8, 12, 16, 32, 64, 128, 256, 512})
            for (const std::int64_t to : {3, 8, 12, 16, 32, 64, 128, 256, 512}) {
              const Shape s{2, last, batch, size, from, to, 1, 1, 0, dtype};
              if (s.work() >= 5e4 && s.work() <= 4e8) add_rows(program, s);
            }
  // One tap that leaves out pixels.
  for (const DType dtype : {kFloat, kDouble})
    for (const bool last : {false, true})
      for (const std::int64_t batch : {1, 8, 64})
        for (const std::int64_t size : {7, 14, 28, 56})
          for (const std::int64_t from : {3, 8, 16, 64, 256, 1024})
            for (const std::int64_t to : {8, 16, 64, 128, 512, 2048}) {
              const Shape s{2, last, batch, size, from, to, 1, 2, 0, dtype};
              if (s.work() >= 5e4 && s.work() <= 8e8) add_rows(program, s);
            }
  // Such as may be oneDNN's or products, with a bias and without.
  for (const auto& [batch, size, from, to] : std::initializer_list<std::array<std::int64_t, 4>>{{32, 28, 64, 64},
                                                                                                {32, 28, 128, 128},
                                                                                                {8, 56, 64, 64},
                                                                                                {8, 56, 256, 64},
                                                                                                {1, 56, 128, 128},
                                                                                                {4, 28, 128, 128},
                                                                                                {1, 28, 256, 256}}) {
    const Shape s{2, false, batch, size, from, to, 1, 1, 0};
    program.add("pointwise/" + s.name("forward"), "FLOP", 2 * s.work(), [s] { return forward(s); });
    program.add("pointwise/" + s.name("biased"), "FLOP", 2 * s.work(), [s] { return forward(s, true); });
  }
  return program.serve();
}
