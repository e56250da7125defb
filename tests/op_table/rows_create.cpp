// Creation, copies and conversions. The one input of creating ops gives dtype and device.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

/// A truth as a tensor on like's device.
Tensor flag(bool on, const Tensor& like) { return full({}, on, like.options().dtype(kBool)); }
const Array kTrue({}, Values{1});

std::vector<Sample> likes() { return {{{uniform({2, 3}, -2, 2)}, false}, {{uniform({}, -2, 2)}, false}}; }

using Make = std::function<Tensor(const Tensor& like)>;

Row filled(const char* name, const char* overload, const Make& make,
           const std::function<Array(const Array&)>& expected) {
  Row r{name, overload, kAll, same_type};
  r.cases.push_back(case_of(
      "", likes(), [=](const Tensors& x) { return make(x[0]); }, [=](const Arrays& in) { return expected(in[0]); }));
  return r;
}

void add_creation() {
  auto fixed = [](double v) { return [v](const Array&) { return Array({2, 0, 3}, v); }; };
  auto same = [](double v) { return [v](const Array& a) { return Array(a.shape, v); }; };
  auto three = [](double v) { return [v](const Array&) { return Array({3, 41}, v); }; };
  Row r = filled(
      "zeros", "",
      [](const Tensor& x) {
        return zeros({3, 41}, x.options());
      },
      three(0));
  r.cases.push_back(case_of(
      "empty", likes(),
      [](const Tensors& x) {
        return zeros({2, 0, 3}, x[0].options());
      },
      [=](const Arrays& in) { return fixed(0)(in[0]); }));
  r.refusals = {{"a negative size", [] { zeros({2, -1}); }, "-1"}};
  add_row(r);
  r = filled(
      "ones", "",
      [](const Tensor& x) {
        return ones({3, 41}, x.options());
      },
      three(1));
  r.refusals = {{"a negative size", [] { ones({-1}); }, "-1"}};
  add_row(r);
  r = filled(
      "full", "",
      [](const Tensor& x) {
        return full({3, 41}, 7, x.options());
      },
      three(7));
  r.refusals = {{"a negative size", [] { full({-1}, 2); }, "-1"}};
  add_row(r);
  // Uninitialized memory: it can be written whole.
  r = filled(
      "empty", "",
      [](const Tensor& x) {
        Tensor t = empty({3, 41}, x.options());
        return t.fill_(5);
      },
      three(5));
  r.refusals = {{"a negative size", [] { empty({-1}); }, "-1"},
                {"more than memory",
                 [] {
                   empty({std::int64_t{1} << 62, 4});
                 },
                 "overflow"}};
  add_row(r);
  r = Row{"empty_strided", "", kAll, [](DType t, std::size_t i) { return i == 0 ? t : kBool; }};
  r.cases = {{"",
              likes(),
              [](const Tensors& x) {
                Tensor t = empty_strided({3, 2}, {1, 3}, x[0].options());
                t.fill_(5);
                return Tensors{t, flag(t.strides() == IntArrayRef({1, 3}), x[0])};
              },
              [](const Arrays&) {
                return Arrays{Array({3, 2}, 5), kTrue};
              },
              {},
              {}}};
  r.refusals = {{"strides too few", [] { empty_strided({2, 3}, {1}); }, "2 sizes and 1 strides"}};
  add_row(r);

  add_row(filled(
      "zeros_like", "", [](const Tensor& x) { return zeros_like(x); }, same(0)));
  add_row(filled(
      "ones_like", "", [](const Tensor& x) { return ones_like(x); }, same(1)));
  add_row(filled(
      "full_like", "", [](const Tensor& x) { return full_like(x, 3); }, same(3)));
  r = filled(
      "empty_like", "",
      [](const Tensor& x) {
        Tensor t = empty_like(x);
        return t.fill_(4);
      },
      same(4));
  r.result = [](DType t, std::size_t i) { return i == 0 ? t : kBool; };
  r.cases.push_back(
      {"dense strides are kept",
       {{{uniform({2, 3}, -2, 2)}, false}},
       [](const Tensors& x) {
         const Tensor turned = x[0].contiguous().t();
         Tensor t = empty_like(turned),
                plain = empty_like(turned, TensorOptions().memory_format(MemoryFormat::Contiguous));
         t.fill_(4);
         return Tensors{t, flag(t.strides() == turned.strides(), x[0]), flag(plain.is_contiguous(), x[0])};
       },
       [](const Arrays&) {
         return Arrays{Array({3, 2}, 4), kTrue, kTrue};
       },
       {},
       {}});
  add_row(r);
  add_row(filled(
      "new_empty", "",
      [](const Tensor& x) {
        Tensor t = x.new_empty({3, 41});
        return t.fill_(4);
      },
      three(4)));
  add_row(filled(
      "new_zeros", "",
      [](const Tensor& x) {
        return x.new_zeros({3, 41});
      },
      three(0)));
  add_row(filled(
      "new_ones", "",
      [](const Tensor& x) {
        return x.new_ones({3, 41});
      },
      three(1)));
  add_row(filled(
      "new_full", "",
      [](const Tensor& x) {
        return x.new_full({3, 41}, 6);
      },
      three(6)));
  add_row(filled(
      "scalar_tensor", "", [](const Tensor& x) { return scalar_tensor(9, x.options()); },
      [](const Array&) { return Array({}, Values{9}); }));
}

Row written(const char* name, const char* overload = "") { return gradient_row_of(name, overload, kAll); }

void add_writes() {
  const std::vector<Sample> one_input = shaped({{2, 3}, {}, {0, 2}, {7, 41}, {20001}}, 2);
  Row r = written("copy_");
  r.cases = {case_of(
      "",
      {{{uniform({2, 3}, -3, 3), uniform({2, 3}, -3, 3, 2)}},
       {{uniform({2, 3}, -3, 3), uniform({3}, -3, 3, 2)}},
       {{uniform({}, -3, 3), uniform({}, -3, 3, 2)}},
       {{uniform({0, 3}, -3, 3), uniform({1, 3}, -3, 3, 2)}, false},
       {{uniform({37, 41}, -3, 3), uniform({37, 1}, -3, 3, 2)}, false},
       {{uniform({3, 5}, -3, 3), Input(uniform({5}, -30, 30, 2), kDouble)}, false, kSigned + kFloats},
       {{uniform({3, 5}, -3, 3), Input(integers({5}, -30, 30, 2), kInt)}, false, kSigned + kFloats + kOnlyBool}},
      [](const Tensors& x) {
        Tensor self = x[0] * 1;
        self = self.to(x[0].dtype());
        self.copy_(x[1]);
        return self;
      },
      [](const Arrays& in) { return expanded(in[1], in[0].shape); })};
  r.refusals = {{"a source that does not broadcast", [] { zeros({2}).copy_(ones({3})); }, "copy_"},
                {"a larger source",
                 [] {
                   zeros({2}).copy_(ones({3, 2}));
                 },
                 "does not broadcast to shape [2]"},
                {"an expanded self", [] { zeros({1}).expand({2}).copy_(ones({2})); }, "copy_"}};
  add_row(r);
  r = written("fill_");
  r.cases = {case_of(
      "", one_input,
      [](const Tensors& x) {
        Tensor self = x[0].clone();
        return self.fill_(3);
      },
      [](const Arrays& in) { return Array(in[0].shape, 3); })};
  r.refusals = {
      {"an expanded self with a gradient", [] { (zeros({1}).requires_grad_() * 1).expand({2}).fill_(1); }, "fill_"}};
  add_row(r);
  r = written("fill_", "Tensor");
  r.cases = {case_of(
      "", {{{uniform({2, 3}, -3, 3), uniform({}, -3, 3, 2)}}, {{uniform({0}, -3, 3), uniform({}, -3, 3, 2)}, false}},
      [](const Tensors& x) {
        Tensor self = x[0].clone();
        return self.fill_(x[1]);
      },
      [](const Arrays& in) { return Array(in[0].shape, in[1][0]); })};
  r.refusals = {{"a value with dims", [] { zeros({2}).fill_(ones({2})); }, "0-dimension value tensor"}};
  add_row(r);
  r = written("zero_");
  r.cases = {case_of(
      "", one_input,
      [](const Tensors& x) {
        Tensor self = x[0].clone();
        return self.zero_();
      },
      [](const Arrays& in) { return Array(in[0].shape); })};
  add_row(r);
}

void add_copies() {
  auto identity = [](const Arrays& in) { return in[0]; };
  const std::vector<Sample> s = shaped({{2, 3}, {}, {2, 0}, {3, 41}, {2, 3, 4, 5}, {20001}}, 2);
  Row r = gradient_row_of("clone", "", kAll, [](DType t, std::size_t i) { return i == 0 ? t : kBool; });
  r.cases = {{"",
              s,
              [](const Tensors& x) {
                const Tensor y = x[0].clone();
                return Tensors{y, flag(x[0].numel() == 0 || y.data_ptr() != x[0].data_ptr(), x[0])};
              },
              [](const Arrays& in) {
                return Arrays{in[0], kTrue};
              },
              {},
              {}},
             {"formats",
              shaped({{2, 3, 2, 2}}, 1),
              [](const Tensors& x) {
                const Tensor last = x[0].clone(MemoryFormat::ChannelsLast),
                             plain = last.clone(MemoryFormat::Contiguous);
                return Tensors{last, flag(last.is_contiguous(MemoryFormat::ChannelsLast), x[0]),
                               flag(last.clone().strides() == last.strides(), x[0]), flag(plain.is_contiguous(), x[0])};
              },
              [](const Arrays& in) {
                return Arrays{in[0], kTrue, kTrue, kTrue};
              },
              {},
              {}}};
  add_row(r);
  r = gradient_row_of("contiguous", "", kAll, [](DType t, std::size_t i) { return i == 0 ? t : kBool; });
  r.cases = {{"",
              s,
              [](const Tensors& x) {
                const Tensor y = x[0].contiguous();
                return Tensors{y, flag(y.is_contiguous() && y.contiguous().is_same(y), x[0])};
              },
              [](const Arrays& in) {
                return Arrays{in[0], kTrue};
              },
              {},
              {}},
             {"channels last",
              shaped({{2, 3, 2, 2}}, 1),
              [](const Tensors& x) {
                const Tensor y = x[0].contiguous(MemoryFormat::ChannelsLast);
                return Tensors{y, flag(y.is_contiguous(MemoryFormat::ChannelsLast), x[0])};
              },
              [](const Arrays& in) {
                return Arrays{in[0], kTrue};
              },
              {},
              {}}};
  add_row(r);

  // Results: float64, then what is not differentiable.
  const std::vector<DType> targets = {kDouble, kLong, kInt, kShort, kChar, kBool};
  auto target = [targets](DType, std::size_t i) { return targets[i]; };
  auto to_each = [&](const char* name, const char* overload, const std::function<Tensor(const Tensor&, DType)>& to) {
    Row row = gradient_row_of(name, overload, kFloats + kSigned + kOnlyBool, target);
    row.refuses_others = false;
    row.cases = {{"",
                  shaped({{2, 3}, {}, {2, 0}, {5, 41}}, 2),
                  [=](const Tensors& x) {
                    Tensors out;
                    for (const DType t : targets) out.push_back(to(x[0], t));
                    return out;
                  },
                  [](const Arrays& in) {
                    Array whole = map({in[0]}, [](const Values& v) { return std::trunc(v[0]); });
                    return Arrays{in[0], whole, whole, whole, whole, in[0]};
                  },
                  {},
                  {}}};
    add_row(row);
  };
  to_each("to_dtype", "", [](const Tensor& x, DType t) { return to_dtype(x, t); });
  to_each("to", "dtype", [](const Tensor& x, DType t) { return x.to(t); });
  to_each("to", "device", [](const Tensor& x, DType t) { return x.to(x.device(), t); });
  to_each("to", "other", [](const Tensor& x, DType t) { return x.to(empty({0}, x.options().dtype(t))); });
  to_each("type_as", "", [](const Tensor& x, DType t) { return x.type_as(empty({0}, x.options().dtype(t))); });
  // All pairs of floating dtypes; special values and rounding to half types included.
  r = Row{"to", "", kFloats, [](DType, std::size_t i) { return kFloats[i]; }};
  r.refuses_others = false;
  r.cases = {{"",
              {{{special()}}, {{uniform({41, 3}, -70000, 70000)}}, {{uniform({67}, -1e-4, 1e-4)}}},
              [](const Tensors& x) {
                Tensors out;
                for (const DType t : kFloats) out.push_back(x[0].to(TensorOptions(t)));
                return out;
              },
              [](const Arrays& in) { return Arrays(kFloats.size(), in[0]); },
              {},
              {}}};
  r.cases.push_back({"itself or a copy",
                     {{{uniform({2, 3}, -2, 2)}}},
                     [](const Tensors& x) {
                       const Tensor same = x[0].to(x[0].options()), copy = x[0].to(x[0].options(), false, true);
                       const bool right = same.is_same(x[0]) && copy.data_ptr() != x[0].data_ptr();
                       return Tensors{x[0].to(kFloat) * 0 + (right ? 1.0 : 0.0)};
                     },
                     [](const Arrays& in) { return Arrays{Array(in[0].shape, 1)}; },
                     {},
                     {}});
  add_row(r);
  r = gradient_row_of("to_device", "", kAll);
  r.cases = {case_of(
      "", s, [](const Tensors& x) { return to_device(x[0], x[0].device()); }, identity)};
  add_row(r);

  r = Row{"detach", "", kAll, [](DType t, std::size_t i) { return i == 0 ? t : kBool; }};
  r.cases = {{"",
              s,
              [](const Tensors& x) {
                const Tensor y = x[0].detach(), part = (x[0] * 1).detach();
                return Tensors{y, flag(y.storage().get() == x[0].storage().get() && part.is_leaf(), x[0])};
              },
              [](const Arrays& in) {
                return Arrays{in[0], kTrue};
              },
              {},
              {}}};
  add_row(r);
  r = Row{"detach_", "", kFloats, [](DType t, std::size_t i) { return i == 0 ? t : kBool; }};
  r.refuses_others = false;
  r.cases = {{"",
              s,
              [](const Tensors& x) {
                Tensor y = x[0].detach().requires_grad_() * 1;
                const bool before = y.requires_grad();
                y.detach_();
                return Tensors{y, flag(before && !y.requires_grad() && y.is_leaf(), x[0])};
              },
              [](const Arrays& in) {
                return Arrays{in[0], kTrue};
              },
              {},
              {}}};
  r.refusals = {{"a view that requires grad",
                 [] {
                   Tensor v = ones({2, 2}).requires_grad_().t();
                   v.detach_();
                 },
                 "Can't detach views in-place"}};
  add_row(r);
}

void add_layout_comparisons() {
  Row r{"equal", "", kAll, bool_type};
  auto same = [](const Arrays& in) {
    bool equal = in[0].shape == in[1].shape;
    for (std::int64_t i = 0; equal && i < in[0].numel(); ++i) equal = in[0][i] == in[1][i];
    return Array({}, Values{equal ? 1.0 : 0.0});
  };
  const Array a = integers({3, 5}, 0, 1), b = integers({3, 5}, 0, 1, 2);
  Array last = a;
  last[14] = 1 - last[14];
  r.cases = {case_of(
      "",
      {{{a, a}},
       {{a, b}},
       {{a, last}},
       {{a, Array({15}, a.values)}},
       {{Array({0}), Array({0})}},
       {{Array({0}), Array({0, 2})}},
       {{special(), special()}, true, kFloats},
       {{Array({}, 1), Array({}, 1)}}},
      [](const Tensors& x) { return flag(equal(x[0], x[1]), x[0]); }, same)};
  add_row(r);
  r = Row{"allclose", "", kFloats, bool_type};
  r.refuses_others = false;
  auto close = [](bool equal_nan) {
    return [=](const Arrays& in) {
      const Array each = map(in, [=](const Values& v) -> double {
        if (std::isnan(v[0]) || std::isnan(v[1])) return equal_nan && std::isnan(v[0]) && std::isnan(v[1]);
        if (std::isinf(v[0]) || std::isinf(v[1])) return v[0] == v[1];
        return std::fabs(v[0] - v[1]) <= 0.25 + 0.5 * std::fabs(v[1]);
      });
      return reduce(each, {}, false, [](const Values& v) -> double {
        return std::all_of(v.begin(), v.end(), [](double x) { return x != 0; });
      });
    };
  };
  for (const bool equal_nan : {false, true})
    r.cases.push_back(case_of(
        equal_nan ? "NaN equals NaN" : "",
        {{{uniform({3, 5}, 1, 2), uniform({5}, 1.5, 2, 2)}},
         {{uniform({3, 5}, 1, 2), uniform({3, 5}, 7, 8, 2)}},
         {{special(), special()}},
         {{Array({0}), Array({1}, 3)}},
         {{Array({2}, {1, INFINITY}), Array({2}, {1, -INFINITY})}},
         {{Array({2}, {1, INFINITY}), Array({2}, {1, INFINITY})}}},
        [=](const Tensors& x) { return flag(allclose(x[0], x[1], 0.5, 0.25, equal_nan), x[0]); }, close(equal_nan)));
  add_row(r);
}

const bool added_create = [] {
  add_creation();
  add_writes();
  add_copies();
  add_layout_comparisons();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
