// How fast oneDNN runs each convolution of the MNIST nets, by direction, layout and algorithm: one line per
// combination with the implementation that oneDNN chose. Usage: lab_conv_layers [threads] [seconds per line]
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

using namespace dnnl;
using Tag = memory::format_tag;
using Desc = memory::desc;

namespace {

struct Layer {
  const char* name;
  long n, c, h, k, r, pad, stride;
  long out() const { return (h + 2 * pad - r) / stride + 1; }
  double flop() const { return 2.0 * n * k * out() * out() * c * r * r; }
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double seconds_per_line = 0.3;

template <class F>
double median_ms(F&& f) {
  f();
  f();
  std::vector<double> t;
  const double end = now() + seconds_per_line;
  while (t.size() < 5 || (now() < end && t.size() < 1000)) {
    const double s = now();
    f();
    t.push_back(now() - s);
  }
  std::nth_element(t.begin(), t.begin() + t.size() / 2, t.end());
  return t[t.size() / 2] * 1e3;
}

memory filled(const Desc& d, const engine& e) {
  memory m(d, e);
  auto* p = static_cast<float*>(m.get_data_handle());
  for (std::size_t i = 0; i < d.get_size() / 4; ++i) p[i] = float((i * 2654435761u >> 8) % 1000) / 1000 - .5f;
  return m;
}

void line(const Layer& l, const char* what, const char* layout, const char* impl, double ms) {
  std::printf("%-9s %-8s %-10s %8.3f ms %7.1f GFLOP/s  %s\n", l.name, what, layout, ms, l.flop() / ms / 1e6, impl);
}

void run(const Layer& l, const engine& e) {
  stream s(e);
  const memory::dims in{l.n, l.c, l.h, l.h}, w{l.k, l.c, l.r, l.r}, out{l.n, l.k, l.out(), l.out()}, b{l.k},
      st{l.stride, l.stride}, pad{l.pad, l.pad};
  const auto f32 = memory::data_type::f32;
  const std::pair<const char*, Tag> layouts[] = {
      {"any", Tag::any}, {"nchw", Tag::nchw}, {"nhwc", Tag::nhwc}, {"nChw16c", Tag::nChw16c}};
  for (auto alg : {algorithm::convolution_direct, algorithm::convolution_winograd})
    for (auto [name, tag] : layouts) {
      const bool wino = alg == algorithm::convolution_winograd;
      if (wino && tag != Tag::any) continue;
      const std::string label = wino ? "winograd" : name;
      const Tag tin = l.c == 1 && tag == Tag::nChw16c ? Tag::nchw : tag;
      const Desc din(in, f32, tin), dout(out, f32, tag), dw(w, f32, Tag::any), db(b, f32, Tag::x);
      std::unordered_map<int, memory> scratch_args;
      primitive_attr attr;
      post_ops po;
      po.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
      primitive_attr relu;
      relu.set_post_ops(po);
      convolution_forward::primitive_desc fpd;
      try {
        fpd = {{prop_kind::forward_training, alg, din, dw, db, dout, st, pad, pad}, relu, e};
        auto mi = filled(fpd.src_desc(), e), mw = filled(fpd.weights_desc(), e), mb = filled(db, e),
             mo = filled(fpd.dst_desc(), e);
        convolution_forward p(fpd);
        line(l, "fwd+relu", label.c_str(), fpd.impl_info_str(), median_ms([&] {
               p.execute(s, {{DNNL_ARG_SRC, mi}, {DNNL_ARG_WEIGHTS, mw}, {DNNL_ARG_BIAS, mb}, {DNNL_ARG_DST, mo}});
             }));
      } catch (const error& x) {
        std::printf("%-9s fwd %s: %s\n", l.name, label.c_str(), x.what());
        continue;
      }
      if (l.c > 1) try {
          convolution_backward_data::primitive_desc pd({alg, din, dw, dout, st, pad, pad}, e, fpd);
          auto mi = filled(pd.diff_src_desc(), e), mw = filled(pd.weights_desc(), e),
               mo = filled(pd.diff_dst_desc(), e);
          convolution_backward_data p(pd);
          line(l, "bwd-data", label.c_str(), pd.impl_info_str(), median_ms([&] {
                 p.execute(s, {{DNNL_ARG_DIFF_SRC, mi}, {DNNL_ARG_WEIGHTS, mw}, {DNNL_ARG_DIFF_DST, mo}});
               }));
        } catch (const error& x) {
          std::printf("%-9s bwd-data %s: %s\n", l.name, label.c_str(), x.what());
        }
      try {
        convolution_backward_weights::primitive_desc pd({alg, din, dw, db, dout, st, pad, pad}, e, fpd);
        auto mi = filled(pd.src_desc(), e), mw = filled(pd.diff_weights_desc(), e), mb = filled(db, e),
             mo = filled(pd.diff_dst_desc(), e);
        convolution_backward_weights p(pd);
        line(
            l, "bwd-w", label.c_str(), pd.impl_info_str(), median_ms([&] {
              p.execute(
                  s,
                  {{DNNL_ARG_SRC, mi}, {DNNL_ARG_DIFF_WEIGHTS, mw}, {DNNL_ARG_DIFF_BIAS, mb}, {DNNL_ARG_DIFF_DST, mo}});
            }));
      } catch (const error& x) {
        std::printf("%-9s bwd-w %s: %s\n", l.name, label.c_str(), x.what());
      }
    }
}

}  // namespace

int main(int argc, char** argv) {
  omp_set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  if (argc > 2) seconds_per_line = std::atof(argv[2]);
  const engine e(engine::kind::cpu, 0);
  const Layer layers[] = {{"conv1", 64, 1, 28, 32, 3, 0, 1},     {"conv2", 64, 32, 26, 64, 3, 0, 1},
                          {"tut1", 128, 1, 28, 10, 5, 0, 1},     {"tut2", 128, 10, 12, 20, 5, 0, 1},
                          {"res3x3", 16, 128, 28, 128, 3, 1, 1}, {"res1x1", 16, 256, 14, 1024, 1, 0, 1}};
  for (const Layer& l : layers) run(l, e);
}
