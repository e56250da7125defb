#include "helpers.h"

namespace athanor::nn {
namespace {

using test::error_of;
using test::list;

struct AddImpl : Module {
  explicit AddImpl(double value) : value(value) {}
  Tensor forward(const Tensor& x) { return x + value; }
  double value;
};
ATHANOR_MODULE(Add);
struct ToInt : Module {
  int forward(Tensor x) { return x.item<int>(); }
};
struct Twice : Module {
  int forward(int x) { return 2 * x; }
};
struct Two : Module {
  Tensor forward(const Tensor& a, const Tensor& b) { return a - b; }
};

TEST(AnyModule, ForwardsAnyTypes) {
  AnyModule add{Add(2.0)};
  EXPECT_EQ(add.forward(ones({1})).item<float>(), 3);
  AnyModule number{ToInt()};
  EXPECT_EQ(number.forward<int>(full({1}, 5.0)), 5);
  AnyModule two{std::make_shared<Two>()};
  EXPECT_EQ(two.forward(full({1}, 5.0), ones({1})).item<float>(), 4);
  EXPECT_EQ(two.any_forward(full({1}, 5.0), ones({1})).get<Tensor>().item<float>(), 4);
}

TEST(AnyModule, TellsOfWrongTypes) {
  AnyModule add{Add(2.0)};
  EXPECT_EQ(error_of([&] { add.forward(1); }),
            "Expected argument #0 to be of type athanor::Tensor, but received value of type int");
  EXPECT_EQ(error_of([&] { add.forward<int>(ones({1})); }),
            "Attempted to cast AnyValue to int, but its actual type is athanor::Tensor");
  EXPECT_NE(error_of([&] { add.forward(); }).find("expects 1 argument(s), but received 0"), std::string::npos);
  EXPECT_NE(error_of([&] { AnyModule().forward(1); }).find("empty AnyModule"), std::string::npos);
  EXPECT_THROW(add.get<Linear>(), Error);
  EXPECT_EQ(add.get<Add>()->value, 2.0);
  EXPECT_EQ(add.get<AddImpl>().value, 2.0);
}

TEST(AnyModule, EmptyOnesNameTheMethod) {
  AnyModule any;
  EXPECT_EQ(error_of([&] { any.ptr(); }), "Cannot call ptr() on an empty AnyModule");
  EXPECT_EQ(error_of([&] { any.get<Linear>(); }), "Cannot call get() on an empty AnyModule");
  EXPECT_EQ(error_of([&] { any.forward(zeros({1})); }), "Cannot call forward() on an empty AnyModule");
}

TEST(Sequential, ChainsModulesOfAnyTypes) {
  Sequential seq(Add(1.0), Add(2.0), ToInt(), Twice(), Twice());
  EXPECT_EQ(seq->forward<int>(full({1}, 4.0)), 28);
  EXPECT_EQ(seq->size(), 5U);
  EXPECT_NE(error_of([&] { seq->forward(full({1}, 4.0)); }).find("but you asked for type athanor::Tensor"),
            std::string::npos);
  Sequential wrong(ToInt(), Add(1.0));
  EXPECT_NE(error_of([&] { wrong->forward(ones({1})); }).find("Expected argument #0 to be of type athanor::Tensor"),
            std::string::npos);
  Sequential several(Two(), Add(1.0));
  EXPECT_EQ(several->forward(full({1}, 4.0), ones({1})).item<float>(), 4);
  EXPECT_EQ(error_of([] { Sequential()->forward(ones({1})); }), "Cannot call forward() on an empty Sequential");
}

TEST(Sequential, TakesNamesNestsAndIterates) {
  Sequential seq({{"first", Linear(2, 3)}, {"act", ReLU()}, {"inner", Sequential(Linear(3, 4), Tanh())}});
  EXPECT_EQ(seq->named_parameters().keys(),
            (std::vector<std::string>{"first.weight", "first.bias", "inner.0.weight", "inner.0.bias"}));
  EXPECT_EQ(seq(ones({5, 2})).sizes().vec(), (std::vector<std::int64_t>{5, 4}));
  EXPECT_EQ(seq->at<LinearImpl>(0).options.out_features(), 3);
  EXPECT_THROW(seq->at<LinearImpl>(1), Error);
  EXPECT_THROW(seq->at<LinearImpl>(9), IndexError);
  EXPECT_EQ(seq->ptr<LinearImpl>(0), seq[0]);
  std::size_t count = 0;
  for (const AnyModule& m : *seq) count += !m.is_empty();
  EXPECT_EQ(count, 3U);
  Sequential more;
  more->extend(*seq);
  more->push_back("last", Linear(4, 1));
  EXPECT_EQ(more(ones({5, 2})).sizes().vec(), (std::vector<std::int64_t>{5, 1}));
  OrderedDict<std::string, AnyModule> dict;
  dict.insert("x", AnyModule(Add(1.0)));
  Sequential from_dict(std::move(dict));
  EXPECT_EQ(from_dict(zeros({1})).item<float>(), 1);
  EXPECT_THROW(more->push_back("last", Linear(4, 1)), Error);
}

TEST(Sequential, CloneCopiesEveryModule) {
  Sequential seq(Linear(2, 2), BatchNorm1d(2));
  seq->ptr(1)->eval();
  const auto copy = std::dynamic_pointer_cast<SequentialImpl>(seq->clone());
  EXPECT_EQ(list(copy->at<LinearImpl>(0).weight), list(seq->at<LinearImpl>(0).weight));
  EXPECT_NE(copy->ptr(0), seq->ptr(0));
  EXPECT_TRUE(copy->ptr(0)->is_training());
  EXPECT_FALSE(copy->ptr(1)->is_training());
}

TEST(Sequential, ErrorsNameTheStep) {
  Sequential seq({{"fc1", Linear(2, 3)}, {"fc2", Linear(4, 5)}});
  EXPECT_TRUE(error_of([&] { seq(ones({1, 2})); }).ends_with("\nin fc2"));
}

TEST(ModuleList, KeepsPositions) {
  ModuleList modules(Linear(1, 2), Linear(2, 3));
  modules->insert(1, Identity());
  modules->push_back(Add(3.0));
  EXPECT_EQ(modules->size(), 4U);
  EXPECT_EQ(modules->at<LinearImpl>(2).options.in_features(), 2);
  EXPECT_EQ(modules->named_parameters().keys(), (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"}));
  EXPECT_THROW(modules->ptr(4), IndexError);
  EXPECT_THROW(modules->at<LinearImpl>(1), Error);
  EXPECT_THROW(modules->insert(9, Identity()), IndexError);
  Tensor x = ones({1, 1});
  for (const auto& m : *modules)
    if (auto* fc = m->as<Linear>()) x = fc->forward(x);
  EXPECT_EQ(x.sizes().vec(), (std::vector<std::int64_t>{1, 3}));
  ModuleList more;
  more->extend(*modules);
  EXPECT_EQ(more->size(), 4U);
  ModuleList plain(Linear(1, 2));
  EXPECT_EQ(std::dynamic_pointer_cast<ModuleListImpl>(plain->clone())->size(), 1U);
}

TEST(ModuleDict, KeepsNamesInOrder) {
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>> start = {{"b", Linear(1, 2).ptr()},
                                                                              {"a", ReLU().ptr()}};
  ModuleDict modules(start);
  EXPECT_EQ(modules->keys(), (std::vector<std::string>{"b", "a"}));
  EXPECT_TRUE(modules->contains("a"));
  modules->insert("a", Tanh());
  EXPECT_NE(modules->at<TanhImpl>("a").name(), "");
  EXPECT_EQ(modules->size(), 2U);
  EXPECT_EQ(modules->pop("b")->as<Linear>()->options.out_features(), 2);
  EXPECT_EQ(modules->parameters().size(), 0U);
  EXPECT_THROW(modules->pop("b"), Error);
  EXPECT_THROW(modules->at<LinearImpl>("a"), Error);
  modules->clear();
  EXPECT_TRUE(modules->empty());
}

TEST(ParameterList, RegistersByPosition) {
  ParameterList parameters(ones({2}).requires_grad_(), zeros({3}));
  parameters->append(ones({1}));
  EXPECT_EQ(parameters->named_parameters().keys(), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_TRUE(parameters->at(0).requires_grad());
  EXPECT_FALSE(parameters->at(1).requires_grad());
  EXPECT_EQ(std::dynamic_pointer_cast<ParameterListImpl>(parameters->clone())->size(), 3U);
}

TEST(ParameterDict, RegistersByName) {
  ParameterDict parameters;
  parameters->insert("w", ones({2}).requires_grad_());
  EXPECT_TRUE(parameters["w"].requires_grad());
  EXPECT_THROW(parameters->insert("w", ones({2})), Error);
  EXPECT_EQ(list(parameters->pop("w")), (std::vector<double>{1, 1}));
  EXPECT_TRUE(parameters->empty());
}

}  // namespace
}  // namespace athanor::nn
