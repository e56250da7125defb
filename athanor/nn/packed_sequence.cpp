#include "athanor/nn/packed_sequence.h"

#include <algorithm>

#include "athanor/ops/factory.h"

namespace athanor::nn::utils::rnn {

namespace {

std::vector<std::int64_t> values_of(const Tensor& t) {
  const Tensor plain = t.to(kLong).contiguous();
  const auto* p = plain.data_ptr<std::int64_t>();
  return {p, p + plain.numel()};
}
Tensor indices(const std::vector<std::int64_t>& values, Device device) {
  const Tensor t = tensor(values, TensorOptions(kLong));
  return device.is_host() ? t : t.to(TensorOptions(device));
}
DimVector sizes_with(std::initializer_list<std::int64_t> first, const Tensor& like, std::int64_t from) {
  DimVector out(first);
  for (std::int64_t d = from; d < like.dim(); ++d) out.push_back(like.size(d));
  return out;
}

/// Where packed row r lies in a padded batch of T steps, read as (T · B) rows, or (B · T) if batch_first.
std::vector<std::int64_t> padded_rows(const std::vector<std::int64_t>& batch_sizes, std::int64_t batch,
                                      std::int64_t steps, bool batch_first) {
  std::vector<std::int64_t> out;
  for (std::size_t t = 0; t < batch_sizes.size(); ++t)
    for (std::int64_t b = 0; b < batch_sizes[t]; ++b) {
      const auto step = static_cast<std::int64_t>(t);
      out.push_back(batch_first ? b * steps + step : step * batch + b);
    }
  return out;
}

/// How many of the sequences (lengths never rising) reach each step.
std::vector<std::int64_t> count_reaching(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> out(lengths.empty() ? 0 : static_cast<std::size_t>(lengths[0]));
  for (const std::int64_t n : lengths)
    for (std::int64_t t = 0; t < n; ++t) ++out[static_cast<std::size_t>(t)];
  return out;
}

void check_lengths(const std::vector<std::int64_t>& lengths, std::int64_t batch, std::int64_t steps) {
  ATHANOR_CHECK(static_cast<std::int64_t>(lengths.size()) == batch, "pack_padded_sequence: Expected `len(lengths)` to ",
                "be equal to batch_size, but got ", lengths.size(), " (batch_size=", batch, ")");
  ATHANOR_CHECK(batch > 0, "pack_padded_sequence: Cannot pack empty tensors.");
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    ATHANOR_CHECK(lengths[i] > 0, "pack_padded_sequence: Length of all samples has to be greater than 0, but found an ",
                  "element in 'lengths' that is <= 0: ", lengths[i]);
    ATHANOR_CHECK(i == 0 || lengths[i] <= lengths[i - 1], "pack_padded_sequence: `lengths` array must be sorted in ",
                  "decreasing order when `enforce_sorted` is True, got ", lengths[i - 1], " before ", lengths[i],
                  "; You can pass `enforce_sorted=False` to have it sorted");
    ATHANOR_CHECK(lengths[i] <= steps, "pack_padded_sequence: a length is ", lengths[i], ", but the input has ", steps,
                  " steps");
  }
}

}  // namespace

Tensor invert_permutation(const Tensor& permutation) {
  return permutation.defined() ? permutation.argsort() : Tensor();
}

PackedSequence::PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices, Tensor unsorted_indices)
    : data_(std::move(data)),
      batch_sizes_(std::move(batch_sizes)),
      sorted_indices_(std::move(sorted_indices)),
      unsorted_indices_(std::move(unsorted_indices)) {
  ATHANOR_CHECK(batch_sizes_.defined() && batch_sizes_.device().is_host(),
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequences in "
                "nn::utils::rnn.");
  if (!unsorted_indices_.defined()) unsorted_indices_ = invert_permutation(sorted_indices_);
}

PackedSequence PackedSequence::to(const TensorOptions& options) const {
  const Tensor data = data_.to(options);
  if (data.is_same(data_)) return *this;
  const auto moved = [&](const Tensor& t) { return t.defined() ? t.to(TensorOptions(data.device())) : t; };
  return PackedSequence(data, batch_sizes_, moved(sorted_indices_), moved(unsorted_indices_));
}

PackedSequence pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first, bool enforce_sorted) {
  ATHANOR_CHECK(input.dim() >= 2,
                "pack_padded_sequence: expected input of at least 2 dims (steps and batch), got shape ", input.sizes());
  ATHANOR_CHECK(lengths.dim() == 1, "pack_padded_sequence: expected lengths to be a vector, got shape ",
                lengths.sizes());
  std::vector<std::int64_t> counts = values_of(lengths);
  const std::int64_t batch = input.size(batch_first ? 0 : 1), steps = input.size(batch_first ? 1 : 0);
  std::vector<std::int64_t> order(counts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  if (!enforce_sorted) {
    const auto longer = [&](std::int64_t a, std::int64_t b) {
      return counts[static_cast<std::size_t>(a)] > counts[static_cast<std::size_t>(b)];
    };
    std::stable_sort(order.begin(), order.end(), longer);
    std::sort(counts.begin(), counts.end(), std::greater<>());
  }
  check_lengths(counts, batch, steps);
  const std::vector<std::int64_t> reaching = count_reaching(counts);
  // One gather for everything: row (t, b) of the packed data is that of the b-th longest sequence.
  std::vector<std::int64_t> rows;
  for (std::size_t t = 0; t < reaching.size(); ++t)
    for (std::int64_t b = 0; b < reaching[t]; ++b) {
      const auto step = static_cast<std::int64_t>(t), sequence = order[static_cast<std::size_t>(b)];
      rows.push_back(batch_first ? sequence * steps + step : step * batch + sequence);
    }
  const Tensor flat = input.reshape(sizes_with({batch * steps}, input, 2));
  const Tensor data = flat.index_select(0, indices(rows, input.device()));
  return PackedSequence(data, tensor(reaching, TensorOptions(kLong)),
                        enforce_sorted ? Tensor() : indices(order, input.device()));
}

std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, bool batch_first, double padding_value,
                                               std::optional<std::int64_t> total_length) {
  const std::vector<std::int64_t> reaching = values_of(sequence.batch_sizes());
  auto steps = static_cast<std::int64_t>(reaching.size());
  ATHANOR_CHECK(steps > 0, "pad_packed_sequence: the sequence has no steps");
  if (total_length) {
    ATHANOR_CHECK(*total_length >= steps, "Expected total_length to be at least the length of the longest sequence in ",
                  "input, but got total_length=", *total_length, " and max sequence length being ", steps);
    steps = *total_length;
  }
  const std::int64_t batch = reaching[0];
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(batch));
  for (const std::int64_t n : reaching)
    for (std::int64_t b = 0; b < n; ++b) ++lengths[static_cast<std::size_t>(b)];
  const Tensor& data = sequence.data();
  const Tensor blank = full(sizes_with({batch * steps}, data, 1), padding_value, data.options());
  Tensor padded = blank.index_copy(0, indices(padded_rows(reaching, batch, steps, batch_first), data.device()), data);
  padded = padded.reshape(batch_first ? sizes_with({batch, steps}, data, 1) : sizes_with({steps, batch}, data, 1));
  Tensor counts = tensor(lengths, TensorOptions(kLong));
  if (sequence.unsorted_indices().defined()) {
    padded = padded.index_select(batch_first ? 0 : 1, sequence.unsorted_indices());
    counts = counts.index_select(0, sequence.unsorted_indices().to(TensorOptions(kCPU)));
  }
  return {padded, counts};
}

Tensor pad_sequence(TensorList sequences, bool batch_first, double padding_value, std::string_view padding_side) {
  ATHANOR_CHECK(!sequences.empty(), "pad_sequence: received an empty list of sequences");
  ATHANOR_CHECK(padding_side == "right" || padding_side == "left", "pad_sequence: Expected padding_side to be one of ",
                "left or right, but got ", padding_side, ".");
  const Tensor& first = sequences[0];
  std::int64_t steps = 0;
  for (const Tensor& s : sequences) {
    bool fits = s.dim() == first.dim() && s.dim() > 0;
    for (std::int64_t d = 1; fits && d < s.dim(); ++d) fits = s.size(d) == first.size(d);
    ATHANOR_CHECK(fits, "pad_sequence: sequences should have the same size but for their first dim, got shapes ",
                  first.sizes(), " and ", s.sizes());
    steps = std::max(steps, s.size(0));
  }
  std::vector<Tensor> columns;
  for (const Tensor& s : sequences) {
    const std::int64_t missing = steps - s.size(0);
    if (missing == 0) {
      columns.push_back(s);
      continue;
    }
    const Tensor blank = full(sizes_with({missing}, s, 1), padding_value, s.options());
    columns.push_back(padding_side == "right" ? cat({s, blank}) : cat({blank, s}));
  }
  return stack(columns, batch_first ? 0 : 1);
}

PackedSequence pack_sequence(TensorList sequences, bool enforce_sorted) {
  std::vector<std::int64_t> lengths;
  for (const Tensor& s : sequences) lengths.push_back(s.size(0));
  return pack_padded_sequence(pad_sequence(sequences), tensor(lengths, TensorOptions(kLong)), false, enforce_sorted);
}

std::vector<Tensor> unpad_sequence(const Tensor& padded, const Tensor& lengths, bool batch_first) {
  const std::vector<std::int64_t> counts = values_of(lengths);
  const std::int64_t batch_dim = batch_first ? 0 : 1;
  ATHANOR_CHECK(padded.dim() >= 2 && padded.size(batch_dim) == static_cast<std::int64_t>(counts.size()),
                "unpad_sequence: got ", counts.size(), " lengths for sequences of shape ", padded.sizes());
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < counts.size(); ++i)
    out.push_back(padded.select(batch_dim, static_cast<std::int64_t>(i)).narrow(0, 0, counts[i]));
  return out;
}

std::vector<Tensor> unpack_sequence(const PackedSequence& sequence) {
  const auto [padded, lengths] = pad_packed_sequence(sequence, true);
  return unpad_sequence(padded, lengths, true);
}

}  // namespace athanor::nn::utils::rnn
