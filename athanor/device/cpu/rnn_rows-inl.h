// Rows of one step of a recurrent layer whose products are made elsewhere, and the table of a target's functions.
// Compiled once per SIMD target; included by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_RNN_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_RNN_ROWS_INL_H_
#undef ATHANOR_DEVICE_CPU_RNN_ROWS_INL_H_
#else
#define ATHANOR_DEVICE_CPU_RNN_ROWS_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/rnn_cell-inl.h"
#include "athanor/device/cpu/rnn_packed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

/// Row `begin` of p, whose rows are `row` apart.
template <class T, class P>
T* row_of(P* p, std::int64_t begin, std::int64_t row) {
  return p ? static_cast<T*>(p) + begin * row : nullptr;
}

template <class T>
void rnn_forward_rows(const cpu::RnnStep& s, std::int64_t begin, std::int64_t end) {
  const std::int64_t hidden = s.hidden, columns = rnn_gates(s.mode) * hidden;
  ForwardCells<T> cells;
  cells.mode = s.mode;
  cells.sums = {row_of<T>(s.product, begin, columns), columns, hidden};
  cells.given = {row_of<const T>(s.given, begin, columns), columns, hidden};
  const std::int64_t summed = s.mode == RnnMode::Gru ? 2 * hidden : columns;
  const auto* bias = static_cast<const T*>(s.bias);
  for (std::int64_t i = 0; i < end - begin; ++i) {
    T* const sums = cells.sums.at(i);
    for (std::int64_t k = 0; k < summed; ++k) sums[k] += cells.given.at(i)[k];
    for (std::int64_t k = 0; bias && k < columns; ++k) sums[k] += bias[k];
  }
  cells.hidden = hidden;
  cells.c = row_of<T>(s.c, begin, hidden);
  cells.work = {row_of<T>(s.work, begin, s.work_columns), s.work_columns, hidden};
  if (s.unprojected) {
    cells.h_next = row_of<T>(s.unprojected, begin, hidden);
  } else {
    cells.h = cells.h_next = row_of<T>(s.h, begin, hidden);
    cells.output = row_of<T>(s.output, begin, hidden);
    if (s.work) cells.before = {cells.work.p + s.work_columns - hidden, s.work_columns};
  }
  cells.run(end - begin, hidden);
}

template <class T>
void rnn_backward_rows(const cpu::RnnStep& s, std::int64_t begin, std::int64_t end) {
  const std::int64_t hidden = s.hidden, columns = rnn_gates(s.mode) * hidden;
  BackwardCells<T> cells;
  cells.mode = s.mode;
  cells.work = {row_of<const T>(s.work, begin, s.work_columns), s.work_columns, hidden};
  cells.before = {cells.work.p + s.work_columns - hidden, s.work_columns};
  cells.hidden = hidden;
  cells.doutput = row_of<const T>(s.doutput, begin, hidden);
  cells.dc = row_of<T>(s.dc, begin, hidden);
  cells.cells = row_of<T>(s.cells, begin, hidden);
  cells.dh = {row_of<T>(s.dh, begin, hidden), hidden};
  cells.dgates = {row_of<T>(s.dgates, begin, columns), columns, hidden};
  if (s.mode == RnnMode::Gru) {
    cells.twice = {row_of<T>(s.slopes, begin, columns), columns, hidden};
    cells.third = {cells.twice.at(0, 2), columns};
  }
  cells.run(0, end - begin, hidden);
}

template <class T>
cpu::RnnFns rnn_fns() {
  return {&rnn_forward_packed<T>, &rnn_backward_packed<T>, &rnn_forward_rows<T>, &rnn_backward_rows<T>};
}

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
