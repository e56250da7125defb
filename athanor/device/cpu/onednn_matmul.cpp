// Products of bfloat16 by oneDNN's matmul, which uses the matrix units of processors that have them.
#include <cstring>

#include "athanor/device/cpu/onednn.h"
#include "athanor/device/cpu/onednn_cache.h"

namespace athanor::onednn {
#ifdef ATHANOR_STD_THREAD_POOL

bool matmul_bf16(const GemmProblem&, const GemmBatch&) { return false; }

#else
namespace {

using dnnl::memory;

/// Everything a primitive depends on.
using Key = std::array<std::int64_t, 13>;

/// A primitive and the memory objects it is called with. Making those costs as much as a product of 64 by 64, so they
/// stay, and a call only tells them where its operands are.
struct Product {
  dnnl::matmul primitive;
  memory a, b, c, bias;
  std::array<dnnl_exec_arg_t, 4> arguments{};
  int count = 0;        ///< of arguments
  bool usable = false;  ///< oneDNN has a kernel for the problem

  void take(int argument, memory& to, const memory::desc& desc) {
    to = memory(desc, cpu_engine(), nullptr);
    arguments[static_cast<std::size_t>(count++)] = {argument, to.get()};
  }
};

enum class Bias : std::int64_t { None, Row, Output };

Product make_product(const GemmProblem& g, const GemmBatch& batch, Bias kind) {
  constexpr auto type = memory::data_type::bf16;
  Product p;
  const auto desc = [&](std::int64_t rows, std::int64_t cols, std::int64_t row, std::int64_t col, std::int64_t step) {
    return memory::desc({batch.count, rows, cols}, type, {batch.count > 1 ? step : rows * cols, row, col});
  };
  try {
    const memory::desc a = desc(g.m, g.k, g.a_row, g.a_col, batch.a), b = desc(g.k, g.n, g.b_row, g.b_col, batch.b);
    const memory::desc c = desc(g.m, g.n, g.c_row, g.c_col, batch.c);
    memory::desc bias;
    if (kind == Bias::Row) bias = memory::desc({1, 1, g.n}, type, {g.n, g.n, 1});
    dnnl::primitive_attr attr;
    if (kind == Bias::Output) {
      dnnl::post_ops sum;
      sum.append_sum(g.beta.to<float>());
      attr.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc made(cpu_engine(), a, b, bias, c, attr);
#else
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a, b, bias, c), attr, cpu_engine());
#endif
    p.primitive = dnnl::matmul(made);
    p.take(DNNL_ARG_SRC, p.a, a);
    p.take(DNNL_ARG_WEIGHTS, p.b, b);
    p.take(DNNL_ARG_DST, p.c, c);
    if (kind == Bias::Row) p.take(DNNL_ARG_BIAS, p.bias, bias);
    p.usable = true;
  } catch (const dnnl::error&) {
    p.usable = false;  // no kernel for this processor or these strides
  }
  return p;
}

/// Rows or columns follow each other, without overlap.
bool plain(std::int64_t rows, std::int64_t cols, std::int64_t row, std::int64_t col) {
  return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}

}  // namespace

bool matmul_bf16(const GemmProblem& g, const GemmBatch& batch) {
  constexpr double kLarge = 1 << 18;  // multiply-adds that pay for a call
  if (g.dtype != DType::BFloat16 || g.epilogue != Epilogue::None || g.c_col != 1 || g.c_row < g.n) return false;
  if (static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) < kLarge) return false;
  if (g.m < 8 || g.n < 8 || g.k < 16 || g.alpha.to<double>() != 1) return false;
  if (!plain(g.m, g.k, g.a_row, g.a_col) || !plain(g.k, g.n, g.b_row, g.b_col)) return false;
  if (batch.count > 1 && (batch.a < g.m * g.k || batch.b < g.k * g.n || batch.c < g.m * g.n)) return false;
  Bias kind = Bias::None;
  if (g.bias && g.beta.to<double>() != 0) {
    if (g.bias == g.c && g.bias_row == g.c_row && g.bias_col == 1 && (batch.count == 1 || batch.bias == batch.c))
      kind = Bias::Output;
    else if (g.bias_row == 0 && g.bias_col == 1 && g.beta.to<double>() == 1 && (batch.count == 1 || batch.bias == 0))
      kind = Bias::Row;
    else
      return false;
  }
  const Call call;
  if (!call.admitted()) return false;
  const int team = use_team();
  thread_local RecentlyUsed<Key, Product> products;
  const bool several = batch.count > 1;
  std::int64_t beta_bits = 0;
  if (kind == Bias::Output) {
    const double beta = g.beta.to<double>();
    std::memcpy(&beta_bits, &beta, sizeof beta);
  }
  const Key key{g.m,
                g.n,
                g.k,
                g.a_row == 1 && g.a_col != 1 ? -g.a_col : g.a_row,
                g.b_row == 1 && g.b_col != 1 ? -g.b_col : g.b_row,
                g.c_row,
                batch.count,
                several ? batch.a : 0,
                several ? batch.b : 0,
                several ? batch.c : 0,
                static_cast<std::int64_t>(kind),
                beta_bits,
                team};
  Product& p = products.get(key, [&] { return make_product(g, batch, kind); });
  if (!p.usable) return false;
  thread_local const dnnl::stream stream(cpu_engine());
  p.a.set_data_handle(const_cast<void*>(static_cast<const void*>(g.a)));
  p.b.set_data_handle(const_cast<void*>(static_cast<const void*>(g.b)));
  p.c.set_data_handle(g.c);
  if (kind == Bias::Row) p.bias.set_data_handle(const_cast<void*>(static_cast<const void*>(g.bias)));
  dnnl::error::wrap_c_api(dnnl_primitive_execute(p.primitive.get(), stream.get(), p.count, p.arguments.data()),
                          "oneDNN could not run a product of bfloat16");
  return true;
}

#endif
}  // namespace athanor::onednn
