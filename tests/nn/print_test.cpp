// Expected texts are libtorch's own output for the same modules.
#include "helpers.h"

namespace athanor::nn::print_test {
namespace {

using test::text_of;

struct NetImpl : Module {
  NetImpl() {
    conv1 = register_module("conv1", Conv2d(1, 32, 3));
    seq = register_module("seq", Sequential(Linear(3, 4), ReLU(), Linear(4, 5)));
    list = register_module("list", ModuleList(Linear(1, 2), Linear(2, 3)));
    empty = register_module("empty", ModuleList());
  }
  Conv2d conv1{nullptr};
  Sequential seq{nullptr};
  ModuleList list{nullptr}, empty{nullptr};
};
ATHANOR_MODULE(Net);

TEST(PrettyPrint, NestedModulesAsLibtorch) {
  std::string text = text_of(Net());
  // A user's class prints its name, with its namespace.
  text.erase(0, text.find("NetImpl"));
  EXPECT_EQ(text,
            "NetImpl(\n"
            "  (conv1): torch::nn::Conv2d(1, 32, kernel_size=[3, 3], stride=[1, 1])\n"
            "  (seq): torch::nn::Sequential(\n"
            "    (0): torch::nn::Linear(in_features=3, out_features=4, bias=true)\n"
            "    (1): torch::nn::ReLU()\n"
            "    (2): torch::nn::Linear(in_features=4, out_features=5, bias=true)\n"
            "  )\n"
            "  (list): torch::nn::ModuleList(\n"
            "    (0): torch::nn::Linear(in_features=1, out_features=2, bias=true)\n"
            "    (1): torch::nn::Linear(in_features=2, out_features=3, bias=true)\n"
            "  )\n"
            "  (empty): torch::nn::ModuleList\n"
            ")");
}

TEST(PrettyPrint, EveryLayerAsLibtorch) {
  EXPECT_EQ(text_of(Identity()), "torch::nn::Identity()");
  EXPECT_EQ(text_of(Linear(LinearOptions(3, 4).bias(false))),
            "torch::nn::Linear(in_features=3, out_features=4, bias=false)");
  EXPECT_EQ(text_of(Linear(3, 4)), "torch::nn::Linear(in_features=3, out_features=4, bias=true)");
  EXPECT_EQ(text_of(Flatten()), "torch::nn::Flatten(start_dim=1, end_dim=-1)");
  EXPECT_EQ(text_of(Flatten(FlattenOptions().start_dim(2).end_dim(4))), "torch::nn::Flatten(start_dim=2, end_dim=4)");
  EXPECT_EQ(text_of(Unflatten(UnflattenOptions(1, {2, 5}))), "torch::nn::Unflatten(dim=1, unflattened_size={2, 5})");
  EXPECT_EQ(text_of(Bilinear(BilinearOptions(3, 2, 4).bias(false))),
            "torch::nn::Bilinear(in1_features=3, in2_features=2, out_features=4, bias=false)");
  EXPECT_EQ(text_of(Conv1d(3, 4, 5)), "torch::nn::Conv1d(3, 4, kernel_size=5, stride=1)");
  EXPECT_EQ(
      text_of(Conv2d(
          Conv2dOptions(4, 5, 6).stride({1, 2}).padding(3).dilation(2).groups(1).bias(false).padding_mode(kCircular))),
      "torch::nn::Conv2d(4, 5, kernel_size=[6, 6], stride=[1, 2], padding=[3, 3], dilation=[2, 2], bias=false, "
      "padding_mode=kCircular)");
  EXPECT_EQ(text_of(Conv2d(Conv2dOptions(4, 8, 3).groups(2).padding(kSame))),
            "torch::nn::Conv2d(4, 8, kernel_size=[3, 3], stride=[1, 1], padding='same', groups=2)");
  EXPECT_EQ(text_of(Conv2d(Conv2dOptions(4, 8, 3).padding(kValid))),
            "torch::nn::Conv2d(4, 8, kernel_size=[3, 3], stride=[1, 1], padding='valid')");
  EXPECT_EQ(text_of(Conv3d(4, 4, std::vector<int64_t>{5, 6, 7})),
            "torch::nn::Conv3d(4, 4, kernel_size=[5, 6, 7], stride=[1, 1, 1])");
  EXPECT_EQ(text_of(ConvTranspose1d(3, 4, 5)), "torch::nn::ConvTranspose1d(3, 4, kernel_size=5, stride=1)");
  EXPECT_EQ(
      text_of(ConvTranspose2d(ConvTranspose2dOptions(3, 4, 5).stride(2).output_padding(1).groups(1).dilation(2))),
      "torch::nn::ConvTranspose2d(3, 4, kernel_size=[5, 5], stride=[2, 2], dilation=[2, 2], output_padding=[1, 1])");
  EXPECT_EQ(text_of(MaxPool1d(5)),
            "torch::nn::MaxPool1d(kernel_size=5, stride=5, padding=0, dilation=1, ceil_mode=false)");
  EXPECT_EQ(
      text_of(MaxPool2d(MaxPool2dOptions(3).stride(2))),
      "torch::nn::MaxPool2d(kernel_size=[3, 3], stride=[2, 2], padding=[0, 0], dilation=[1, 1], ceil_mode=false)");
  EXPECT_EQ(text_of(MaxPool3d(MaxPool3dOptions({3, 4, 5}).padding(1).ceil_mode(true))),
            "torch::nn::MaxPool3d(kernel_size=[3, 4, 5], stride=[3, 4, 5], padding=[1, 1, 1], dilation=[1, 1, 1], "
            "ceil_mode=true)");
  EXPECT_EQ(text_of(AvgPool1d(5)), "torch::nn::AvgPool1d(kernel_size=5, stride=5, padding=0)");
  EXPECT_EQ(
      text_of(AvgPool2d(
          AvgPool2dOptions({5, 6}).stride(2).padding(1).ceil_mode(true).count_include_pad(false).divisor_override(3))),
      "torch::nn::AvgPool2d(kernel_size=[5, 6], stride=[2, 2], padding=[1, 1])");
  EXPECT_EQ(text_of(AvgPool3d(5)), "torch::nn::AvgPool3d(kernel_size=[5, 5, 5], stride=[5, 5, 5], padding=[0, 0, 0])");
  EXPECT_EQ(text_of(AdaptiveMaxPool1d(5)), "torch::nn::AdaptiveMaxPool1d(output_size=5)");
  EXPECT_EQ(text_of(AdaptiveMaxPool2d(5)), "torch::nn::AdaptiveMaxPool2d(output_size=[5, 5])");
  EXPECT_EQ(text_of(AdaptiveMaxPool2d(AdaptiveMaxPool2dOptions({5, std::nullopt}))),
            "torch::nn::AdaptiveMaxPool2d(output_size=[5, None])");
  EXPECT_EQ(text_of(AdaptiveAvgPool1d(5)), "torch::nn::AdaptiveAvgPool1d(output_size=5)");
  EXPECT_EQ(text_of(AdaptiveAvgPool2d(AdaptiveAvgPool2dOptions({3, 4}))),
            "torch::nn::AdaptiveAvgPool2d(output_size=[3, 4])");
  EXPECT_EQ(text_of(AdaptiveAvgPool3d(AdaptiveAvgPool3dOptions({5, std::nullopt, 7}))),
            "torch::nn::AdaptiveAvgPool3d(output_size=[5, None, 7])");
  EXPECT_EQ(text_of(LPPool1d(LPPool1dOptions(2, 3))),
            "torch::nn::LPPool1d(norm_type=2, kernel_size=3, stride=3, ceil_mode=false)");
  EXPECT_EQ(text_of(LPPool2d(LPPool2dOptions(1.5, std::vector<int64_t>({1, 2})))),
            "torch::nn::LPPool2d(norm_type=1.5, kernel_size=[1, 2], stride=[1, 2], ceil_mode=false)");
  EXPECT_EQ(text_of(Dropout(0.5)), "torch::nn::Dropout(p=0.5, inplace=false)");
  EXPECT_EQ(text_of(Dropout(DropoutOptions(0.42).inplace(true))), "torch::nn::Dropout(p=0.42, inplace=true)");
  EXPECT_EQ(text_of(Dropout2d()), "torch::nn::Dropout2d(p=0.5, inplace=false)");
  EXPECT_EQ(text_of(Dropout3d()), "torch::nn::Dropout3d(p=0.5, inplace=false)");
  EXPECT_EQ(text_of(AlphaDropout()), "torch::nn::AlphaDropout(p=0.5, inplace=false)");
  EXPECT_EQ(text_of(FeatureAlphaDropout()), "torch::nn::FeatureAlphaDropout(p=0.5, inplace=false)");
  EXPECT_EQ(text_of(BatchNorm1d(BatchNorm1dOptions(4).eps(0.5).momentum(0.1).affine(false).track_running_stats(true))),
            "torch::nn::BatchNorm1d(4, eps=0.5, momentum=0.1, affine=false, track_running_stats=true)");
  EXPECT_EQ(text_of(BatchNorm2d(4)),
            "torch::nn::BatchNorm2d(4, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)");
  EXPECT_EQ(text_of(BatchNorm3d(BatchNormOptions(4).momentum(std::nullopt))),
            "torch::nn::BatchNorm3d(4, eps=1e-05, momentum=None, affine=true, track_running_stats=true)");
  EXPECT_EQ(text_of(LayerNorm(LayerNormOptions({2, 2}))),
            "torch::nn::LayerNorm([2, 2], eps=1e-05, elementwise_affine=true)");
  EXPECT_EQ(text_of(LayerNorm(LayerNormOptions({2}).eps(2e-5).elementwise_affine(false))),
            "torch::nn::LayerNorm([2], eps=2e-05, elementwise_affine=false)");
  EXPECT_EQ(text_of(GroupNorm(GroupNormOptions(2, 6))), "torch::nn::GroupNorm(2, 6, eps=1e-05, affine=true)");
  EXPECT_EQ(text_of(Embedding(10, 2)), "torch::nn::Embedding(num_embeddings=10, embedding_dim=2)");
  EXPECT_EQ(
      text_of(Embedding(
          EmbeddingOptions(10, 2).padding_idx(3).max_norm(2).norm_type(2.5).scale_grad_by_freq(true).sparse(true))),
      "torch::nn::Embedding(num_embeddings=10, embedding_dim=2, padding_idx=3, max_norm=2, norm_type=2.5, "
      "scale_grad_by_freq=true, sparse=true)");
  EXPECT_EQ(text_of(ELU()), "torch::nn::ELU(alpha=1)");
  EXPECT_EQ(text_of(ELU(ELUOptions().alpha(42.42).inplace(true))), "torch::nn::ELU(alpha=42.42, inplace=true)");
  EXPECT_EQ(text_of(SELU()), "torch::nn::SELU()");
  EXPECT_EQ(text_of(SELU(SELUOptions().inplace(true))), "torch::nn::SELU(inplace=true)");
  EXPECT_EQ(text_of(Hardshrink()), "torch::nn::Hardshrink(0.5)");
  EXPECT_EQ(text_of(Hardshrink(42.42)), "torch::nn::Hardshrink(42.42)");
  EXPECT_EQ(text_of(Hardtanh()), "torch::nn::Hardtanh(min_val=-1, max_val=1)");
  EXPECT_EQ(text_of(Hardtanh(HardtanhOptions().min_val(-42.42).max_val(0.42).inplace(true))),
            "torch::nn::Hardtanh(min_val=-42.42, max_val=0.42, inplace=true)");
  EXPECT_EQ(text_of(LeakyReLU()), "torch::nn::LeakyReLU(negative_slope=0.01)");
  EXPECT_EQ(text_of(LeakyReLU(LeakyReLUOptions().negative_slope(0.42).inplace(true))),
            "torch::nn::LeakyReLU(negative_slope=0.42, inplace=true)");
  EXPECT_EQ(text_of(LogSigmoid()), "torch::nn::LogSigmoid()");
  EXPECT_EQ(text_of(Softmax(1)), "torch::nn::Softmax(dim=1)");
  EXPECT_EQ(text_of(Softmin(1)), "torch::nn::Softmin(dim=1)");
  EXPECT_EQ(text_of(LogSoftmax(1)), "torch::nn::LogSoftmax(dim=1)");
  EXPECT_EQ(text_of(Softmax2d()), "torch::nn::Softmax2d()");
  EXPECT_EQ(text_of(PReLU()), "torch::nn::PReLU(num_parameters=1)");
  EXPECT_EQ(text_of(PReLU(PReLUOptions().num_parameters(42))), "torch::nn::PReLU(num_parameters=42)");
  EXPECT_EQ(text_of(ReLU()), "torch::nn::ReLU()");
  EXPECT_EQ(text_of(ReLU(ReLUOptions().inplace(true))), "torch::nn::ReLU(inplace=true)");
  EXPECT_EQ(text_of(ReLU(true)), "torch::nn::ReLU(inplace=true)");
  EXPECT_EQ(text_of(ReLU6()), "torch::nn::ReLU6()");
  EXPECT_EQ(text_of(ReLU6(true)), "torch::nn::ReLU6(inplace=true)");
  EXPECT_EQ(text_of(RReLU()), "torch::nn::RReLU(lower=0.125, upper=0.333333)");
  EXPECT_EQ(text_of(RReLU(RReLUOptions().lower(0.24).upper(0.42).inplace(true))),
            "torch::nn::RReLU(lower=0.24, upper=0.42, inplace=true)");
  EXPECT_EQ(text_of(CELU()), "torch::nn::CELU(alpha=1)");
  EXPECT_EQ(text_of(CELU(CELUOptions().alpha(42.42).inplace(true))), "torch::nn::CELU(alpha=42.42, inplace=true)");
  EXPECT_EQ(text_of(GLU()), "torch::nn::GLU(dim=-1)");
  EXPECT_EQ(text_of(GLU(1)), "torch::nn::GLU(dim=1)");
  EXPECT_EQ(text_of(GELU()), "torch::nn::GELU()");
  EXPECT_EQ(text_of(GELU(GELUOptions().approximate("tanh"))), "torch::nn::GELU()");
  EXPECT_EQ(text_of(SiLU()), "torch::nn::SiLU()");
  EXPECT_EQ(text_of(Mish()), "torch::nn::Mish()");
  EXPECT_EQ(text_of(Sigmoid()), "torch::nn::Sigmoid()");
  EXPECT_EQ(text_of(Softplus()), "torch::nn::Softplus(beta=1, threshold=20)");
  EXPECT_EQ(text_of(Softplus(SoftplusOptions().beta(0.24).threshold(42.42))),
            "torch::nn::Softplus(beta=0.24, threshold=42.42)");
  EXPECT_EQ(text_of(Softshrink()), "torch::nn::Softshrink(0.5)");
  EXPECT_EQ(text_of(Softshrink(SoftshrinkOptions(42.42))), "torch::nn::Softshrink(42.42)");
  EXPECT_EQ(text_of(Softsign()), "torch::nn::Softsign()");
  EXPECT_EQ(text_of(Tanh()), "torch::nn::Tanh()");
  EXPECT_EQ(text_of(Tanhshrink()), "torch::nn::Tanhshrink()");
  EXPECT_EQ(text_of(Threshold(24.24, 42.42)), "torch::nn::Threshold(threshold=24.24, value=42.42)");
  EXPECT_EQ(text_of(Threshold(ThresholdOptions(42.42, 24.24).inplace(true))),
            "torch::nn::Threshold(threshold=42.42, value=24.24, inplace=true)");
  EXPECT_EQ(text_of(L1Loss()), "torch::nn::L1Loss()");
  EXPECT_EQ(text_of(KLDivLoss()), "torch::nn::KLDivLoss()");
  EXPECT_EQ(text_of(MSELoss()), "torch::nn::MSELoss()");
  EXPECT_EQ(text_of(BCELoss()), "torch::nn::BCELoss()");
  EXPECT_EQ(text_of(HingeEmbeddingLoss(HingeEmbeddingLossOptions().margin(4))),
            "torch::nn::HingeEmbeddingLoss(margin=4)");
  EXPECT_EQ(text_of(SmoothL1Loss()), "torch::nn::SmoothL1Loss");
  EXPECT_EQ(text_of(HuberLoss()), "torch::nn::HuberLoss");
  EXPECT_EQ(text_of(SoftMarginLoss()), "torch::nn::SoftMarginLoss()");
  EXPECT_EQ(text_of(PoissonNLLLoss()), "torch::nn::PoissonNLLLoss()");
  EXPECT_EQ(text_of(MarginRankingLoss(MarginRankingLossOptions().margin(0.5))), "torch::nn::MarginRankingLoss()");
  EXPECT_EQ(text_of(NLLLoss()), "torch::nn::NLLLoss()");
  EXPECT_EQ(text_of(CrossEntropyLoss()), "torch::nn::CrossEntropyLoss()");
  EXPECT_EQ(text_of(BCEWithLogitsLoss()), "torch::nn::BCEWithLogitsLoss()");
  EXPECT_EQ(text_of(ReflectionPad1d(ReflectionPad1dOptions(2))), "torch::nn::ReflectionPad1d(padding=[2, 2])");
  EXPECT_EQ(text_of(ReflectionPad2d(ReflectionPad2dOptions({3, 3, 1, 1}))),
            "torch::nn::ReflectionPad2d(padding=[3, 3, 1, 1])");
  EXPECT_EQ(text_of(ReplicationPad2d(2)), "torch::nn::ReplicationPad2d(padding=[2, 2, 2, 2])");
  EXPECT_EQ(text_of(ZeroPad2d(2)), "torch::nn::ZeroPad2d(padding=[2, 2, 2, 2])");
  EXPECT_EQ(text_of(ConstantPad2d(ConstantPad2dOptions(2, 3.5))),
            "torch::nn::ConstantPad2d(padding=[2, 2, 2, 2], value=3.5)");
  EXPECT_EQ(text_of(ReplicationPad3d(1)), "torch::nn::ReplicationPad3d(padding=[1, 1, 1, 1, 1, 1])");
  EXPECT_EQ(text_of(ZeroPad1d(1)), "torch::nn::ZeroPad1d(padding=[1, 1])");
  EXPECT_EQ(text_of(ConstantPad1d(ConstantPad1dOptions(2, 3.5))),
            "torch::nn::ConstantPad1d(padding=[2, 2], value=3.5)");
  EXPECT_EQ(text_of(ParameterList(ones({2, 3}), ones({4}))),
            "torch::nn::ParameterList(\n(0): Parameter containing: [Float of size [2, 3]]\n(1): Parameter containing: "
            "[Float of size [4]]\n)");
  EXPECT_EQ(text_of(ModuleDict()), "torch::nn::ModuleDict");
}

}  // namespace
}  // namespace athanor::nn::print_test
