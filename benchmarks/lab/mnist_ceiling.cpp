// The MNIST training step in bare oneDNN: blocked layouts, fused relu, plain loops for what is element-wise. Shows what
// this machine can do without any framework around it.
// Usage: lab_mnist_ceiling conv|tutorial [threads] [batch] [seconds] [conv2 algorithms fwd,bwd-data,bwd-weights: e.g.
// wdd]
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

using namespace dnnl;
using Tag = memory::format_tag;
using Desc = memory::desc;
using Args = std::unordered_map<int, memory>;

namespace {

const engine cpu(engine::kind::cpu, 0);
stream queue(cpu);
constexpr auto f32 = memory::data_type::f32;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::map<std::string, double> spent;
struct Timed {
  const char* name;
  double start = now();
  ~Timed() { spent[name] += now() - start; }
};

float* data(const memory& m) { return static_cast<float*>(m.get_data_handle()); }
long count(const memory& m) { return static_cast<long>(m.get_desc().get_size() / 4); }

std::uint64_t random_state = 88172645463325252ull;
float uniform() {
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return static_cast<float>(random_state >> 40) / 16777216.f;
}
memory make(const Desc& d, float scale = 0) {
  memory m(d, cpu);
  for (long i = 0; i < count(m); ++i) data(m)[i] = scale * (2 * uniform() - 1);
  return m;
}

/// A parameter with its gradient and momentum, updated in the layout the primitives like.
struct Param {
  memory value, grad, momentum;
  Param(const Desc& d, float scale) : value(make(d, scale)), grad(make(d)), momentum(make(d)) {}
  void step() {
    float *p = data(value), *g = data(grad), *m = data(momentum);
    const long n = count(value);
#pragma omp parallel for simd if (n > 100000)
    for (long i = 0; i < n; ++i) {
      m[i] = .5f * m[i] + g[i];
      p[i] -= .01f * m[i];
    }
  }
};

algorithm pick(char c) { return c == 'w' ? algorithm::convolution_winograd : algorithm::convolution_direct; }

struct Conv {
  convolution_forward::primitive_desc fpd;
  convolution_forward f;
  convolution_backward_data bd;
  convolution_backward_weights bw;
  std::unique_ptr<Param> w, b;
  memory src, dst, ddst, dsrc;
  memory w_fwd, w_bwd, dw_native, src_bw, ddst_bw, ddst_bd;  // in the layouts each primitive wants

  Conv(memory in, bool first, long k, long r, bool relu, const char* alg) : src(in) {
    const auto id = in.get_desc().dims();
    const memory::dims wd{k, id[1], r, r}, od{id[0], k, id[2] - r + 1, id[3] - r + 1}, one{1, 1}, zero{0, 0};
    const Desc any_in = first ? in.get_desc() : Desc(id, f32, Tag::any);
    const Desc any_w(wd, f32, Tag::any), any_out(od, f32, Tag::any), bias({k}, f32, Tag::x);
    primitive_attr attr;
    post_ops po;
    if (relu) po.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
    attr.set_post_ops(po);
    fpd = {{prop_kind::forward_training, pick(alg[0]), any_in, any_w, bias, any_out, one, zero, zero}, attr, cpu};
    f = convolution_forward(fpd);
    const convolution_forward::primitive_desc hint(
        {prop_kind::forward_training, pick(alg[0]), any_in, any_w, bias, any_out, one, zero, zero}, cpu);
    const float scale = 1 / std::sqrt(static_cast<float>(id[1] * r * r));
    const convolution_backward_weights::primitive_desc bwpd(
        {pick(alg[2]), any_in, any_w, bias, any_out, one, zero, zero}, cpu, hint);
    bw = convolution_backward_weights(bwpd);
    w = std::make_unique<Param>(Desc(wd, f32, Tag::oihw), scale);
    b = std::make_unique<Param>(bias, scale);
    w_fwd = make(fpd.weights_desc());
    dw_native = make(bwpd.diff_weights_desc());
    dst = make(fpd.dst_desc());
    ddst = make(fpd.dst_desc());
    src_bw = bwpd.src_desc() == src.get_desc() ? src : make(bwpd.src_desc());
    ddst_bw = bwpd.diff_dst_desc() == ddst.get_desc() ? ddst : make(bwpd.diff_dst_desc());
    std::printf("  conv %ldx%ld: fwd %s, bwd-w %s", r, r, fpd.impl_info_str(), bwpd.impl_info_str());
    if (!first) {
      const convolution_backward_data::primitive_desc pd({pick(alg[1]), any_in, any_w, any_out, one, zero, zero}, cpu,
                                                         hint);
      bd = convolution_backward_data(pd);
      w_bwd = make(pd.weights_desc());
      dsrc = make(pd.diff_src_desc());
      ddst_bd = pd.diff_dst_desc() == ddst.get_desc() ? ddst : make(pd.diff_dst_desc());
      std::printf(", bwd-data %s", pd.impl_info_str());
    }
    std::printf("\n");
  }
  void forward(const char* name) {
    Timed t{name};
    reorder(w->value, w_fwd).execute(queue, w->value, w_fwd);
    f.execute(queue, {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, w_fwd}, {DNNL_ARG_BIAS, b->value}, {DNNL_ARG_DST, dst}});
  }
  void backward_data(const char* name) {
    Timed t{name};
    reorder(w->value, w_bwd).execute(queue, w->value, w_bwd);
    if (ddst_bd != ddst) reorder(ddst, ddst_bd).execute(queue, ddst, ddst_bd);
    bd.execute(queue, {{DNNL_ARG_DIFF_SRC, dsrc}, {DNNL_ARG_WEIGHTS, w_bwd}, {DNNL_ARG_DIFF_DST, ddst_bd}});
  }
  void backward_weights(const char* name) {
    Timed t{name};
    if (src_bw != src) reorder(src, src_bw).execute(queue, src, src_bw);
    if (ddst_bw != ddst) reorder(ddst, ddst_bw).execute(queue, ddst, ddst_bw);
    bw.execute(queue, {{DNNL_ARG_SRC, src_bw},
                       {DNNL_ARG_DIFF_WEIGHTS, dw_native},
                       {DNNL_ARG_DIFF_BIAS, b->grad},
                       {DNNL_ARG_DIFF_DST, ddst_bw}});
    reorder(dw_native, w->grad).execute(queue, dw_native, w->grad);
  }
};

struct Pool {
  pooling_forward f;
  pooling_backward b;
  memory src, dst, ddst, dsrc, ws;
  explicit Pool(memory in) : src(in) {
    const auto id = in.get_desc().dims();
    const memory::dims od{id[0], id[1], id[2] / 2, id[3] / 2}, two{2, 2}, zero{0, 0};
    const Desc out(od, f32, Tag::any);
    const pooling_forward::primitive_desc pd(
        {prop_kind::forward_training, algorithm::pooling_max, in.get_desc(), out, two, two, zero, zero}, cpu);
    f = pooling_forward(pd);
    dst = make(pd.dst_desc());
    ddst = make(pd.dst_desc());
    dsrc = make(in.get_desc());
    ws = memory(pd.workspace_desc(), cpu);
    b = pooling_backward({{algorithm::pooling_max, in.get_desc(), pd.dst_desc(), two, two, zero, zero}, cpu, pd});
    std::printf("  pool: %s\n", pd.impl_info_str());
  }
  void forward() {
    Timed t{"pool fwd"};
    f.execute(queue, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}, {DNNL_ARG_WORKSPACE, ws}});
  }
  void backward() {
    Timed t{"pool bwd"};
    b.execute(queue, {{DNNL_ARG_DIFF_SRC, dsrc}, {DNNL_ARG_DIFF_DST, ddst}, {DNNL_ARG_WORKSPACE, ws}});
  }
};

/// in: (batch, features), maybe a 4-d blocked activation that the weight's layout absorbs.
struct Linear {
  inner_product_forward f;
  inner_product_backward_data bd;
  inner_product_backward_weights bw;
  std::unique_ptr<Param> w, b;
  memory src, dst, ddst, dsrc, w_bwd, dw_native;
  Linear(memory in, long k, bool relu) : src(in) {
    auto wd = in.get_desc().dims();
    const memory::dims od{wd[0], k};
    long features = 1;
    for (std::size_t i = 1; i < wd.size(); ++i) features *= wd[i];
    wd[0] = k;
    const Desc any_w(wd, f32, Tag::any), bias({k}, f32, Tag::x), out(od, f32, Tag::nc);
    primitive_attr attr;
    post_ops po;
    if (relu) po.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
    attr.set_post_ops(po);
    const inner_product_forward::desc fd(prop_kind::forward_training, in.get_desc(), any_w, bias, out);
    const inner_product_forward::primitive_desc pd(fd, attr, cpu), hint(fd, cpu);
    f = inner_product_forward(pd);
    const inner_product_backward_data::primitive_desc bdpd({in.get_desc(), any_w, out}, cpu, hint);
    bd = inner_product_backward_data(bdpd);
    const inner_product_backward_weights::primitive_desc bwpd({in.get_desc(), any_w, bias, out}, cpu, hint);
    bw = inner_product_backward_weights(bwpd);
    const float scale = 1 / std::sqrt(static_cast<float>(features));
    w = std::make_unique<Param>(pd.weights_desc(), scale);
    b = std::make_unique<Param>(bias, scale);
    w_bwd = bdpd.weights_desc() == pd.weights_desc() ? w->value : make(bdpd.weights_desc());
    dw_native = bwpd.diff_weights_desc() == pd.weights_desc() ? w->grad : make(bwpd.diff_weights_desc());
    dst = make(out);
    ddst = make(out);
    dsrc = make(in.get_desc());
    std::printf("  linear %ld->%ld: fwd %s%s, bwd-data %s%s, bwd-w %s%s\n", features, k, pd.impl_info_str(), "",
                bdpd.impl_info_str(), w_bwd != w->value ? " (reorder)" : "", bwpd.impl_info_str(),
                dw_native != w->grad ? " (reorder)" : "");
  }
  void forward(const char* name) {
    Timed t{name};
    f.execute(queue,
              {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, w->value}, {DNNL_ARG_BIAS, b->value}, {DNNL_ARG_DST, dst}});
  }
  void backward_data(const char* name) {
    Timed t{name};
    if (w_bwd != w->value) reorder(w->value, w_bwd).execute(queue, w->value, w_bwd);
    bd.execute(queue, {{DNNL_ARG_DIFF_SRC, dsrc}, {DNNL_ARG_WEIGHTS, w_bwd}, {DNNL_ARG_DIFF_DST, ddst}});
  }
  void backward_weights(const char* name) {
    Timed t{name};
    bw.execute(queue, {{DNNL_ARG_SRC, src},
                       {DNNL_ARG_DIFF_WEIGHTS, dw_native},
                       {DNNL_ARG_DIFF_BIAS, b->grad},
                       {DNNL_ARG_DIFF_DST, ddst}});
    if (dw_native != w->grad) reorder(dw_native, w->grad).execute(queue, dw_native, w->grad);
  }
};

struct Dropout {
  float p;
  std::vector<unsigned char> keep;
  void forward(const memory& m) {
    Timed t{"dropout"};
    const long n = count(m);
    keep.resize(n);
    float* x = data(m);
    const float scale = 1 / (1 - p);
    const auto limit = static_cast<unsigned>(p * 65536);
    static unsigned seed = 1;
    const unsigned base = seed += 0x9e3779b9u;
    unsigned char* k = keep.data();
#pragma omp parallel for simd if (n > 30000)
    for (long i = 0; i < n; ++i) {
      unsigned h = (static_cast<unsigned>(i) + base) * 0x85ebca6bu;
      h ^= h >> 13, h *= 0xc2b2ae35u, h ^= h >> 16;
      k[i] = (h & 65535) >= limit;
      x[i] = k[i] ? x[i] * scale : 0;
    }
  }
  void backward(const memory& m) {
    Timed t{"dropout"};
    float* x = data(m);
    const float scale = 1 / (1 - p);
    const long n = count(m);
    const unsigned char* k = keep.data();
#pragma omp parallel for simd if (n > 30000)
    for (long i = 0; i < n; ++i) x[i] = k[i] ? x[i] * scale : 0;
  }
};

void relu_backward(const memory& grad, const memory& y, const char* name = "relu bwd") {
  Timed t{name};
  float* g = data(grad);
  const float* v = data(y);
  const long n = count(grad);
#pragma omp parallel for simd if (n > 30000)
  for (long i = 0; i < n; ++i) g[i] = v[i] > 0 ? g[i] : 0;
}
void relu(const memory& y) {
  Timed t{"relu"};
  float* v = data(y);
  const long n = count(y);
#pragma omp parallel for simd if (n > 30000)
  for (long i = 0; i < n; ++i) v[i] = v[i] > 0 ? v[i] : 0;
}
void copy(memory to, memory from) {
  if (to.get_desc() == from.get_desc()) {
#pragma omp parallel
    {
      const long n = count(to), t = omp_get_thread_num(), p = omp_get_num_threads();
      std::memcpy(data(to) + n * t / p, data(from) + n * t / p, (n * (t + 1) / p - n * t / p) * 4);
    }
  } else {
    reorder(from, to).execute(queue, from, to);
  }
}

/// Loss and its gradient with respect to the logits.
float loss_backward(const memory& logits, const std::vector<int>& target, const memory& grad) {
  Timed t{"loss"};
  const long n = logits.get_desc().dims()[0], c = logits.get_desc().dims()[1];
  float loss = 0;
  for (long i = 0; i < n; ++i) {
    const float* x = data(logits) + i * c;
    float* g = data(grad) + i * c;
    const float top = *std::max_element(x, x + c);
    float sum = 0;
    for (long j = 0; j < c; ++j) sum += g[j] = std::exp(x[j] - top);
    loss += std::log(sum) - (x[target[i]] - top);
    for (long j = 0; j < c; ++j) g[j] = (g[j] / sum - (j == target[i])) / static_cast<float>(n);
  }
  return loss / static_cast<float>(n);
}

struct ConvNet {
  memory x;
  Conv c1, c2;
  Pool pool;
  Dropout d1{.25f, {}}, d2{.5f, {}};
  Linear f1, f2;
  ConvNet(long batch, const char* alg)
      : x(make({{batch, 1, 28, 28}, f32, Tag::nchw}, 1)),
        c1(x, true, 32, 3, true, "ddd"),
        c2(c1.dst, false, 64, 3, true, alg),
        pool(c2.dst),
        f1(pool.dst, 128, true),
        f2(f1.dst, 10, false) {}
  float step(const std::vector<int>& target) {
    c1.forward("conv1 fwd");
    c2.forward("conv2 fwd");
    pool.forward();
    d1.forward(pool.dst);
    f1.forward("fc1 fwd");
    d2.forward(f1.dst);
    f2.forward("fc2 fwd");
    const float loss = loss_backward(f2.dst, target, f2.ddst);
    f2.backward_weights("fc2 bwd");
    f2.backward_data("fc2 bwd");
    copy(f1.ddst, f2.dsrc);
    d2.backward(f1.ddst);
    relu_backward(f1.ddst, f1.dst);
    f1.backward_weights("fc1 bwd-w");
    f1.backward_data("fc1 bwd-data");
    {
      // relu's gradient commutes with max pooling's: mask at a quarter of the size.
      d1.backward(f1.dsrc);
      relu_backward(f1.dsrc, pool.dst);
      Timed t{"copies"};
      copy(pool.ddst, f1.dsrc);
    }
    pool.backward();
    {
      Timed t{"copies"};
      copy(c2.ddst, pool.dsrc);
    }
    c2.backward_weights("conv2 bwd-w");
    c2.backward_data("conv2 bwd-data");
    {
      Timed t{"copies"};
      copy(c1.ddst, c2.dsrc);
    }
    relu_backward(c1.ddst, c1.dst);
    c1.backward_weights("conv1 bwd-w");
    Timed t{"sgd"};
    for (Param* p : {&*c1.w, &*c1.b, &*c2.w, &*c2.b, &*f1.w, &*f1.b, &*f2.w, &*f2.b}) p->step();
    return loss;
  }
};

struct TutorialNet {
  memory x;
  Conv c1;
  Pool p1;
  Conv c2;
  Pool p2;
  Dropout d1{.5f, {}}, d2{.5f, {}};
  Linear f1, f2;
  TutorialNet(long batch, const char* alg)
      : x(make({{batch, 1, 28, 28}, f32, Tag::nchw}, 1)),
        c1(x, true, 10, 5, false, "ddd"),
        p1(c1.dst),
        c2(p1.dst, false, 20, 5, false, alg),
        p2(c2.dst),
        f1(p2.dst, 50, true),
        f2(f1.dst, 10, false) {}
  float step(const std::vector<int>& target) {
    c1.forward("conv1 fwd");
    p1.forward();
    relu(p1.dst);
    c2.forward("conv2 fwd");
    d1.forward(c2.dst);  // element-wise instead of whole planes: same traffic
    p2.forward();
    relu(p2.dst);
    f1.forward("fc1 fwd");
    d2.forward(f1.dst);
    f2.forward("fc2 fwd");
    const float loss = loss_backward(f2.dst, target, f2.ddst);
    f2.backward_weights("fc2 bwd");
    f2.backward_data("fc2 bwd");
    copy(f1.ddst, f2.dsrc);
    d2.backward(f1.ddst);
    relu_backward(f1.ddst, f1.dst);
    f1.backward_weights("fc1 bwd-w");
    f1.backward_data("fc1 bwd-data");
    copy(p2.ddst, f1.dsrc);
    relu_backward(p2.ddst, p2.dst);
    p2.backward();
    copy(c2.ddst, p2.dsrc);
    d1.backward(c2.ddst);
    c2.backward_weights("conv2 bwd-w");
    c2.backward_data("conv2 bwd-data");
    copy(p1.ddst, c2.dsrc);
    relu_backward(p1.ddst, p1.dst);
    p1.backward();
    copy(c1.ddst, p1.dsrc);
    c1.backward_weights("conv1 bwd-w");
    Timed t{"sgd"};
    for (Param* p : {&*c1.w, &*c1.b, &*c2.w, &*c2.b, &*f1.w, &*f1.b, &*f2.w, &*f2.b}) p->step();
    return loss;
  }
};

template <class Net>
void run(long batch, const char* alg, double seconds) {
  Net net(batch, alg);
  std::vector<int> target(batch);
  for (int& t : target) t = static_cast<int>(uniform() * 10) % 10;
  const float first = net.step(target);
  for (int i = 0; i < 5; ++i) net.step(target);
  spent.clear();
  std::vector<double> times;
  float last = 0;
  const double end = now() + seconds;
  while (now() < end) {
    const double s = now();
    last = net.step(target);
    times.push_back(now() - s);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  for (auto& [name, t] : spent) std::printf("  %-15s %8.3f ms\n", name.c_str(), t / times.size() * 1e3);
  std::printf("median %.3f ms (best %.3f), %.0f images/s, loss %.4f -> %.4f\n", median * 1e3, times[0] * 1e3,
              batch / median, first, last);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string net = argc > 1 ? argv[1] : "conv";
  omp_set_num_threads(argc > 2 ? std::atoi(argv[2]) : 1);
  const long batch = argc > 3 ? std::atol(argv[3]) : net == "conv" ? 64 : 128;
  const double seconds = argc > 4 ? std::atof(argv[4]) : 2;
  const char* alg = argc > 5 ? argv[5] : net == "conv" ? "wdd" : "ddd";
  std::printf("%s net, batch %ld, %d threads\n", net.c_str(), batch, omp_get_max_threads());
  if (net == "conv")
    run<ConvNet>(batch, alg, seconds);
  else
    run<TutorialNet>(batch, alg, seconds);
}
