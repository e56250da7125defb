#include "athanor/device/cpu/attention.h"

#include <algorithm>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/host_buffer.h"

namespace athanor {
namespace {

using cpu::AttentionShape;

const cpu::AttentionFns& fns_for(DType t) {
  static const cpu::AttentionFns f32 = cpu::attention_f32(), f64 = cpu::attention_f64();
  return t == DType::Double ? f64 : f32;
}

AttentionShape shape_of(const View& q, const View& k, const View& v, const cpu::AttentionFns& fns) {
  AttentionShape s;
  s.batch = q.size(0);
  s.heads = q.size(1);
  s.groups = k.size(1);
  s.rows = q.size(2);
  s.cols = k.size(2);
  s.depth = q.size(3);
  s.depth_v = v.size(3);
  fns.plan(s);
  return s;
}

/// Tasks of `work` multiply-adds each that pay for waking a thread.
std::int64_t grain(std::int64_t work) { return std::max<std::int64_t>(1, 100000 / std::max<std::int64_t>(work, 1)); }

/// All tasks of the forward pass. Where the threads have several heads each, a thread packs those it comes to: what it
/// packed is still near when it is read.
void run_forward(const cpu::AttentionFns& fns, const cpu::AttentionForward& f) {
  const AttentionShape& s = f.shape;
  const std::int64_t kv_heads = s.batch * s.groups, width = s.depth + s.depth_v, each = s.heads / s.groups;
  const std::int64_t chunks = (s.rows + s.chunk - 1) / s.chunk, tasks = s.batch * s.heads * chunks;
  const std::int64_t step = s.packed * static_cast<std::int64_t>(item_size(f.q.dtype));
  const bool shared = kv_heads < 4 * get_num_threads();
  const cpu::HostBuffer<char> all(shared ? kv_heads * step : 0);
  if (shared)
    parallel_for(0, kv_heads, grain(s.cols * width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) fns.pack(f, i, all.data() + i * step);
    });
  parallel_for(0, tasks, grain(s.chunk * s.cols * width), [&](std::int64_t begin, std::int64_t end) {
    const cpu::HostBuffer<char> own(shared ? 0 : step);
    std::int64_t packed = -1;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = i / chunks, kv = at / each, chunk = i % chunks;
      if (!shared && kv != packed) {
        fns.pack(f, kv, own.data());
        packed = kv;
      }
      // Of a causal head the last rows have the most to do: chunks come from both ends in turn.
      fns.forward(f, at, chunk % 2 == 0 ? chunk / 2 : chunks - 1 - chunk / 2,
                  shared ? all.data() + kv * step : own.data());
    }
  });
}

void attention_cpu(const View& out, const View& lse, const View& q, const View& k, const View& v, const View& mask,
                   const AttentionParams& params) {
  const cpu::AttentionFns& fns = fns_for(q.dtype);
  const cpu::AttentionForward f{shape_of(q, k, v, fns), out, lse, q, k, v, mask, params};
  if (f.shape.batch > 0 && f.shape.heads > 0 && f.shape.rows > 0) run_forward(fns, f);
}

/// dq = the sum of its parts, in order.
template <class T>
void add_parts(const AttentionShape& s, const View& dq, const T* partial) {
  const std::int64_t lines = s.batch * s.heads * s.rows, size = lines * s.depth;
  parallel_for(0, lines, 1 + 32768 / std::max<std::int64_t>(s.depth, 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t head = line / s.rows;
      T* const to =
          dq.ptr<T>() + head / s.heads * dq.stride(0) + head % s.heads * dq.stride(1) + line % s.rows * dq.stride(2);
      for (std::int64_t e = 0; e < s.depth; ++e) {
        T sum = 0;
        for (std::int64_t p = 0; p < s.parts; ++p) sum += partial[p * size + line * s.depth + e];
        to[e * dq.stride(3)] = sum;
      }
    }
  });
}

void attention_backward_cpu(const View& dq, const View& dk, const View& dv, const View& grad, const View& q,
                            const View& k, const View& v, const View& mask, const View& out, const View& lse,
                            const AttentionParams& params) {
  const cpu::AttentionFns& fns = fns_for(q.dtype);
  cpu::AttentionBackward b{shape_of(q, k, v, fns), dq, dk, dv, grad, q, k, v, mask, out, lse, params, nullptr};
  const AttentionShape& s = b.shape;
  if (s.batch == 0 || s.heads == 0) return;
  const bool split = s.parts > 1 && dq.defined();
  const std::int64_t item = static_cast<std::int64_t>(item_size(q.dtype));
  const cpu::HostBuffer<char> partial(split ? s.parts * s.batch * s.heads * s.rows * s.depth * item : 0);
  b.partial = partial.data();
  const std::int64_t work = s.heads / s.groups * s.rows * s.columns_part * (s.depth + s.depth_v);
  parallel_for(0, s.batch * s.groups * s.parts, grain(work), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) fns.backward(b, i / s.parts, i % s.parts);
  });
  if (!split) return;
  if (q.dtype == DType::Double)
    add_parts(s, dq, static_cast<const double*>(b.partial));
  else
    add_parts(s, dq, static_cast<const float*>(b.partial));
}

ATHANOR_REGISTER_KERNEL(attention_kernel, CPU, &attention_cpu);
ATHANOR_REGISTER_KERNEL(attention_backward_kernel, CPU, &attention_backward_cpu);

}  // namespace
}  // namespace athanor
