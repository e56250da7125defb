// Recurrent layers, attention and transformers. Expected values were computed with PyTorch.
#include "athanor/autograd/gradcheck.h"
#include "athanor/base/parallel.h"
#include "helpers.h"

namespace athanor::nn {
namespace {

namespace F = functional;
using test::error_of;
using test::text_of;
using utils::rnn::PackedSequence;
using Values = std::vector<double>;

/// sin(0.7 i + phase) times scale.
Tensor wave(IntArrayRef sizes, double phase, double scale = 0.4) {
  std::int64_t n = 1;
  for (const auto s : sizes) n *= s;
  Values v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(std::sin(static_cast<double>(i) * 0.7 + phase) * scale);
  return tensor(v, kDouble).reshape(sizes);
}

/// Parameters in the order of their names.
std::vector<Tensor> sorted_parameters(const Module& m) {
  std::map<std::string, Tensor> by_name;
  for (const auto& p : m.named_parameters()) by_name[p.key()] = p.value();
  std::vector<Tensor> out;
  for (const auto& [name, p] : by_name) out.push_back(p);
  return out;
}

/// Makes the module float64 and gives each parameter a wave of its own.
template <class Holder>
Holder filled(Holder m) {
  m->to(kDouble);
  const NoGradGuard guard;
  double phase = 0;
  for (Tensor& p : sorted_parameters(*m)) p.copy_(wave(p.sizes(), phase++));
  return m;
}

/// The first four elements, and a sum of all of them weighted by sin(1.3 i + 0.5).
void expect_wave(const Tensor& actual, const Values& expected) {
  const Values all = test::list(actual);
  ASSERT_GE(all.size(), 4U);
  double sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) sum += all[i] * std::sin(static_cast<double>(i) * 1.3 + 0.5);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(all[i], expected[i], 2e-8) << "at " << i;
  EXPECT_NEAR(sum, expected[4], 2e-8) << "weighted sum";
}

struct Expected {
  Values output, h, packed, packed_h, gradient;
};

/// A layer of two layers and directions on (4, 3, 5), padded and packed with lengths 2, 4, 1.
template <class Layer, class State>
void check_layer(Layer layer, const State& state_of, const Expected& e) {
  const Tensor x = wave({4, 3, 5}, 0.2, 1);
  const auto [out, h] = layer->forward(x);
  expect_wave(out, e.output);
  expect_wave(state_of(h), e.h);
  const auto lengths = tensor({2, 4, 1}, TensorOptions(kLong));
  const PackedSequence packed = utils::rnn::pack_padded_sequence(x, lengths, false, false);
  const auto [packed_out, packed_h] = layer->forward_with_packed_input(packed);
  expect_wave(packed_out.data(), e.packed);
  expect_wave(state_of(packed_h), e.packed_h);
  std::vector<Tensor> flat;
  for (const Tensor& g : autograd::grad({packed_out.data().sum()}, sorted_parameters(*layer)))
    flat.push_back(g.flatten());
  expect_wave(cat(flat), e.gradient);
}

TEST(RecurrentLayers, LstmAgreesWithPyTorch) {
  LSTM layer = filled(LSTM(LSTMOptions(5, 3).num_layers(2).bidirectional(true).proj_size(2)));
  check_layer(layer, [](const auto& s) { return std::get<0>(s); },
              {{-0.0512085605, 0.025477478, -0.0396557671, -0.0240203952, -0.0768170169},
               {-0.0285819155, -0.0850959155, -0.106539174, -0.0494593267, -0.128222597},
               {-0.049206881, 0.0248673292, -0.0382749467, -0.0251521126, -0.00784728575},
               {-0.115901438, 0.0113762965, -0.106539174, -0.0494593267, -0.0104467119},
               {0.000118378312, 0.000809974821, 0.00114737533, 0.000139628987, 2.11628129}});
  expect_wave(std::get<1>(std::get<1>(layer->forward(wave({4, 3, 5}, 0.2, 1)))),
              {0.00436482488, -0.409673214, -0.132582664, -0.0292946459, -0.924640762});
}

TEST(RecurrentLayers, GruAgreesWithPyTorch) {
  check_layer(filled(GRU(GRUOptions(5, 3).num_layers(2).bidirectional(true))), [](const Tensor& h) { return h; },
              {{-0.0460473832, -0.273075938, -0.0494890807, -0.0308352351, 0.219872511},
               {0.39484962, 0.0306744036, -0.193892149, -0.00693581335, 0.429405303},
               {-0.105456144, -0.132876012, -0.11715176, -0.194890144, 0.0298196416},
               {-0.00992530941, 0.486480142, -0.421372574, -0.00693581335, 0.866623937},
               {0.0185366081, 0.0173232882, 0.00554219061, 0.0575115349, -4.98124697}});
}

TEST(RecurrentLayers, RnnAgreesWithPyTorch) {
  check_layer(filled(RNN(RNNOptions(5, 3).num_layers(2).bidirectional(true))), [](const Tensor& h) { return h; },
              {{0.0201048551, 0.557220844, 0.196389247, -0.150836962, -0.33430311},
               {0.0948275239, -0.659402722, 0.767047237, -0.525726759, -1.08578207},
               {0.0664591414, 0.213753956, 0.505150381, 0.32636459, -0.189934252},
               {0.00455557828, -0.186084859, -0.179019044, -0.525726759, -0.796623485},
               {0.350687555, 0.341124438, 0.0817405771, -0.264665893, 1.95347738}});
}

TEST(RecurrentLayers, CellsAgreeWithPyTorch) {
  const Tensor x = wave({4, 3, 5}, 0.2, 1)[0];
  const auto [h, c] = filled(LSTMCell(5, 3))->forward(x);
  expect_wave(cat({h, c}), {-0.0644100394, -0.465952918, 0.111546678, -0.24696011, -0.983268774});
  GRUCell gru = filled(GRUCell(5, 3));
  expect_wave(gru(x), {-0.0721174508, -0.470457279, 0.376714971, -0.250035966, -0.619264345});
  expect_wave(filled(RNNCell(RNNCellOptions(5, 3).nonlinearity(kReLU)))->forward(x, wave({3, 3}, 1)),
              {0, 1.20114002, 0.0179609554, 0.99701447, 0.861946161});
  EXPECT_TRUE(gru(x[1]).allclose(gru(x)[1]));
}

TEST(RecurrentLayers, HaveParametersStatesAndTextOfLibtorch) {
  const LSTM layer(LSTMOptions(4, 3).num_layers(2).bidirectional(true).proj_size(2).dropout(0.5));
  std::vector<std::string> names;
  for (const auto& p : layer->named_parameters()) names.push_back(p.key());
  EXPECT_EQ(names.size(), 20U);
  EXPECT_EQ((std::vector<std::string>(names.begin(), names.begin() + 6)),
            (std::vector<std::string>{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0",
                                      "weight_ih_l0_reverse"}));
  EXPECT_EQ(layer->all_weights().size(), 20U);
  EXPECT_EQ(text_of(layer),
            "torch::nn::LSTM(input_size=4, hidden_size=3, num_layers=2, bias=true, batch_first=false, "
            "dropout=0.5, bidirectional=true, proj_size=2)");
  EXPECT_EQ(text_of(GRUCell(GRUCellOptions(4, 3).bias(false))), "torch::nn::GRUCell(4, 3, bias=false)");
  EXPECT_EQ(text_of(RNNCell(RNNCellOptions(4, 3).nonlinearity(kReLU))), "torch::nn::RNNCell(4, 3, nonlinearity=kReLU)");
}

TEST(RecurrentLayers, TakeSequencesWithoutBatchAndBatchesFirst) {
  LSTM layer = filled(LSTM(5, 3));
  const Tensor x = wave({4, 1, 5}, 0.2, 1);
  const auto [out, states] = layer->forward(x);
  const auto [alone, last] = layer->forward(x.squeeze(1));
  EXPECT_TRUE(alone.equal(out.squeeze(1)));
  EXPECT_TRUE(std::get<1>(last).equal(std::get<1>(states).squeeze(1)));
  layer->options_base.batch_first(true);
  EXPECT_TRUE(std::get<0>(layer->forward(x.transpose(0, 1))).equal(out.transpose(0, 1)));
}

TEST(RecurrentLayers, ContinueFromTheirStates) {
  GRU layer = filled(GRU(GRUOptions(5, 20).num_layers(2)));
  const Tensor x = wave({24, 3, 5}, 0.2, 1);
  const auto [whole, last] = layer->forward(x);
  const auto [first, middle] = layer->forward(x.narrow(0, 0, 10));
  const auto [second, end] = layer->forward(x.narrow(0, 10, 14), middle);
  EXPECT_TRUE(cat({first, second}).allclose(whole, 1e-12, 1e-12));
  EXPECT_TRUE(end.allclose(last, 1e-12, 1e-12));
}

TEST(RecurrentLayers, DropBetweenLayersInTrainingOnly) {
  manual_seed(3);
  LSTM layer(LSTMOptions(5, 8).num_layers(2).dropout(0.5));
  const Tensor x = randn({6, 2, 5});
  EXPECT_FALSE(std::get<0>(layer->forward(x)).equal(std::get<0>(layer->forward(x))));
  layer->eval();
  EXPECT_TRUE(std::get<0>(layer->forward(x)).equal(std::get<0>(layer->forward(x))));
}

/// Expects what `forward` gives, and its gradients for the parameters of a layer and for `x`, to have the same bits on
/// 1, 2, 3 and 7 threads.
template <class Layer>
void expect_same_on_threads(const char* name, const Layer& layer, const Tensor& x,
                            const std::function<Tensor()>& forward) {
  std::vector<Tensor> wanted = layer->parameters(), one;
  wanted.push_back(x);
  const int before = get_num_threads();
  for (const int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    const Tensor out = forward();
    auto all = autograd::grad({(out * out).sum()}, wanted);
    all.push_back(out);
    if (one.empty()) one = all;
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(one[i].equal(all[i])) << name << ", tensor " << i << ", threads " << threads;
  }
  set_num_threads(before);
}

TEST(RecurrentLayers, GiveTheSameBitsOnAnyNumberOfThreads) {
  manual_seed(5);
  GRU gru(GRUOptions(40, 100));
  LSTM lstm(LSTMOptions(40, 100).num_layers(2).bidirectional(true));
  const Tensor x = randn({12, 33, 40}).requires_grad_();
  expect_same_on_threads("GRU", gru, x, [&] { return std::get<0>(gru->forward(x)); });
  expect_same_on_threads("LSTM", lstm, x, [&] { return std::get<0>(lstm->forward(x)); });
}

TEST(RecurrentLayers, GiveTheSameBitsForSequencesOfSomeLengthsOnAnyNumberOfThreads) {
  manual_seed(6);
  GRU gru(GRUOptions(40, 100));
  LSTM lstm(LSTMOptions(40, 100).bidirectional(true));
  // 45 rows for 4 steps, 30 for 7, 15 for 9: steps with the rows of the step before, and steps with others.
  std::vector<std::int64_t> lengths(15, 20);
  lengths.insert(lengths.end(), 15, 11);
  lengths.insert(lengths.end(), 15, 4);
  const Tensor x = randn({20, 45, 40}).requires_grad_();
  const auto packed = [&] { return utils::rnn::pack_padded_sequence(x, tensor(lengths)); };
  expect_same_on_threads("GRU", gru, x, [&] { return std::get<0>(gru->forward_with_packed_input(packed())).data(); });
  expect_same_on_threads("LSTM", lstm, x,
                         [&] { return std::get<0>(lstm->forward_with_packed_input(packed())).data(); });
}

TEST(RecurrentLayers, CloneAndLoad) {
  LSTM layer = filled(LSTM(LSTMOptions(5, 3).bidirectional(true)));
  const Tensor x = wave({4, 3, 5}, 0.2, 1);
  const auto copy = std::dynamic_pointer_cast<LSTMImpl>(layer->clone());
  EXPECT_TRUE(std::get<0>(copy->forward(x)).equal(std::get<0>(layer->forward(x))));
  LSTM other = LSTM(LSTMOptions(5, 3).bidirectional(true));
  other->to(kDouble);
  other->load_state_dict(layer->state_dict());
  EXPECT_TRUE(std::get<0>(other->forward(x)).equal(std::get<0>(layer->forward(x))));
}

TEST(RecurrentLayers, RefuseWhatDoesNotFit) {
  LSTM layer(5, 3);
  EXPECT_THAT(error_of([&] {
                layer->forward(ones({4, 2, 6}));
              }),
              testing::HasSubstr("input.size(-1) must be equal to input_size. Expected 5, got 6"));
  EXPECT_THAT(error_of([&] { layer->forward(ones({5})); }),
              testing::HasSubstr("Expected input to be 2D or 3D, got 1D"));
  EXPECT_THAT(error_of([&] {
                layer->forward(ones({4, 2, 5}), std::tuple(zeros({1, 2, 3}), zeros({1, 1, 3})));
              }),
              testing::HasSubstr("Expected hidden[1] size [1, 2, 3], got [1, 1, 3]"));
  EXPECT_THAT(error_of([] { LSTM(LSTMOptions(5, 3).proj_size(3)); }), testing::HasSubstr("smaller than hidden_size"));
  EXPECT_THAT(error_of([] { GRU(5, 0); }), testing::HasSubstr("hidden_size must be greater than zero"));
  EXPECT_THAT(error_of([] { GRUCell(5, 3)->forward(ones({2, 4})); }), testing::HasSubstr("got 4, expected 5"));
}

TEST(RecurrentLayers, NameTheShapesTheyRefuse) {
  const auto expect = [](const char* shape, const std::function<void()>& call) {
    EXPECT_THAT(error_of(call), testing::HasSubstr(shape));
  };
  GRU gru(3, 4);
  GRUCell cell(3, 4);
  expect("[2, 3, 1, 3]", [&] { gru(ones({2, 3, 1, 3})); });
  expect("[1, 1, 4]", [&] { gru(ones({2, 3}), ones({1, 1, 4})); });
  expect("[4]", [&] { cell(ones({2, 3}), ones({4})); });
  expect("[5, 4]", [&] { cell(ones({2, 3}), ones({5, 4})); });
  expect("[2, 6]", [&] { cell(ones({2, 3}), ones({2, 6})); });
  const Tensor h = ones({1, 2, 4}), w_ih = ones({12, 3}), w_hh = ones({12, 4});
  expect("[2, 3]", [&] { athanor::gru(ones({2, 3}), h, {w_ih, w_hh}, false, 1, 0, true, false, false); });
  expect("[2, 1, 3]", [&] {
    athanor::gru(ones({2, 1, 3}), tensor(std::vector<std::int64_t>{2}, kLong), h, {w_ih, w_hh}, false, 1, 0, true,
                 false);
  });
  expect("[1, 2, 3]", [&] { gru_cell(ones({1, 2, 3}), ones({2, 4}), w_ih, w_hh); });
  expect("[2] and [1, 1]", [] { ones({2}).take_along_dim(ones({1, 1}, kLong), 0); });
}

TEST(PackedSequences, KeepWhatTheyWereMadeOf) {
  const std::vector<Tensor> sequences{wave({2, 3}, 0), wave({4, 3}, 1), wave({1, 3}, 2)};
  const PackedSequence packed = utils::rnn::pack_sequence(sequences, false);
  EXPECT_EQ(test::list(packed.batch_sizes()), (Values{3, 2, 1, 1}));
  EXPECT_EQ(test::list(packed.sorted_indices()), (Values{1, 0, 2}));
  EXPECT_EQ(test::list(packed.unsorted_indices()), (Values{1, 0, 2}));
  EXPECT_TRUE(packed.data()[0].equal(sequences[1][0]));
  const auto back = utils::rnn::unpack_sequence(packed);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(back[i].equal(sequences[i]));
  const auto [padded, lengths] = utils::rnn::pad_packed_sequence(packed, true, -1, 5);
  EXPECT_EQ(padded.sizes().vec(), (std::vector<std::int64_t>{3, 5, 3}));
  EXPECT_EQ(test::list(lengths), (Values{2, 4, 1}));
  EXPECT_EQ(test::list(padded[2].narrow(0, 1, 4)), Values(12, -1));
  EXPECT_EQ(test::list(utils::rnn::pad_sequence({sequences[2], sequences[0]}, false, 7, "left")[0][0]), Values(3, 7));
  EXPECT_THAT(error_of([&] { utils::rnn::pack_sequence(sequences); }), testing::HasSubstr("enforce_sorted"));
  EXPECT_THAT(error_of([&] { utils::rnn::pad_packed_sequence(packed, true, 0, 3); }),
              testing::HasSubstr("total_length=3 and max sequence length being 4"));
}

TEST(PackedSequences, CarryGradients) {
  const Tensor x = wave({3, 2, 2}, 0).requires_grad_();
  const auto round_trip = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const auto packed = utils::rnn::pack_padded_sequence(in[0], tensor({1, 3}, TensorOptions(kLong)), false, false);
    return {std::get<0>(utils::rnn::pad_packed_sequence(packed))};
  };
  EXPECT_TRUE(autograd::gradcheck(round_trip, {x}));
}

Tensor bools(IntArrayRef sizes, std::initializer_list<std::int64_t> on) {
  Tensor m = zeros(sizes, kBool);
  for (const std::int64_t i : on) m.view({-1})[i] = true;
  return m;
}

TEST(MultiheadAttentionLayer, AgreesWithPyTorch) {
  const Tensor q = wave({3, 2, 4}, 0.1, 1), k = wave({5, 2, 4}, 0.6, 1);
  const Tensor padding = bools({2, 5}, {1, 8, 9}), mask = bools({3, 5}, {3, 6});
  const auto check = [&](MultiheadAttentionOptions o, const Tensor& key, const Tensor& value, const Values& out,
                         const Values& weights, const Values& each) {
    MultiheadAttention layer = filled(MultiheadAttention(o));
    const auto [y, w] = layer(q, key, value, padding, true, mask);
    expect_wave(y, out);
    expect_wave(w, weights);
    EXPECT_TRUE(std::get<0>(layer(q, key, value, padding, false, mask)).allclose(y, 1e-10, 1e-12));
    const Tensor added = zeros({3, 5}, kDouble).masked_fill(mask, -INFINITY);
    EXPECT_TRUE(std::get<0>(layer(q, key, value, padding, false, added)).allclose(y, 1e-10, 1e-12));
    expect_wave(std::get<1>(layer(q, key, value, Tensor(), true, Tensor(), false)), each);
  };
  check(MultiheadAttentionOptions(4, 2), k, k, {0.0499125091, 0.48974056, -0.389149476, -0.10539002, 0.150759868},
        {0.260139927, 0, 0.451129659, 0, -0.0734056021},
        {0.192859956, 0.245914833, 0.24398248, 0.189017351, -0.03547047});
  check(MultiheadAttentionOptions(4, 2).add_bias_kv(true).add_zero_attn(true), k, k,
        {-0.525045418, -0.133639298, -0.588665537, 0.187619861, -0.124690295},
        {0.124694372, 0, 0.216546546, 0, -0.0303981413},
        {0.0633457345, 0.095652167, 0.154316276, 0.214600441, -0.0371827882});
  check(MultiheadAttentionOptions(4, 2).kdim(3).vdim(6), wave({5, 2, 3}, 0.6, 1), wave({5, 2, 6}, 0.9, 1),
        {-0.00147702893, 0.46656502, -0.294086915, -0.261354618, 0.124626185},
        {0.360035248, 0, 0.345011078, 0, 0.0220926622},
        {0.0789406909, 0.288215539, 0.272653984, 0.0788553905, 0.0141991766});
  check(MultiheadAttentionOptions(4, 2).bias(false), k, k,
        {0.0166976419, -0.0288367746, 0.0376436646, -0.0421006289, -0.0326106227},
        {0.158558221, 0, 0.350865379, 0, -1.03788272},
        {0.0776002357, 0.131818007, 0.22274662, 0.295871862, -0.639688856});
}

TEST(MultiheadAttentionLayer, TakesOtherLayouts) {
  MultiheadAttention layer = filled(MultiheadAttention(4, 2));
  const Tensor x = wave({3, 2, 4}, 0.1, 1);
  const Tensor y = std::get<0>(layer(x, x, x));
  const Tensor alone = x.select(1, 1);
  EXPECT_TRUE(std::get<0>(layer(alone, alone, alone)).allclose(y.select(1, 1), 1e-12, 1e-12));
  layer->options.batch_first(true);
  const Tensor turned = x.transpose(0, 1);
  EXPECT_TRUE(std::get<0>(layer(turned, turned, turned)).allclose(y.transpose(0, 1), 1e-12, 1e-12));
  EXPECT_EQ(text_of(layer),
            "torch::nn::MultiheadAttention(\n  (out_proj): torch::nn::Linear(in_features=4, "
            "out_features=4, bias=true)\n)");
}

TEST(MultiheadAttentionLayer, RefusesWhatDoesNotFit) {
  EXPECT_THAT(error_of([] { MultiheadAttention(5, 2); }), testing::HasSubstr("divisible by num_heads"));
  MultiheadAttention layer(4, 2);
  const Tensor x = ones({3, 2, 4});
  EXPECT_THAT(error_of([&] {
                layer(ones({3, 2, 6}), x, x);
              }),
              testing::HasSubstr("expecting embedding dimension of 4"));
  EXPECT_THAT(error_of([&] {
                layer(x, x, x, Tensor(), false, zeros({2, 3}));
              }),
              testing::HasSubstr("should be [3, 3]"));
  EXPECT_THAT(error_of([&] { layer(x, x, x, zeros({3, 2}, kBool)); }), testing::HasSubstr("key_padding_mask of shape"));
}

TEST(TransformerLayers, AgreeWithPyTorch) {
  const Tensor q = wave({3, 2, 4}, 0.1, 1), k = wave({5, 2, 4}, 0.6, 1);
  const Tensor causal = TransformerImpl::generate_square_subsequent_mask(3).to(kDouble);
  const Values encoded[] = {{0.337560981, 0.0367028285, 0.13946398, 0.2923121, 0.0781930275},
                            {-0.286542852, 0.958254489, 0.346131514, 0.318696273, 0.87781125}};
  const Values decoded[] = {{0.0152561877, 0.0248966048, 0.357492963, 0.0688244445, -0.0844857593},
                            {-0.72402274, 1.49418708, 0.462906324, 0.796597055, 0.784336238}};
  for (const bool first : {false, true}) {
    const auto options = TransformerEncoderLayerOptions(4, 2).dim_feedforward(6).dropout(0).norm_first(first);
    auto gelu_options = options;
    TransformerEncoderLayer encoder = filled(TransformerEncoderLayer(gelu_options.activation(kGELU)));
    expect_wave(encoder(q, Tensor(), bools({2, 3}, {2})), encoded[first]);
    TransformerDecoderLayer decoder = filled(TransformerDecoderLayer(options));
    expect_wave(decoder(q, k, causal), decoded[first]);
    EXPECT_TRUE(
        decoder(q, k, causal, Tensor(), Tensor(), Tensor(), true).allclose(decoder(q, k, causal), 1e-10, 1e-12));
  }
  Transformer both = filled(Transformer(TransformerOptions(4, 2, 2, 2).dim_feedforward(6).dropout(0)));
  EXPECT_EQ(both->parameters().size(), 64U);
  expect_wave(both(k, q, Tensor(), causal), {-0.0638209632, -0.336304588, 0.25516513, -0.00597014272, -0.0878340712});
}

TEST(TransformerLayers, AreClonedWithTheirValues) {
  const auto layer = TransformerEncoderLayerOptions(4, 2).dim_feedforward(6).dropout(0).activation(
      [](const Tensor& x) { return x.tanh(); });
  TransformerEncoder encoder =
      filled(TransformerEncoder(TransformerEncoderOptions(layer, 2).norm(AnyModule(LayerNorm(LayerNormOptions({4}))))));
  EXPECT_TRUE(encoder->named_parameters().contains("layers.1.self_attn.in_proj_weight"));
  EXPECT_TRUE(encoder->named_parameters().contains("norm.weight"));
  const auto copy = std::dynamic_pointer_cast<TransformerEncoderImpl>(encoder->clone());
  const Tensor x = wave({3, 2, 4}, 0.1, 1);
  EXPECT_TRUE(copy->forward(x).equal(encoder(x)));
}

}  // namespace
}  // namespace athanor::nn
