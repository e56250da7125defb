#pragma once
/// What the driver of recurrent layers (rnn.cpp) and its loops for each SIMD target (rnn_*-inl.h) share. All operands
/// are of one dtype, their rows without gaps.

#include <cstdint>
#include <vector>

#include "athanor/ops/kernels/rnn.h"

namespace athanor::cpu {

/// The steps in the order in which a layer takes them: step k has the rows [first[k], first[k] + rows[k]).
struct RnnSteps {
  RnnSteps(IntArrayRef batch_sizes, bool reverse);
  std::size_t count() const { return rows.size(); }
  std::vector<std::int64_t> rows, first;
  std::int64_t total = 0, batch = 0;
};

/// A layer over all its steps, one that does not project. Null where there is no such operand or nobody wants it.
struct RnnLayer {
  RnnMode mode = RnnMode::Tanh;
  const RnnSteps* steps = nullptr;
  std::int64_t inputs = 0, hidden = 0;
  const void *input = nullptr, *w_ih = nullptr, *w_hh = nullptr;
};
struct RnnForward : RnnLayer {
  const void* bias = nullptr;       ///< (G·H), added to w_ih x; but for GRU the sum of both biases
  const void* b_hh = nullptr;       ///< GRU: added to w_hh h; there if and only if bias is
  void *h = nullptr, *c = nullptr;  ///< (B, H): the first states, in place
  void *output = nullptr, *work = nullptr;
};
struct RnnBackward : RnnLayer {
  const void *work = nullptr, *doutput = nullptr, *dhy = nullptr;
  void* dhx = nullptr;
  void* dc = nullptr;  ///< (B, H), LSTM: gradient of the last c, in place
  void *dinput = nullptr, *dw_ih = nullptr, *dw_hh = nullptr, *db_ih = nullptr, *db_hh = nullptr;
};

/// One step of a layer whose products are made elsewhere. Addresses are of row 0 of the step, unless they belong to the
/// state.
struct RnnStep {
  RnnMode mode = RnnMode::Tanh;
  std::int64_t hidden = 0, work_columns = 0;
  void* work = nullptr;  ///< null forward if nobody will need it

  // Forward.
  const void* given = nullptr;  ///< (rows, G·H): w_ih x with its bias
  void* product = nullptr;      ///< (rows, G·H): w_hh h; overwritten
  const void* bias = nullptr;   ///< GRU's b_hh
  void* h = nullptr;            ///< (B, H), in place
  void* c = nullptr;            ///< (B, H), in place
  void* output = nullptr;       ///< (rows, H)
  void* unprojected = nullptr;  ///< (rows, H), in place of h and output where the layer projects

  // Backward.
  const void* doutput = nullptr;
  void* dh = nullptr;      ///< (B, H): gradient of the state after the step, then what goes past the gates
  void* dc = nullptr;      ///< (B, H), in place
  void* dgates = nullptr;  ///< (rows, G·H)
  void* slopes = nullptr;  ///< (rows, G·H): the gradient of w_hh h + b_hh; dgates itself but for GRU
  void* cells = nullptr;   ///< receives o tanh(c) (rows, H), unless null
};

struct RnnFns {
  /// A whole layer, weights packed.
  void (*forward)(const RnnForward& layer);
  void (*backward)(const RnnBackward& layer);
  /// Rows [begin, end) of a step.
  void (*forward_rows)(const RnnStep& step, std::int64_t begin, std::int64_t end);
  void (*backward_rows)(const RnnStep& step, std::int64_t begin, std::int64_t end);
};

RnnFns rnn_f32();
RnnFns rnn_f64();

}  // namespace athanor::cpu
