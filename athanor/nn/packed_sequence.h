#pragma once
/// Sequences of several lengths in one batch: packed (all steps of all sequences, without padding) and padded.

#include <optional>
#include <tuple>
#include <vector>

#include "athanor/ops/tensor.h"

namespace athanor::nn::utils::rnn {

/// The permutation that undoes `permutation`; undefined for an undefined one.
Tensor invert_permutation(const Tensor& permutation);

/// Rows of all sequences step by step: data (rows, …), batch_sizes (int64, on the CPU) the number of sequences that
/// reach each step. Sequences lie in falling order of length; sorted_indices tells which of the caller's each one is.
/// Made by the functions below.
class PackedSequence {
 public:
  explicit PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices = {}, Tensor unsorted_indices = {});
  const Tensor& data() const { return data_; }
  const Tensor& batch_sizes() const { return batch_sizes_; }
  const Tensor& sorted_indices() const { return sorted_indices_; }
  const Tensor& unsorted_indices() const { return unsorted_indices_; }
  PackedSequence to(const TensorOptions& options) const;
  PackedSequence cpu() const { return to(TensorOptions(kCPU)); }
  PackedSequence cuda() const { return to(TensorOptions(kCUDA)); }

 private:
  Tensor data_, batch_sizes_, sorted_indices_, unsorted_indices_;
};

/// input (T, B, …), or (B, T, …) if batch_first; lengths (B), each positive and at most T. With enforce_sorted they
/// must not rise; else sequences are sorted here.
PackedSequence pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first = false, bool enforce_sorted = true);
/// The padded sequences in the caller's order, and their lengths. total_length: steps of the result, at least the
/// longest sequence's.
std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, bool batch_first = false,
                                               double padding_value = 0.0,
                                               std::optional<std::int64_t> total_length = std::nullopt);
/// Sequences (length, …) side by side, (T, B, …) or (B, T, …), filled up with padding_value; at their beginning if
/// padding_side is "left".
Tensor pad_sequence(TensorList sequences, bool batch_first = false, double padding_value = 0,
                    std::string_view padding_side = "right");
PackedSequence pack_sequence(TensorList sequences, bool enforce_sorted = true);
/// The first `lengths[i]` steps of each sequence of a padded batch.
std::vector<Tensor> unpad_sequence(const Tensor& padded, const Tensor& lengths, bool batch_first = false);
std::vector<Tensor> unpack_sequence(const PackedSequence& sequence);

}  // namespace athanor::nn::utils::rnn
