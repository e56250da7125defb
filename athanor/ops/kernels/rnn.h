#pragma once
/// Seam of recurrent layers: one layer in one direction over a whole (packed) sequence.
///
/// Packed sequences: `batch_sizes` has a positive number per step, none greater than the one before; rows of step t
/// follow those of step t - 1. Row r of each step belongs to sequence r; B = batch_sizes[0]. `reverse` starts at the
/// last step. One dtype, float32 or float64; operands row-major without gaps. H hidden units; the state has P = H
/// values, or those of w_hr (P, H) where the layer projects (LSTM only). Gates in rows of w_ih (G·H, inputs) and w_hh
/// (G·H, P): LSTM i f g o, GRU r z n, else one. given = w_ih x + b_ih:
///
///     LSTM  c' = σ(f) c + σ(i) tanh(g), h' = [w_hr] (σ(o) tanh(c')), gates = given + w_hh h + b_hh
///     GRU   n = tanh(given_n + σ(r) (w_hn h + b_hn)), h' = (1 - σ(z)) n + σ(z) h
///     Tanh, Relu  h' = f(given + w_hh h + b_hh)
///
/// Results do not depend on the number of threads.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

enum class RnnMode : std::int8_t { Tanh = 0, Relu = 1, Lstm = 2, Gru = 3 };

constexpr std::int64_t rnn_gates(RnnMode m) { return m == RnnMode::Lstm ? 4 : m == RnnMode::Gru ? 3 : 1; }
/// Values per row of `work`, what the backward pass needs of a step, in an order of the kernels' own: activated gates
/// (GRU: r z n and w_hn h + b_hn; Tanh and Relu: the new state), LSTM's c before the step, h before the step.
constexpr std::int64_t rnn_work_columns(RnnMode m, std::int64_t hidden, std::int64_t state) {
  return (m == RnnMode::Lstm ? 5 : m == RnnMode::Gru ? 4 : 1) * hidden + state;
}

/// output (rows, P); hy (B, P) and cy (B, H; LSTM only) the last states; work (rows, rnn_work_columns) may be undefined
/// if there will be no backward pass. input (rows, inputs), hx (B, P), cx (B, H; LSTM only), b_ih and b_hh (G·H), both
/// or none, w_hr or undefined.
extern Kernel<void(const View& output, const View& hy, const View& cy, const View& work, const View& input,
                   const View& hx, const View& cx, const View& w_ih, const View& w_hh, const View& b_ih,
                   const View& b_hh, const View& w_hr, IntArrayRef batch_sizes, RnnMode mode, bool reverse)>
    rnn_sequence_kernel;

/// Gradients of the inputs, each undefined if nobody wants it, from those of the results (each may be undefined:
/// zeros).
extern Kernel<void(const View& dinput, const View& dhx, const View& dcx, const View& dw_ih, const View& dw_hh,
                   const View& db_ih, const View& db_hh, const View& dw_hr, const View& doutput, const View& dhy,
                   const View& dcy, const View& work, const View& input, const View& w_ih, const View& w_hh,
                   const View& w_hr, IntArrayRef batch_sizes, RnnMode mode, bool reverse)>
    rnn_sequence_backward_kernel;

}  // namespace athanor
