#include <cstring>
#include <numeric>

#include "athanor/base/parallel.h"
#include "athanor/data/data_loader.h"

namespace athanor::data {

namespace {

std::string describe_failure(const std::exception_ptr& e, ArrayRef<std::size_t> indices) {
  std::string what = "an unknown exception";
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    what = x.what();
  } catch (...) {
  }
  what += "\nwhile loading the batch of samples [";
  for (std::size_t i = 0; i < indices.size() && i < 8; ++i) what += (i ? ", " : "") + std::to_string(indices[i]);
  return what + (indices.size() > 8 ? ", ...]" : "]");
}

}  // namespace

WorkerException::WorkerException(std::exception_ptr original, ArrayRef<std::size_t> indices)
    : Error(describe_failure(original, indices)), original_exception(std::move(original)) {}

namespace datasets {

namespace detail {

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
  const auto grain = static_cast<std::int64_t>(std::max<std::size_t>(1, (1 << 18) / bytes));
  parallel_for(0, static_cast<std::int64_t>(indices.size()), grain, [&](std::int64_t b, std::int64_t e) {
    for (auto k = static_cast<std::size_t>(b); k < static_cast<std::size_t>(e); ++k)
      std::memcpy(to + k * bytes, from + indices[k] * bytes, bytes);
  });
  return out;
}

}  // namespace detail

TensorDataset::TensorDataset(Tensor data, Tensor targets) : data_(std::move(data)), targets_(std::move(targets)) {
  ATHANOR_CHECK_VALUE(data_.dim() > 0 && targets_.dim() > 0 && data_.size(0) == targets_.size(0),
                      "Size mismatch between tensors: data has shape ", data_.sizes(), ", targets ", targets_.sizes());
}

Example<> TensorDataset::get(std::size_t index) {
  const auto i = static_cast<std::int64_t>(index);
  return {data_.select(0, i), targets_.select(0, i)};
}

Example<> TensorDataset::get_stacked(ArrayRef<std::size_t> indices) {
  return {detail::gather_rows(data_, indices), detail::gather_rows(targets_, indices)};
}

TensorDataDataset::TensorDataDataset(Tensor data) : data_(std::move(data)) {
  ATHANOR_CHECK_VALUE(data_.dim() > 0, "TensorDataset: expected a tensor with at least one dimension");
}

TensorExample TensorDataDataset::get(std::size_t index) { return data_.select(0, static_cast<std::int64_t>(index)); }

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

namespace samplers {

std::vector<std::size_t> random_order(std::size_t n, PhiloxState state) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  // splitmix64 (Steele et al., OOPSLA 2014) over the counter: one 64-bit draw per swap.
  std::uint64_t counter = state.seed ^ (state.offset * 0xda942042e4dd58b5ULL);
  auto draw = [&counter] {
    std::uint64_t z = (counter += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  };
  for (std::size_t i = n; i > 1; --i) {
    __extension__ using Wide = unsigned __int128;
    const auto j = static_cast<std::size_t>(static_cast<Wide>(draw()) * i >> 64);
    std::swap(order[i - 1], order[j]);
  }
  return order;
}

void SequentialSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size) size_ = *new_size;
  position_ = 0;
}

std::optional<std::vector<std::size_t>> SequentialSampler::next(std::size_t batch_size) {
  if (position_ >= size_) return std::nullopt;
  std::vector<std::size_t> out(std::min(batch_size, size_ - position_));
  std::iota(out.begin(), out.end(), position_);
  position_ += out.size();
  return out;
}

RandomSampler::RandomSampler(std::size_t size, std::optional<Generator> generator)
    : generator_(generator.value_or(default_generator())), order_(size) {}

void RandomSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size) order_.resize(*new_size);
  drawn_from_ = generator_.reserve(order_.size());
  position_ = 0;
  draw();
}

void RandomSampler::draw() { order_ = random_order(order_.size(), drawn_from_); }

void RandomSampler::restore(const SamplerState& s) {
  drawn_from_ = s.generator;
  position_ = s.position;
  draw();
}

std::optional<std::vector<std::size_t>> RandomSampler::next(std::size_t batch_size) {
  if (position_ >= order_.size()) return std::nullopt;
  const std::size_t n = std::min(batch_size, order_.size() - position_);
  const auto from = order_.begin() + static_cast<std::ptrdiff_t>(position_);
  position_ += n;
  return std::vector<std::size_t>(from, from + static_cast<std::ptrdiff_t>(n));
}

}  // namespace samplers
}  // namespace athanor::data
