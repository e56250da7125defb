#include "athanor/tensor/print.h"

#include <gtest/gtest.h>

#include "print_cases.h"

namespace athanor {
namespace {

using testing::Case;
using testing::ramp;
using testing::real;
using testing::whole;

TEST(FormatTensor, MatchesPythonsPyTorch) {
  for (const Case& c : testing::python_cases())
    EXPECT_EQ(format_tensor(c.view(), c.options(), c.suffixes()), c.expected());
}

TEST(FormatTensor, ReadsThroughStrides) {
  const Case c(kInt, {2, 3}, ramp(0, 1));
  View v = c.view();
  const std::int64_t sizes[] = {3, 2}, strides[] = {1, 3}, reversed[] = {-1, 3};
  v.sizes = sizes;
  v.strides = strides;
  v.contiguous = false;
  EXPECT_EQ(format_tensor(v), "tensor([[0, 3],\n        [1, 4],\n        [2, 5]], dtype=torch.int32)");
  v.data = static_cast<std::int32_t*>(v.data) + 2;
  v.strides = reversed;
  EXPECT_EQ(format_tensor(v), "tensor([[2, 5],\n        [1, 4],\n        [0, 3]], dtype=torch.int32)");
  EXPECT_EQ(format_tensor_cpp(v), " 2  5\n 1  4\n 0  3\n[ CPUIntType{3,2} ]");
}

TEST(FormatTensor, SpellsDeviceAndPackage) {
  const Case c(kDouble, {2}, real({1, 2}));
  PrintSuffixes s;
  s.device = "cuda:0";
  s.package = "athanor";
  EXPECT_EQ(format_tensor(c.view(), {}, s), "tensor([1., 2.], device='cuda:0', dtype=athanor.float64)");
  s.requires_grad = true;
  s.grad_fn = "AddBackward0";
  EXPECT_EQ(format_tensor(c.view(), {}, s),
            "tensor([1., 2.], device='cuda:0', dtype=athanor.float64,\n       grad_fn=<AddBackward0>)");
}

TEST(FormatTensor, FollowsTheDefaultDtype) {
  const Case f(kFloat, {1}, real({1})), d(kDouble, {1}, real({1}));
  set_default_dtype(kDouble);
  const std::string single = format_tensor(f.view()), twice = format_tensor(d.view());
  set_default_dtype(kFloat);
  EXPECT_EQ(single, "tensor([1.], dtype=torch.float32)");
  EXPECT_EQ(twice, "tensor([1.])");
}

TEST(FormatTensor, SurvivesExtremeOptions) {
  const Case c(kDouble, {2}, real({std::numeric_limits<double>::max(), 0.5}));
  PrintOptions o;
  o.precision = 100000;
  o.sci_mode = false;
  o.linewidth = -5;
  EXPECT_GT(format_tensor(c.view(), o).size(), 1000U);
  o.precision = -3;
  EXPECT_NE(format_tensor(c.view(), o), "");
}

TEST(FormatTensorCpp, MatchesLibtorch) {
  for (const Case& c : testing::cpp_cases()) EXPECT_EQ(format_tensor_cpp(c.view()), c.expected());
}

TEST(FormatTensorCpp, NamesBackendAndUndefined) {
  EXPECT_EQ(format_tensor_cpp(View{}), "[ Tensor (undefined) ]");
  const Case c(kLong, {1}, whole({5}));
  EXPECT_EQ(format_tensor_cpp(c.view(), "CUDA"), " 5\n[ CUDALongType{1} ]");
}

}  // namespace
}  // namespace athanor
