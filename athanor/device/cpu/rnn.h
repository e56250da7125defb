#pragma once
/// What the driver of recurrent layers (rnn.cpp) and its loops for each SIMD target (rnn-inl.h) share.

#include <cstdint>

#include "athanor/ops/kernels/rnn.h"

namespace athanor::cpu {

/// One step of a layer, forward or backward. Addresses are of row 0 of the step, unless they belong to the state.
struct RnnStep {
  RnnMode mode = RnnMode::Tanh;
  std::int64_t rows = 0, hidden = 0, state = 0, work_columns = 0;
  void* work = nullptr;  ///< null forward if nobody will need it

  // Forward.
  const void* gates = nullptr;
  const void* bias = nullptr;   ///< GRU's b_hh
  const void* h = nullptr;      ///< (B, state) before the step
  void* h_next = nullptr;       ///< (B, state), rows of this step
  void* c = nullptr;            ///< (B, hidden), changed in place
  void* output = nullptr;       ///< (rows, state)
  void* unprojected = nullptr;  ///< (rows, hidden), in place of h_next and output where the layer projects

  // Backward.
  const void* slopes_after = nullptr;  ///< slopes (rows_after, G·H) of the step that came after, or null
  std::int64_t rows_after = 0;
  const void* doutput = nullptr;
  void* dh = nullptr;      ///< (B, hidden): gradient of the state after the step, then what goes past the gates
  void* dc = nullptr;      ///< (B, hidden), in place
  void* dgates = nullptr;  ///< (rows, G·H)
  void* slopes = nullptr;  ///< (rows, G·H): the gradient of w_hh h + b_hh; dgates itself but for GRU
  void* cells = nullptr;   ///< receives o tanh(c) (rows, hidden), unless null

  const void* packed = nullptr;  ///< w_hhᵀ by panels of units, gate by gate (forward), or w_hh (backward)
};

struct RnnFns {
  std::int64_t units;  ///< hidden units of a group, the grain of the work
  std::int64_t (*packed_size)(std::int64_t gates, std::int64_t hidden, std::int64_t state);
  void (*pack_forward)(const void* w_hh, std::int64_t gates, std::int64_t hidden, std::int64_t state, void* to);
  void (*pack_backward)(const void* w_hh, std::int64_t gates, std::int64_t hidden, std::int64_t state, void* to);
  /// Groups [begin, end) of units of all rows, product with the state included.
  void (*forward)(const RnnStep& step, std::int64_t begin, std::int64_t end);
  void (*backward)(const RnnStep& step, std::int64_t begin, std::int64_t end);
  /// Rows [begin, end), all units, with the product (rows, G·H) given.
  void (*forward_rows)(const RnnStep& step, const void* product, std::int64_t begin, std::int64_t end);
  /// The same backward: dh and dc are complete, but for doutput.
  void (*backward_rows)(const RnnStep& step, std::int64_t begin, std::int64_t end);
};

RnnFns rnn_f32();
RnnFns rnn_f64();

}  // namespace athanor::cpu
