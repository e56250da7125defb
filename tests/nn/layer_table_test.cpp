// One row per layer of nn: how it is made, a call with its results' shapes, and a call that is refused. What holds of
// every layer is tried on each row. Compiled alone and without the precompiled header: what the headers declare is
// listed while they are read, so that a layer without a row is found.
#include <string>
#include <vector>

#include "athanor/nn/pimpl.h"

namespace athanor::nn::layer_table {
inline std::vector<std::string>& declared() {
  static std::vector<std::string> names;
  return names;
}
inline bool declare(const char* name) {
  declared().emplace_back(name);
  return true;
}
}  // namespace athanor::nn::layer_table

#undef ATHANOR_MODULE
#define ATHANOR_MODULE(Name)                                       \
  inline const bool declared_##Name = layer_table::declare(#Name); \
  ATHANOR_MODULE_IMPL(Name, Name##Impl)

#include <algorithm>
#include <optional>
#include <set>

#include "athanor/distributed/groups.h"
#include "athanor/distributed/store/hash_store.h"
#include "athanor/parallel/sync_batch_norm.h"
#include "helpers.h"

namespace athanor::nn::layer_table {
namespace {

using test::text_of;
using Tensors = std::vector<Tensor>;
using Shape = std::vector<std::int64_t>;
using Shapes = std::vector<Shape>;

/// Some numbers in [-1, 1], the same every time.
Tensor x(const Shape& shape) { return (test::ramp(shape, 0.7) + 0.1).sin(); }
/// 0, 1, 0, 1, …
Tensor idx(const Shape& shape) { return test::ramp(shape).to(kLong).remainder(2); }
Tensor places(const Shape& shape, double step = 2) { return (test::ramp(shape) * step).to(kLong); }
Tensor chances(const Shape& shape) { return x(shape).sigmoid(); }
/// -1 or 1.
Tensor sides(const Shape& shape) { return x(shape).sign(); }

Tensors flat(const Tensor& t) { return {t}; }
Tensors flat(const std::tuple<Tensor, Tensor>& t) { return {std::get<0>(t), std::get<1>(t)}; }
Tensors flat(const std::tuple<Tensor, std::tuple<Tensor, Tensor>>& t) {
  return {std::get<0>(t), std::get<0>(std::get<1>(t)), std::get<1>(std::get<1>(t))};
}
Tensors flat(const ASMoutput& t) { return {t.output, t.loss}; }

/// forward of a layer, called with that many tensors.
template <class Impl>
Tensors call(Module& module, const Tensors& in) {
  auto& layer = dynamic_cast<Impl&>(module);
#define CALL(n, ...)                                               \
  if constexpr (requires { layer.forward(__VA_ARGS__); }) {        \
    if (in.size() == (n)) return flat(layer.forward(__VA_ARGS__)); \
  }
  CALL(1, in[0])
  CALL(2, in[0], in[1])
  CALL(3, in[0], in[1], in[2])
  CALL(4, in[0], in[1], in[2], in[3])
#undef CALL
  ATHANOR_THROW(Error, "the row's call has ", in.size(), " tensors, which this layer does not take");
}
Tensor apply(SequentialImpl& layer, const Tensor& in) { return layer.forward(in); }
template <>
Tensors call<SequentialImpl>(Module& module, const Tensors& in) {
  return {apply(dynamic_cast<SequentialImpl&>(module), in[0])};
}

struct Row {
  const char* name;
  std::shared_ptr<Module> (*make)();
  Tensors (*call)(Module&, const Tensors&);  ///< null for what has no forward
  Tensors inputs;
  Shapes results;
  Tensors refused = {};   ///< none: takes tensors of any shape
  std::string says = {};  ///< part of the error; by default the shape of the first refused tensor
};

std::vector<Row>& rows() {
  static std::vector<Row> all;
  return all;
}

#define ROW(Name, ARGS, ...) \
  rows().push_back({#Name, []() -> std::shared_ptr<Module> { return Name ARGS.ptr(); }, call<Name##Impl>, __VA_ARGS__})
#define WITHOUT_FORWARD(Name, ARGS) \
  rows().push_back({#Name, []() -> std::shared_ptr<Module> { return Name ARGS.ptr(); }, nullptr, {}, {}})

void add_basic() {
  ROW(Identity, (), {x({2, 3})}, {{2, 3}});
  ROW(Linear, (3, 4), {x({2, 3})}, {{2, 4}}, {x({2, 5})}, "(2x5 and 3x4)");
  ROW(Bilinear, (BilinearOptions(3, 2, 4)), {x({5, 3}), x({5, 2})}, {{5, 4}}, {x({5, 4}), x({5, 2})});
  ROW(Flatten, (), {x({2, 3, 4})}, {{2, 12}}, {x({3})}, "(expected to be in range of [-1, 0], but got 1)");
  ROW(Unflatten, (UnflattenOptions(1, {2, 5})), {x({3, 10})}, {{3, 2, 5}}, {x({3, 9})},
      "sizes [2, 5] don't multiply up to the size of dim 1 (9)");
  ROW(Embedding, (10, 3), {idx({2, 4})}, {{2, 4, 3}}, {x({2, 4})},
      "expected indices of dtype int64 or int32, got float32");
  ROW(EmbeddingBag, (10, 3), {idx({2, 4})}, {{2, 3}}, {idx({2, 4, 1})});
  ROW(Functional, (athanor::relu), {x({2, 3})}, {{2, 3}});
  ROW(Sequential, (Linear(3, 4), ReLU(), BatchNorm1d(4)), {x({2, 3})}, {{2, 4}}, {x({2, 5})}, "(2x5 and 3x4)");
  WITHOUT_FORWARD(ModuleList, (Linear(3, 4), BatchNorm1d(4)));
  WITHOUT_FORWARD(ModuleDict,
                  (std::vector<std::pair<std::string, std::shared_ptr<Module>>>{{"a", Linear(3, 4).ptr()}}));
  WITHOUT_FORWARD(ParameterList, (x({2, 3}), x({4})));
  WITHOUT_FORWARD(ParameterDict, ());
}

void add_convolutions() {
  ROW(Conv1d, (2, 4, 3), {x({1, 2, 5})}, {{1, 4, 3}}, {x({1, 3, 5})});
  ROW(Conv2d, (2, 4, 3), {x({1, 2, 5, 6})}, {{1, 4, 3, 4}}, {x({1, 3, 5, 6})});
  ROW(Conv3d, (2, 4, 3), {x({1, 2, 3, 4, 5})}, {{1, 4, 1, 2, 3}}, {x({1, 3, 3, 4, 5})});
  ROW(ConvTranspose1d, (2, 4, 3), {x({1, 2, 5})}, {{1, 4, 7}}, {x({1, 3, 5})});
  ROW(ConvTranspose2d, (2, 4, 3), {x({1, 2, 5, 6})}, {{1, 4, 7, 8}}, {x({1, 3, 5, 6})});
  ROW(ConvTranspose3d, (2, 4, 3), {x({1, 2, 1, 2, 3})}, {{1, 4, 3, 4, 5}}, {x({1, 3, 1, 2, 3})});
  ROW(Fold, (FoldOptions({4, 4}, {2, 2})), {x({1, 8, 9})}, {{1, 2, 4, 4}}, {x({1, 7, 9})});
  ROW(Unfold, (UnfoldOptions({2, 2})), {x({1, 2, 4, 4})}, {{1, 8, 9}}, {x({4, 4})});
}

void add_pools() {
  ROW(MaxPool1d, (2), {x({1, 2, 6})}, {{1, 2, 3}}, {x({6})});
  ROW(MaxPool2d, (2), {x({1, 2, 6, 4})}, {{1, 2, 3, 2}}, {x({6, 4})});
  ROW(MaxPool3d, (2), {x({1, 2, 6, 4, 2})}, {{1, 2, 3, 2, 1}}, {x({6, 4, 2})});
  ROW(AvgPool1d, (2), {x({1, 2, 6})}, {{1, 2, 3}}, {x({6})});
  ROW(AvgPool2d, (2), {x({1, 2, 6, 4})}, {{1, 2, 3, 2}}, {x({6, 4})});
  ROW(AvgPool3d, (2), {x({1, 2, 6, 4, 2})}, {{1, 2, 3, 2, 1}}, {x({6, 4, 2})});
  ROW(AdaptiveMaxPool1d, (2), {x({1, 2, 5})}, {{1, 2, 2}}, {x({5})});
  ROW(AdaptiveMaxPool2d, (2), {x({1, 2, 5, 4})}, {{1, 2, 2, 2}}, {x({5, 4})});
  ROW(AdaptiveMaxPool3d, (2), {x({1, 2, 5, 4, 3})}, {{1, 2, 2, 2, 2}}, {x({5, 4, 3})});
  ROW(AdaptiveAvgPool1d, (2), {x({1, 2, 5})}, {{1, 2, 2}}, {x({5})});
  ROW(AdaptiveAvgPool2d, (2), {x({1, 2, 5, 4})}, {{1, 2, 2, 2}}, {x({5, 4})});
  ROW(AdaptiveAvgPool3d, (2), {x({1, 2, 5, 4, 3})}, {{1, 2, 2, 2, 2}}, {x({5, 4, 3})});
  ROW(LPPool1d, (LPPool1dOptions(2, 2)), {x({1, 2, 6})}, {{1, 2, 3}}, {x({6})});
  ROW(LPPool2d, (LPPool2dOptions(2, 2)), {x({1, 2, 6, 4})}, {{1, 2, 3, 2}}, {x({6, 4})});
  ROW(LPPool3d, (LPPool3dOptions(2, 2)), {x({1, 2, 6, 4, 2})}, {{1, 2, 3, 2, 1}}, {x({6, 4, 2})});
  ROW(FractionalMaxPool2d, (FractionalMaxPool2dOptions(2).output_size(2)), {x({1, 2, 5, 6})}, {{1, 2, 2, 2}},
      {x({5, 6})});
  ROW(FractionalMaxPool3d, (FractionalMaxPool3dOptions(2).output_size(2)), {x({1, 2, 5, 6, 4})}, {{1, 2, 2, 2, 2}},
      {x({5, 6, 4})});
  ROW(MaxUnpool1d, (2), {x({1, 1, 2}), places({1, 1, 2})}, {{1, 1, 4}}, {x({1, 1, 2}), places({1, 1, 3})},
      "[1, 1, 1, 3]");
  ROW(MaxUnpool2d, (2), {x({1, 1, 1, 2}), places({1, 1, 1, 2})}, {{1, 1, 2, 4}},
      {x({1, 1, 1, 2}), places({1, 1, 1, 3})});
  ROW(MaxUnpool3d, (2), {x({1, 1, 1, 1, 2}), places({1, 1, 1, 1, 2})}, {{1, 1, 2, 2, 4}},
      {x({1, 1, 1, 1, 2}), places({1, 1, 1, 1, 3})});
}

/// Of this process alone.
const distributed::ProcessGroupPtr& lone_group() {
  static const distributed::ProcessGroupPtr group = [] {
    distributed::init_process_group(
        {.backend = "tcp", .world_size = 1, .rank = 0, .store = std::make_shared<distributed::HashStore>()});
    return distributed::default_group();
  }();
  return group;
}

void add_norms() {
  ROW(BatchNorm1d, (3), {x({4, 3})}, {{4, 3}}, {x({4, 2})});
  ROW(BatchNorm2d, (3), {x({2, 3, 4, 5})}, {{2, 3, 4, 5}}, {x({2, 3})});
  ROW(BatchNorm3d, (3), {x({2, 3, 2, 4, 5})}, {{2, 3, 2, 4, 5}}, {x({2, 3, 4})});
  ROW(SyncBatchNorm, (3, lone_group()), {x({4, 3})}, {{4, 3}}, {x({4, 2})});
  ROW(InstanceNorm1d, (InstanceNorm1dOptions(3).affine(true)), {x({2, 3, 4})}, {{2, 3, 4}}, {x({3})});
  ROW(InstanceNorm2d, (InstanceNorm2dOptions(3).track_running_stats(true)), {x({2, 3, 4, 5})}, {{2, 3, 4, 5}},
      {x({2, 3})});
  ROW(InstanceNorm3d, (3), {x({2, 3, 2, 4, 5})}, {{2, 3, 2, 4, 5}}, {x({2, 3})});
  ROW(LayerNorm, (LayerNormOptions({4})), {x({2, 4})}, {{2, 4}}, {x({2, 3})});
  ROW(RMSNorm, (RMSNormOptions({4})), {x({2, 4})}, {{2, 4}}, {x({2, 3})});
  ROW(GroupNorm, (2, 4), {x({2, 4, 3})}, {{2, 4, 3}}, {x({2, 3, 3})});
  ROW(LocalResponseNorm, (2), {x({1, 4, 5})}, {{1, 4, 5}}, {x({4})});
  ROW(CrossMapLRN2d, (2), {x({1, 4, 5, 5})}, {{1, 4, 5, 5}}, {x({4})});
}

void add_element_wise() {
#define ANY(Name, ARGS) ROW(Name, ARGS, {x({2, 3})}, {{2, 3}})
  ANY(Dropout, (0.5));
  ANY(AlphaDropout, (0.5));
  ANY(FeatureAlphaDropout, (0.5));
  ANY(ELU, ());
  ANY(SELU, ());
  ANY(CELU, ());
  ANY(GELU, ());
  ANY(SiLU, ());
  ANY(Mish, ());
  ANY(ReLU, ());
  ANY(ReLU6, ());
  ANY(RReLU, ());
  ANY(LeakyReLU, ());
  ANY(Hardshrink, ());
  ANY(Hardsigmoid, ());
  ANY(Hardswish, ());
  ANY(Hardtanh, ());
  ANY(Sigmoid, ());
  ANY(LogSigmoid, ());
  ANY(Softplus, ());
  ANY(Softshrink, ());
  ANY(Softsign, ());
  ANY(Tanh, ());
  ANY(Tanhshrink, ());
  ANY(Threshold, (0.1, 20));
#undef ANY
  ROW(Dropout1d, (0.5), {x({2, 3, 4})}, {{2, 3, 4}}, {x({3})});
  ROW(Dropout2d, (0.5), {x({2, 3, 4, 5})}, {{2, 3, 4, 5}});
  ROW(Dropout3d, (0.5), {x({2, 3, 4, 5, 2})}, {{2, 3, 4, 5, 2}});
  ROW(PReLU, (PReLUOptions().num_parameters(3)), {x({2, 3})}, {{2, 3}}, {x({2, 4})});
  ROW(GLU, (1), {x({2, 4})}, {{2, 2}}, {x({2, 3})});
  ROW(Softmax, (1), {x({2, 3})}, {{2, 3}}, {x({3})}, "(expected to be in range of [-1, 0], but got 1)");
  ROW(Softmin, (1), {x({2, 3})}, {{2, 3}}, {x({3})}, "(expected to be in range of [-1, 0], but got 1)");
  ROW(LogSoftmax, (1), {x({2, 3})}, {{2, 3}}, {x({3})}, "(expected to be in range of [-1, 0], but got 1)");
  ROW(Softmax2d, (), {x({2, 3, 4, 5})}, {{2, 3, 4, 5}}, {x({2, 3})});
}

void add_sequences() {
  ROW(RNN, (3, 4), {x({5, 2, 3})}, {{5, 2, 4}, {1, 2, 4}}, {x({5, 2, 6})});
  ROW(LSTM, (3, 4), {x({5, 2, 3})}, {{5, 2, 4}, {1, 2, 4}, {1, 2, 4}}, {x({5, 2, 6})});
  ROW(GRU, (GRUOptions(3, 4).num_layers(2).dropout(0.5).bidirectional(true)), {x({5, 2, 3})}, {{5, 2, 8}, {4, 2, 4}},
      {x({5, 2, 6})});
  ROW(RNNCell, (3, 4), {x({2, 3})}, {{2, 4}}, {x({2, 6})});
  ROW(LSTMCell, (3, 4), {x({2, 3})}, {{2, 4}, {2, 4}}, {x({2, 6})});
  ROW(GRUCell, (3, 4), {x({2, 3})}, {{2, 4}}, {x({2, 6})});
  ROW(MultiheadAttention, (4, 2), {x({3, 2, 4}), x({5, 2, 4}), x({5, 2, 4})}, {{3, 2, 4}, {2, 3, 5}},
      {x({3, 2, 6}), x({5, 2, 4}), x({5, 2, 4})});
  ROW(TransformerEncoderLayer, (TransformerEncoderLayerOptions(4, 2).dim_feedforward(8)), {x({3, 2, 4})}, {{3, 2, 4}},
      {x({3, 2, 6})});
  ROW(TransformerDecoderLayer, (TransformerDecoderLayerOptions(4, 2).dim_feedforward(8)), {x({3, 2, 4}), x({5, 2, 4})},
      {{3, 2, 4}}, {x({3, 2, 6}), x({5, 2, 4})});
  ROW(TransformerEncoder, (TransformerEncoderOptions(TransformerEncoderLayerOptions(4, 2).dim_feedforward(8), 2)),
      {x({3, 2, 4})}, {{3, 2, 4}}, {x({3, 2, 6})});
  ROW(TransformerDecoder, (TransformerDecoderOptions(TransformerDecoderLayerOptions(4, 2).dim_feedforward(8), 2)),
      {x({3, 2, 4}), x({5, 2, 4})}, {{3, 2, 4}}, {x({3, 2, 6}), x({5, 2, 4})});
  ROW(Transformer, (TransformerOptions(4, 2, 1, 1).dim_feedforward(8)), {x({5, 2, 4}), x({3, 2, 4})}, {{3, 2, 4}},
      {x({5, 2, 6}), x({3, 2, 4})}, "d_model 4, got 6 and 4");
  ROW(AdaptiveLogSoftmaxWithLoss, (AdaptiveLogSoftmaxWithLossOptions(4, 6, {2, 4})), {x({3, 4}), idx({3})}, {{3}, {}},
      {x({3, 5}), idx({3})}, "(3x5 and 4x4)");
}

void add_images() {
  ROW(Upsample, (UpsampleOptions().scale_factor(std::vector<double>{2})), {x({1, 2, 3})}, {{1, 2, 6}}, {x({3})});
  ROW(PixelShuffle, (2), {x({1, 4, 3, 2})}, {{1, 1, 6, 4}}, {x({1, 3, 3, 2})});
  ROW(PixelUnshuffle, (2), {x({1, 1, 6, 4})}, {{1, 4, 3, 2}}, {x({1, 1, 5, 4})});
  ROW(ChannelShuffle, (2), {x({1, 4, 3, 2})}, {{1, 4, 3, 2}}, {x({1, 3, 3, 2})});
#define PADS(Name, ...)                                                               \
  ROW(Name##1d, (__VA_ARGS__), {x({1, 2, 3})}, {{1, 2, 5}}, {x({1, 2, 0})});          \
  ROW(Name##2d, (__VA_ARGS__), {x({1, 2, 3, 4})}, {{1, 2, 5, 6}}, {x({1, 2, 3, 0})}); \
  ROW(Name##3d, (__VA_ARGS__), {x({1, 2, 3, 4, 5})}, {{1, 2, 5, 6, 7}}, {x({1, 2, 3, 4, 0})})
  PADS(ReflectionPad, 1);
  PADS(ReplicationPad, 1);
  PADS(CircularPad, 1);
#undef PADS
  ROW(ZeroPad1d, (1), {x({1, 2, 3})}, {{1, 2, 5}});
  ROW(ZeroPad2d, (1), {x({1, 2, 3, 4})}, {{1, 2, 5, 6}});
  ROW(ZeroPad3d, (1), {x({1, 2, 3, 4, 5})}, {{1, 2, 5, 6, 7}});
  ROW(ConstantPad1d, (1, 3.5), {x({1, 2, 3})}, {{1, 2, 5}});
  ROW(ConstantPad2d, (1, 3.5), {x({1, 2, 3, 4})}, {{1, 2, 5, 6}});
  ROW(ConstantPad3d, (1, 3.5), {x({1, 2, 3, 4, 5})}, {{1, 2, 5, 6, 7}});
}

void add_losses() {
  const Tensor a = x({2, 3}), b = a.cos(), c = a.exp(), other = x({4, 5});
  ROW(CosineSimilarity, (), {a, b}, {{2}}, {other, b});
  ROW(PairwiseDistance, (), {a, b}, {{2}}, {other, b});
  ROW(L1Loss, (), {a, b}, {{}}, {other, b});
  ROW(MSELoss, (), {a, b}, {{}}, {other, b});
  ROW(SmoothL1Loss, (), {a, b}, {{}}, {other, b});
  ROW(HuberLoss, (), {a, b}, {{}}, {other, b});
  ROW(KLDivLoss, (), {a, chances({2, 3})}, {{}}, {other, b});
  ROW(PoissonNLLLoss, (), {a, c}, {{}}, {other, b});
  ROW(GaussianNLLLoss, (), {a, b, c}, {{}}, {other, b, c});
  ROW(BCELoss, (), {chances({2, 3}), chances({2, 3})}, {{}}, {chances({4, 5}), chances({2, 3})});
  ROW(BCEWithLogitsLoss, (), {a, chances({2, 3})}, {{}}, {other, b});
  ROW(HingeEmbeddingLoss, (), {a, sides({2, 3})}, {{}}, {other, sides({2, 3})});
  ROW(SoftMarginLoss, (), {a, sides({2, 3})}, {{}}, {other, sides({2, 3})});
  ROW(CosineEmbeddingLoss, (), {a, b, sides({2})}, {{}}, {other, b, sides({2})});
  ROW(MarginRankingLoss, (), {x({3}), x({3}).cos(), sides({3})}, {{}}, {x({4}), x({3}), sides({3})});
  ROW(TripletMarginLoss, (), {a, b, c}, {{}}, {other, b, c});
  ROW(TripletMarginWithDistanceLoss, (), {a, b, c}, {{}}, {other, b, c});
  ROW(MultiLabelMarginLoss, (), {a, idx({2, 3})}, {{}}, {a, idx({2, 4})});
  ROW(MultiLabelSoftMarginLoss, (), {a, chances({2, 3})}, {{}}, {other, b});
  ROW(MultiMarginLoss, (), {a, idx({2})}, {{}}, {a, idx({3})});
  ROW(NLLLoss, (), {a, idx({2})}, {{}}, {a, idx({3})});
  ROW(CrossEntropyLoss, (), {a, idx({2})}, {{}}, {a, idx({3})});
  ROW(CTCLoss, (), {x({6, 2, 3}).log_softmax(2), idx({2, 2}) + 1, full({2}, 6, kLong), full({2}, 2, kLong)}, {{}},
      {x({6, 3}).log_softmax(1), idx({2, 2}) + 1, full({2}, 6, kLong), full({2}, 2, kLong)}, "[6, 1, 3]");
}

const std::vector<Row>& table() {
  static const bool made = [] {
    add_basic(), add_convolutions(), add_pools(), add_norms(), add_element_wise(), add_sequences(), add_images();
    add_losses();
    return true;
  }();
  (void)made;
  return rows();
}

/// The same numbers every time, dropped elements included.
Tensors run(const Row& row, Module& module, const Tensors& inputs) {
  manual_seed(5);
  return row.call(module, inputs);
}

Tensors inputs_of(const Row& row, DType dtype = kFloat) {
  Tensors in;
  for (const Tensor& t : row.inputs) in.push_back(t.is_floating_point() ? t.to(dtype, false, true) : t);
  return in;
}

void expect_same(const Tensors& a, const Tensors& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(equal(a[i], b[i])) << what << ": result " << i;
}

class EveryLayer : public testing::TestWithParam<std::size_t> {
 protected:
  const Row& row() const { return table()[GetParam()]; }
  std::shared_ptr<Module> made(std::uint64_t seed = 1) const {
    manual_seed(seed);
    return row().make();
  }
  void gives_results_of_its_shapes_in_both_modes();
  void loads_the_state_of_another();
  void clones_to_a_layer_of_its_own();
  void changes_its_mode();
  void prints_its_name();
  void computes_in_double();
  void clears_its_gradients();
  void says_what_is_wrong_with_an_input();
};

void EveryLayer::gives_results_of_its_shapes_in_both_modes() {
  if (!row().call) return;
  const auto layer = made();
  for (const bool training : {true, false}) {
    layer->train(training);
    const Tensors results = run(row(), *layer, inputs_of(row()));
    ASSERT_EQ(results.size(), row().results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].sizes().vec(), row().results[i]) << "result " << i << ", training: " << training;
      EXPECT_TRUE(results[i].isfinite().all().item<bool>()) << "result " << i;
    }
  }
}

void EveryLayer::loads_the_state_of_another() {
  const auto layer = made(1), other = made(2);
  if (row().call) run(row(), *layer, inputs_of(row()));  // fills running statistics
  for (const auto& item : layer->state_dict()) EXPECT_EQ(other->state_dict().contains(item.key()), true) << item.key();
  other->load_state_dict(layer->state_dict());
  for (const auto& item : layer->state_dict())
    EXPECT_TRUE(equal(item.value(), other->state_dict()[item.key()])) << item.key();
  if (!row().call) return;
  layer->eval(), other->eval();
  expect_same(run(row(), *layer, inputs_of(row())), run(row(), *other, inputs_of(row())), "loaded");
}

void EveryLayer::clones_to_a_layer_of_its_own() {
  const auto layer = made();
  layer->eval();
  const auto copy = layer->clone();
  EXPECT_EQ(text_of(*copy), text_of(*layer));
  EXPECT_FALSE(copy->is_training());
  ASSERT_EQ(copy->parameters().size(), layer->parameters().size());
  const Tensors before = row().call ? run(row(), *layer, inputs_of(row())) : Tensors();
  if (row().call) expect_same(run(row(), *copy, inputs_of(row())), before, "cloned");
  {
    const NoGradGuard off;
    for (Tensor& p : copy->parameters()) p.fill_(3);
  }
  if (row().call) expect_same(run(row(), *layer, inputs_of(row())), before, "after the clone changed");
}

void EveryLayer::changes_its_mode() {
  const auto layer = made();
  for (const bool training : {false, true}) {
    layer->train(training);
    for (const auto& module : layer->modules()) EXPECT_EQ(module->is_training(), training) << module->name();
  }
}

void EveryLayer::prints_its_name() {
  const std::string text = text_of(*made()), name = std::string("torch::nn::") + row().name;
  // libtorch shows a transformer's parts by the names of their classes.
  EXPECT_TRUE(text == name || text.starts_with(name + "(") || text.starts_with(name + "Impl(")) << text;
}

void EveryLayer::computes_in_double() {
  const auto layer = made();
  layer->to(kDouble);
  for (const Tensor& t : layer->parameters()) EXPECT_EQ(t.dtype(), kDouble);
  if (!row().call) return;
  const auto single = made();
  single->eval(), layer->eval();
  const Tensors wide = run(row(), *layer, inputs_of(row(), kDouble)), results = run(row(), *single, inputs_of(row()));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(wide[i].dtype(), results[i].is_floating_point() ? kDouble : results[i].dtype()) << "result " << i;
    EXPECT_TRUE(allclose(wide[i], results[i].to(wide[i].dtype()), 1e-3, 1e-4)) << "result " << i;
  }
}

void EveryLayer::clears_its_gradients() {
  const auto layer = made();
  if (!row().call || layer->parameters().empty()) return;
  Tensor total;
  for (const Tensor& t : run(row(), *layer, inputs_of(row()))) total = total.defined() ? total + t.sum() : t.sum();
  total.backward();
  bool any = false;
  for (const Tensor& p : layer->parameters()) any = any || p.grad().defined();
  EXPECT_TRUE(any);
  layer->zero_grad(false);
  for (const Tensor& p : layer->parameters()) EXPECT_TRUE(!p.grad().defined() || p.grad().eq(0).all().item<bool>());
  layer->zero_grad();
  for (const Tensor& p : layer->parameters()) EXPECT_FALSE(p.grad().defined());
}

void EveryLayer::says_what_is_wrong_with_an_input() {
  if (row().refused.empty()) return;
  const auto layer = made();
  const std::string expected = row().says.empty() ? athanor::detail::str(row().refused[0].sizes()) : row().says;
  EXPECT_THAT(test::error_of([&] { run(row(), *layer, row().refused); }), testing::HasSubstr(expected));
}

// One test a layer: each is a process of its own.
#define TRY(rule)            \
  do {                       \
    SCOPED_TRACE(#rule);     \
    EXPECT_NO_THROW(rule()); \
  } while (false)
TEST_P(EveryLayer, KeepsTheRules) {
  TRY(gives_results_of_its_shapes_in_both_modes);
  TRY(loads_the_state_of_another);
  TRY(clones_to_a_layer_of_its_own);
  TRY(changes_its_mode);
  TRY(prints_its_name);
  TRY(computes_in_double);
  TRY(clears_its_gradients);
  TRY(says_what_is_wrong_with_an_input);
}
#undef TRY

INSTANTIATE_TEST_SUITE_P(Nn, EveryLayer, testing::Range<std::size_t>(0, table().size()),
                         [](const auto& info) { return table()[info.param].name; });

TEST(LayerTable, HasARowForEveryLayer) {
  std::set<std::string> known;
  for (const Row& row : table()) EXPECT_TRUE(known.insert(row.name).second) << row.name << " twice";
  EXPECT_GT(declared().size(), 100U);
  for (const std::string& name : declared()) EXPECT_TRUE(known.count(name)) << name << " has no row";
}

}  // namespace
}  // namespace athanor::nn::layer_table
