// Runs the op table, checks that every op has a row, and that a wrong gradient is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "athanor/autograd/function.h"
#include "athanor/autograd/gradcheck.h"
#include "op_table/driver.h"
#include "op_table/table_further.h"

namespace athanor::op_table {

namespace {

struct Listed {
  const char* name;
  const char* overload;
  const char* kind;
  const char* schema;
};

const Listed kOps[] = {
#define ATHANOR_OP_ROW(name, overload, kind, schema) {name, overload, kind, schema},
#include "athanor/ops/op_list.inc"
#undef ATHANOR_OP_ROW
};

std::string full_name(const std::string& name, const std::string& overload) {
  return overload.empty() ? name : name + "." + overload;
}

const Listed* find_op(const Row& row) {
  for (const Listed& op : kOps)
    if (row.name == op.name && row.overload == op.overload) return &op;
  return nullptr;
}

bool has_flag(const Listed& op, const std::string& flag) {
  const std::string schema = op.schema;
  const std::size_t bar = schema.rfind('|');
  return bar != std::string::npos && (schema.substr(bar) + " ").find(" " + flag + " ") != std::string::npos;
}

}  // namespace

class OpTable : public testing::TestWithParam<std::size_t> {};

TEST_P(OpTable, DoesWhatItsRowSays) {
  for (const std::string& fault : check_row(all_rows()[GetParam()])) ADD_FAILURE() << fault;
}

TEST(OpTableInputs, AreHiddenForEveryOp) {
  std::vector<std::string> without;
  for (const Row& row : all_rows()) {
    bool takes_tensors = false, hidden = false;
    for (const Case& c : row.cases)
      for (const Sample& s : c.samples) {
        for (const Input& in : s.inputs) takes_tensors = takes_tensors || in.array.numel() > 0;
        const auto t = std::find_if(row.dtypes.begin(), row.dtypes.end(), [&](DType d) { return takes(s, d); });
        if (hidden || t == row.dtypes.end()) continue;
        for (const Tensor& x : inputs_of(s, *t, Layout::Hidden)) hidden = hidden || x.storage()->is_hidden();
      }
    if (takes_tensors && !hidden) without.push_back(full_name(row.name, row.overload));
  }
  EXPECT_TRUE(without.empty()) << testing::PrintToString(without);
}

TEST_P(OpTable, HasTheFormsOfItsSchema) {
  const Row& row = all_rows()[GetParam()];
  const Listed* op = find_op(row);
  ASSERT_NE(op, nullptr) << "the row names no op of the library";
  bool inplace = false, out = false;
  for (const Case& c : row.cases) {
    inplace = inplace || c.inplace;
    out = out || c.out || c.outs;
  }
  for (const OutCall& c : out_calls()) out = out || c.op == full_name(row.name, row.overload);
  EXPECT_EQ(inplace, has_flag(*op, "inplace")) << op->schema;
  EXPECT_EQ(out, has_flag(*op, "out")) << op->schema;
}

INSTANTIATE_TEST_SUITE_P(Rows, OpTable, testing::Range<std::size_t>(0, all_rows().size()), [](const auto& info) {
  // Two underscores: "to.dtype" is not "to_dtype".
  const Row& row = all_rows()[info.param];
  return row.overload.empty() ? row.name : row.name + "__" + row.overload;
});

TEST(OpTableItself, HasARowForEveryOp) {
  std::set<std::string> known;
  for (const Row& r : all_rows()) known.insert(full_name(r.name, r.overload));
  std::set<std::string> exempt;
  for (const Exemption& e : exemptions()) exempt.insert(e.op);
  std::string missing;
  int count = 0;
  for (const Listed& op : kOps) {
    const std::string name = full_name(op.name, op.overload);
    // Parts of other ops are tried through them, gradients included.
    if (op.name[0] == '_' || std::string(op.name).ends_with("_backward")) continue;
    if (known.count(name) || exempt.count(name)) continue;
    missing += "\n  " + name;
    ++count;
  }
  EXPECT_EQ(count, 0) << "ops without a row:" << missing;
  for (const Exemption& e : exemptions()) EXPECT_FALSE(known.count(e.op)) << e.op << " has a row and an exemption";
}

namespace {

/// Its gradient should be cos(x).
struct WrongSine : autograd::Function<WrongSine> {
  static Tensor forward(autograd::AutogradContext* ctx, const Tensor& x) {
    ctx->save_for_backward({x});
    return sin(x);
  }
  static autograd::variable_list backward(autograd::AutogradContext* ctx, autograd::variable_list g) {
    return {g[0] * cos(ctx->get_saved_variables()[0]) * 1.01};
  }
};

Row sine_row(Call call, double (*reference)(double)) {
  Row r{"sin", "self_test", kFloats, same_type};
  r.gradient = true;
  r.refuses_others = false;
  r.cases.push_back({"",
                     unary_samples(-1, 1),
                     std::move(call),
                     [reference](const Arrays& in) {
                       return Arrays{map(in, [reference](const Values& v) { return reference(v[0]); })};
                     },
                     {},
                     {}});
  return r;
}

bool mentions(const std::vector<std::string>& faults, const std::string& text) {
  for (const std::string& f : faults)
    if (f.find(text) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST(OpTableItself, FindsAWrongGradient) {
  const auto faults = check_row(sine_row([](const Tensors& x) { return Tensors{WrongSine::apply(x[0])}; },
                                         +[](double x) { return std::sin(x); }));
  EXPECT_TRUE(mentions(faults, "Jacobian mismatch")) << faults.size();
}

TEST(OpTableItself, FindsWhatIsWrongOnQueuesOnly) {
  struct WrongOnQueues : autograd::Function<WrongOnQueues> {
    static Tensor forward(autograd::AutogradContext* ctx, const Tensor& x) {
      ctx->save_for_backward({x});
      return sin(x);
    }
    static autograd::variable_list backward(autograd::AutogradContext* ctx, autograd::variable_list g) {
      const Tensor x = ctx->get_saved_variables()[0];
      return {g[0] * cos(x) * (x.device().is_host() ? 1 : 1.01)};
    }
  };
  Row row = sine_row([](const Tensors& x) { return Tensors{WrongOnQueues::apply(x[0])}; },
                     +[](double x) { return std::sin(x); });
  row.second_gradient = false;
  row.dtypes = {kDouble};
  EXPECT_TRUE(mentions(check_row(row), "queued: gradient 0: element"));
  row.gradient = false;
  row.cases[0].out = [](Tensor& out, const Tensors& x) { sin_out(out, x[0].device().is_host() ? x[0] : x[0] * 1.01); };
  EXPECT_TRUE(mentions(check_row(row), "queued, out=: element"));
}

TEST(OpTableItself, FindsAWrongValue) {
  const auto faults = check_row(
      sine_row([](const Tensors& x) { return Tensors{sin(x[0])}; }, +[](double x) { return std::sin(x) * 1.0001; }));
  EXPECT_TRUE(mentions(faults, "differ")) << faults.size();
}

TEST(OpTableItself, FindsAnOpThatIgnoresStrides) {
  const auto faults = check_row(sine_row(
      [](const Tensors& x) {
        // Reads memory in order, whatever the strides.
        return Tensors{sin(x[0].as_strided(x[0].sizes(), x[0].contiguous().strides()))};
      },
      +[](double x) { return std::sin(x); }));
  EXPECT_TRUE(mentions(faults, "transposed")) << faults.size();
}

TEST(OpTableItself, PassesARightOp) {
  const auto faults =
      check_row(sine_row([](const Tensors& x) { return Tensors{sin(x[0])}; }, +[](double x) { return std::sin(x); }));
  EXPECT_TRUE(faults.empty()) << faults[0];
}

TEST(GradCheck, ReportsPlaceAndBothValues) {
  const Tensor x = to_tensor(uniform({3}, -1, 1), kDouble).requires_grad_();
  auto wrong = [](const Tensors& in) { return Tensors{WrongSine::apply(in[0])}; };
  try {
    autograd::gradcheck(wrong, {x});
    FAIL() << "the wrong gradient was accepted";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("numeric"), std::string::npos) << text;
    EXPECT_NE(text.find("output 0 with respect to input 0"), std::string::npos) << text;
  }
  autograd::GradCheckOptions quiet;
  quiet.raise_exception = false;
  EXPECT_FALSE(autograd::gradcheck(wrong, {x}, quiet));
  EXPECT_TRUE(autograd::gradcheck([](const Tensors& in) { return Tensors{sin(in[0])}; }, {x}));
}

TEST(GradCheck, RefusesFloat32) {
  const Tensor x = ones({2}).requires_grad_();
  EXPECT_THROW(autograd::gradcheck([](const Tensors& in) { return Tensors{sin(in[0])}; }, {x}), ValueError);
}

TEST(GradCheck, FindsAWrongSecondDerivative) {
  const Tensor x = to_tensor(uniform({3}, 0.5, 1), kDouble).requires_grad_();
  // The first derivative is right and the second is lost: its factor was detached.
  struct Cube : autograd::Function<Cube> {
    static Tensor forward(autograd::AutogradContext* ctx, const Tensor& t) {
      ctx->save_for_backward({t});
      return t * t * t;
    }
    static autograd::variable_list backward(autograd::AutogradContext* ctx, autograd::variable_list g) {
      const Tensor t = ctx->get_saved_variables()[0].detach();
      return {g[0] * t * t * 3};
    }
  };
  auto fn = [](const Tensors& in) { return Tensors{Cube::apply(in[0])}; };
  EXPECT_TRUE(autograd::gradcheck(fn, {x}));
  EXPECT_THROW(autograd::gradgradcheck(fn, {x}), Error);
}

}  // namespace athanor::op_table
