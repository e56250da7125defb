#include "numeric.h"

namespace athanor {
namespace {

using test::error_of;
using test::gradcheck;
using test::gradgradcheck;
using test::list;
using test::values;

}  // namespace

TEST(Pad, EveryModeOnALine) {
  const Tensor x = tensor({1.0F, 2.0F, 3.0F});
  EXPECT_EQ(list(pad(x, {2, 1})), (std::vector<double>{0, 0, 1, 2, 3, 0}));
  EXPECT_EQ(list(pad(x, {2, 1}, "constant", 9)), (std::vector<double>{9, 9, 1, 2, 3, 9}));
  EXPECT_EQ(list(pad(x, {2, 1}, "reflect")), (std::vector<double>{3, 2, 1, 2, 3, 2}));
  EXPECT_EQ(list(pad(x, {2, 1}, "replicate")), (std::vector<double>{1, 1, 1, 2, 3, 3}));
  EXPECT_EQ(list(pad(x, {2, 1}, "circular")), (std::vector<double>{2, 3, 1, 2, 3, 1}));
  EXPECT_EQ(list(pad(x, {-1, 1})), (std::vector<double>{2, 3, 0}));
  EXPECT_EQ(list(pad(x, {0, 0}, "reflect")), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(pad(x, {-2, -1}).numel(), 0);
}

TEST(Pad, LastDimComesFirst) {
  const Tensor x = tensor({{1.0F, 2.0F}, {3.0F, 4.0F}});
  EXPECT_EQ(list(pad(x, {0, 1, 1, 0})), (std::vector<double>{0, 0, 0, 1, 2, 0, 3, 4, 0}));
  EXPECT_EQ(list(pad(x, {1, 0, 0, 1}, "reflect")), (std::vector<double>{2, 1, 2, 4, 3, 4, 2, 1, 2}));
}

TEST(Pad, OfManyPiecesIsThatOfEach) {
  const Tensor x = values({1, 5, 3, 150, 90}, kFloat);  // more than fits a piece, along the second dim
  for (const char* mode : {"reflect", "replicate", "circular"}) {
    const Tensor all = pad(x, {2, 1, 3, 0}, mode);
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t j = 0; j < 3; ++j)
        EXPECT_TRUE(equal(all[0][i][j], pad(x[0][i][j].unsqueeze(0), {2, 1, 3, 0}, mode).squeeze(0))) << mode;
  }
}

TEST(Pad, AWideBorderGivesItsGradientsToTheLineItRepeats) {
  for (const std::int64_t width : {1, 2, 3, 7, 1000}) {
    Tensor x = values({2, 3}).requires_grad_();
    const Tensor weight = arange(2 * (3 + 2 * width), kDouble).reshape({2, -1});
    (pad(x, {width, width}, "replicate") * weight).sum().backward();
    const Tensor ends[] = {weight.narrow(1, 0, width + 1).sum(1), weight.select(1, width + 1),
                           weight.narrow(1, width + 2, width + 1).sum(1)};
    EXPECT_TRUE(equal(x.grad(), stack({ends[0], ends[1], ends[2]}, 1))) << width;
  }
}

TEST(Pad, GradientsToSecondOrder) {
  Tensor x = values({2, 3, 4}).requires_grad_();
  for (const char* mode : {"constant", "reflect", "replicate", "circular"}) {
    const auto f = [mode](const std::vector<Tensor>& in) { return pad(in[0], {2, 1, 1, 2}, mode); };
    gradcheck(f, {x});
    gradgradcheck(f, {x});
  }
  gradcheck([](const std::vector<Tensor>& in) { return pad(in[0], {-1, 2}); }, {x});
}

TEST(Pad, WhatWrapsAroundMayBeCutOffWholly) {
  const Tensor x = values({2, 3, 4});
  EXPECT_EQ(pad(x, {-2, -2}, "circular").sizes(), (IntArrayRef{2, 3, 0}));
  EXPECT_EQ(pad(x, {1, 1, -3, 0}, "circular").sizes(), (IntArrayRef{2, 0, 6}));
  EXPECT_THROW(pad(x, {-4, 4}, "circular"), Error) << "nothing is left to wrap around";
  EXPECT_THROW(pad(x, {-3, -2}, "circular"), Error);
}

TEST(Pad, BadInputNamesSizes) {
  const Tensor x = ones({2, 3});
  EXPECT_NE(error_of([&] { pad(x, {1}); }).find("divisible by 2"), std::string::npos);
  EXPECT_NE(error_of([&] { pad(x, {1, 1, 1, 1, 1, 1}); }).find("padding length 6"), std::string::npos);
  EXPECT_NE(error_of([&] {
              pad(x, {3, 0}, "reflect");
            }).find("should be less than the corresponding input dimension"),
            std::string::npos);
  EXPECT_NE(error_of([&] { pad(x, {4, 0}, "circular"); }).find("wrapping around more than once"), std::string::npos);
  EXPECT_NE(error_of([&] { pad(x, {-2, -2}); }).find("negative output size"), std::string::npos);
  EXPECT_THROW(pad(x, {1, 1}, "mirror"), NotImplementedError);
  EXPECT_THROW(pad(x, {1, 1}, "reflect", 2.0), Error);
}

}  // namespace athanor
