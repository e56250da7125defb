#pragma once
/// What the driver of fused attention (attention.cpp) and its loops for each SIMD target (attention-inl.h) share.

#include "athanor/ops/kernels/attention.h"

namespace athanor::cpu {

/// Sizes of a call, and how it is cut. The cuts depend on the sizes alone.
struct AttentionShape {
  std::int64_t batch = 0, heads = 0, groups = 0, rows = 0, cols = 0, depth = 0, depth_v = 0;
  std::int64_t chunk = 0;         ///< rows of a forward task
  std::int64_t packed_k = 0;      ///< elements of one head's packed k, its v after it …
  std::int64_t packed = 0;        ///< … and of all that is packed of a head
  std::int64_t columns_part = 0;  ///< columns of a backward task
  std::int64_t parts = 1;         ///< backward tasks of one head of k
};

struct AttentionForward {
  AttentionShape shape;
  View out, lse, q, k, v, mask;
  AttentionParams params;
};

struct AttentionBackward {
  AttentionShape shape;
  View dq, dk, dv, grad, q, k, v, mask, out, lse;
  AttentionParams params;
  void* partial = nullptr;  ///< parts × (batch, heads, rows, depth), where there are several parts
};

struct AttentionFns {
  void (*plan)(AttentionShape& shape);
  /// Packs k and v of head `at` (of batch · groups) to shape.packed elements.
  void (*pack)(const AttentionForward& f, std::int64_t at, void* packed);
  /// Rows [chunk · shape.chunk, …) of head `at` (of batch · heads); `packed`: the head of k and v that it reads.
  void (*forward)(const AttentionForward& f, std::int64_t at, std::int64_t chunk, const void* packed);
  /// Columns [part · columns_part, …) of head `at` (of batch · groups), all rows.
  void (*backward)(const AttentionBackward& b, std::int64_t at, std::int64_t part);
};

AttentionFns attention_f32();
AttentionFns attention_f64();

}  // namespace athanor::cpu
