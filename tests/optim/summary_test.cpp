#include "athanor/nn/summary.h"

#include <gtest/gtest.h>

#include <regex>

#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"

namespace athanor::nn::summary_test {
namespace {

struct Net : Module {
  Net() {
    fc = register_module("fc", Linear(3, 400));
    norm = register_module("norm", BatchNorm1d(400));
    register_parameter("shared", fc->weight);
  }
  Tensor forward(const Tensor& x) { return norm(fc(x)); }
  Linear fc = nullptr;
  BatchNorm1d norm = nullptr;
};

}  // namespace

TEST(Summary, CountsParametersOfEachModuleAndInAll) {
  const auto net = std::make_shared<Net>();
  net->norm->weight.set_requires_grad(false);
  const std::string text = summary(net);
  EXPECT_TRUE(std::regex_search(text, std::regex("\\(model\\) +.*Net +1,200\n"))) << text << "where it is met first";
  EXPECT_TRUE(std::regex_search(text, std::regex("fc +\\S*Linear\\S* +400\n"))) << text;
  EXPECT_NE(text.find("Parameters: 2,400, training: 2,000, buffers: 801, bytes: 12,808\n"), std::string::npos) << text;
}

TEST(Summary, RunTellsTheShapesAndLeavesNoHooks) {
  const auto net = std::make_shared<Net>();
  const std::string text = summary(net, [&] { net->forward(ones({2, 3})); });
  EXPECT_NE(text.find("[2, 400]"), std::string::npos) << text;
  EXPECT_FALSE(net->fc->has_hooks());
  EXPECT_THROW(summary(net, [&] { net->forward(ones({2, 5})); }), Error);
  EXPECT_FALSE(net->fc->has_hooks()) << "also after a failure";
}

}  // namespace athanor::nn::summary_test
