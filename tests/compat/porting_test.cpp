// What programs written against libtorch lean on beside the ops: memory of tensors, indexing, checks, warnings,
// streams.
#include <ATen/ATen.h>
#include <c10/util/irange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace porting_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const c10::Error& e) {
    return e.what();
  }
  return "no error";
}

std::vector<float> values_of(const torch::Tensor& x) {
  const torch::Tensor flat = x.contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

TEST(PortedMemory, ResizeKeepsTheOldElementsInFrontAndTheStorageIfItFits) {
  const torch::Tensor x = torch::arange(6, torch::kFloat);
  void* const before = x.storage().data();
  x.resize_({2, 2});
  EXPECT_EQ(x.sizes(), torch::IntArrayRef({2, 2}));
  EXPECT_EQ(x.storage().data(), before);
  EXPECT_THAT(values_of(x), ElementsAre(0, 1, 2, 3));
  torch::Tensor big = torch::arange(3, torch::kFloat).resize_({2, 4});
  EXPECT_THAT(values_of(big[0].slice(0, 0, 3)), ElementsAre(0, 1, 2));
  EXPECT_EQ(torch::empty({0}).resize_as_(big).sizes(), big.sizes());
  EXPECT_TRUE(torch::empty({1})
                  .resize_({2, 3, 4, 4}, torch::MemoryFormat::ChannelsLast)
                  .is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_THAT(error_of([] { torch::ones({2}, torch::requires_grad()).resize_({3}); }), HasSubstr("require grad"));
  EXPECT_THAT(error_of([] { torch::ones({2}).resize_({-3}); }), HasSubstr("[-3]"));
}

TEST(PortedMemory, SetTakesTheMemoryOfAnotherTensor) {
  const torch::Tensor x = torch::arange(6, torch::kFloat), y = torch::empty({1});
  y.set_(x);
  EXPECT_TRUE(y.is_set_to(x));
  y.set_(x, 1, {2, 2}, {2, 1});
  EXPECT_FALSE(y.is_set_to(x));
  EXPECT_THAT(values_of(y), ElementsAre(1, 2, 3, 4));
  y.set_(x.storage(), 4, {2});
  EXPECT_THAT(values_of(y), ElementsAre(4, 5));
  y.fill_(9);
  EXPECT_EQ(x[5].item<float>(), 9);
  EXPECT_EQ(y.set_().numel(), 0);
  EXPECT_THAT(error_of([&] { y.set_(torch::ones({1}, torch::kLong)); }), HasSubstr("Long"));
}

TEST(PortedMemory, StorageGivesItsFirstByteAndItsLength) {
  const torch::Tensor x = torch::arange(4, torch::kFloat), tail = x.slice(0, 2);
  EXPECT_EQ(tail.storage().data<float>()[3], 3);
  EXPECT_EQ(tail.storage().nbytes(), 16U);
  EXPECT_TRUE(x.storage().is_alias_of(tail.storage()));
  EXPECT_EQ(x.storage().device(), torch::Device(torch::kCPU));
}

TEST(PortedTensor, FillsDiagonals) {
  const torch::Tensor tall = torch::zeros({5, 2});
  tall.fill_diagonal_(1);
  EXPECT_THAT(values_of(tall), ElementsAre(1, 0, 0, 1, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(values_of(torch::zeros({5, 2}).fill_diagonal_(2, true)), ElementsAre(2, 0, 0, 2, 0, 0, 2, 0, 0, 2));
  const torch::Tensor cube = torch::zeros({2, 2, 2}).fill_diagonal_(1);
  EXPECT_EQ(cube.sum().item<float>(), 2);
  EXPECT_EQ((cube[1][1][1].item<float>()), 1);
  EXPECT_THAT(error_of([] { torch::zeros({3}).fill_diagonal_(1); }), HasSubstr("[3]"));
  EXPECT_THAT(error_of([] { torch::zeros({2, 3, 2}).fill_diagonal_(1); }), HasSubstr("equal length"));
}

TEST(PortedTensor, PowersInDoubleAreRefusedForOtherDtypes) {
  const torch::Tensor x = torch::full({2}, 3, torch::kDouble);
  EXPECT_EQ(x.float_power_(2)[0].item<double>(), 9);
  EXPECT_EQ(x.float_power_(torch::tensor({0, 1}))[1].item<double>(), 9);
  EXPECT_THAT(error_of([] { torch::ones({2}).float_power_(2); }), HasSubstr("dtype Float"));
}

TEST(PortedTensor, AnswersSmallQuestions) {
  EXPECT_EQ(torch::ones({2}).get_device(), -1);
  EXPECT_EQ(torch::ones({2, 3}).nelement(), 6);
  EXPECT_TRUE(torch::is_nonzero(torch::tensor(0.5)));
  EXPECT_FALSE(torch::zeros({1, 1}).is_nonzero());
  EXPECT_THAT(error_of([] { torch::ones({2}).is_nonzero(); }), HasSubstr("more than one value"));
  EXPECT_THAT(error_of([] { torch::ones({0}).is_nonzero(); }), HasSubstr("no values"));
  const torch::Tensor image = torch::ones({2, 3, 4, 4});
  EXPECT_EQ(image.suggest_memory_format(), torch::MemoryFormat::Contiguous);
  EXPECT_EQ(image.contiguous(torch::MemoryFormat::ChannelsLast).suggest_memory_format(),
            torch::MemoryFormat::ChannelsLast);
  EXPECT_EQ(torch::result_type(torch::ones({2}, torch::kInt), torch::ones({}, torch::kDouble)), torch::kDouble);
  EXPECT_EQ(torch::result_type(torch::ones({2}, torch::kInt), 2), torch::kInt);
  EXPECT_EQ(torch::tensor(3).item().toInt(), 3);
  EXPECT_EQ(torch::tensor(2.5).item().toFloat(), 2.5F);
}

TEST(PortedTensor, MovesToADeviceWrittenInBraces) {
  const torch::Tensor x = torch::ones({2});
  EXPECT_EQ(x.to({torch::kCPU, -1}).device(), x.device());
  EXPECT_EQ(x.to(torch::kCPU).device().type(), torch::Device::Type::CPU);
  EXPECT_EQ(torch::zeros({1}, "cpu").device(), torch::Device("cpu"));
  torch::nn::Linear layer(2, 3);
  layer->to(torch::kCPU);
  EXPECT_EQ(layer->weight.device(), torch::Device(torch::kCPU));
  EXPECT_EQ(torch::dtype(torch::kInt).device_index(1).device(), torch::Device(torch::kCUDA, 1));
  EXPECT_EQ(x.options().layout(), torch::kStrided);
}

TEST(PortedIndexing, PutsIntoConstantHandlesAndAccumulates) {
  const torch::Tensor x = torch::zeros({4}), twice = torch::tensor({1, 1});
  x.index_put_({twice}, 2, /*accumulate=*/true);
  x.index_put_({torch::indexing::Slice(2, torch::indexing::None)}, torch::ones({2}), true);
  EXPECT_THAT(values_of(x), ElementsAre(0, 4, 1, 1));
  const std::vector<at::indexing::TensorIndex> first = {0};
  x.index_put_(first, 7);
  EXPECT_EQ(at::index(x, {torch::tensor({0, 1})}).sum().item<float>(), 11);
  EXPECT_EQ(x.index_put({0}, torch::zeros({})).sum().item<float>(), 6);
  EXPECT_EQ(at::index_put_(x, {0}, torch::zeros({})).sum().item<float>(), 6);
  EXPECT_THAT(error_of([&] { x.index({}); }), HasSubstr("empty index list"));
  EXPECT_THAT(error_of([&] { x.index_put_({}, 1); }), HasSubstr("empty index list"));
  x.requires_grad_();
  EXPECT_TRUE(x.requires_grad());
}

TEST(PortedIndexing, NumbersAndTensorsOfNoDimsAreOneThing) {
  const torch::Tensor x = torch::arange(6, torch::kFloat).view({2, 3});
  EXPECT_EQ(x.index({torch::tensor(1), torch::tensor(2)}).data_ptr(), x.index({1, 2}).data_ptr());
  EXPECT_THAT(error_of([&] { x.index({0, 3}); }), HasSubstr("index 3 is out of bounds for dimension 1 with size 3"));
  EXPECT_THAT(error_of([&] { x.index({"...", torch::tensor(-4)}); }), HasSubstr("dimension 1 with size 3"));
  EXPECT_THAT(error_of([] { torch::tensor(10).index({0}); }), HasSubstr("invalid index of a 0-dim tensor"));
}

TEST(PortedIndexing, LeadingOnesOfValuesDoNotCount) {
  const torch::Tensor x = torch::zeros({2, 3});
  x.index_put_({torch::tensor({true, false})}, torch::ones({1, 1, 1, 3}));
  EXPECT_EQ(x.sum().item<float>(), 3);
  EXPECT_THAT(error_of([&] {
                x.index_put_({torch::tensor({0, 1})}, torch::ones({2, 2}));
              }),
              HasSubstr("shape mismatch: value tensor of shape [2, 2]"));
}

TEST(PortedTensor, ALoneZeroIsADimOfDeviations) {
  const torch::Tensor x = torch::randn({4, 3});
  EXPECT_EQ(x.std(0).numel(), 3);
  EXPECT_EQ(torch::var(x, 0).numel(), 3);
  EXPECT_EQ(x.var(false).numel(), 1);
}

TEST(PortedTensor, ProbabilitiesMayDifferFromTargetsInDimsOfOne) {
  const torch::Tensor x = torch::full({3, 1}, 0.5), target = torch::ones({3});
  EXPECT_NEAR(torch::binary_cross_entropy(x, target).item<float>(), 0.6931, 1e-4);
  EXPECT_THAT(error_of([&] { torch::nn::functional::binary_cross_entropy(x, target); }), HasSubstr("[3, 1]"));
  EXPECT_THAT(error_of([&] { torch::binary_cross_entropy(x, torch::ones({2})); }), HasSubstr("target size ([2])"));
}

TEST(PortedIndexing, IndicesSayWhatTheyAreAndPrint) {
  using namespace torch::indexing;
  const std::vector<TensorIndex> all = {None, "...", 3, false, Slice(1, None, 2)};
  EXPECT_TRUE(all[0].is_none() && all[1].is_ellipsis() && all[2].is_integer() && all[3].is_boolean());
  EXPECT_TRUE(all[4].is_slice() && !all[4].is_tensor());
  EXPECT_EQ(all[4].slice().stop(), INDEX_MAX);
  EXPECT_EQ(c10::str(all), c10::str("(None, ..., 3, false, 1:", INDEX_MAX, ":2)"));
  EXPECT_EQ(c10::str(Slice(None, 4, -1)), c10::str(INDEX_MAX, ":4:-1"));
  EXPECT_THAT(error_of([] { Slice(0, 1, 0); }), HasSubstr("zero"));
}

struct Shown {
  friend std::ostream& operator<<(std::ostream& out, const Shown&) { return out << "shown"; }
};

TEST(PortedChecks, MessagesTakeWhateverAStreamTakes) {
  EXPECT_EQ(error_of([] { TORCH_CHECK(1 + 1 == 3); }), "Expected 1 + 1 == 3 to be true, but got false.");
  EXPECT_EQ(error_of([] { TORCH_CHECK(false, Shown(), " ", torch::kLong, " ", std::string("x"), 2); }),
            "shown Long x2");
  EXPECT_EQ(error_of([] { AT_ERROR("at ", torch::Device("cuda:1")); }), "at cuda:1");
  EXPECT_THROW(TORCH_CHECK_INDEX(false, "i"), c10::IndexError);
  EXPECT_THROW(TORCH_CHECK_VALUE(false), c10::ValueError);
  EXPECT_THROW(TORCH_CHECK_TYPE(false, "t"), c10::TypeError);
  EXPECT_THROW(TORCH_CHECK_NOT_IMPLEMENTED(false, "n"), c10::NotImplementedError);
  EXPECT_THAT(error_of([] { TORCH_INTERNAL_ASSERT(false, "no"); }), HasSubstr("internal assertion"));
  TORCH_CHECK(true, "nothing");
}

struct Warnings : c10::WarningHandler {
  Warnings() : before(c10::WarningUtils::get_warning_handler()) { c10::WarningUtils::set_warning_handler(this); }
  ~Warnings() override { c10::WarningUtils::set_warning_handler(before); }
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  c10::WarningHandler* before;
  std::vector<std::string> messages;
};

TEST(PortedChecks, WarningsGoToTheHandlerOfTheThread) {
  Warnings warnings;
  for (const auto i : c10::irange(3)) {
    TORCH_WARN("every ", i);
    TORCH_WARN_ONCE("once ", i);
  }
  EXPECT_THAT(warnings.messages, ElementsAre("every 0", "once 0", "every 1", "every 2"));
}

TEST(PortedChecks, DispatchGivesTheElementType) {
  const auto size_of = [](const torch::Tensor& x) {
    return AT_DISPATCH_ALL_TYPES_AND(at::kBFloat16, x.scalar_type(), "size_of", [&] { return sizeof(scalar_t); });
  };
  EXPECT_EQ(size_of(torch::ones({1}, torch::kShort)), 2U);
  EXPECT_EQ(size_of(torch::ones({1}, torch::kDouble)), 8U);
  EXPECT_EQ(size_of(torch::ones({1}, torch::kBFloat16)), 2U);
  EXPECT_THAT(error_of([&] { size_of(torch::ones({1}, torch::kBool)); }), HasSubstr("\"size_of\" not implemented"));
  double sum = 0;
  const torch::Tensor x = torch::ones({3});
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "sum", [&] {
    for (const auto i : c10::irange(x.numel())) sum += static_cast<double>(x.data_ptr<scalar_t>()[i]);
  });
  EXPECT_EQ(sum, 3);
}

TEST(PortedNames, RangesCountAndTextsJoin) {
  std::vector<int64_t> seen;
  for (const auto i : c10::irange(torch::ones({3}).size(0))) seen.push_back(i);
  for (const auto i : c10::irange(5, 7)) seen.push_back(i);
  for (const auto i : c10::irange(-2)) seen.push_back(i);
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 5, 6));
  EXPECT_EQ(c10::Join(", ", std::vector<int>{1, 2}), "1, 2");
  EXPECT_EQ(c10::str(torch::kFloat, ' ', torch::kCPU, ' ', at::Scalar(true), ' ', torch::MemoryFormat::Preserve),
            "Float cpu true Preserve");
  EXPECT_THAT(c10::str(torch::TensorOptions(torch::kInt)), HasSubstr("dtype=Int, device=cpu"));
  EXPECT_THAT(c10::str(torch::nn::Linear(1, 2)), HasSubstr("torch::nn::Linear"));
}

TEST(PortedNames, AccessorsComePackedToo) {
  const torch::Tensor x = torch::arange(6, torch::kFloat).view({2, 3});
  const at::PackedTensorAccessor32<float, 2> narrow = x.packed_accessor32<float, 2>();
  EXPECT_EQ(narrow[1][2], 5);
  const auto wide = x.packed_accessor64<float, 2>();
  wide[0][1] = 7;
  EXPECT_EQ(x[0][1].item<float>(), 7);
  EXPECT_THROW((x.packed_accessor32<float, 3>()), c10::Error);
}

TEST(PortedNames, GeneratorsAreMadeOfTheirSeeds) {
  at::Generator a = at::detail::createCPUGenerator(5), b = at::make_generator<at::CPUGeneratorImpl>(5);
  EXPECT_TRUE(torch::equal(torch::rand({4}, a), torch::rand({4}, b)));
  EXPECT_FALSE(torch::equal(torch::rand({4}, at::make_generator<at::CPUGeneratorImpl>(6)), torch::rand({4}, b)));
  EXPECT_EQ(at::detail::createCPUGenerator().current_seed(), 67280421310721U);
}

TEST(PortedNames, DtypesAreTheirOwnTypeMeta) {
  const torch::Tensor x = torch::ones({2}, torch::kInt);
  EXPECT_EQ(c10::typeMetaToScalarType(x.dtype()), torch::kInt);
  EXPECT_EQ(x.dtype(), caffe2::TypeMeta::Make<int>());
  EXPECT_EQ(c10::CppTypeToScalarType<double>::value, torch::kDouble);
  EXPECT_STREQ(at::toString(at::kLong), "Long");
  EXPECT_TRUE(at::isFloatingType(at::kHalf) && at::isIntegralType(at::kBool, true) && !at::isComplexType(at::kFloat));
}

TEST(PortedNames, NamespacesOfFunctionsAreThere) {
  const torch::Tensor m = torch::eye(3) * 2;
  EXPECT_EQ(torch::linalg::det(m).item<float>(), 8);
  EXPECT_EQ(torch::linalg::inv(m)[0][0].item<float>(), 0.5F);
  EXPECT_EQ(torch::linalg::vector_norm(torch::tensor({3., 4.})).item<float>(), 5);
  EXPECT_NEAR(torch::linalg::norm(m, "nuc").item<float>(), 6, 1e-5);
  EXPECT_NEAR(torch::linalg::norm(m, 2).item<float>(), 2, 1e-6);
  EXPECT_EQ(torch::linalg::norm(m, c10::nullopt, {0}).size(0), 3);
  EXPECT_NEAR(torch::linalg::matrix_norm(m, -2, {0, 1}, true).item<float>(), 2, 1e-6);
  EXPECT_EQ(torch::linalg::matrix_norm(m, 1).item<float>(), torch::linalg_matrix_norm(m, 1).item<float>());
  EXPECT_EQ(torch::linalg_vecdot(m, m).sum().item<float>(), 12);
  EXPECT_EQ(torch::linalg_matmul(m, m).sum().item<float>(), 12);
  EXPECT_EQ(torch::linalg_diagonal(m.unsqueeze(0)).sum().item<float>(), 6);
  EXPECT_EQ(torch::linalg_norm(m).item<float>(), torch::linalg::matrix_norm(m).item<float>());
  EXPECT_TRUE(torch::allclose(torch::special::gammaln(m.diagonal()), torch::zeros({3})));
  EXPECT_EQ(torch::special::expit(torch::zeros({1})).item<float>(), 0.5F);
  torch::set_num_interop_threads(2);
  EXPECT_GE(torch::get_num_interop_threads(), 1);
}

struct SumOfTwo : torch::autograd::Function<SumOfTwo> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, at::TensorList tensors) {
    return tensors[0] + 2 * tensors[1];
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], 2 * gradients[0]};
  }
};

TEST(PortedNames, FunctionsOfOnesOwnTakeTensorLists) {
  const std::vector<torch::Tensor> both = {torch::ones({2}, torch::requires_grad()),
                                           torch::ones({2}, torch::requires_grad())};
  SumOfTwo::apply(at::TensorList(both)).sum().backward();
  EXPECT_THAT(values_of(both[0].grad()), ElementsAre(1, 1));
  EXPECT_THAT(values_of(both[1].grad()), ElementsAre(2, 2));
}

TEST(PortedNames, ChoicesHaveNames) {
  std::variant<torch::enumtype::kMean, torch::enumtype::kSum> v = torch::kSum;
  EXPECT_EQ(torch::enumtype::get_enum_name(v), "kSum");
  EXPECT_EQ(torch::enumtype::get_enum_name(torch::nn::MSELossOptions().reduction()), "kMean");
}

float sum_of(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> a) {
  float sum = 0;
  for (std::int64_t i = 0; i < a.size(0); ++i)
    for (std::int64_t j = 0; j < a.size(1); ++j) sum += a[i][j];
  return sum;
}

TEST(PortedNames, AccessorsKnowTheirSizes) {
  const torch::Tensor t = torch::arange(6, torch::kFloat).reshape({2, 3}).t();
  const auto a = t.accessor<float, 2>();
  EXPECT_EQ(a.sizes(), t.sizes());
  EXPECT_EQ(a.strides(), t.strides());
  EXPECT_EQ(a[1].sizes(), t[1].sizes());
  EXPECT_EQ(sum_of(t.packed_accessor32<float, 2, torch::RestrictPtrTraits>()), 15);
  EXPECT_EQ((t.packed_accessor64<float, 2, torch::RestrictPtrTraits>().stride(1)), 3);
}

TEST(PortedNames, FunctionsThatAskATensor) {
  EXPECT_TRUE(torch::is_floating_point(torch::ones({1})));
  EXPECT_FALSE(torch::is_floating_point(torch::ones({1}, torch::kLong)));
  EXPECT_FALSE(torch::is_signed(torch::ones({1}, torch::kByte)));
  EXPECT_TRUE(torch::is_nonzero(torch::ones({1})));
  EXPECT_EQ(at::scalar_to_tensor(2).scalar_type(), at::kLong);
  EXPECT_EQ(at::scalar_to_tensor(0.1).item<double>(), 0.1);
  EXPECT_EQ(at::scalar_to_tensor(true).scalar_type(), at::kBool);
  std::ostringstream out, direct;
  at::print(out, torch::ones({2}), 80) << "";
  direct << torch::ones({2});
  EXPECT_EQ(out.str(), direct.str());
}

TEST(PortedNames, ShapesAndParts) {
  EXPECT_EQ(at::maybe_wrap_dim(-1, 3), 2);
  EXPECT_THROW(at::maybe_wrap_dim(3, 3), c10::IndexError);
  EXPECT_THROW(at::maybe_wrap_dim(0, 0, false), c10::IndexError);
  const std::vector<std::int64_t> column{2, 1}, row{3}, open{2, -1};
  EXPECT_THAT(at::infer_size(column, row), ElementsAre(2, 3));
  EXPECT_THAT(at::infer_size(open, 6), ElementsAre(2, 3));
  EXPECT_EQ(c10::multiply_integers(torch::ones({2, 3}).sizes()), 6);
  EXPECT_EQ(c10::multiply_integers(std::vector<int>{2, 5}), 10);
  EXPECT_EQ(c10::multiply_integers(row.begin(), row.begin()), 1);
  EXPECT_THROW(at::infer_size(open, 5), c10::Error);
  at::globalContext().setDeterministicAlgorithms(true, true);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  const auto add = [](std::int64_t begin, std::int64_t end, std::int64_t from) {
    for (; begin < end; ++begin) from += begin;
    return from;
  };
  for (const std::int64_t grain : {1, 7, 1000})
    EXPECT_EQ(at::parallel_reduce(std::int64_t{3}, std::int64_t{100}, grain, std::int64_t{0}, add, std::plus<>()),
              4947);
  const torch::ThreadTeamGuard team(4);
  const auto is_last = [](std::int64_t, std::int64_t end, bool) { return end == 400; };
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(at::parallel_reduce(0, 400, 1, false, is_last, std::logical_or<>()));
  EXPECT_EQ(at::parallel_reduce(5, 5, 1, std::int64_t{9}, add, std::plus<>()), 9);
  const torch::Tensor w = torch::ones({1}, torch::requires_grad());
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    EXPECT_FALSE((w * 2).requires_grad());
  }
}

}  // namespace
}  // namespace porting_test
