// Recurrent layers over padded and packed sequences, attention, a transformer, and training of a small tagger.
#include "values.h"

namespace {

struct TaggerImpl : torch::nn::Module {
  TaggerImpl(int64_t vocabulary, int64_t width, int64_t tags)
      : embedding(register_module("embedding", torch::nn::Embedding(vocabulary, width))),
        lstm(register_module(
            "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(width, width).batch_first(true).bidirectional(true)))),
        hidden2tag(register_module("hidden2tag", torch::nn::Linear(2 * width, tags))) {}
  torch::Tensor forward(const torch::Tensor& words) {
    auto out = std::get<0>(lstm(embedding(words)));
    return torch::log_softmax(hidden2tag(out), -1);
  }
  torch::nn::Embedding embedding;
  torch::nn::LSTM lstm;
  torch::nn::Linear hidden2tag;
};
TORCH_MODULE(Tagger);

}  // namespace

int main() {
  {
    torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2));
    fill(*lstm, 0.5);
    auto [output, state] = lstm(wave({5, 2, 3}));
    auto [h, c] = state;
    show("lstm output", output);
    show("lstm h", h);
    show("lstm c", c);
    output.sum().backward();
    show("lstm weight_hh_l1.grad", lstm->named_parameters()["weight_hh_l1"].grad());
  }
  {
    torch::nn::GRU gru(torch::nn::GRUOptions(3, 4).bidirectional(true));
    fill(*gru, 0.5);
    auto lengths = torch::tensor({4, 2, 1}, torch::kLong);
    auto packed = torch::nn::utils::rnn::pack_padded_sequence(wave({4, 3, 3}), lengths);
    auto [out, h] = gru->forward_with_packed_input(packed);
    auto [padded, sizes] = torch::nn::utils::rnn::pad_packed_sequence(out);
    show("gru padded", padded);
    show("gru h", h);
    show("gru lengths", sizes);
  }
  {
    torch::nn::LSTMCell cell(3, 4);
    fill(*cell, 0.5);
    auto state = cell(wave({2, 3}));
    state = cell(wave({2, 3}, 1), state);
    show("cell", std::get<0>(state));
  }
  {
    torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2));
    fill(*attention);
    auto [out, weights] = attention(wave({5, 2, 8}), wave({6, 2, 8}, 1), wave({6, 2, 8}, 2));
    show("attention", out);
    show("attention weights", weights);
  }
  {
    torch::nn::TransformerEncoderLayer layer(
        torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.0));
    torch::nn::TransformerEncoder encoder(torch::nn::TransformerEncoderOptions(layer, 2));
    fill(*encoder);
    auto x = wave({5, 2, 8}).requires_grad_();
    auto mask = torch::full({5, 5}, -INFINITY).triu(1);
    auto y = encoder(x, mask);
    show("encoder", y);
    y.square().sum().backward();
    show("encoder x.grad", x.grad());
    torch::nn::Transformer transformer(torch::nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(16).dropout(0.0));
    fill(*transformer);
    show("transformer", transformer(wave({4, 2, 8}), wave({3, 2, 8}, 1)));
  }
  Tagger tagger(11, 6, 3);
  fill(*tagger);
  auto words = torch::arange(24).reshape({4, 6}).remainder(11), tags = words.remainder(3);
  torch::optim::SGD optimizer(tagger->parameters(), torch::optim::SGDOptions(0.5));
  for (int epoch = 0; epoch < 8; ++epoch) {
    tagger->zero_grad();
    auto loss = torch::nll_loss(tagger(words).reshape({-1, 3}), tags.reshape({-1}));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(tagger->parameters(), 1.0);
    optimizer.step();
    std::printf("tagger %d %.4f\n", epoch, loss.item<float>());
  }
}
