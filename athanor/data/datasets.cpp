#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "athanor/base/parallel.h"
#include "athanor/data/datasets.h"
#include "athanor/data/samplers.h"

namespace athanor::data {

namespace datasets {

namespace detail {

namespace {
thread_local std::optional<std::size_t> failed_sample;
}  // namespace

void note_failed_sample(std::size_t index) { failed_sample = index; }
std::optional<std::size_t> take_failed_sample() { return std::exchange(failed_sample, std::nullopt); }

namespace {

/// How many rows before its turn a row is asked for: the hardware does not know which is next.
std::size_t rows_ahead(std::size_t bytes) { return std::clamp<std::size_t>(8192 / bytes, 1, 16); }

/// Asks for the first 8 KB of a row, into the second cache: more lines can be under way to it than to the first. Always
/// inlined: the compiler takes a function that only fetches ahead for one without effect.
[[gnu::always_inline]] inline void ask_for_row(const char* row, std::size_t bytes) {
  const std::size_t end = std::min<std::size_t>(bytes, 8192);
  for (std::size_t at = 0; at < end; at += 64) __builtin_prefetch(row + at, 0, 2);
}

}  // namespace

Tensor to_floats(const Tensor& bytes) { return bytes.to(kFloat).div_(255); }

Tensor gather_rows(const Tensor& t, ArrayRef<std::size_t> indices) {
  const Tensor source = t.contiguous();
  const auto rows = static_cast<std::size_t>(source.size(0));
  DimVector shape(source.sizes());
  shape[0] = static_cast<std::int64_t>(indices.size());
  Tensor out = empty(shape, source.options());
  const std::size_t bytes = rows ? source.nbytes() / rows : 0;
  const char* from = static_cast<const char*>(source.data_ptr());
  char* to = static_cast<char*>(out.data_ptr());
  for (const std::size_t i : indices)
    ATHANOR_CHECK_INDEX(i < rows, "dataset: index ", i, " is out of range for ", rows, " examples");
  if (bytes == 0) return out;
  const auto grain = static_cast<std::int64_t>(std::max<std::size_t>(1, (1 << 16) / bytes));
  parallel_for(0, static_cast<std::int64_t>(indices.size()), grain, [&](std::int64_t b, std::int64_t e) {
    const auto end = static_cast<std::size_t>(e), ahead = rows_ahead(bytes);
    for (auto k = static_cast<std::size_t>(b); k < end; ++k) {
      if (k + ahead < end) ask_for_row(from + indices[k + ahead] * bytes, bytes);
      std::memcpy(to + k * bytes, from + indices[k] * bytes, bytes);
    }
  });
  return out;
}

}  // namespace detail

TensorDataset::TensorDataset(Tensor t) : tensor(std::move(t)) {
  ATHANOR_CHECK_VALUE(tensor.defined() && tensor.dim() > 0,
                      "TensorDataset: expected a tensor with at least one dimension, got ", tensor);
}

TensorExample TensorDataset::get(std::size_t index) { return tensor.select(0, static_cast<std::int64_t>(index)); }

TensorExample TensorDataset::get_stacked(ArrayRef<std::size_t> indices) { return detail::gather_rows(tensor, indices); }

TensorPairDataset::TensorPairDataset(Tensor data, Tensor targets)
    : data_(std::move(data)), targets_(std::move(targets)) {
  ATHANOR_CHECK_VALUE(data_.dim() > 0 && targets_.dim() > 0 && data_.size(0) == targets_.size(0),
                      "Size mismatch between tensors: data has shape ", data_.sizes(), ", targets ", targets_.sizes());
}

Example<> TensorPairDataset::get(std::size_t index) {
  const auto i = static_cast<std::int64_t>(index);
  return {data_.select(0, i), targets_.select(0, i)};
}

Example<> TensorPairDataset::get_stacked(ArrayRef<std::size_t> indices) {
  return {detail::gather_rows(data_, indices), detail::gather_rows(targets_, indices)};
}

TensorListDataset::TensorListDataset(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  ATHANOR_CHECK_VALUE(!tensors_.empty(), "TensorListDataset: expected at least one tensor");
  for (const Tensor& t : tensors_)
    ATHANOR_CHECK_VALUE(t.dim() > 0 && t.size(0) == tensors_[0].size(0), "Size mismatch between tensors: shapes ",
                        tensors_[0].sizes(), " and ", t.sizes());
}

std::vector<Tensor> TensorListDataset::get(std::size_t index) const {
  std::vector<Tensor> out;
  for (const Tensor& t : tensors_) out.push_back(t.select(0, static_cast<std::int64_t>(index)));
  return out;
}

std::vector<Tensor> TensorListDataset::get_batch(ArrayRef<std::size_t> indices) {
  std::vector<Tensor> out;
  for (const Tensor& t : tensors_) out.push_back(detail::gather_rows(t, indices));
  return out;
}

std::vector<std::size_t> split_lengths(std::size_t size, ArrayRef<double> fractions) {
  double total = 0;
  std::vector<std::size_t> lengths;
  std::size_t given = 0;
  for (const double f : fractions) {
    ATHANOR_CHECK_VALUE(f >= 0 && f <= 1, "split_lengths: fraction ", f, ", expected 0 to 1");
    total += f;
    lengths.push_back(static_cast<std::size_t>(static_cast<double>(size) * f));
    given += lengths.back();
  }
  ATHANOR_CHECK_VALUE(std::abs(total - 1) < 1e-9, "split_lengths: the fractions add up to ", total, ", expected 1");
  for (std::size_t i = 0; given < size; ++i, ++given) ++lengths[i % lengths.size()];
  return lengths;
}

std::vector<std::vector<std::size_t>> random_split_indices(std::size_t size, ArrayRef<std::size_t> lengths,
                                                           Generator generator) {
  std::size_t total = 0;
  for (const std::size_t n : lengths) total += n;
  ATHANOR_CHECK_VALUE(total == size, "Sum of input lengths does not equal the length of the input dataset: ", total,
                      " and ", size);
  const auto order = samplers::random_order(size, generator.reserve(size));
  std::vector<std::vector<std::size_t>> parts;
  auto at = order.begin();
  for (const std::size_t n : lengths) {
    parts.emplace_back(at, at + static_cast<std::ptrdiff_t>(n));
    at += static_cast<std::ptrdiff_t>(n);
  }
  return parts;
}

}  // namespace datasets

namespace transforms {

Tensor detail::to_unit_floats(const Tensor& data) {
  const NoGradGuard off;
  const Tensor floats = data.to(kFloat);
  return data.dtype() == kByte ? floats.div(255) : floats;
}

namespace {

template <class Pick>
Tensor stack_rows(std::size_t count, Pick pick) {
  ATHANOR_CHECK_VALUE(count > 0, "Stack: the batch is empty");
  const Tensor& first = pick(0);
  DimVector shape(first.sizes());
  shape.insert(0, static_cast<std::int64_t>(count));
  Tensor out = empty(shape, first.options());
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor& t = pick(i);
    ATHANOR_CHECK(t.sizes() == first.sizes(), "stack expects each tensor to be equal size, but got ", first.sizes(),
                  " at entry 0 and ", t.sizes(), " at entry ", i);
    out.select(0, static_cast<std::int64_t>(i)).copy_(t);
  }
  return out;
}

}  // namespace

Example<> Stack<Example<>>::apply_batch(std::vector<Example<>> batch) {
  const NoGradGuard off;
  return {stack_rows(batch.size(), [&](std::size_t i) -> const Tensor& { return batch[i].data; }),
          stack_rows(batch.size(), [&](std::size_t i) -> const Tensor& { return batch[i].target; })};
}

TensorExample Stack<TensorExample>::apply_batch(std::vector<TensorExample> batch) {
  const NoGradGuard off;
  return stack_rows(batch.size(), [&](std::size_t i) -> const Tensor& { return batch[i].data; });
}

}  // namespace transforms

}  // namespace athanor::data
