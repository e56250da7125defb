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
      EXPECT_TRUE(names_op(e.what(), r.op)) << r.op << ": the message names no op: " << e.what();
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

/// Of another dtype, to which the result's can be cast.
DType castable(DType t) { return t == kFloat ? kDouble : t == kBool ? kInt : kFloat; }

/// Ops whose `out` must have the result's dtype.
const std::vector<std::string> kOwnDtype = {"float_power",
                                            "float_power.Scalar",
                                            "isin.Scalar_Tensor",
                                            "multinomial",
                                            "nonzero",
                                            "all",
                                            "any",
                                            "nll_loss_forward",
                                            "adaptive_max_pool2d",
                                            "adaptive_max_pool3d",
                                            "max_pool2d_with_indices",
                                            "max_pool3d_with_indices",
                                            "fractional_max_pool2d",
                                            "fractional_max_pool3d",
                                            "linalg_qr",
                                            "linalg_eigh",
                                            "linalg_svd",
                                            "svd",
                                            "linalg_lstsq"};

/// Tensors that a call may be given for its results: as they come from `make`, which is called for each.
template <class Make>
Tensors each(const Tensors& values, Make&& make) {
  Tensors out;
  for (const Tensor& v : values) out.push_back(make(v));
  return out;
}

void expect_written(const OutCall& c, Tensors given, const Tensors& values, const char* what) {
  const Tensors before = given;
  c.into(given);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(compare_bits(given[i], values[i].to(given[i].dtype())), "") << c.op << ", " << what << ", result " << i;
    EXPECT_TRUE(given[i].is_same(before[i])) << c.op << ", " << what;
  }
}

/// Runs fn for every op; what it throws is a failure of that op.
template <class F>
void for_each_out_call(F&& fn) {
  for (const OutCall& c : out_calls()) {
    try {
      fn(c, c.call());
    } catch (const std::exception& e) {
      ADD_FAILURE() << c.op << ": " << e.what();
    }
  }
}

TEST(OpTableFurther, OutFormsWriteWhatTheOthersGive) {
  for_each_out_call([](const OutCall& c, const Tensors& values) {
    expect_written(c, each(values, [](const Tensor& v) { return empty({0}, v.options()); }), values, "fresh");
    expect_written(c, each(values, apart), values, "with strides");
    expect_written(c,
                   each(values,
                        [](const Tensor& v) {
                          return ones({v.numel() + 1, 2}, v.options());
                        }),
                   values, "of another shape");
    Tensors outside;
    expect_written(c,
                   each(values,
                        [&](const Tensor& v) {
                          auto [part, rest] = part_of_wider(v);
                          outside.push_back(rest);
                          return part;
                        }),
                   values, "part of a wider tensor");
    for (const Tensor& t : outside) EXPECT_TRUE(t.eq(0).all().item<bool>()) << c.op << " writes outside of its tensor";
  });
}

TEST(OpTableFurther, OutFormsConvertOrRefuseOtherDtypes) {
  for_each_out_call([](const OutCall& c, const Tensors& values) {
    if (c.typed) return;
    const Tensors given =
        each(values, [](const Tensor& v) { return empty({0}, v.options().dtype(castable(v.dtype()))); });
    if (std::find(kOwnDtype.begin(), kOwnDtype.end(), c.op) == kOwnDtype.end())
      return expect_written(c, given, values, "of another dtype");
    Tensors refused = given;
    EXPECT_THROW(c.into(refused), Error) << c.op;
    EXPECT_EQ(given[0].numel(), 0) << c.op;
  });
}

TEST(OpTableFurther, OutFormsMayBeGivenAnInput) {
  for_each_out_call([](const OutCall& c, const Tensors& values) {
    std::size_t count = 0;
    {
      const SeeInputs see([&](Tensor&) { ++count; });
      c.call();
    }
    for (std::size_t chosen = 0; chosen < count; ++chosen) {
      Tensors given = each(values, [](const Tensor& v) { return empty({0}, v.options()); });
      std::size_t at = 0;
      const SeeInputs see([&](Tensor& t) {
        if (at++ == chosen && t.dtype() == values[0].dtype()) given[0] = t;
      });
      c.into(given);
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(compare_bits(given[i], values[i]), "") << c.op << ": out= is tensor " << chosen << ", result " << i;
    }
  });
}

TEST(OpTableFurther, OutFormsRefuseToRecord) {
  for_each_out_call([](const OutCall& c, const Tensors& values) {
    if (values[0].is_floating_point()) {
      Tensors given = each(values, [](const Tensor& v) { return zeros_like(v); });
      given[0].requires_grad_();
      EXPECT_THROW(c.into(given), Error) << c.op << ", out= requires grad";
      EXPECT_TRUE(given[0].detach().eq(0).all().item<bool>()) << c.op << " writes what it refuses";
    }
    const SeeInputs see([](Tensor& t) {
      if (t.is_floating_point()) t.requires_grad_();
    });
    if (!c.call()[0].requires_grad() && !c.op.starts_with("normal.T") && c.op != "normal.float_Tensor" &&
        c.op != "bernoulli")
      return;
    Tensors given = each(values, [](const Tensor& v) { return empty({0}, v.options()); });
    EXPECT_THROW(c.into(given), Error) << c.op << ", inputs require grad";
  });
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
