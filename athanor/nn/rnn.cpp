#include "athanor/nn/rnn.h"

#include <cmath>

#include "athanor/base/log.h"
#include "athanor/nn/init.h"

namespace athanor::nn {

using utils::rnn::PackedSequence;

namespace detail {

namespace {

bool is_lstm(const RNNOptionsBase& o) { return o.mode() == kLSTM; }
std::int64_t gates_of(const RNNOptionsBase& o) { return is_lstm(o) ? 4 : o.mode() == kGRU ? 3 : 1; }
/// "torch::nn::LSTM".
std::string printed_name(const std::string& implementation) {
  const std::size_t colon = implementation.rfind(':');
  const std::string name = colon == std::string::npos ? implementation : implementation.substr(colon + 1);
  const bool suffixed = name.size() > 4 && name.compare(name.size() - 4, 4, "Impl") == 0;
  return "torch::nn::" + (suffixed ? name.substr(0, name.size() - 4) : name);
}

}  // namespace

template <class Derived>
RNNImplBase<Derived>::RNNImplBase(const RNNOptionsBase& options) : options_base(options) {}

template <class Derived>
void RNNImplBase<Derived>::check_options() const {
  const RNNOptionsBase& o = options_base;
  ATHANOR_CHECK_VALUE(o.dropout() >= 0 && o.dropout() <= 1, "dropout should be a number in range [0, 1] representing ",
                      "the probability of an element being zeroed, got ", o.dropout());
  ATHANOR_CHECK_VALUE(o.hidden_size() > 0, "hidden_size must be greater than zero, got ", o.hidden_size());
  ATHANOR_CHECK_VALUE(o.num_layers() > 0, "num_layers must be greater than zero, got ", o.num_layers());
  ATHANOR_CHECK_VALUE(o.input_size() >= 0, "input_size must not be negative, got ", o.input_size());
  ATHANOR_CHECK_VALUE(o.proj_size() >= 0, "proj_size should be a positive integer or zero to disable projections, got ",
                      o.proj_size());
  ATHANOR_CHECK_VALUE(o.proj_size() < o.hidden_size(), "proj_size has to be smaller than hidden_size, got ",
                      o.proj_size(), " and ", o.hidden_size());
  if (o.dropout() > 0 && o.num_layers() == 1)
    ATHANOR_LOG(Warning, "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects ",
                "num_layers greater than 1, but got dropout=", o.dropout(), " and num_layers=", o.num_layers());
}

template <class Derived>
void RNNImplBase<Derived>::reset() {
  check_options();
  const RNNOptionsBase& o = options_base;
  const std::int64_t directions = o.bidirectional() ? 2 : 1, hidden = o.hidden_size(), rows = gates_of(o) * hidden;
  const std::int64_t state = o.proj_size() > 0 ? o.proj_size() : hidden;
  flat_weights_.clear();
  for (std::int64_t layer = 0; layer < o.num_layers(); ++layer)
    for (std::int64_t d = 0; d < directions; ++d) {
      const std::string suffix = "_l" + std::to_string(layer) + (d == 1 ? "_reverse" : "");
      const std::int64_t inputs = layer == 0 ? o.input_size() : state * directions;
      const auto add = [&](const char* name, IntArrayRef sizes) {
        flat_weights_.push_back(this->register_parameter(name + suffix, empty(sizes)));
      };
      add("weight_ih", {rows, inputs});
      add("weight_hh", {rows, state});
      if (o.bias()) {
        add("bias_ih", {rows});
        add("bias_hh", {rows});
      }
      if (o.proj_size() > 0) add("weight_hr", {o.proj_size(), hidden});
    }
  reset_parameters();
}

template <class Derived>
void RNNImplBase<Derived>::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(options_base.hidden_size()));
  for (const Tensor& w : flat_weights_) init::uniform_(w, -bound, bound);
}

template <class Derived>
std::vector<Tensor> RNNImplBase<Derived>::all_weights() const {
  return flat_weights_;
}

template <class Derived>
void RNNImplBase<Derived>::pretty_print(std::ostream& stream) const {
  const RNNOptionsBase& o = options_base;
  stream << std::boolalpha << printed_name(this->name()) << "(input_size=" << o.input_size()
         << ", hidden_size=" << o.hidden_size() << ", num_layers=" << o.num_layers() << ", bias=" << o.bias()
         << ", batch_first=" << o.batch_first() << ", dropout=" << o.dropout()
         << ", bidirectional=" << o.bidirectional();
  if (o.proj_size() > 0) stream << ", proj_size=" << o.proj_size();
  stream << ")";
}

template <class Derived>
void RNNImplBase<Derived>::check_input(const Tensor& input, bool packed) const {
  const std::string name = printed_name(this->name());
  if (packed)
    ATHANOR_CHECK(input.dim() == 2, name, ": packed input must have 2 dimensions, got shape ", input.sizes());
  else
    ATHANOR_CHECK(input.dim() == 2 || input.dim() == 3, name, ": Expected input to be 2D or 3D, got ", input.dim(),
                  "D instead, its shape is ", input.sizes());
  ATHANOR_CHECK(input.size(-1) == options_base.input_size(), name,
                ": input.size(-1) must be equal to input_size. Expected ", options_base.input_size(), ", got ",
                input.size(-1), ", its shape is ", input.sizes());
}

template <class Derived>
DimVector RNNImplBase<Derived>::state_sizes(std::int64_t batch, bool cell) const {
  const RNNOptionsBase& o = options_base;
  const std::int64_t width = !cell && o.proj_size() > 0 ? o.proj_size() : o.hidden_size();
  return {o.num_layers() * (o.bidirectional() ? 2 : 1), batch, width};
}

template <class Derived>
void RNNImplBase<Derived>::complete_states(std::vector<Tensor>& states, const Tensor& input, std::int64_t batch,
                                           bool batched) const {
  for (std::size_t i = 0; i < states.size(); ++i) {
    Tensor& s = states[i];
    const DimVector expected = state_sizes(batch, i == 1);
    if (!s.defined()) {
      s = zeros(expected, input.options());
      continue;
    }
    if (!batched) {
      ATHANOR_CHECK(s.dim() == 2, printed_name(this->name()),
                    ": For unbatched 2-D input, hidden states should also be 2-D but got shape ", s.sizes());
      s = s.unsqueeze(1);
    }
    const std::string which = is_lstm(options_base) ? "[" + std::to_string(i) + "]" : "";
    ATHANOR_CHECK(s.sizes() == IntArrayRef(expected), "Expected hidden", which, " size ", expected, ", got ",
                  s.sizes());
  }
}

template <class Derived>
typename RNNImplBase<Derived>::Result RNNImplBase<Derived>::call(const Tensor& input, const Tensor& batch_sizes,
                                                                 const std::vector<Tensor>& states) const {
  const RNNOptionsBase& o = options_base;
  const bool training = this->is_training();
  if (is_lstm(o)) {
    auto [out, h, c] = batch_sizes.defined() ? lstm(input, batch_sizes, states, flat_weights_, o.bias(), o.num_layers(),
                                                    o.dropout(), training, o.bidirectional())
                                             : lstm(input, states, flat_weights_, o.bias(), o.num_layers(), o.dropout(),
                                                    training, o.bidirectional(), o.batch_first());
    return {out, h, c};
  }
  const auto choose = [&](auto padded, auto packed) -> Result {
    auto [out, h] = batch_sizes.defined() ? packed(input, batch_sizes, states[0]) : padded(input, states[0]);
    return {out, h, {}};
  };
#define ATHANOR_RNN_CALL(function)                                                                               \
  choose(                                                                                                        \
      [&](const Tensor& x, const Tensor& h) {                                                                    \
        return function(x, h, flat_weights_, o.bias(), o.num_layers(), o.dropout(), training, o.bidirectional(), \
                        o.batch_first());                                                                        \
      },                                                                                                         \
      [&](const Tensor& x, const Tensor& sizes, const Tensor& h) {                                               \
        return function(x, sizes, h, flat_weights_, o.bias(), o.num_layers(), o.dropout(), training,             \
                        o.bidirectional());                                                                      \
      })
  if (o.mode() == kGRU) return ATHANOR_RNN_CALL(gru);
  if (o.mode() == kRNN_RELU) return ATHANOR_RNN_CALL(rnn_relu);
  return ATHANOR_RNN_CALL(rnn_tanh);
#undef ATHANOR_RNN_CALL
}

template <class Derived>
typename RNNImplBase<Derived>::Result RNNImplBase<Derived>::run(const Tensor& input, std::vector<Tensor> states,
                                                                const PackedSequence* packed) {
  return in_module(*this, [&]() -> Result {
    check_input(input, packed != nullptr);
    if (packed) {
      const Tensor &order = packed->sorted_indices(), &back = packed->unsorted_indices();
      const std::int64_t batch = packed->batch_sizes().select(0, 0).template item<std::int64_t>();
      complete_states(states, input, batch, true);
      if (order.defined())
        for (Tensor& s : states) s = s.index_select(1, order);
      Result r = call(input, packed->batch_sizes(), states);
      if (back.defined()) {
        r.h = r.h.index_select(1, back);
        if (r.c.defined()) r.c = r.c.index_select(1, back);
      }
      return r;
    }
    const bool batched = input.dim() == 3;
    const std::int64_t batch_dim = options_base.batch_first() ? 0 : 1;
    const Tensor x = batched ? input : input.unsqueeze(batch_dim);
    complete_states(states, x, x.size(batch_dim), batched);
    Result r = call(x, {}, states);
    if (batched) return r;
    return {r.output.squeeze(batch_dim), r.h.squeeze(1), r.c.defined() ? r.c.squeeze(1) : r.c};
  });
}

template <class Derived>
RNNCellImplBase<Derived>::RNNCellImplBase(const RNNCellOptionsBase& options) : options_base(options) {}

template <class Derived>
void RNNCellImplBase<Derived>::reset() {
  const RNNCellOptionsBase& o = options_base;
  ATHANOR_CHECK_VALUE(o.input_size() >= 0 && o.hidden_size() > 0, printed_name(this->name()),
                      ": expected a positive hidden_size and an input_size of at least 0, got ", o.hidden_size(),
                      " and ", o.input_size());
  const std::int64_t rows = o.num_chunks() * o.hidden_size();
  weight_ih = this->register_parameter("weight_ih", empty({rows, o.input_size()}));
  weight_hh = this->register_parameter("weight_hh", empty({rows, o.hidden_size()}));
  bias_ih = this->register_parameter("bias_ih", o.bias() ? empty({rows}) : Tensor(), o.bias());
  bias_hh = this->register_parameter("bias_hh", o.bias() ? empty({rows}) : Tensor(), o.bias());
  reset_parameters();
}

template <class Derived>
void RNNCellImplBase<Derived>::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(options_base.hidden_size()));
  for (const Tensor& w : this->parameters()) init::uniform_(w, -bound, bound);
}

template <class Derived>
void RNNCellImplBase<Derived>::pretty_print(std::ostream& stream) const {
  stream << printed_name(this->name()) << "(" << options_base.input_size() << ", " << options_base.hidden_size();
  if (!options_base.bias()) stream << ", bias=false";
  const std::string nonlinearity = get_nonlinearity_str();
  if (!nonlinearity.empty() && nonlinearity != "kTanh") stream << ", nonlinearity=" << nonlinearity;
  stream << ")";
}

template <class Derived>
bool RNNCellImplBase<Derived>::prepare(Tensor& input, std::vector<Tensor>& states) const {
  const std::string name = printed_name(this->name());
  ATHANOR_CHECK(input.dim() == 1 || input.dim() == 2, name, ": Expected input to be 1D or 2D, got ", input.dim(),
                "D instead, its shape is ", input.sizes());
  ATHANOR_CHECK(input.size(-1) == options_base.input_size(), name, ": input has inconsistent input_size: got ",
                input.size(-1), ", expected ", options_base.input_size(), ", its shape is ", input.sizes());
  const bool alone = input.dim() == 1;
  const Tensor given = input;
  if (alone) input = input.unsqueeze(0);
  for (std::size_t i = 0; i < states.size(); ++i) {
    Tensor& s = states[i];
    if (!s.defined()) {
      s = zeros({input.size(0), options_base.hidden_size()}, input.options());
      continue;
    }
    ATHANOR_CHECK(s.dim() == given.dim(), name, ": Expected hidden state ", i, " to be ", given.dim(),
                  "D like the input of shape ", given.sizes(), ", got shape ", s.sizes(), " instead");
    if (alone) s = s.unsqueeze(0);
    ATHANOR_CHECK(s.size(0) == input.size(0), name, ": Input batch size ", input.size(0), " doesn't match hidden", i,
                  " batch size ", s.size(0), ": their shapes are ", input.sizes(), " and ", s.sizes());
    ATHANOR_CHECK(s.size(1) == options_base.hidden_size(), name, ": hidden", i, " has inconsistent hidden_size: got ",
                  s.size(1), ", expected ", options_base.hidden_size(), ", its shape is ", s.sizes());
  }
  return alone;
}

template class RNNImplBase<RNNImpl>;
template class RNNImplBase<LSTMImpl>;
template class RNNImplBase<GRUImpl>;
template class RNNCellImplBase<RNNCellImpl>;
template class RNNCellImplBase<LSTMCellImpl>;
template class RNNCellImplBase<GRUCellImpl>;

namespace {

template <class Options>
RNNOptionsBase base_of(RNNOptionsBase::rnn_options_base_mode_t mode, const Options& o) {
  return RNNOptionsBase(mode, o.input_size(), o.hidden_size())
      .num_layers(o.num_layers())
      .bias(o.bias())
      .batch_first(o.batch_first())
      .dropout(o.dropout())
      .bidirectional(o.bidirectional());
}
RNNOptionsBase::rnn_options_base_mode_t mode_of(const RNNOptions& o) {
  if (o.nonlinearity() == kReLU) return kRNN_RELU;
  return kRNN_TANH;
}
PackedSequence like(const PackedSequence& p, const Tensor& data) {
  return PackedSequence(data, p.batch_sizes(), p.sorted_indices(), p.unsorted_indices());
}

}  // namespace

}  // namespace detail

RNNImpl::RNNImpl(const RNNOptions& options)
    : RNNImplBase(detail::base_of(detail::mode_of(options), options)), options(options) {
  reset();
}
std::tuple<Tensor, Tensor> RNNImpl::forward(const Tensor& input, Tensor hx) {
  const Result r = run(input, {std::move(hx)}, nullptr);
  return {r.output, r.h};
}
std::tuple<PackedSequence, Tensor> RNNImpl::forward_with_packed_input(const PackedSequence& packed, Tensor hx) {
  const Result r = run(packed.data(), {std::move(hx)}, &packed);
  return {detail::like(packed, r.output), r.h};
}

LSTMImpl::LSTMImpl(const LSTMOptions& options)
    : RNNImplBase(detail::base_of(kLSTM, options).proj_size(options.proj_size())), options(options) {
  reset();
}
std::tuple<Tensor, LSTMImpl::States> LSTMImpl::forward(const Tensor& input, std::optional<States> hx) {
  const States s = hx.value_or(States());
  const Result r = run(input, {std::get<0>(s), std::get<1>(s)}, nullptr);
  return {r.output, {r.h, r.c}};
}
std::tuple<PackedSequence, LSTMImpl::States> LSTMImpl::forward_with_packed_input(const PackedSequence& packed,
                                                                                 std::optional<States> hx) {
  const States s = hx.value_or(States());
  const Result r = run(packed.data(), {std::get<0>(s), std::get<1>(s)}, &packed);
  return {detail::like(packed, r.output), {r.h, r.c}};
}

GRUImpl::GRUImpl(const GRUOptions& options) : RNNImplBase(detail::base_of(kGRU, options)), options(options) { reset(); }
std::tuple<Tensor, Tensor> GRUImpl::forward(const Tensor& input, Tensor hx) {
  const Result r = run(input, {std::move(hx)}, nullptr);
  return {r.output, r.h};
}
std::tuple<PackedSequence, Tensor> GRUImpl::forward_with_packed_input(const PackedSequence& packed, Tensor hx) {
  const Result r = run(packed.data(), {std::move(hx)}, &packed);
  return {detail::like(packed, r.output), r.h};
}

RNNCellImpl::RNNCellImpl(const RNNCellOptions& options)
    : RNNCellImplBase(detail::RNNCellOptionsBase(options.input_size(), options.hidden_size(), options.bias(), 1)),
      options(options) {
  reset();
}
std::string RNNCellImpl::get_nonlinearity_str() const { return options.nonlinearity().name(); }
Tensor RNNCellImpl::forward(const Tensor& input, Tensor hx) {
  return in_module(*this, [&] {
    Tensor x = input;
    std::vector<Tensor> states{std::move(hx)};
    const bool alone = prepare(x, states);
    const auto function = options.nonlinearity() == kReLU ? &rnn_relu_cell : &rnn_tanh_cell;
    const Tensor h = function(x, states[0], weight_ih, weight_hh, bias_ih, bias_hh);
    return alone ? h.squeeze(0) : h;
  });
}

LSTMCellImpl::LSTMCellImpl(const LSTMCellOptions& options)
    : RNNCellImplBase(detail::RNNCellOptionsBase(options.input_size(), options.hidden_size(), options.bias(), 4)),
      options(options) {
  reset();
}
LSTMCellImpl::States LSTMCellImpl::forward(const Tensor& input, std::optional<States> hx) {
  return in_module(*this, [&]() -> States {
    Tensor x = input;
    const States given = hx.value_or(States());
    std::vector<Tensor> states{std::get<0>(given), std::get<1>(given)};
    const bool alone = prepare(x, states);
    auto [h, c] = lstm_cell(x, states, weight_ih, weight_hh, bias_ih, bias_hh);
    return alone ? States(h.squeeze(0), c.squeeze(0)) : States(h, c);
  });
}

GRUCellImpl::GRUCellImpl(const GRUCellOptions& options)
    : RNNCellImplBase(detail::RNNCellOptionsBase(options.input_size(), options.hidden_size(), options.bias(), 3)),
      options(options) {
  reset();
}
Tensor GRUCellImpl::forward(const Tensor& input, Tensor hx) {
  return in_module(*this, [&] {
    Tensor x = input;
    std::vector<Tensor> states{std::move(hx)};
    const bool alone = prepare(x, states);
    const Tensor h = gru_cell(x, states[0], weight_ih, weight_hh, bias_ih, bias_hh);
    return alone ? h.squeeze(0) : h;
  });
}

}  // namespace athanor::nn
