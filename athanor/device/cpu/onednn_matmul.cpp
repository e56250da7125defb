// Products by oneDNN's matmul: of bfloat16, for which it uses the matrix units of processors that have them, and of
// float32 in round sizes.
#include <cstring>

#include "athanor/base/error.h"
#include "athanor/device/cpu/onednn.h"
#include "athanor/device/cpu/onednn_cache.h"
#include "athanor/device/cpu/wide_vectors.h"

namespace athanor::onednn {
#ifdef ATHANOR_STD_THREAD_POOL

bool matmul(const GemmProblem&, const GemmBatch&) { return false; }

#else
namespace {

using dnnl::memory;

/// Everything a primitive depends on.
using Key = std::array<std::int64_t, 14>;

/// A primitive and the memory objects it is called with. Making those takes as long as 40 % of a product of 64 by 64,
/// so they stay, and a call only tells them where its operands are.
struct Product {
  dnnl::matmul primitive;
  std::array<memory, 4> operands;  ///< a, b, c and, with Bias::Row, the bias
  std::array<dnnl_exec_arg_t, 4> arguments{};
  std::size_t count = 0;  ///< of operands
  bool usable = false;    ///< oneDNN has a kernel for the problem

  void take(int argument, const memory::desc& desc) {
    operands[count] = memory(desc, cpu_engine(), nullptr);
    arguments[count] = {argument, operands[count].get()};
    ++count;
  }

  dnnl_status_t run(const std::array<const void*, 4>& data) const {
    for (std::size_t i = 0; i < count; ++i) operands[i].set_data_handle(const_cast<void*>(data[i]));
    return dnnl_primitive_execute(primitive.get(), call_stream().get(), static_cast<int>(count), arguments.data());
  }
};

enum class Bias : std::int64_t { None, Row, Output };

Product make_product(const GemmProblem& g, const GemmBatch& batch, Bias kind) {
  const auto type = g.dtype == DType::Float ? memory::data_type::f32 : memory::data_type::bf16;
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
    p.take(DNNL_ARG_SRC, a);
    p.take(DNNL_ARG_WEIGHTS, b);
    p.take(DNNL_ARG_DST, c);
    if (kind == Bias::Row) p.take(DNNL_ARG_BIAS, bias);
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

/// Whether a product of float32 is for oneDNN: its operands fill AVX-512's vectors and stay in the second cache. A new
/// shape costs some 400 us, so only sizes are taken of which there are few.
bool round_floats(const GemmProblem& g, const GemmBatch& batch) {
  const auto round = [](std::int64_t size) { return size % 32 == 0 && size >= 64 && size <= 384; };
  return g.dtype == DType::Float && batch.count == 1 && g.a_col == 1 && g.b_col == 1 && round(g.m) && round(g.n) &&
         round(g.k) && cpu::vectors_fill_lines();
}

}  // namespace

bool matmul(const GemmProblem& g, const GemmBatch& batch) {
  const double least = g.dtype == DType::Float ? 1 << 20 : 1 << 18;  // multiply-adds that pay for a call
  if ((g.dtype != DType::BFloat16 && !round_floats(g, batch)) || g.epilogue != Epilogue::None || g.c_col != 1 ||
      g.c_row < g.n)
    return false;
  if (static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) < least) return false;
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
                static_cast<std::int64_t>(g.dtype),
                team};
  const Product& p = products.get(key, [&] { return make_product(g, batch, kind); });
  if (!p.usable) return false;
  const dnnl_status_t status = p.run({g.a, g.b, g.c, g.bias});
  ATHANOR_CHECK(status == dnnl_success, "matmul: oneDNN gave up a product of ", dtype_name(g.dtype), ", ", g.m, " x ",
                g.k, " by ", g.k, " x ", g.n, ", batch of ", batch.count, ", with status ", static_cast<int>(status),
                status == dnnl_out_of_memory ? ": out of memory; use smaller batches" : "");
  return true;
}

#endif
}  // namespace athanor::onednn
