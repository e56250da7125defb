// Pooling and padding.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

/// Windows of one dim: for each output position the input positions read (out of range ones included).
struct Windows {
  std::vector<Shape> reads;
  std::vector<std::int64_t> padded;  ///< how many positions count with the padding, as PyTorch's average does
};

Windows windows_of(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad, std::int64_t dilation,
                   bool ceil_mode) {
  const std::int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
  std::int64_t n = (ceil_mode ? room + stride - 1 : room) / stride + 1;
  if (ceil_mode && (n - 1) * stride >= in + pad) --n;  // a window must begin inside
  Windows w;
  for (std::int64_t o = 0; o < n; ++o) {
    Shape reads;
    const std::int64_t begin = o * stride - pad;
    for (std::int64_t k = 0; k < kernel; ++k)
      if (const std::int64_t i = begin + k * dilation; i >= 0 && i < in) reads.push_back(i);
    w.reads.push_back(reads);
    w.padded.push_back(std::min(begin + kernel, in + pad) - begin);
  }
  return w;
}

Windows adaptive_windows(std::int64_t in, std::int64_t out) {
  Windows w;
  for (std::int64_t o = 0; o < out; ++o) {
    Shape reads;
    for (std::int64_t i = o * in / out; i < ((o + 1) * in + out - 1) / out; ++i) reads.push_back(i);
    w.reads.push_back(reads);
    w.padded.push_back(static_cast<std::int64_t>(reads.size()));
  }
  return w;
}

/// The window's values, their places in the input's last dims, and its size with padding.
using Fold = std::function<double(const Values& v, const Shape& places, std::int64_t padded)>;

/// fn over the windows of the last dims.
Array pooled(const Array& x, const std::vector<Windows>& w, const Fold& fn) {
  const std::size_t n = w.size(), lead = x.shape.size() - n;
  Shape out(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(lead));
  for (const Windows& d : w) out.push_back(static_cast<std::int64_t>(d.reads.size()));
  Array y(out);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const Shape at = index_of(i, out);
    Shape counts;
    std::int64_t padded = 1;
    for (std::size_t d = 0; d < n; ++d) {
      const auto o = static_cast<std::size_t>(at[lead + d]);
      counts.push_back(static_cast<std::int64_t>(w[d].reads[o].size()));
      padded *= w[d].padded[o];
    }
    Values values;
    Shape places;
    for (std::int64_t k = 0; k < numel_of(counts); ++k) {
      const Shape tap = index_of(k, counts);
      Shape from = at;
      std::int64_t place = 0;
      for (std::size_t d = 0; d < n; ++d) {
        from[lead + d] = w[d].reads[static_cast<std::size_t>(at[lead + d])][static_cast<std::size_t>(tap[d])];
        place = place * x.shape[lead + d] + from[lead + d];
      }
      values.push_back(x.at(from));
      places.push_back(place);
    }
    y[i] = fn(values, places, padded);
  }
  return y;
}

std::size_t greatest(const Values& v) {
  std::size_t best = 0;
  for (std::size_t k = 1; k < v.size(); ++k)
    if (v[k] > v[best] || (std::isnan(v[k]) && !std::isnan(v[best]))) best = k;
  return best;
}
double max_value(const Values& v, const Shape&, std::int64_t) { return v[greatest(v)]; }
double max_place(const Values& v, const Shape& places, std::int64_t) {
  return static_cast<double>(places[greatest(v)]);
}

Shape shape_of(Shape lead, std::size_t n, std::int64_t size) {
  for (std::size_t d = 0; d < n; ++d) lead.push_back(size + static_cast<std::int64_t>(d));
  return lead;
}

/// No ties: distinct values; half types keep few of them apart.
std::vector<Sample> max_samples(std::size_t n) {
  return {{{distinct(shape_of({1, 2}, n, n == 3 ? 3 : 4))}},
          {{distinct(shape_of({2}, n, n == 3 ? 3 : 5))}},
          {{uniform(shape_of({2, 3}, n, n == 3 ? 5 : 9), -3, 3)}, false},
          {{uniform(shape_of({0, 2}, n, 4), -3, 3)}, false},
          {{uniform(shape_of({1, 17}, n, 5), -3, 3)}, false}};
}

struct Setting {
  const char* name;
  std::int64_t kernel, stride, pad, dilation;
  bool ceil_mode;
};
const Setting kSettings[] = {{"", 2, 2, 0, 1, false},
                             {"overlapping, padded", 3, 1, 1, 1, false},
                             {"ceil", 2, 2, 0, 1, true},
                             {"padded ceil", 3, 2, 1, 1, true},
                             {"dilated", 2, 1, 0, 2, false}};

using MaxPool = Tensors (*)(const Tensor&, const Setting&);

std::vector<Windows> all_windows(const Array& x, std::size_t n, const Setting& s) {
  std::vector<Windows> w;
  for (std::size_t d = 0; d < n; ++d)
    w.push_back(windows_of(x.shape[x.shape.size() - n + d], s.kernel, s.stride, s.pad, s.dilation, s.ceil_mode));
  return w;
}

void add_max(const char* name, std::size_t n, bool with_indices, MaxPool fn) {
  Row r = gradient_row_of(name, "", kFloats, with_indices ? value_and_index : same_type);
  r.refuses_others = false;
  for (const Setting& s : kSettings)
    r.cases.push_back({s.name,
                       max_samples(n),
                       [=](const Tensors& x) { return fn(x[0], s); },
                       [=](const Arrays& in) {
                         const auto w = all_windows(in[0], n, s);
                         Arrays out{pooled(in[0], w, max_value)};
                         if (with_indices) out.push_back(pooled(in[0], w, max_place));
                         return out;
                       },
                       {},
                       {}});
  Array special_values = distinct(shape_of({1, 1}, n, 4));
  special_values[0] = NAN;
  special_values[3] = INFINITY;
  special_values[5 % special_values.numel()] = -INFINITY;
  r.cases[0].samples.push_back({{special_values}, false});
  const Shape x = shape_of({1, 1}, n, 3);
  r.refusals = {{"padding above half the kernel",
                 [=] {
                   fn(ones(x), {"", 2, 1, 2, 1, false});
                 },
                 "half"},
                {"a kernel larger than the input",
                 [=] {
                   fn(ones(x), {"", 9, 1, 0, 1, false});
                 },
                 "too small"},
                {"no stride",
                 [=] {
                   fn(ones(x), {"", 2, 0, 0, 1, false});
                 },
                 "greater than zero"},
                {"too few dims",
                 [=] {
                   fn(ones({3}), {"", 2, 1, 0, 1, false});
                 },
                 "tensor"}};
  add_row(r);
}

template <class Pair>
Tensors both(Pair&& p) {
  return {std::get<0>(p), std::get<1>(p)};
}

void add_max_pools() {
#define ATHANOR_POOL(n)                                                                                          \
  add_max(                                                                                                       \
      "max_pool" #n "d", n, false, +[](const Tensor& x, const Setting& s) {                                      \
        return Tensors{max_pool##n##d(x, {s.kernel}, {s.stride}, {s.pad}, {s.dilation}, s.ceil_mode)};           \
      });                                                                                                        \
  add_max(                                                                                                       \
      "max_pool" #n "d_with_indices", n, true, +[](const Tensor& x, const Setting& s) {                          \
        return both(max_pool##n##d_with_indices(x, {s.kernel}, {s.stride}, {s.pad}, {s.dilation}, s.ceil_mode)); \
      });
  ATHANOR_POOL(1)
  ATHANOR_POOL(2)
  ATHANOR_POOL(3)
#undef ATHANOR_POOL
  Row r = gradient_row_of("max_pool_gather", "", kFloats);
  r.refuses_others = false;
  r.cases = {case_of(
      "", {{{uniform({1, 2, 4, 4}, -3, 3)}}},
      [](const Tensors& x) {
        const Tensor where = std::get<1>(max_pool2d_with_indices(x[0].detach(), {2}));
        return max_pool_gather(x[0], where, {2, 2}, {2, 2}, {0, 0}, {1, 1});
      },
      [](const Arrays& in) { return pooled(in[0], all_windows(in[0], 2, kSettings[0]), max_value); })};
  add_row(r);
}

using AvgPool = Tensor (*)(const Tensor&, const Setting&, bool, std::optional<std::int64_t>);

void add_avg(const char* name, std::size_t n, AvgPool fn, bool has_divisor) {
  Row r = gradient_row_of(name, "", kFloats);
  r.refuses_others = false;
  r.tolerance = 4;
  r.absolute = 4;
  const std::vector<Sample> s = {{{uniform(shape_of({1, 2}, n, n == 3 ? 3 : 4), -3, 3)}},
                                 {{uniform(shape_of({2}, n, 3), -3, 3)}},
                                 {{uniform(shape_of({2, 3}, n, n == 3 ? 5 : 9), -3, 3)}, false},
                                 {{uniform(shape_of({0, 2}, n, 4), -3, 3)}, false},
                                 {{uniform(shape_of({1, 17}, n, 5), -3, 3)}, false}};
  for (const Setting& setting : kSettings) {
    if (setting.dilation != 1) continue;
    for (const int kind : {0, 1, 2}) {  // padding counts, does not, divisor
      if (kind == 2 && !has_divisor) continue;
      std::optional<std::int64_t> divisor;
      if (kind == 2) divisor = 5;
      r.cases.push_back(case_of(
          std::string(setting.name) + (kind == 0   ? ""
                                       : kind == 1 ? ", without padding"
                                                   : ", divisor"),
          s, [=](const Tensors& x) { return fn(x[0], setting, kind != 1, divisor); },
          [=](const Arrays& in) {
            return pooled(in[0], all_windows(in[0], n, setting),
                          [=](const Values& v, const Shape&, std::int64_t padded) {
                            const double by = kind == 0   ? static_cast<double>(padded)
                                              : kind == 1 ? static_cast<double>(v.size())
                                                          : 5;
                            return std::accumulate(v.begin(), v.end(), 0.0) / by;
                          });
          }));
    }
  }
  const Shape x = shape_of({1, 1}, n, 3);
  r.refusals = {{"padding above half the kernel",
                 [=] {
                   fn(ones(x), {"", 2, 1, 2, 1, false}, true, {});
                 },
                 "half"},
                {"a kernel larger than the input",
                 [=] {
                   fn(ones(x), {"", 9, 1, 0, 1, false}, true, {});
                 },
                 "too small"}};
  if (has_divisor) r.refusals.push_back({"divisor 0", [=] { fn(ones(x), kSettings[0], true, 0); }, "must be not zero"});
  add_row(r);
}

using Adaptive = Tensors (*)(const Tensor&, IntArrayRef);

void add_adaptive(const char* name, std::size_t n, bool is_max, Adaptive fn) {
  Row r = gradient_row_of(name, "", kFloats, value_and_index);
  r.refuses_others = false;
  r.tolerance = 4;
  r.absolute = 4;
  for (const std::int64_t size : {1, 2, 4}) {
    const Shape out(n, size);
    std::vector<Sample> s = max_samples(n);
    s[3] = {{uniform(shape_of({0, 2}, n, 4), -3, 3)}, false};
    r.cases.push_back({"to " + std::to_string(size),
                       s,
                       [=](const Tensors& x) { return fn(x[0], out); },
                       [=](const Arrays& in) {
                         std::vector<Windows> w;
                         for (std::size_t d = 0; d < n; ++d)
                           w.push_back(adaptive_windows(in[0].shape[in[0].shape.size() - n + d], size));
                         if (is_max) return Arrays{pooled(in[0], w, max_value), pooled(in[0], w, max_place)};
                         return Arrays{pooled(in[0], w, [](const Values& v, const Shape&, std::int64_t) {
                           return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
                         })};
                       },
                       {},
                       {}});
  }
  const Shape x = shape_of({1, 1}, n, 3), none = shape_of({1, 1}, n, 0), negative(n, -1), two(n, 2);
  r.refusals = {{"a negative size", [=] { fn(ones(x), negative); }, "greater than or equal to 0"},
                {"an empty input", [=] { fn(ones(none), two); }, "non-zero size"}};
  add_row(r);
}

void add_other_pools() {
  add_avg(
      "avg_pool1d", 1,
      +[](const Tensor& x, const Setting& s, bool count, std::optional<std::int64_t>) {
        return avg_pool1d(x, {s.kernel}, {s.stride}, {s.pad}, s.ceil_mode, count);
      },
      false);
#define ATHANOR_POOL(n)                                                                         \
  add_avg(                                                                                      \
      "avg_pool" #n "d", n,                                                                     \
      +[](const Tensor& x, const Setting& s, bool count, std::optional<std::int64_t> divisor) { \
        return avg_pool##n##d(x, {s.kernel}, {s.stride}, {s.pad}, s.ceil_mode, count, divisor); \
      },                                                                                        \
      true);
  ATHANOR_POOL(2)
  ATHANOR_POOL(3)
#undef ATHANOR_POOL
#define ATHANOR_POOL(n)                                                                        \
  add_adaptive(                                                                                \
      "adaptive_avg_pool" #n "d", n, false,                                                    \
      +[](const Tensor& x, IntArrayRef o) { return Tensors{adaptive_avg_pool##n##d(x, o)}; }); \
  add_adaptive(                                                                                \
      "adaptive_max_pool" #n "d", n, true,                                                     \
      +[](const Tensor& x, IntArrayRef o) { return both(adaptive_max_pool##n##d(x, o)); });
  ATHANOR_POOL(1)
  ATHANOR_POOL(2)
  ATHANOR_POOL(3)
#undef ATHANOR_POOL
}

/// x with pad (from the last dim on) around it; `from` gives the inner position of one outside or -1 for `value`.
Array padded(const Array& x, const Shape& pad, double value,
             const std::function<std::int64_t(std::int64_t, std::int64_t)>& from) {
  Shape out = x.shape;
  Shape before(x.shape.size());
  for (std::size_t k = 0; k < pad.size() / 2; ++k) {
    const std::size_t d = x.shape.size() - 1 - k;
    out[d] += pad[2 * k] + pad[2 * k + 1];
    before[d] = pad[2 * k];
  }
  Array y(out, value);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    Shape at = index_of(i, out);
    bool inside = true;
    for (std::size_t d = 0; d < at.size(); ++d) {
      at[d] -= before[d];
      if (at[d] < 0 || at[d] >= x.shape[d]) at[d] = from(at[d], x.shape[d]);
      inside = inside && at[d] >= 0;
    }
    if (inside) y[i] = x.at(at);
  }
  return y;
}

void add_pads() {
  auto nowhere = [](std::int64_t, std::int64_t) { return std::int64_t{-1}; };
  const std::vector<Sample> s = shaped({{2, 3}, {2, 2, 3}, {0, 3}, {5, 7, 11}}, 2);
  for (const bool direct : {true, false}) {
    Row r = gradient_row_of(direct ? "constant_pad_nd" : "pad", "", kAll);
    for (const Shape& pad : {Shape{1, 2, 0, 1}, Shape{-1, 1}, Shape{-1, -1, 2, 0}})
      r.cases.push_back(case_of(
          "constant, " + std::to_string(pad.size()) + (pad[0] < 0 ? " and cuts" : ""), s,
          [=](const Tensors& x) {
            return direct ? constant_pad_nd(x[0], pad, 1) : athanor::pad(x[0], pad, "constant", 1.0);
          },
          [=](const Arrays& in) { return padded(in[0], pad, 1, nowhere); }));
    r.refusals = {{"an odd number of sizes",
                   [=] { direct ? constant_pad_nd(ones({2}), {1}) : athanor::pad(ones({2}), {1}); }, "divisible by 2"},
                  {"more sizes than dims",
                   [=] {
                     direct ? constant_pad_nd(ones({2}), {1, 1, 1, 1}) : athanor::pad(ones({2}), {1, 1, 1, 1});
                   },
                   "two times the input dimension"},
                  {"a cut larger than the input",
                   [=] {
                     direct ? constant_pad_nd(ones({2}), {-2, -1}) : athanor::pad(ones({2}), {-2, -1});
                   },
                   "negative output size"}};
    if (!direct) {
      const std::tuple<const char*, std::int64_t (*)(std::int64_t, std::int64_t)> modes[] = {
          {"reflect", +[](std::int64_t i, std::int64_t n) { return i < 0 ? -i : 2 * (n - 1) - i; }},
          {"replicate", +[](std::int64_t i, std::int64_t n) { return i < 0 ? std::int64_t{0} : n - 1; }},
          {"circular", +[](std::int64_t i, std::int64_t n) { return (i + n) % n; }}};
      for (const auto& [mode, from] : modes) {
        const std::string name = mode;
        const auto source = from;
        r.cases.push_back(case_of(
            name, shaped({{1, 2, 3}, {2, 3, 4, 3}, {3, 5, 7, 11}}, 1),
            [=](const Tensors& x) {
              return x[0].dim() == 3 ? athanor::pad(x[0], {1, 2}, name) : athanor::pad(x[0], {1, 2, 0, 1}, name);
            },
            [=](const Arrays& in) {
              return padded(in[0], in[0].dim() == 3 ? Shape{1, 2} : Shape{1, 2, 0, 1}, 0, source);
            }));
      }
      r.refusals.push_back({"a reflection beyond the input",
                            [] {
                              athanor::pad(ones({1, 1, 3}), {3, 0}, "reflect");
                            },
                            "less than the corresponding input"});
      r.refusals.push_back({"more than one turn",
                            [] {
                              athanor::pad(ones({1, 1, 3}), {4, 0}, "circular");
                            },
                            "wrapping around more than once"});
      r.refusals.push_back({"an unknown mode",
                            [] {
                              athanor::pad(ones({1, 1, 3}), {1, 0}, "mirror");
                            },
                            "known: constant, reflect"});
    }
    add_row(r);
  }
}

const bool added_pool = [] {
  add_max_pools();
  add_other_pools();
  add_pads();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
