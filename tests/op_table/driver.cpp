#include "op_table/driver.h"

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "athanor/autograd/gradcheck.h"
#include "athanor/ops/hidden.h"
#include "athanor/tensor/stream.h"

namespace athanor::op_table {

namespace {

constexpr Layout kLayouts[] = {Layout::Contiguous, Layout::Transposed, Layout::Strided, Layout::Expanded,
                               Layout::Hidden};

const char* name_of(Layout l) {
  switch (l) {
    case Layout::Contiguous:
      return "contiguous";
    case Layout::Transposed:
      return "transposed";
    case Layout::Strided:
      return "strided";
    case Layout::Expanded:
      return "expanded";
    case Layout::Hidden:
      return "hidden";
  }
  return "";
}

/// The largest block of channels that divides n.
int block_of(std::int64_t n) {
  int block = 16;
  while (block > 1 && n % block != 0) block /= 2;
  return block;
}

Tensor hidden(const Tensor& t) {
  if (t.dim() >= 2 && t.numel() > 0 && block_of(t.size(1)) > 1) return detail::to_blocks(t, block_of(t.size(1)));
  if (t.numel() == 0) return t;
  Tensor line = t.reshape({1, t.numel()});
  if (t.numel() % 2 != 0) line = cat({line, line.slice(1, 0, 1)}, 1);
  line = detail::to_blocks(line, block_of(line.numel()));
  return detail::alias(line, t.sizes(), IntArrayRef(), 0);
}

/// The same values (but for Expanded) in other memory.
Tensor laid_out(const Tensor& t, Layout l) {
  switch (l) {
    case Layout::Contiguous:
      return t;
    case Layout::Transposed:
      return t.dim() < 2 ? t : t.transpose(0, -1).contiguous().transpose(0, -1);
    case Layout::Strided: {
      Shape room;
      for (const std::int64_t s : t.sizes()) room.push_back(2 * s + 1);
      Tensor big = full(room, 77, t.options());
      for (std::int64_t d = 0; d < t.dim(); ++d) big = big.slice(d, 1, 2 * t.size(d) + 1, 2);
      big.copy_(t);
      return big;
    }
    case Layout::Expanded: {
      if (t.dim() == 0 || t.size(0) < 2) return t;
      return t.slice(0, 0, 1).expand(t.sizes());
    }
    case Layout::Hidden:
      return hidden(t);
  }
  return t;
}

}  // namespace

std::pair<Tensor, Tensor> part_of_wider(const Tensor& like) {
  if (like.dim() == 0) return {zeros({}, like.options()), zeros({}, like.options())};
  const std::int64_t d = like.dim() > 1 ? 1 : 0, n = like.size(d);
  DimVector sizes(like.sizes());
  sizes[static_cast<std::size_t>(d)] += 3;
  const Tensor whole = zeros(sizes, like.options());
  return {whole.narrow(d, 0, n), whole.narrow(d, n, 3)};
}

Tensors inputs_of(const Sample& s, DType t, Layout l) {
  Tensors out;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    const Input& in = s.inputs[i];
    const Tensor x = to_tensor(in.array, in.own.value_or(t));
    // Indices keep their values: a repeated row could be out of an op's domain.
    out.push_back(l == Layout::Expanded && (in.own || i > 0) ? x : laid_out(x, l));
  }
  return out;
}

bool takes(const Sample& s, DType t) {
  return s.only.empty() || std::find(s.only.begin(), s.only.end(), t) != s.only.end();
}

bool names_op(const std::string& text, std::string op) {
  static const std::set<std::string> known = {
#define ATHANOR_OP_ROW(name, overload, kind, schema) name,
#include "athanor/ops/op_list.inc"
#undef ATHANOR_OP_ROW
  };
  op = op.substr(0, op.find('.'));
  op.erase(0, op.find_first_not_of('_'));
  while (op.ends_with('_')) op.pop_back();
  if (std::regex_search(text, std::regex("\\b_?" + op + "_?\\b"))) return true;
  // "linalg.det: …", "norm(): …", "random_ expects …", "\"arange\" not implemented …"
  static const std::regex begin(R"re(^"?([a-z][a-z_0-9.]+)(: |\(| expects |" not implemented ))re");
  std::smatch found;
  if (!std::regex_search(text, found, begin)) return text.starts_with("device ") || text.starts_with("index ");
  std::string word = found[1];
  std::replace(word.begin(), word.end(), '.', '_');
  while (word.ends_with('_')) word.pop_back();
  const auto is_op = [](const std::string& name) {
    return known.contains(name) || known.contains("_" + name) || known.contains("linalg_" + name) ||
           known.contains(name + "_");
  };
  if (word.starts_with("linalg_")) word.erase(0, 7);
  // Families share a text: "max_pool" for max_pool2d. Those that make tensors have their kind's, subscripts theirs.
  return is_op(word) || is_op(word + "2d") || word == "tensor" || word == "pad" || word == "index" ||
         word == "index_put";
}

namespace {

class Checker {
 public:
  explicit Checker(const Row& row) : row_(row) {}
  std::vector<std::string> run();

 private:
  template <class... Args>
  void fault(const Args&... args) {
    std::ostringstream text;
    (text << ... << args);
    if (faults_.size() < 12) faults_.push_back(where_ + ": " + text.str());
  }
  /// Runs fn; an exception becomes a fault.
  template <class F>
  void guarded(const std::string& what, F&& fn);
  void check_values(const Case& c, const Sample& s, DType t, Layout l);
  /// Empty if two results agree, to the bit where strides do not matter to the row.
  std::string same_results(const Tensor& a, const Tensor& b) const {
    if (row_.exact_layouts) return compare_bits(a, b);
    if (a.dtype() != b.dtype()) return compare_bits(a, b);
    return compare(a, to_array(b), row_.tolerance, row_.absolute);
  }
  void check_inplace(const Case& c, const Sample& s, DType t);
  void check_out(const Case& c, const Sample& s, DType t);
  void check_outs(const Case& c, const Sample& s, DType t);
  void check_queue(const Case& c, const Sample& s, DType t, Device queue);
  void check_queued_forms(const Case& c, const Sample& s, DType t, Device queue);
  void check_queued_gradients(const Case& c, const Sample& s, Device queue);
  void check_unmade(const Case& c, const Sample& s, DType t, Device queue);
  void check_queues();
  void check_gradients(const Case& c, const Sample& s);
  void check_low_precision_gradients(const Case& c, const Sample& s);
  void check_inplace_gradient(const Case& c, const Sample& s);
  void check_refusals();

  const Row& row_;
  std::string where_;
  std::vector<std::string> faults_;
};

template <class F>
void Checker::guarded(const std::string& what, F&& fn) {
  const std::string outer = where_;
  where_ += (where_.empty() ? "" : ", ") + what;
  try {
    fn();
  } catch (const std::exception& e) {
    fault("threw: ", e.what());
  }
  where_ = outer;
}

void Checker::check_values(const Case& c, const Sample& s, DType t, Layout l) {
  const Tensors in = inputs_of(s, t, l);
  const Tensors out = c.call(in);
  Arrays plain;
  for (const Tensor& x : in) plain.push_back(to_array(x));
  const Arrays expected = c.reference(plain);
  if (expected.size() > out.size()) return fault("expected ", expected.size(), " results, got ", out.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (out[i].dtype() != row_.result(t, i))
      fault("result ", i, " is ", dtype_name(out[i].dtype()), ", expected ", dtype_name(row_.result(t, i)));
    if (const std::string m = compare(out[i], expected[i], row_.tolerance, row_.absolute); !m.empty())
      fault("result ", i, ": ", m);
    if (row_.is_view && l == Layout::Contiguous && out[i].storage().get() != in[0].storage().get())
      fault("result ", i, " does not share its input's storage");
  }
  for (std::size_t i = 0; i < in.size(); ++i)
    if (!compare_bits(in[i], inputs_of(s, t, l)[i]).empty()) fault("input ", i, " was changed");
}

void Checker::check_inplace(const Case& c, const Sample& s, DType t) {
  const Tensors in = inputs_of(s, t);
  const Tensor value = c.call(in)[0];
  for (const Layout l : {Layout::Contiguous, Layout::Transposed, Layout::Strided, Layout::Hidden}) {
    Tensors again = inputs_of(s, t);
    Tensor self = laid_out(again[0].clone(), l);
    again[0] = self;
    const auto address = [&]() -> const void* {
      if (l == Layout::Hidden) return self.storage().get();  // its bytes move when they are restored
      return self.numel() ? self.data_ptr() : nullptr;
    };
    const void* before = address();
    if (value.sizes() != self.sizes() || !can_cast(value.dtype(), self.dtype())) {
      try {
        c.inplace(self, again);
        fault("in place: accepted a result of ", value.sizes().vec().size(), " dims and dtype ",
              dtype_name(value.dtype()), " that does not fit into self");
      } catch (const Error&) {
      }
      return;
    }
    const std::uint32_t version = self._version();
    c.inplace(self, again);
    if (self._version() == version) fault("in place: the version did not change");
    if (address() != before) fault("in place: self moved");
    if (const std::string m = same_results(self, value.to(self.dtype())); !m.empty())
      fault("in place, ", name_of(l), ": ", m);
  }
}

void Checker::check_out(const Case& c, const Sample& s, DType t) {
  const Tensors in = inputs_of(s, t);
  const Tensor value = c.call(in)[0];
  Tensor fresh = empty({0}, value.options());
  c.out(fresh, in);
  if (const std::string m = same_results(fresh, value); !m.empty()) fault("out= resized: ", m);
  Tensor other = ones({value.numel() + 1, 2}, value.options());
  c.out(other, in);
  if (const std::string m = same_results(other, value); !m.empty()) fault("out= of another shape: ", m);
  for (const Layout l : {Layout::Strided, Layout::Hidden}) {
    Tensor given = laid_out(zeros(value.sizes(), value.options()), l);
    c.out(given, in);
    if (const std::string m = same_results(given, value); !m.empty()) fault("out= ", name_of(l), ": ", m);
  }
  auto [part, outside] = part_of_wider(value);
  c.out(part, in);
  if (const std::string m = same_results(part, value); !m.empty()) fault("out= part of a wider tensor: ", m);
  if (outside.ne(0).any().item<bool>()) fault("out= part of a wider tensor: wrote outside of it");
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (value.dtype() != in[i].dtype()) continue;
    Tensors aliased = in;
    Tensor given = aliased[i] = in[i].clone();
    c.out(given, aliased);
    if (const std::string m = same_results(given, value); !m.empty()) fault("out= is input ", i, ": ", m);
  }
}

void Checker::check_outs(const Case& c, const Sample& s, DType t) {
  const Tensors in = inputs_of(s, t), values = c.call(in);
  const auto write = [&](const char* what, const std::function<Tensor(const Tensor&)>& make) {
    Tensor given[] = {make(values[0]), make(values[1])};
    c.outs(given[0], given[1], in);
    for (std::size_t i = 0; i < 2; ++i)
      if (const std::string m = same_results(given[i], values[i]); !m.empty())
        fault("out= ", what, ", result ", i, ": ", m);
  };
  write("resized", [](const Tensor& v) { return empty({0}, v.options()); });
  write("of another shape", [](const Tensor& v) { return ones({v.numel() + 1, 2}, v.options()); });
  write("strided", [](const Tensor& v) { return laid_out(zeros(v.sizes(), v.options()), Layout::Strided); });
  write("part of a wider tensor", [](const Tensor& v) { return part_of_wider(v).first; });
  if (values[0].dtype() != in[0].dtype()) return;
  Tensors aliased = in;
  Tensor first = aliased[0] = in[0].clone(), second = empty({0}, values[1].options());
  c.outs(first, second, aliased);
  if (const std::string m = same_results(first, values[0]); !m.empty()) fault("out= is the input: ", m);
}

void Checker::check_queue(const Case& c, const Sample& s, DType t, Device queue) {
  const Tensors in = inputs_of(s, t);
  const Tensors host = c.call(in);
  for (const Layout l : {Layout::Contiguous, Layout::Hidden}) {
    Tensors there;
    for (const Tensor& x : in) there.push_back(laid_out(x.to(TensorOptions(queue)), l));
    const Tensors out = c.call(there);
    if (out.size() != host.size()) return fault("queued: other number of results");
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (!(out[i].device() == queue)) fault("queued: result ", i, " is on ", out[i].device().str());
      const Tensor here = out[i].to(TensorOptions(Device()));
      const std::string m = l == Layout::Hidden ? same_results(here, host[i]) : compare_bits(here, host[i]);
      if (!m.empty()) fault("queued, ", name_of(l), ": result ", i, ": ", m);
    }
  }
}

/// The forms that write where they are told, on the queue as on the host.
void Checker::check_queued_forms(const Case& c, const Sample& s, DType t, Device queue) {
  const Tensors in = inputs_of(s, t);
  Tensors there;
  for (const Tensor& x : in) there.push_back(x.to(TensorOptions(queue)));
  const Tensors values = c.call(in);
  const auto same = [&](const char* form, const Tensor& got, const Tensor& value) {
    if (!(got.device() == queue)) fault("queued, ", form, ": it is on ", got.device().str());
    if (const std::string m = compare_bits(got.to(TensorOptions(Device())), value); !m.empty())
      fault("queued, ", form, ": ", m);
  };
  const auto given = [&](const Tensor& value, Layout l) {
    const TensorOptions options = TensorOptions(value.dtype()).device(queue);
    return l == Layout::Contiguous ? empty({0}, options) : laid_out(zeros(value.sizes(), options), l);
  };
  for (const Layout l : {Layout::Contiguous, Layout::Strided}) {
    if (c.out) {
      Tensor here = laid_out(zeros(values[0].sizes(), values[0].options()), l), out = given(values[0], l);
      c.out(here, in);
      c.out(out, there);
      same("out=", out, here);
    }
    if (c.outs) {
      Tensor first = given(values[0], l), second = given(values[1], l);
      c.outs(first, second, there);
      same("first out=", first, values[0]);
      same("second out=", second, values[1]);
    }
  }
  if (!c.inplace || values[0].sizes() != in[0].sizes() || !can_cast(values[0].dtype(), in[0].dtype())) return;
  Tensors here = in;
  Tensor self_here = here[0] = in[0].clone(), self = there[0] = there[0].clone();
  c.inplace(self_here, here);
  c.inplace(self, there);
  same("in place", self, self_here);
}

/// In place on values that a failed call left unmade: they stay unreadable, unless the op writes all of them and does
/// not look at them.
void Checker::check_unmade(const Case& c, const Sample& s, DType t, Device queue) {
  const Tensors in = inputs_of(s, t);
  Tensors here = in, there;
  here[0] = in[0].clone();
  try {
    c.inplace(here[0], here);
  } catch (const Error&) {
    return;  // the result does not fit into self
  }
  for (const Tensor& x : in) there.push_back(x.to(TensorOptions(queue)));
  Tensor self = there[0] = full(in[0].sizes(), 77, there[0].options());
  synchronize(queue);
  const char* mark = "never made";
  self.storage()->validity()->set(std::make_shared<const std::string>(mark));
  Tensor read;
  try {
    c.inplace(self, there);
    read = self.to(TensorOptions(Device()));
  } catch (const Error& e) {
    if (std::string(e.what()).find(mark) == std::string::npos) throw;
    return;
  }
  if (const std::string m = same_results(read, here[0]); !m.empty())
    fault("in place: values that were never made can be read: ", m);
}

Tensors leaves(const Sample& s, DType t, Layout l = Layout::Contiguous) {
  Tensors in = inputs_of(s, t, l);
  for (std::size_t i = 0; i < in.size(); ++i)
    if (!s.inputs[i].own && in[i].is_floating_point()) in[i] = in[i].detach().requires_grad_();
  return in;
}

/// A fixed weighting of a result, so that its sum depends on every element.
Tensor weights(const Tensor& like) {
  return to_tensor(uniform(like.sizes().vec(), 0.5, 1.5, 99), like.dtype()).to(TensorOptions(like.device()));
}

/// Gradients of the weighted sum of all differentiable results.
Tensors gradients(const Case& c, const Tensors& in) {
  Tensor total;
  for (const Tensor& o : c.call(in)) {
    if (!o.requires_grad()) continue;
    const Tensor part = (o * weights(o)).sum();
    total = total.defined() ? total + part : part;
  }
  Tensors wanted;
  for (const Tensor& x : in)
    if (x.requires_grad()) wanted.push_back(x);
  ATHANOR_CHECK(total.defined(), "no result requires grad");
  return autograd::grad({total}, wanted, {}, std::nullopt, false, true);
}

void Checker::check_gradients(const Case& c, const Sample& s) {
  const Tensors in = leaves(s, kDouble);
  auto fn = [&c](const Tensors& x) { return c.call(x); };
  autograd::gradcheck(fn, in);
  if (row_.second_gradient) guarded("second order", [&] { autograd::gradgradcheck(fn, in); });
  const Tensors plain = gradients(c, in);
  for (const Layout l : {Layout::Transposed, Layout::Strided, Layout::Hidden}) {
    const Tensors other = gradients(c, leaves(s, kDouble, l));
    for (std::size_t i = 0; i < plain.size(); ++i) {
      if (plain[i].defined() != other[i].defined()) {
        fault("gradient ", i, " is defined in one layout only");
        continue;
      }
      if (!plain[i].defined()) continue;
      if (const std::string m = compare(other[i], to_array(plain[i]), 10, 10); !m.empty())
        fault("gradient ", i, ", ", name_of(l), " input: ", m);
    }
  }
}

void Checker::check_queued_gradients(const Case& c, const Sample& s, Device queue) {
  const Tensors in = leaves(s, kDouble);
  Tensors there;
  for (const Tensor& x : in) there.push_back(x.detach().to(TensorOptions(queue)).requires_grad_(x.requires_grad()));
  const Tensors host = gradients(c, in), queued = gradients(c, there);
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (host[i].defined() != queued[i].defined()) {
      fault("queued: gradient ", i, " is defined on one device only");
      continue;
    }
    if (!host[i].defined()) continue;
    if (!(queued[i].device() == queue)) fault("queued: gradient ", i, " is on ", queued[i].device().str());
    if (const std::string m = compare_bits(queued[i].to(TensorOptions(Device())), host[i]); !m.empty())
      fault("queued: gradient ", i, ": ", m);
  }
}

void Checker::check_low_precision_gradients(const Case& c, const Sample& s) {
  for (const DType t : {kFloat, kHalf, kBFloat16}) {
    if (std::find(row_.dtypes.begin(), row_.dtypes.end(), t) == row_.dtypes.end() || !takes(s, t)) continue;
    guarded(dtype_name(t), [&] {
      const Tensors in = leaves(s, t);
      Tensors exact;
      for (const Tensor& x : in) exact.push_back(x.requires_grad() ? x.detach().to(kDouble).requires_grad_() : x);
      const Tensors low = gradients(c, in), high = gradients(c, exact);
      for (std::size_t i = 0; i < low.size(); ++i) {
        if (!high[i].defined()) continue;
        if (!low[i].defined()) {
          fault("gradient ", i, " is undefined");
          continue;
        }
        if (low[i].dtype() != t) fault("gradient ", i, " is ", dtype_name(low[i].dtype()));
        // Weights and intermediate results are rounded too.
        if (const std::string m = compare(low[i], to_array(high[i]), 20 * row_.tolerance, 20 * row_.absolute);
            !m.empty())
          fault("gradient ", i, ": ", m);
      }
    });
  }
}

void Checker::check_inplace_gradient(const Case& c, const Sample& s) {
  const Tensors in = leaves(s, kDouble);
  if (!in[0].requires_grad()) return;
  const Tensor value = c.call(in)[0];
  if (value.sizes() != in[0].sizes() || !value.requires_grad()) return;
  const Tensors expected = gradients(c, in);
  Case changed = c;
  changed.call = [&c](const Tensors& x) {
    Tensors again = x;
    again[0] = x[0] * 1;  // a leaf may not be changed in place
    Tensor self = again[0];
    c.inplace(self, again);
    return Tensors{self};
  };
  const Tensors got = gradients(changed, in);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!expected[i].defined()) continue;
    if (!got[i].defined()) {
      fault("gradient ", i, " of the in-place form is undefined");
      continue;
    }
    if (const std::string m = compare(got[i], to_array(expected[i]), 10, 10); !m.empty())
      fault("gradient ", i, " of the in-place form: ", m);
  }
}

void Checker::check_refusals() {
  for (const Refusal& r : row_.refusals) {
    where_ = "refusal of " + r.what;
    try {
      r.call();
      fault("nothing was thrown");
    } catch (const Error& e) {
      if (std::string(e.what()).find(r.message) == std::string::npos)
        fault("the message lacks '", r.message, "': ", e.what());
      if (!names_op(e.what(), row_.name)) fault("the message names no op: ", e.what());
    } catch (const std::exception& e) {
      fault("threw something that is not an Error: ", e.what());
    }
  }
  where_.clear();
  if (!row_.refuses_others) return;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    if (std::find(row_.dtypes.begin(), row_.dtypes.end(), t) != row_.dtypes.end()) continue;
    const Case& c = row_.cases[0];
    for (const Sample& s : c.samples) {
      bool empty = s.inputs.empty() || !s.only.empty();
      for (const Input& in : s.inputs) empty = empty || in.array.numel() == 0 || in.own;
      if (empty) continue;
      try {
        c.call(inputs_of(s, t));
        fault("accepts ", dtype_name(t), ", which the row does not list");
      } catch (const Error& e) {
        if (!names_op(e.what(), row_.name)) fault(dtype_name(t), ": the message names no op: ", e.what());
      } catch (const std::exception& e) {
        fault(dtype_name(t), ": threw something that is not an Error: ", e.what());
      }
      break;
    }
  }
}

std::vector<std::string> Checker::run() {
  detail::configure_cpu_queues(0);
  for (const Case& c : row_.cases) {
    for (const DType t : row_.dtypes) {
      for (std::size_t k = 0; k < c.samples.size(); ++k) {
        const Sample& s = c.samples[k];
        if (!takes(s, t)) continue;
        const std::string label =
            c.name + (c.name.empty() ? "" : ", ") + dtype_name(t) + ", sample " + std::to_string(k);
        const bool large = !s.inputs.empty() && s.inputs[0].array.numel() > 5000;
        guarded(label, [&] {
          for (const Layout l : kLayouts) {
            if (large && (l == Layout::Expanded || l == Layout::Transposed)) continue;
            guarded(name_of(l), [&] { check_values(c, s, t, l); });
          }
          if (large) return;
          if (c.inplace) guarded("in place", [&] { check_inplace(c, s, t); });
          if (c.out) guarded("out", [&] { check_out(c, s, t); });
          if (c.outs) guarded("out", [&] { check_outs(c, s, t); });
        });
      }
    }
    if (!row_.gradient) continue;
    for (std::size_t k = 0; k < c.samples.size(); ++k) {
      const Sample& s = c.samples[k];
      if (!s.gradient || !takes(s, kDouble)) continue;
      guarded(c.name + " gradient, sample " + std::to_string(k), [&] { check_gradients(c, s); });
      guarded(c.name + " gradient, sample " + std::to_string(k), [&] { check_low_precision_gradients(c, s); });
      if (c.inplace)
        guarded(c.name + " gradient in place, sample " + std::to_string(k), [&] { check_inplace_gradient(c, s); });
    }
  }
  check_refusals();
  check_queues();
  return faults_;
}

/// Every sample on the second of two virtual CPU devices, and, to save time, the first of each dtype on the last of
/// four, also of four that serve cuda.
void Checker::check_queues() {
  const auto check = [&](Device queue, std::size_t most) {
    for (const Case& c : row_.cases)
      for (const DType t : row_.dtypes) {
        std::size_t checked = 0;
        for (std::size_t k = 0; k < c.samples.size() && checked < most; ++k)
          if (const Sample& s = c.samples[k]; takes(s, t) && (s.inputs.empty() || s.inputs[0].array.numel() <= 5000)) {
            ++checked;
            guarded(detail::str(queue, ", ", c.name, " ", dtype_name(t), ", sample ", k), [&] {
              check_queue(c, s, t, queue);
              if (c.inplace || c.out || c.outs) check_queued_forms(c, s, t, queue);
              if (row_.gradient && t == kDouble && s.gradient) check_queued_gradients(c, s, queue);
              if (c.inplace && s.inputs[0].array.numel() > 0) check_unmade(c, s, t, queue);
            });
          }
      }
    guarded(detail::str("work left on ", queue), [&] { synchronize(queue); });
  };
  detail::configure_cpu_queues(2);
  check(Device("cpu:1"), SIZE_MAX);
  detail::configure_cpu_queues(4);
  check(Device("cpu:3"), 1);
  detail::configure_cpu_queues(0);
  detail::configure_cuda_queues(4);
  check(Device("cuda:3"), 1);
  detail::configure_cuda_queues(0);
}

}  // namespace

std::vector<std::string> check_row(const Row& row) { return Checker(row).run(); }

}  // namespace athanor::op_table
