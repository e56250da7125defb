// Random numbers: filling tensors from a counter.
#include "athanor/ops/kernels/random.h"

#include <algorithm>
#include <cmath>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/random_philox.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrainChunks = 8;  // chunks for which a second thread pays

/// What one thread works in.
struct Buffers {
  alignas(64) std::uint32_t words[2 * kRandomChunk];
  alignas(64) char values[kRandomChunk * 8];
  alignas(64) char inputs[kRandomChunk * 8];
  alignas(64) std::uint8_t flags[kRandomChunk];
};

/// Draws of kBits bits for elements [start, start + n).
void draw(Buffers& b, PhiloxState state, int bits, std::int64_t start, std::int64_t n) {
  const std::int64_t per_block = bits == 64 ? 2 : 4;
  random_fns().words(b.words, state, static_cast<std::uint64_t>(start / per_block), (n + per_block - 1) / per_block);
}

/// Calls body(buffers, start, n) for the chunks of [0, numel), their words drawn.
template <class F>
void each_chunk(std::int64_t numel, PhiloxState state, int bits, F&& body) {
  const std::int64_t chunks = (numel + kRandomChunk - 1) / kRandomChunk;
  parallel_for(0, chunks, kGrainChunks, [&](std::int64_t b, std::int64_t e) {
    Buffers buffers;
    for (; b < e; ++b) {
      const std::int64_t start = b * kRandomChunk, n = std::min(kRandomChunk, numel - start);
      draw(buffers, state, bits, start, n);
      body(buffers, start, n);
    }
    block_ops().stream_fence();  // some bodies bypass the caches
  });
}

/// True if what is written to `v` will not fit the caches.
bool is_large(const View& v) {
  return v.contiguous && v.numel * static_cast<std::int64_t>(v.item_size()) > kStreamBytes;
}

/// Stores the chunk `values` of dtype t.
void put(const View& out, std::int64_t start, const void* values, DType t, std::int64_t n, bool large) {
  if (large && out.dtype == t) {
    block_ops().stream(element(out.data, start, out.item_size()), values,
                       n * static_cast<std::int64_t>(out.item_size()));
    return;
  }
  store_range(out, start, values, t, n);
}

RandomTransform transform_of(RandomOp op, DType t) {
  const RandomFns& f = random_fns();
  const bool wide = t == DType::Double;
  switch (op) {
    case RandomOp::Uniform:
      if (wide) return f.uniform53;
      return t == DType::Half ? f.uniform11 : t == DType::BFloat16 ? f.uniform8 : f.uniform24;
    case RandomOp::Normal:
      return wide ? f.normal64 : f.normal;
    case RandomOp::LogNormal:
      return wide ? f.log_normal64 : f.log_normal;
    case RandomOp::Exponential:
      return wide ? f.exponential64 : f.exponential;
    case RandomOp::Cauchy:
      return wide ? f.cauchy64 : f.cauchy;
    case RandomOp::Geometric:
      return wide ? f.geometric64 : f.geometric;
  }
  return nullptr;
}

void random_cpu(RandomOp op, const View& out, double a, double b, PhiloxState state) {
  static const char* const names[] = {"uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "geometric_"};
  ATHANOR_CHECK_TYPE(TypeError, is_floating_point(out.dtype) || (op == RandomOp::Geometric && out.dtype != DType::Bool),
                     names[static_cast<int>(op)], ": expected a floating dtype, got ", dtype_name(out.dtype));
  const RandomTransform transform = transform_of(op, out.dtype);
  const DType compute = out.dtype == DType::Double ? DType::Double : DType::Float;
  const bool large = is_large(out), direct = out.contiguous && out.dtype == compute && !large;
  each_chunk(out.numel, state, random_bits(out.dtype), [&](Buffers& buffers, std::int64_t start, std::int64_t n) {
    char* const place = element(out.data, start, out.item_size());
    // Transforms write whole aligned vectors.
    if (direct && n == kRandomChunk && reinterpret_cast<std::uintptr_t>(place) % 64 == 0)
      return transform(place, buffers.words, n, a, b);
    transform(buffers.values, buffers.words, n, a, b);
    put(out, start, buffers.values, compute, n, large);
  });
}

/// The integer of a 64-bit draw, redrawn while the low half of the product says that it would be too likely.
std::int64_t wide_integer(std::uint64_t word, std::int64_t low, std::uint64_t range, std::uint64_t threshold,
                          PhiloxState state, std::uint64_t i) {
  if (range == 0) return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + word);
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(word) * range;
  for (std::uint32_t attempt = 1; static_cast<std::uint64_t>(product) < threshold; ++attempt)
    product = static_cast<Wide>(philox_draw64(state, i, attempt)) * range;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + static_cast<std::uint64_t>(product >> 64));
}

void redraw(std::int64_t* values, const std::uint32_t* words, std::int64_t n, std::int64_t low, std::uint32_t range,
            std::uint32_t threshold, PhiloxState state, std::int64_t start) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint64_t product = std::uint64_t{words[i]} * range;
    if (static_cast<std::uint32_t>(product) >= threshold) continue;
    for (std::uint32_t attempt = 1; static_cast<std::uint32_t>(product) < threshold; ++attempt)
      product = std::uint64_t{philox_draw32(state, static_cast<std::uint64_t>(start + i), attempt)} * range;
    values[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + (product >> 32));
  }
}

void random_integer_cpu(const View& out, std::int64_t low, std::uint64_t range, PhiloxState state) {
  const int bits = random_integer_bits(range);
  const bool large = is_large(out);
  const auto narrow = static_cast<std::uint32_t>(range);
  const std::uint32_t threshold32 = bits == 32 ? -narrow % narrow : 0;
  const std::uint64_t threshold64 = range == 0 ? 0 : -range % range;
  each_chunk(out.numel, state, bits, [&](Buffers& buffers, std::int64_t start, std::int64_t n) {
    auto* const values = reinterpret_cast<std::int64_t*>(buffers.values);
    if (bits == 32) {
      if (random_fns().integers(values, buffers.words, n, low, narrow, threshold32))
        redraw(values, buffers.words, n, low, narrow, threshold32, state, start);
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::uint64_t word = buffers.words[2 * i] | static_cast<std::uint64_t>(buffers.words[2 * i + 1]) << 32;
        values[i] = wide_integer(word, low, range, threshold64, state, static_cast<std::uint64_t>(start + i));
      }
    }
    put(out, start, values, DType::Long, n, large);
  });
}

/// The least integer that is not below p 2^32.
std::uint64_t limit_of(double p) { return static_cast<std::uint64_t>(std::ceil(p * 4294967296.0)); }

void check_probability(const char* op, double p) {
  ATHANOR_CHECK(p >= 0 && p <= 1, op, ": expected a probability between 0 and 1, got ", p);
}

void bernoulli_cpu(const View& out, double p, PhiloxState state) {
  check_probability("bernoulli", p);
  const std::uint64_t limit = limit_of(p);
  const bool large = is_large(out);
  each_chunk(out.numel, state, 32, [&](Buffers& buffers, std::int64_t start, std::int64_t n) {
    if (out.dtype == DType::Float) {
      auto* const values = reinterpret_cast<float*>(buffers.values);
      random_fns().below_float(values, buffers.words, n, limit);
      put(out, start, values, DType::Float, n, large);
    } else {
      random_fns().below(buffers.flags, buffers.words, n, limit);
      put(out, start, buffers.flags, out.dtype == DType::Bool ? DType::Bool : DType::Byte, n, large);
    }
  });
}

void bernoulli_tensor_cpu(const View& out, const View& p, PhiloxState state) {
  ATHANOR_CHECK_TYPE(TypeError, is_floating_point(p.dtype), "bernoulli: expected floating probabilities, got ",
                     dtype_name(p.dtype));
  const bool large = is_large(out);
  each_chunk(out.numel, state, 32, [&](Buffers& buffers, std::int64_t start, std::int64_t n) {
    auto* const chances = reinterpret_cast<double*>(buffers.inputs);
    load_range(chances, DType::Double, p, start, n);
    bool valid = true;
    for (std::int64_t i = 0; i < n; ++i) {
      valid &= chances[i] >= 0 && chances[i] <= 1;
      buffers.flags[i] = static_cast<double>(buffers.words[i]) < chances[i] * 4294967296.0;
    }
    if (!valid)
      for (std::int64_t i = 0; i < n; ++i) check_probability("bernoulli", chances[i]);
    put(out, start, buffers.flags, out.dtype == DType::Bool ? DType::Bool : DType::Byte, n, large);
  });
}

void dropout_cpu(const View& out, const View& mask, const View& in, double p, PhiloxState state) {
  check_probability("dropout", p);
  ATHANOR_CHECK_TYPE(TypeError, is_floating_point(in.dtype) && in.dtype == out.dtype,
                     "dropout: expected one floating dtype, got ", dtype_name(in.dtype), " to ", dtype_name(out.dtype));
  const std::uint64_t limit = limit_of(p);
  const double scale = p < 1 ? 1 / (1 - p) : 0;
  const DType compute = computing_dtype(in.dtype);
  const bool direct = in.contiguous && in.dtype == compute, large = is_large(out) && out.data != in.data;
  const bool in_place = direct && out.contiguous && !large;
  each_chunk(out.numel, state, 32, [&](Buffers& buffers, std::int64_t start, std::int64_t n) {
    const void* from = element(in.data, start, in.item_size());
    if (!direct) {
      load_range(buffers.inputs, compute, in, start, n);
      from = buffers.inputs;
    }
    void* const to = in_place ? element(out.data, start, out.item_size()) : buffers.values;
    std::uint8_t* const keep = mask.defined() ? buffers.flags : nullptr;
    if (compute == DType::Double)
      random_fns().dropout64(static_cast<double*>(to), keep, static_cast<const double*>(from), buffers.words, n, limit,
                             scale);
    else
      random_fns().dropout(static_cast<float*>(to), keep, static_cast<const float*>(from), buffers.words, n, limit,
                           static_cast<float>(scale));
    if (!in_place) put(out, start, to, compute, n, large);
    if (keep) store_range(mask, start, keep, DType::Bool, n);
  });
}

}  // namespace

ATHANOR_REGISTER_KERNEL(random_kernel, CPU, &random_cpu);
ATHANOR_REGISTER_KERNEL(random_integer_kernel, CPU, &random_integer_cpu);
ATHANOR_REGISTER_KERNEL(bernoulli_kernel, CPU, &bernoulli_cpu);
ATHANOR_REGISTER_KERNEL(bernoulli_tensor_kernel, CPU, &bernoulli_tensor_cpu);
ATHANOR_REGISTER_KERNEL(dropout_kernel, CPU, &dropout_cpu);

}  // namespace athanor::cpu
