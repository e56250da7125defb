#pragma once
/// RNN, LSTM, GRU and their cells. Parameters have PyTorch's names (weight_ih_l0, weight_hh_l0_reverse, …); first
/// values are uniform within ±1/sqrt(hidden_size).

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"
#include "athanor/nn/packed_sequence.h"

namespace athanor::nn {

namespace detail {

struct RNNOptionsBase {
  using rnn_options_base_mode_t =
      enumtype::OneOf<enumtype::kLSTM, enumtype::kGRU, enumtype::kRNN_TANH, enumtype::kRNN_RELU>;
  RNNOptionsBase(rnn_options_base_mode_t mode, std::int64_t input_size, std::int64_t hidden_size)
      : mode_(mode), input_size_(input_size), hidden_size_(hidden_size) {}
  ATHANOR_ARG(rnn_options_base_mode_t, mode);
  ATHANOR_ARG(std::int64_t, input_size);
  ATHANOR_ARG(std::int64_t, hidden_size);
  ATHANOR_ARG(std::int64_t, num_layers) = 1;
  ATHANOR_ARG(bool, bias) = true;
  ATHANOR_ARG(bool, batch_first) = false;
  ATHANOR_ARG(double, dropout) = 0.0;
  ATHANOR_ARG(bool, bidirectional) = false;
  ATHANOR_ARG(std::int64_t, proj_size) = 0;
};

struct RNNCellOptionsBase {
  RNNCellOptionsBase(std::int64_t input_size, std::int64_t hidden_size, bool bias, std::int64_t num_chunks)
      : input_size_(input_size), hidden_size_(hidden_size), bias_(bias), num_chunks_(num_chunks) {}
  ATHANOR_ARG(std::int64_t, input_size);
  ATHANOR_ARG(std::int64_t, hidden_size);
  ATHANOR_ARG(bool, bias);
  ATHANOR_ARG(std::int64_t, num_chunks);
};

}  // namespace detail

/// dropout: applied to the outputs of all layers but the last, in training. batch_first: input and output (B, T, …)
/// instead of (T, B, …); states stay (layers · directions, B, …).
struct RNNOptions {
  using nonlinearity_t = enumtype::OneOf<enumtype::kTanh, enumtype::kReLU>;
  RNNOptions(std::int64_t input_size, std::int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  ATHANOR_ARG(std::int64_t, input_size);
  ATHANOR_ARG(std::int64_t, hidden_size);
  ATHANOR_ARG(std::int64_t, num_layers) = 1;
  ATHANOR_ARG(nonlinearity_t, nonlinearity) = kTanh;
  ATHANOR_ARG(bool, bias) = true;
  ATHANOR_ARG(bool, batch_first) = false;
  ATHANOR_ARG(double, dropout) = 0.0;
  ATHANOR_ARG(bool, bidirectional) = false;
};

/// proj_size > 0: the state is projected to that many values (Sak, Senior, Beaufays, "Long short-term memory recurrent
/// neural network architectures for large scale acoustic modeling", 2014).
struct LSTMOptions {
  LSTMOptions(std::int64_t input_size, std::int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  ATHANOR_ARG(std::int64_t, input_size);
  ATHANOR_ARG(std::int64_t, hidden_size);
  ATHANOR_ARG(std::int64_t, num_layers) = 1;
  ATHANOR_ARG(bool, bias) = true;
  ATHANOR_ARG(bool, batch_first) = false;
  ATHANOR_ARG(double, dropout) = 0.0;
  ATHANOR_ARG(bool, bidirectional) = false;
  ATHANOR_ARG(std::int64_t, proj_size) = 0;
};

struct GRUOptions {
  GRUOptions(std::int64_t input_size, std::int64_t hidden_size) : input_size_(input_size), hidden_size_(hidden_size) {}
  ATHANOR_ARG(std::int64_t, input_size);
  ATHANOR_ARG(std::int64_t, hidden_size);
  ATHANOR_ARG(std::int64_t, num_layers) = 1;
  ATHANOR_ARG(bool, bias) = true;
  ATHANOR_ARG(bool, batch_first) = false;
  ATHANOR_ARG(double, dropout) = 0.0;
  ATHANOR_ARG(bool, bidirectional) = false;
};

struct RNNCellOptions {
  using nonlinearity_t = enumtype::OneOf<enumtype::kTanh, enumtype::kReLU>;
  RNNCellOptions(std::int64_t input_size, std::int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  ATHANOR_ARG(std::int64_t, input_size);
  ATHANOR_ARG(std::int64_t, hidden_size);
  ATHANOR_ARG(bool, bias) = true;
  ATHANOR_ARG(nonlinearity_t, nonlinearity) = kTanh;
};

struct LSTMCellOptions {
  LSTMCellOptions(std::int64_t input_size, std::int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  ATHANOR_ARG(std::int64_t, input_size);
  ATHANOR_ARG(std::int64_t, hidden_size);
  ATHANOR_ARG(bool, bias) = true;
};
using GRUCellOptions = LSTMCellOptions;

namespace detail {

/// What the three layers share. Defined in rnn.cpp.
template <class Derived>
class RNNImplBase : public Cloneable<Derived> {
 public:
  explicit RNNImplBase(const RNNOptionsBase& options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Nothing to do: weights are packed for a call when it is made. For programs that ask for it.
  void flatten_parameters() {}
  std::vector<Tensor> all_weights() const;

  RNNOptionsBase options_base;

 protected:
  struct Result {
    Tensor output, h, c;
  };
  /// `states` are h, for LSTM h and c; undefined ones are zeros. `packed` may be null.
  Result run(const Tensor& input, std::vector<Tensor> states, const utils::rnn::PackedSequence* packed);

 private:
  void check_options() const;
  void check_input(const Tensor& input, bool packed) const;
  DimVector state_sizes(std::int64_t batch, bool cell) const;
  void complete_states(std::vector<Tensor>& states, const Tensor& input, std::int64_t batch, bool batched) const;
  Result call(const Tensor& input, const Tensor& batch_sizes, const std::vector<Tensor>& states) const;

  std::vector<Tensor> flat_weights_;
};

template <class Derived>
class RNNCellImplBase : public Cloneable<Derived> {
 public:
  explicit RNNCellImplBase(const RNNCellOptionsBase& options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  RNNCellOptionsBase options_base;
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  /// input and states with a batch dim, the states made if undefined; true if it was added.
  bool prepare(Tensor& input, std::vector<Tensor>& states) const;
  virtual std::string get_nonlinearity_str() const { return ""; }
};

}  // namespace detail

/// h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. Takes (T, B, input) or, without a batch, (T, input); gives the
/// outputs (T, B, directions · hidden) and the last states (layers · directions, B, hidden).
class RNNImpl : public detail::RNNImplBase<RNNImpl> {
 public:
  RNNImpl(std::int64_t input_size, std::int64_t hidden_size) : RNNImpl(RNNOptions(input_size, hidden_size)) {}
  explicit RNNImpl(const RNNOptions& options);
  std::tuple<Tensor, Tensor> forward(const Tensor& input, Tensor hx = {});
  std::tuple<utils::rnn::PackedSequence, Tensor> forward_with_packed_input(
      const utils::rnn::PackedSequence& packed_input, Tensor hx = {});
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())})

  RNNOptions options;
};
ATHANOR_LIBRARY_MODULE(RNN);

/// Long short-term memory (Hochreiter and Schmidhuber, 1997). The states are h and c.
class LSTMImpl : public detail::RNNImplBase<LSTMImpl> {
 public:
  using States = std::tuple<Tensor, Tensor>;
  LSTMImpl(std::int64_t input_size, std::int64_t hidden_size) : LSTMImpl(LSTMOptions(input_size, hidden_size)) {}
  explicit LSTMImpl(const LSTMOptions& options);
  std::tuple<Tensor, States> forward(const Tensor& input, std::optional<States> hx_opt = {});
  std::tuple<utils::rnn::PackedSequence, States> forward_with_packed_input(
      const utils::rnn::PackedSequence& packed_input, std::optional<States> hx_opt = {});
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(std::optional<States>())})

  LSTMOptions options;
};
ATHANOR_LIBRARY_MODULE(LSTM);

/// Gated recurrent units (Cho et al., 2014), the reset gate after the product.
class GRUImpl : public detail::RNNImplBase<GRUImpl> {
 public:
  GRUImpl(std::int64_t input_size, std::int64_t hidden_size) : GRUImpl(GRUOptions(input_size, hidden_size)) {}
  explicit GRUImpl(const GRUOptions& options);
  std::tuple<Tensor, Tensor> forward(const Tensor& input, Tensor hx = {});
  std::tuple<utils::rnn::PackedSequence, Tensor> forward_with_packed_input(
      const utils::rnn::PackedSequence& packed_input, Tensor hx = {});
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())})

  GRUOptions options;
};
ATHANOR_LIBRARY_MODULE(GRU);

/// One step; input (B, input) or (input), states (B, hidden) or (hidden), zeros if left out.
class RNNCellImpl : public detail::RNNCellImplBase<RNNCellImpl> {
 public:
  RNNCellImpl(std::int64_t input_size, std::int64_t hidden_size)
      : RNNCellImpl(RNNCellOptions(input_size, hidden_size)) {}
  explicit RNNCellImpl(const RNNCellOptions& options);
  Tensor forward(const Tensor& input, Tensor hx = {});
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())})

  RNNCellOptions options;

 protected:
  std::string get_nonlinearity_str() const override;
};
ATHANOR_LIBRARY_MODULE(RNNCell);

class LSTMCellImpl : public detail::RNNCellImplBase<LSTMCellImpl> {
 public:
  using States = std::tuple<Tensor, Tensor>;
  LSTMCellImpl(std::int64_t input_size, std::int64_t hidden_size)
      : LSTMCellImpl(LSTMCellOptions(input_size, hidden_size)) {}
  explicit LSTMCellImpl(const LSTMCellOptions& options);
  States forward(const Tensor& input, std::optional<States> hx_opt = {});
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(std::optional<States>())})

  LSTMCellOptions options;
};
ATHANOR_LIBRARY_MODULE(LSTMCell);

class GRUCellImpl : public detail::RNNCellImplBase<GRUCellImpl> {
 public:
  GRUCellImpl(std::int64_t input_size, std::int64_t hidden_size)
      : GRUCellImpl(GRUCellOptions(input_size, hidden_size)) {}
  explicit GRUCellImpl(const GRUCellOptions& options);
  Tensor forward(const Tensor& input, Tensor hx = {});
  ATHANOR_FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())})

  GRUCellOptions options;
};
ATHANOR_LIBRARY_MODULE(GRUCell);

}  // namespace athanor::nn
