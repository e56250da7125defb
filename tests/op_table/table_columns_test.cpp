// What a row says of its op beside the calls: that it has gradients, refusals and samples without elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "op_table/driver.h"
#include "op_table/table_further.h"

namespace athanor::op_table {

namespace {

/// Ops of which a column says less than the driver could try, and why.
struct Exception {
  const char* op;
  const char* reason;
};
using Exceptions = std::vector<Exception>;

const Exceptions kNoGradient = {
    {"to", "its results in other dtypes are rounded; the row of to.dtype tries the gradient"},
    {"embedding_renorm_", "changes the table outside of the graph; the gradient is that of the copy which is changed"},
    {"nll_loss_forward", "its second result has none; the row of nll_loss tries the gradient"},
    {"native_layer_norm", "its statistics have none; the row of layer_norm tries the gradient"},
};
const Exceptions kNoSecondGradient = {
    {"ctc_loss.IntList", "the gradient comes from tables that are not differentiated, in PyTorch neither"},
    {"ctc_loss.Tensor", "as ctc_loss.IntList"},
};
const Exceptions kNoRefusal = {};
const Exceptions kNoEmptySample = {
    {"scalar_tensor", "makes one element"},
    {"max", "the extreme of nothing is refused"},
    {"min", "the extreme of nothing is refused"},
    {"lstm.data", "a packed sequence has no steps without rows"},
    {"gru.data", "a packed sequence has no steps without rows"},
    {"rnn_tanh.data", "a packed sequence has no steps without rows"},
    {"rnn_relu.data", "a packed sequence has no steps without rows"},
};

std::string name_of(const Row& row) { return row.overload.empty() ? row.name : row.name + "." + row.overload; }

bool takes_tensors(const Row& row) {
  for (const Case& c : row.cases)
    for (const Sample& s : c.samples)
      if (!s.inputs.empty()) return true;
  return false;
}

template <class List>
bool names(const List& list, const Row& row) {
  const std::string name = name_of(row);
  return std::any_of(list.begin(), list.end(), [&](const auto& entry) { return name == entry.op; });
}

/// Refusals of its own, or dtypes that the driver tries and that are refused.
bool refuses_something(const Row& row) {
  return !row.refusals.empty() || (row.refuses_others && row.dtypes.size() < static_cast<std::size_t>(kNumDTypes)) ||
         names(further_refusals(), row);
}

bool has_empty_sample(const Row& row) {
  if (names(empty_calls(), row)) return true;
  for (const Case& c : row.cases)
    for (const Sample& s : c.samples)
      for (const Input& in : s.inputs)
        if (in.array.numel() == 0) return true;
  return false;
}

/// Whether a result of the first sample with elements that a case takes in float64 requires grad where its inputs do.
bool records(const Row& row) {
  if (std::find(row.dtypes.begin(), row.dtypes.end(), kDouble) == row.dtypes.end()) return false;
  for (const Case& c : row.cases) {
    const auto fits = [](const Sample& s) {
      return takes(s, kDouble) && std::any_of(s.inputs.begin(), s.inputs.end(),
                                              [](const Input& in) { return !in.own && in.array.numel() > 0; });
    };
    const auto s = std::find_if(c.samples.begin(), c.samples.end(), fits);
    if (s == c.samples.end()) continue;
    Tensors in = inputs_of(*s, kDouble);
    for (std::size_t i = 0; i < in.size(); ++i)
      if (!s->inputs[i].own) in[i] = in[i].detach().requires_grad_();
    for (const Tensor& out : c.call(in))
      if (out.defined() && out.requires_grad()) return true;
  }
  return false;
}

/// Every row of which `lacks` is true stands in the list, and no other.
template <class Lacks>
void expect_exactly(const Exceptions& list, Lacks&& lacks) {
  std::string lacking, needless;
  std::vector<std::string> found;
  for (const Row& row : all_rows()) {
    if (!lacks(row)) continue;
    found.push_back(name_of(row));
    const auto named = [&](const Exception& e) { return found.back() == e.op; };
    if (std::none_of(list.begin(), list.end(), named)) lacking += "\n  " + found.back();
  }
  for (const Exception& e : list)
    if (std::find(found.begin(), found.end(), e.op) == found.end()) needless += std::string("\n  ") + e.op;
  EXPECT_TRUE(lacking.empty()) << "rows that lack it without a reason:" << lacking;
  EXPECT_TRUE(needless.empty()) << "rows that need no reason:" << needless;
}

}  // namespace

TEST(OpTableColumns, SayThatAnOpHasAGradientWhereItRecordsOne) {
  expect_exactly(kNoGradient, [](const Row& row) { return !row.gradient && records(row); });
}

TEST(OpTableColumns, SayThatAGradientHasOneOfItsOwn) {
  expect_exactly(kNoSecondGradient, [](const Row& row) { return row.gradient && !row.second_gradient; });
}

TEST(OpTableColumns, NameACallThatIsRefused) {
  expect_exactly(kNoRefusal, [](const Row& row) { return takes_tensors(row) && !refuses_something(row); });
}

TEST(OpTableFurther, RefusalsAreErrorsThatSayWhy) {
  for (const FurtherRefusal& r : further_refusals()) {
    try {
      r.refusal.call();
      ADD_FAILURE() << r.op << ": accepts " << r.refusal.what;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(r.refusal.message), std::string::npos) << r.op << ": " << e.what();
    }
  }
}

TEST(OpTableFurther, CallsWithoutElementsGiveWhatTheyShould) {
  for (const EmptyCall& c : empty_calls()) {
    try {
      const Tensor result = c.call();
      EXPECT_EQ(result.sizes().vec(), c.shape) << c.op;
      for (const double v : to_array(result).values)
        EXPECT_TRUE(v == c.value || (std::isnan(v) && std::isnan(c.value))) << c.op << ": " << v;
    } catch (const std::exception& e) {
      ADD_FAILURE() << c.op << ": " << e.what();
    }
  }
}

/// A tensor of these sizes whose elements do not lie side by side.
Tensor apart(const Tensor& like) {
  return zeros({2, like.numel()}, like.options()).t().select(1, 0).view(like.sizes());
}

TEST(OpTableFurther, OutFormsWriteWhatTheOthersGive) {
  for (const OutCall& c : out_calls()) {
    try {
      const Tensors values = c.call();
      Tensors fresh, given;
      for (const Tensor& v : values) {
        fresh.push_back(empty({0}, v.options()));
        given.push_back(apart(v));
      }
      c.into(fresh);
      std::vector<const TensorImpl*> same;
      for (const Tensor& t : given) same.push_back(t.impl());
      c.into(given);
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(compare_bits(fresh[i], values[i]), "") << c.op << ", result " << i;
        EXPECT_EQ(compare_bits(given[i], values[i]), "") << c.op << " with strides, result " << i;
        EXPECT_EQ(given[i].impl(), same[i]) << c.op;
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << c.op << ": " << e.what();
    }
  }
}

TEST(OpTableFurther, OutFormsRefuseATensorThatIsNotThere) {
  for (const OutCall& c : out_calls()) {
    Tensors none(c.call().size());
    EXPECT_THROW(c.into(none), Error) << c.op;
  }
}

TEST(OpTableFurther, CallsAreOfOpsInTheTable) {
  std::vector<std::string> known, unknown;
  for (const Row& row : all_rows()) known.push_back(name_of(row));
  const auto look = [&](const std::string& op) {
    if (op.ends_with("_backward")) return;  // a part of other ops, without a row
    if (std::find(known.begin(), known.end(), op) == known.end()) unknown.push_back(op);
  };
  for (const FurtherRefusal& r : further_refusals()) look(r.op);
  for (const EmptyCall& c : empty_calls()) look(c.op);
  for (const OutCall& c : out_calls()) look(c.op);
  EXPECT_TRUE(unknown.empty()) << testing::PrintToString(unknown);
}

TEST(OpTableColumns, TryTensorsWithoutElements) {
  expect_exactly(kNoEmptySample, [](const Row& row) { return takes_tensors(row) && !has_empty_sample(row); });
}

}  // namespace athanor::op_table
