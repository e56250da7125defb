#include "helpers.h"

namespace athanor::nn {
namespace {

using test::error_of;
using test::list;

struct Leaf : Module {
  Leaf() {
    weight = register_parameter("weight", ones({2}));
    count = register_buffer("count", zeros({1}));
  }
  Tensor forward(const Tensor& x) { return x * weight; }
  Tensor weight, count;
};

struct Net : Module {
  Net() {
    a = register_module("a", std::make_shared<Leaf>());
    b = register_module("b", std::make_shared<Leaf>());
    bias = register_parameter("bias", zeros({2}));
  }
  Tensor forward(const Tensor& x) { return b->forward(a->forward(x)) + bias; }
  std::shared_ptr<Leaf> a, b;
  Tensor bias;
};

TEST(Module, ListsParametersBuffersAndModulesParentsFirst) {
  const auto net = std::make_shared<Net>();
  EXPECT_EQ(net->named_parameters().keys(), (std::vector<std::string>{"bias", "a.weight", "b.weight"}));
  EXPECT_EQ(net->named_parameters(false).keys(), (std::vector<std::string>{"bias"}));
  EXPECT_EQ(net->named_buffers().keys(), (std::vector<std::string>{"a.count", "b.count"}));
  EXPECT_EQ(net->named_modules().keys(), (std::vector<std::string>{"", "a", "b"}));
  EXPECT_EQ(net->named_modules("net").keys(), (std::vector<std::string>{"net", "net.a", "net.b"}));
  EXPECT_EQ(net->modules(false).size(), 2U);
  EXPECT_EQ(net->children().size(), 2U);
  EXPECT_EQ(net->named_children().keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(net->parameters()[0].is_same(net->bias));
}

TEST(Module, WhatIsRegisteredTwiceIsListedOnceButSavedUnderBothNames) {
  const auto net = std::make_shared<Net>();
  net->register_module("again", net->a);
  net->a->register_parameter("alias", net->bias);
  EXPECT_EQ(net->named_parameters().keys(), (std::vector<std::string>{"bias", "a.weight", "b.weight"}));
  EXPECT_EQ(net->named_modules().keys(), (std::vector<std::string>{"", "a", "b"}));
  EXPECT_EQ(net->state_dict().keys(),
            (std::vector<std::string>{"bias", "a.weight", "a.alias", "a.count", "b.weight", "b.count", "again.weight",
                                      "again.alias", "again.count"}));
}

TEST(Module, RefusesBadNames) {
  Net net;
  EXPECT_EQ(error_of([&] { net.register_module("x.y", std::make_shared<Leaf>()); }),
            "Submodule name must not contain a dot (got 'x.y')");
  EXPECT_EQ(error_of([&] { net.register_module("", std::make_shared<Leaf>()); }), "Submodule name must not be empty");
  EXPECT_EQ(error_of([&] { net.register_module("a", std::make_shared<Leaf>()); }), "Submodule 'a' already defined");
  EXPECT_EQ(error_of([&] { net.register_parameter("bias", ones({1})); }), "Parameter 'bias' already defined");
  EXPECT_EQ(error_of([&] { net.register_buffer("bias", ones({1})); }), "attribute 'bias' already exists");
  EXPECT_EQ(error_of([&] { net.register_parameter("p.q", ones({1})); }),
            "Parameter name must not contain a dot (got 'p.q')");
  EXPECT_EQ(error_of([&] { net.unregister_module("c"); }), "No Module with name `c` is registered");
  EXPECT_THROW(net.register_parameter("n", ones({1}, kLong)), Error);
  EXPECT_THROW(net.register_parameter("m", ones({1}).requires_grad_() * 2), Error);
  EXPECT_THROW(net.register_module("none", std::shared_ptr<Leaf>()), Error);
}

TEST(Module, UndefinedParametersAreListedNowhere) {
  const Linear fc(LinearOptions(2, 3).bias(false));
  EXPECT_EQ(fc->named_parameters().keys(), (std::vector<std::string>{"weight"}));
  EXPECT_EQ(fc->state_dict().keys(), (std::vector<std::string>{"weight"}));
  EXPECT_FALSE(fc->bias.defined());
}

TEST(Module, ReplaceAndUnregisterChangeTheChildren) {
  Net net;
  const auto other = std::make_shared<Leaf>();
  net.replace_module("a", other);
  EXPECT_EQ(net.children()[0], other);
  EXPECT_EQ(other->path(), "a");
  EXPECT_EQ(net.a->path(), "");
  net.unregister_module("a");
  EXPECT_EQ(net.named_children().keys(), (std::vector<std::string>{"b"}));
  EXPECT_THROW(net.replace_module("a", other), Error);
}

TEST(Module, ApplyVisitsParentsFirst) {
  const auto net = std::make_shared<Net>();
  std::vector<std::string> names;
  net->apply([&](const std::string& name, Module&) { names.push_back(name); }, "net");
  EXPECT_EQ(names, (std::vector<std::string>{"net", "net.a", "net.b"}));
  int count = 0;
  net->apply([&](Module& m) { count += m.is_training(); });
  std::as_const(*net).apply([&](const Module&) { ++count; });
  net->apply([&](const std::shared_ptr<Module>& m) { count += m != nullptr; });
  EXPECT_EQ(count, 9);
}

TEST(Module, NeedsASharedPointerToListItself) {
  const Net net;
  EXPECT_NE(error_of([&] { net.modules(); }).find("not stored in a shared_ptr"), std::string::npos);
  EXPECT_EQ(net.modules(false).size(), 2U);
}

TEST(Module, TrainAndEvalReachEveryModule) {
  Net net;
  EXPECT_TRUE(net.is_training());
  net.eval();
  EXPECT_FALSE(net.b->is_training());
  net.train();
  EXPECT_TRUE(net.b->is_training());
}

TEST(Module, ZeroGradForgetsOrClearsGradients) {
  Net net;
  net.forward(ones({2})).sum().backward();
  net.zero_grad(false);
  EXPECT_EQ(list(net.bias.grad()), (std::vector<double>{0, 0}));
  net.zero_grad();
  EXPECT_FALSE(net.bias.grad().defined());
}

TEST(Module, ToConvertsFloatingTensorsAndGradientsInPlace) {
  Net net;
  net.register_buffer("steps", zeros({}, kLong));
  net.forward(ones({2})).sum().backward();
  const Tensor handle = net.a->weight;
  net.to(kDouble);
  EXPECT_EQ(handle.dtype(), kDouble);
  EXPECT_EQ(handle.grad().dtype(), kDouble);
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_EQ(net.a->count.dtype(), kDouble);
  EXPECT_EQ(net.named_buffers()["steps"].dtype(), kLong);
  EXPECT_TRUE(handle.is_same(net.a->weight));
  net.forward(ones({2}, kDouble)).sum().backward();
  EXPECT_THROW(net.to(kLong), TypeError);
}

TEST(Module, RequiresGradFreezes) {
  Net net;
  net.requires_grad_(false);
  for (const Tensor& p : net.parameters()) EXPECT_FALSE(p.requires_grad());
}

TEST(StateDict, SharesMemoryAndLoadsBack) {
  Net net, other;
  const auto state = net.state_dict();
  EXPECT_EQ(state.keys(), (std::vector<std::string>{"bias", "a.weight", "a.count", "b.weight", "b.count"}));
  EXPECT_FALSE(state["bias"].requires_grad());
  {
    const NoGradGuard guard;
    net.bias.fill_(7);
    net.b->count.fill_(3);
  }
  EXPECT_EQ(list(state["bias"]), (std::vector<double>{7, 7}));
  const Tensor handle = other.bias;
  other.load_state_dict(state);
  EXPECT_EQ(list(handle), (std::vector<double>{7, 7}));
  EXPECT_EQ(list(other.b->count), (std::vector<double>{3}));
  EXPECT_EQ(net.state_dict("net").keys()[0], "net.bias");
}

TEST(StateDict, TransientBuffersAreLeftOut) {
  Leaf leaf;
  leaf.register_buffer("cache", ones({3}), false);
  EXPECT_EQ(leaf.state_dict().keys(), (std::vector<std::string>{"weight", "count"}));
  EXPECT_EQ(leaf.named_buffers().keys(), (std::vector<std::string>{"count", "cache"}));
}

TEST(StateDict, ReportsEverythingThatDoesNotFitAndChangesNothing) {
  Net net;
  auto state = net.state_dict();
  Module::StateDict wrong;
  wrong.insert("bias", full({2}, 9.0));
  wrong.insert("a.weight", ones({3}));
  wrong.insert("extra", ones({1}));
  const std::string report = error_of([&] { net.load_state_dict(wrong); });
  EXPECT_NE(report.find("Error(s) in loading state_dict for "), std::string::npos) << report;
  EXPECT_NE(report.find("\n\tMissing key(s) in state_dict: \"a.count\", \"b.weight\", \"b.count\". "),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("\n\tUnexpected key(s) in state_dict: \"extra\". "), std::string::npos) << report;
  EXPECT_NE(
      report.find("\n\tsize mismatch for a.weight: copying a param with shape torch.Size([3]) from checkpoint, the "
                  "shape in current model is torch.Size([2])."),
      std::string::npos)
      << report;
  EXPECT_EQ(list(net.bias), (std::vector<double>{0, 0}));
  EXPECT_THROW(net.load_state_dict(wrong, false), Error);  // a wrong shape is never skipped

  wrong.erase("a.weight");
  const IncompatibleKeys keys = net.load_state_dict(wrong, false);
  EXPECT_EQ(keys.missing_keys, (std::vector<std::string>{"a.weight", "a.count", "b.weight", "b.count"}));
  EXPECT_EQ(keys.unexpected_keys, (std::vector<std::string>{"extra"}));
  EXPECT_EQ(list(net.bias), (std::vector<double>{9, 9}));
}

class Copyable : public Cloneable<Copyable> {
 public:
  explicit Copyable(int width) : width(width) { reset(); }
  void reset() override {
    weight = register_parameter("weight", zeros({width}));
    state = register_buffer("state", zeros({1}));
    fc = register_module("fc", Linear(width, 1));
  }
  Tensor forward(const Tensor& x) { return fc(x * weight); }
  int width;
  Tensor weight, state;
  Linear fc{nullptr};
};
ATHANOR_MODULE_IMPL(CopyableHolder, Copyable);

TEST(Clone, CopiesValuesAndOptionsWithoutSharing) {
  auto module = std::make_shared<Copyable>(3);
  {
    const NoGradGuard guard;
    module->weight.fill_(5);
    module->fc->weight.fill_(2);
  }
  module->fc->eval();
  module->fc->weight.set_requires_grad(false);
  const auto copy = std::dynamic_pointer_cast<Copyable>(module->clone());
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->width, 3);
  EXPECT_EQ(list(copy->weight), (std::vector<double>{5, 5, 5}));
  EXPECT_EQ(list(copy->fc->weight), (std::vector<double>{2, 2, 2}));
  EXPECT_TRUE(copy->weight.requires_grad());
  EXPECT_FALSE(copy->fc->weight.requires_grad());
  EXPECT_TRUE(copy->weight.is_leaf());
  EXPECT_FALSE(copy->fc->is_training());
  EXPECT_TRUE(copy->is_training());
  EXPECT_FALSE(copy->weight.is_alias_of(module->weight));
  EXPECT_EQ(copy->fc->path(), "fc");
  // The members and what is registered are the same tensors.
  EXPECT_TRUE(copy->named_parameters()["fc.weight"].is_same(copy->fc->weight));
  {
    const NoGradGuard guard;
    copy->weight.fill_(1);
  }
  EXPECT_EQ(list(module->weight), (std::vector<double>{5, 5, 5}));
}

TEST(Clone, NeedsCloneable) {
  EXPECT_NE(error_of([] { Leaf().clone(); }).find("clone() has not been implemented for"), std::string::npos);
}

class Forgetful : public Cloneable<Forgetful> {
 public:
  Forgetful() { register_parameter("p", ones({1})); }
  void reset() override {}
};

TEST(Clone, TellsOfParametersNotMadeInReset) {
  const auto module = std::make_shared<Forgetful>();
  EXPECT_NE(error_of([&] { module->clone(); }).find("does not have the same number of parameters"), std::string::npos);
}

TEST(Holder, MakesCopiesLikeReferencesAndMayBeEmpty) {
  Linear a(3, 4);
  Linear b = a;
  EXPECT_EQ(a.ptr(), b.ptr());
  Linear none{nullptr};
  EXPECT_TRUE(none.is_empty());
  EXPECT_FALSE(none);
  EXPECT_EQ(error_of([&] { none->reset(); }), "Accessing empty ModuleHolder");
  none = a;
  EXPECT_EQ(none(ones({1, 3})).sizes().vec(), (std::vector<std::int64_t>{1, 4}));
  const CopyableHolder held(4);
  EXPECT_EQ(held->width, 4);
  EXPECT_NE(held->as<Copyable>(), nullptr);
  EXPECT_EQ(held->as<Linear>(), nullptr);
  std::shared_ptr<Module> base = a.ptr();
  EXPECT_EQ(base->as<Linear>(), a.get());
}

TEST(Hooks, RunAroundACallAndMayReplaceValues) {
  Linear fc(2, 2);
  {
    const NoGradGuard guard;
    init::eye_(fc->weight);
    fc->bias.zero_();
  }
  std::vector<std::string> calls;
  const auto pre = fc->register_forward_pre_hook([&](Module& m, std::vector<Tensor>& inputs) {
    calls.push_back("pre " + m.name());
    inputs[0] = inputs[0] + 1;
  });
  const auto post = fc->register_forward_hook([&](Module&, const std::vector<Tensor>& inputs, const Tensor& output) {
    calls.push_back("post " + std::to_string(inputs.size()));
    return output * 10;
  });
  EXPECT_EQ(list(fc(zeros({1, 2}))), (std::vector<double>{10, 10}));
  EXPECT_EQ(calls, (std::vector<std::string>{"pre athanor::nn::LinearImpl", "post 1"}));
  EXPECT_EQ(list(fc->forward(zeros({1, 2}))), (std::vector<double>{0, 0}));
  Sequential seq(fc);
  EXPECT_EQ(list(seq->forward(zeros({1, 2}))), (std::vector<double>{10, 10}));
  fc->remove_hook(pre);
  EXPECT_EQ(list(fc(ones({1, 2}))), (std::vector<double>{10, 10}));
  fc->remove_hook(post);
  EXPECT_FALSE(fc->has_hooks());
}

TEST(Hooks, SeeEveryTensorArgument) {
  MSELoss loss;
  loss->register_forward_pre_hook([](Module&, std::vector<Tensor>& in) { std::swap(in[0], in[1]); });
  std::size_t seen = 0;
  loss->register_forward_hook([&](Module&, const std::vector<Tensor>& in, const Tensor&) {
    seen = in.size();
    return Tensor();
  });
  EXPECT_EQ(loss(ones({2}), zeros({2})).item<float>(), 1);
  EXPECT_EQ(seen, 2U);
}

struct Block : Module {
  Block() { fc = register_module("fc", Linear(3, 4)); }
  Tensor forward(const Tensor& x) { return fc->forward(x); }
  Linear fc{nullptr};
};
struct Tower : Module {
  Tower() { block = register_module("block", std::make_shared<Block>()); }
  Tensor forward(const Tensor& x) { return block->forward(x); }
  std::shared_ptr<Block> block;
};

TEST(Errors, NameTheModuleOnce) {
  Tower net;
  const std::string message = error_of([&] { net.forward(ones({1, 5})); });
  EXPECT_TRUE(message.ends_with("\nin block.fc")) << message;
  EXPECT_EQ(message.find("\nin "), message.rfind("\nin ")) << message;
  EXPECT_EQ(error_of([] { Linear(3, 4)->forward(ones({1, 5})); }).find("\nin "), std::string::npos);
}

TEST(Errors, PathEndsWhenTheParentGoes) {
  std::shared_ptr<Block> block;
  {
    const Tower net;
    block = net.block;
    EXPECT_EQ(block->fc->path(), "block.fc");
  }
  EXPECT_EQ(block->fc->path(), "fc");
}

TEST(OrderedDict, KeepsOrderAndRefusesDuplicates) {
  OrderedDict<std::string, int> dict = {{"one", 1}, {"two", 2}, {"three", 3}};
  EXPECT_EQ(dict.key_description(), "Key");
  EXPECT_EQ(dict["two"], 2);
  EXPECT_EQ(dict[2].key(), "three");
  EXPECT_EQ(*dict.front(), 1);
  EXPECT_EQ(dict.back().value(), 3);
  dict.erase("one");
  EXPECT_EQ(dict.keys(), (std::vector<std::string>{"two", "three"}));
  EXPECT_EQ(dict["three"], 3);
  EXPECT_EQ(dict.find("one"), nullptr);
  EXPECT_EQ(error_of([&] { dict["one"]; }), "Key 'one' is not defined");
  EXPECT_EQ(error_of([&] { dict.insert("two", 5); }), "Key 'two' already defined");
  EXPECT_THROW(dict[7], IndexError);
  OrderedDict<std::string, int> more;
  more.insert("four", 4);
  dict.update(more);
  EXPECT_EQ(dict.values(), (std::vector<int>{2, 3, 4}));
  dict.clear();
  EXPECT_TRUE(dict.is_empty());
  EXPECT_EQ(error_of([&] { dict.front(); }), "Called front() on an empty OrderedDict");
}

}  // namespace
}  // namespace athanor::nn
