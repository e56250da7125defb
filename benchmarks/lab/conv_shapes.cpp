// Our convolutions on plain NCHW tensors beside oneDNN's on layouts of its choice, interleaved.
// Usage: lab_conv_shapes [threads] [seconds per line] [only shapes whose name contains this]
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/ops/kernels/conv.h"

using namespace athanor;
using Tag = dnnl::memory::format_tag;
using Desc = dnnl::memory::desc;

namespace {

struct Layer {
  const char* name;
  long n, c, h, k, r, pad, stride;
  long out() const { return (h + 2 * pad - r) / stride + 1; }
  double flop() const { return 2.0 * n * k * out() * out() * c * r * r; }
};

bool cpu_time = true;
double seconds = 0.3;

double now() {
  timespec t;
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
double typical(std::vector<double>& t) {
  std::nth_element(t.begin(), t.begin() + t.size() / 4, t.end());
  return t[t.size() / 4];
}

struct Array {
  std::vector<std::int64_t> sizes, strides;
  std::vector<float> values;
  explicit Array(std::vector<std::int64_t> s) : sizes(s), strides(s.size()) {
    std::int64_t n = 1;
    for (int i = static_cast<int>(s.size()) - 1; i >= 0; --i) strides[i] = n, n *= s[i];
    values.resize(n);
    for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<float>((i * 2654435761u >> 8) % 1000) / 1000 - .5f;
  }
  View view() {
    return {values.data(),
            sizes.data(),
            strides.data(),
            static_cast<std::int64_t>(values.size()),
            DType::Float,
            static_cast<std::int8_t>(sizes.size()),
            true};
  }
};

dnnl::memory filled(const Desc& d, const dnnl::engine& e) {
  dnnl::memory m(d, e);
  std::memset(m.get_data_handle(), 0, d.get_size());
  return m;
}

template <class F, class G>
void line(const Layer& l, const char* what, F&& ours, G&& theirs) {
  std::vector<double> a, b;
  const double end = now() + seconds;
  for (int i = 0; i < 5 || now() < end; ++i) {
    double s = now();
    ours();
    const double x = now() - s;
    s = now();
    theirs();
    const double y = now() - s;
    if (i > 1) a.push_back(x), b.push_back(y);
  }
  const double x = typical(a), y = typical(b);
  std::printf("%-9s %-9s ours %8.3f ms %6.1f GF   oneDNN %8.3f ms %6.1f GF   %.2fx\n", l.name, what, x * 1e3,
              l.flop() / x / 1e9, y * 1e3, l.flop() / y / 1e9, y / x);
  std::fflush(stdout);
}

void run(const Layer& l, const dnnl::engine& e) {
  using namespace dnnl;
  stream s(e);
  const memory::dims in{l.n, l.c, l.h, l.h}, w{l.k, l.c, l.r, l.r}, out{l.n, l.k, l.out(), l.out()}, b{l.k},
      st{l.stride, l.stride}, pad{l.pad, l.pad};
  const auto f32 = memory::data_type::f32;
  const Desc din(in, f32, Tag::any), dout(out, f32, Tag::any), dw(w, f32, Tag::any), db(b, f32, Tag::x);
  primitive_attr relu;
  post_ops po;
  po.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
  relu.set_post_ops(po);
  const auto direct = algorithm::convolution_direct;
  const convolution_forward::primitive_desc fpd({prop_kind::forward_training, direct, din, dw, db, dout, st, pad, pad},
                                                relu, e);
  const convolution_backward_data::primitive_desc dpd({direct, din, dw, dout, st, pad, pad}, e, fpd);
  const convolution_backward_weights::primitive_desc wpd({direct, din, dw, db, dout, st, pad, pad}, e, fpd);
  convolution_forward f(fpd);
  convolution_backward_data d(dpd);
  convolution_backward_weights g(wpd);
  auto mb = filled(db, e), fi = filled(fpd.src_desc(), e), fw = filled(fpd.weights_desc(), e),
       fo = filled(fpd.dst_desc(), e), di = filled(dpd.diff_src_desc(), e), dww = filled(dpd.weights_desc(), e),
       dd = filled(dpd.diff_dst_desc(), e), wi = filled(wpd.src_desc(), e), ww = filled(wpd.diff_weights_desc(), e),
       wo = filled(wpd.diff_dst_desc(), e);

  Array x({l.n, l.c, l.h, l.h}), weight({l.k, l.c, l.r, l.r}), bias({l.k}), y({l.n, l.k, l.out(), l.out()});
  Array dx({l.n, l.c, l.h, l.h}), dweight({l.k, l.c, l.r, l.r}), dbias({l.k});
  ConvParams p;
  p.stride = {l.stride, l.stride, 1};
  p.padding = {l.pad, l.pad, 0};
  line(
      l, "forward",
      [&] { conv_forward_kernel.get(kCPU)(y.view(), x.view(), weight.view(), bias.view(), p, Epilogue::Relu); },
      [&] {
        f.execute(s, {{DNNL_ARG_SRC, fi}, {DNNL_ARG_WEIGHTS, fw}, {DNNL_ARG_BIAS, mb}, {DNNL_ARG_DST, fo}});
      });
  line(
      l, "input", [&] { conv_backward_input_kernel.get(kCPU)(dx.view(), y.view(), weight.view(), p); },
      [&] {
        d.execute(s, {{DNNL_ARG_DIFF_SRC, di}, {DNNL_ARG_WEIGHTS, dww}, {DNNL_ARG_DIFF_DST, dd}});
      });
  line(
      l, "weight",
      [&] { conv_backward_weight_kernel.get(kCPU)(dweight.view(), dbias.view(), y.view(), x.view(), p, View{}); },
      [&] {
        g.execute(s,
                  {{DNNL_ARG_SRC, wi}, {DNNL_ARG_DIFF_WEIGHTS, ww}, {DNNL_ARG_DIFF_BIAS, mb}, {DNNL_ARG_DIFF_DST, wo}});
      });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  if (argc > 2) seconds = std::atof(argv[2]);
  cpu_time = threads == 1;
  set_num_threads(threads);
  omp_set_num_threads(threads);
  const dnnl::engine e(dnnl::engine::kind::cpu, 0);
  const Layer layers[] = {{"conv1", 64, 1, 28, 32, 3, 0, 1},      {"conv2", 64, 32, 26, 64, 3, 0, 1},
                          {"tut1", 128, 1, 28, 10, 5, 0, 1},      {"tut2", 128, 10, 12, 20, 5, 0, 1},
                          {"stem7x7", 4, 3, 224, 64, 7, 3, 2},    {"res56a", 4, 64, 56, 64, 1, 0, 1},
                          {"res56b", 4, 64, 56, 64, 3, 1, 1},     {"res56c", 4, 64, 56, 256, 1, 0, 1},
                          {"res28b", 8, 128, 28, 128, 3, 1, 1},   {"res28s", 8, 128, 56, 128, 3, 1, 2},
                          {"res14a", 16, 1024, 14, 256, 1, 0, 1}, {"res14b", 16, 256, 14, 256, 3, 1, 1},
                          {"res7b", 16, 512, 7, 512, 3, 1, 1},    {"res7c", 16, 512, 7, 2048, 1, 0, 1},
                          {"down1x1", 8, 256, 56, 512, 1, 0, 2}};
  for (const Layer& l : layers)
    if (argc <= 3 || std::strstr(l.name, argv[3])) run(l, e);
}
