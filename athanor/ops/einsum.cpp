// einsum: sums of products, written by the labels of dims.
#include "athanor/ops/einsum.h"

#include <array>
#include <vector>

#include "athanor/ops/autocast.h"
#include "athanor/ops/diagonal.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reshape.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

constexpr int kLetters = 52;
constexpr int kEllipsis = kLetters;  // stands for all dims of "..."

/// 'A' … 'Z', 'a' … 'z' as 0 … 51, or -1.
int label_of(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1; }
char letter_of(int label) { return static_cast<char>(label < 26 ? 'A' + label : 'a' + label - 26); }

/// One operand's (or the output's) labels; "..." is kEllipsis, once at most.
using Labels = std::vector<int>;

Labels read_labels(std::string_view text, std::string_view what) {
  Labels out;
  bool seen = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text[i] == '.') {
      ATHANOR_CHECK(text.substr(i, 3) == "..." && !seen, "einsum(): found '.' for ", what,
                    seen ? " for which an ellipsis was already found" : " that is not part of any ellipsis");
      seen = true;
      out.push_back(kEllipsis);
      i += 2;
      continue;
    }
    const int label = label_of(text[i]);
    ATHANOR_CHECK(label >= 0, "einsum(): invalid subscript given at index ", i, " of ", what, " '", text,
                  "', subscripts must be in [a-zA-Z]");
    out.push_back(label);
  }
  return out;
}

struct Equation {
  std::vector<Labels> operands;
  Labels output;
  bool has_output = false;
};

Equation read_equation(std::string_view text, std::size_t operands) {
  Equation e;
  const std::size_t arrow = text.find("->");
  std::string_view left = text.substr(0, arrow);
  while (true) {
    const std::size_t comma = left.find(',');
    e.operands.push_back(read_labels(left.substr(0, comma), detail::str("operand ", e.operands.size())));
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  ATHANOR_CHECK(e.operands.size() == operands, "einsum(): the equation '", text, "' names ", e.operands.size(),
                " operands, but ", operands, " were given");
  if (arrow == std::string_view::npos) return e;
  e.has_output = true;
  e.output = read_labels(text.substr(arrow + 2), "the output");
  return e;
}

/// The common order of dims: those of the result, then those summed over. Dims of an ellipsis have no letter.
struct Plan {
  std::array<std::int64_t, kLetters> place{};  ///< of a label in the common order; -1: not used
  std::int64_t ellipsis_place = 0, ellipsis_dims = 0;
  std::int64_t results = 0, total = 0;
};

/// How many dims an operand's "..." covers; -1 without one.
std::int64_t covered(const Labels& labels, const Tensor& t, std::size_t i) {
  const auto named =
      static_cast<std::int64_t>(std::count_if(labels.begin(), labels.end(), [](int l) { return l != kEllipsis; }));
  const bool open = static_cast<std::size_t>(named) != labels.size();
  ATHANOR_CHECK(open ? named <= t.dim() : named == t.dim(), "einsum(): the number of subscripts in the equation (",
                named, ") ",
                open ? "is more than the number of dimensions (" : "does not match the number of dimensions (", t.dim(),
                ") for operand ", i, open ? "" : " and no ellipsis was given");
  return open ? t.dim() - named : -1;
}

Plan make_plan(const Equation& e, TensorList operands) {
  Plan p;
  p.place.fill(-1);
  std::array<int, kLetters> count{};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::int64_t dims = covered(e.operands[i], operands[i], i);
    p.ellipsis_dims = std::max(p.ellipsis_dims, dims);
    for (const int l : e.operands[i])
      if (l != kEllipsis) ++count[static_cast<std::size_t>(l)];
  }
  std::int64_t next = 0;
  bool placed = false;
  auto place_ellipsis = [&] {
    p.ellipsis_place = next;
    next += p.ellipsis_dims;
    placed = true;
  };
  if (e.has_output) {
    for (const int l : e.output) {
      if (l == kEllipsis) {
        place_ellipsis();  // of no dims, if no operand has one
        continue;
      }
      const auto u = static_cast<std::size_t>(l);
      ATHANOR_CHECK(p.place[u] < 0, "einsum(): output subscript ", letter_of(l),
                    " appears more than once in the output");
      ATHANOR_CHECK(count[u] > 0, "einsum(): output subscript ", letter_of(l),
                    " does not appear in the equation for any input operand");
      p.place[u] = next++;
    }
  } else {
    // Implicit: the ellipsis, then the labels that occur once, in alphabetical order.
    place_ellipsis();
    for (std::size_t l = 0; l < kLetters; ++l)
      if (count[l] == 1) p.place[l] = next++;
  }
  p.results = next;
  if (!placed) place_ellipsis();
  for (std::size_t l = 0; l < kLetters; ++l)
    if (count[l] > 0 && p.place[l] < 0) p.place[l] = next++;
  p.total = next;
  return p;
}

/// The operand with its dims in the common order, size 1 where it has none. Repeated labels take the diagonal.
Tensor arranged(Tensor t, const Labels& labels, const Plan& p) {
  DimVector places;  // in the common order, of each dim of t
  for (const int l : labels) {
    if (l == kEllipsis) {
      const std::int64_t dims =
          t.dim() - static_cast<std::int64_t>(places.size()) -
          static_cast<std::int64_t>(labels.end() - (std::find(labels.begin(), labels.end(), l) + 1));
      for (std::int64_t d = 0; d < dims; ++d) places.push_back(p.ellipsis_place + p.ellipsis_dims - dims + d);
      continue;
    }
    const std::int64_t place = p.place[static_cast<std::size_t>(l)];
    const auto at = static_cast<std::int64_t>(places.size());
    const auto before = std::find(places.begin(), places.end(), place);
    if (before == places.end()) {
      places.push_back(place);
      continue;
    }
    const std::int64_t first = before - places.begin();
    ATHANOR_CHECK(t.size(first) == t.size(at), "einsum(): subscript ", letter_of(l),
                  " is repeated for an operand but the ", "sizes don't match, ", t.size(at), " != ", t.size(first));
    t = movedim(diagonal(t, 0, first, at), -1, first);
  }
  DimVector order(places.size());
  for (std::size_t d = 0; d < places.size(); ++d)
    order[static_cast<std::size_t>(std::count_if(
        places.begin(), places.end(), [&](std::int64_t q) { return q < places[d]; }))] = static_cast<std::int64_t>(d);
  t = permute(t, order);
  for (std::int64_t d = 0; d < p.total; ++d)
    if (std::find(places.begin(), places.end(), d) == places.end()) t = unsqueeze(t, d);
  return t;
}

/// The product of two operands in the common order, summed over the dims of `summed`, which stay with size 1.
Tensor product(Tensor a, Tensor b, const std::vector<bool>& summed) {
  const auto n = static_cast<std::int64_t>(summed.size());
  DimVector both, left, right, inner, alone_a, alone_b;
  std::int64_t batch = 1, rows = 1, columns = 1, depth = 1;
  DimVector sizes;  // of the product in the order both, left, right, inner
  for (std::int64_t d = 0; d < n; ++d) {
    const std::int64_t x = a.size(d), y = b.size(d);
    if (summed[static_cast<std::size_t>(d)]) {
      if (x != 1 && y != 1) {
        inner.push_back(d);
        depth *= x;
      } else {
        (x != 1 ? alone_a : y != 1 ? alone_b : right).push_back(d);
      }
    } else if (x != 1 && y != 1) {
      both.push_back(d);
      batch *= x;
    } else if (x != 1) {
      left.push_back(d);
      rows *= x;
    } else {
      right.push_back(d);
      columns *= y;
    }
  }
  if (!alone_a.empty()) a = sum(a, IntArrayRef(alone_a), true, a.dtype());
  if (!alone_b.empty()) b = sum(b, IntArrayRef(alone_b), true, b.dtype());
  DimVector order_a, order_b, order_out;
  auto append = [](DimVector& to, const DimVector& what) {
    for (const std::int64_t d : what) to.push_back(d);
  };
  for (const DimVector* part : {&both, &left, &inner, &right, &alone_a, &alone_b}) append(order_a, *part);
  for (const DimVector* part : {&both, &inner, &right, &left, &alone_a, &alone_b}) append(order_b, *part);
  for (const DimVector* part : {&both, &left, &right, &inner, &alone_a, &alone_b}) append(order_out, *part);
  for (const std::int64_t d : both) sizes.push_back(a.size(d));
  for (const std::int64_t d : left) sizes.push_back(a.size(d));
  for (const std::int64_t d : right) sizes.push_back(b.size(d));
  sizes.resize(static_cast<std::size_t>(n), 1);
  const Tensor x = reshape(permute(a, order_a), {batch, rows, depth}),
               y = reshape(permute(b, order_b), {batch, depth, columns});
  DimVector back(static_cast<std::size_t>(n));
  for (std::size_t d = 0; d < order_out.size(); ++d)
    back[static_cast<std::size_t>(order_out[d])] = static_cast<std::int64_t>(d);
  return permute(reshape(bmm(x, y), sizes), back);
}

}  // namespace

/// Sums of products of operands whose dims are labelled: "ij,jk->ik" is the matrix product. A label that the output
/// lacks is summed over; one that an operand repeats takes its diagonal; "..." covers dims that broadcast. Without
/// "->" the output has the ellipsis and the labels that occur once, in alphabetical order (capitals first). Operands
/// are multiplied from left to right, each pair as one batched matrix product.
ATHANOR_FUNCTION("einsum(str equation, Tensor[] tensors) -> Tensor");
Tensor einsum(std::string_view equation, TensorList tensors) {
  ATHANOR_CHECK(!tensors.empty(), "einsum(): must provide at least one operand");
  for (const Tensor& t : tensors) {
    ATHANOR_CHECK(t.defined(), "einsum(): expected tensors, got an undefined one");
    if (__builtin_expect(athanor::detail::autocast_on, 0) && t.dtype() != tensors[0].dtype() &&
        autocast_operand(t, AutocastTo::Lower).dtype() == autocast_operand(tensors[0], AutocastTo::Lower).dtype()) {
      std::vector<Tensor> cast;
      for (const Tensor& operand : tensors) cast.push_back(autocast_operand(operand, AutocastTo::Lower));
      return einsum(equation, cast);
    }
    ATHANOR_CHECK(t.dtype() == tensors[0].dtype(), "einsum(): expected operands of one dtype, got ", tensors[0].dtype(),
                  " and ", t.dtype());
  }
  const Equation e = read_equation(equation, tensors.size());
  const Plan p = make_plan(e, tensors);
  std::vector<Tensor> operands;
  for (std::size_t i = 0; i < tensors.size(); ++i) operands.push_back(arranged(tensors[i], e.operands[i], p));
  DimVector common(static_cast<std::size_t>(p.total), 1);
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::int64_t d = 0; d < p.total; ++d) {
      const std::int64_t s = operands[i].size(d);
      std::int64_t& c = common[static_cast<std::size_t>(d)];
      ATHANOR_CHECK(s == c || s == 1 || c == 1, "einsum(): operands do not broadcast with remapped shapes: operand ", i,
                    " of shape ", tensors[i].sizes(), " has size ", s, " in a dim where another has ", c, " in '",
                    equation, "'");
      if (s != 1) c = s;
    }
  Tensor out = operands[0];
  for (std::size_t i = 1; i < operands.size(); ++i) {
    // Sum over what no later operand has.
    std::vector<bool> summed(static_cast<std::size_t>(p.total));
    for (std::int64_t d = p.results; d < p.total; ++d) {
      bool later = false;
      for (std::size_t k = i + 1; k < operands.size(); ++k) later = later || operands[k].size(d) != 1;
      summed[static_cast<std::size_t>(d)] = !later;
    }
    out = product(out, operands[i], summed);
  }
  DimVector last, sizes;
  for (std::int64_t d = 0; d < p.results; ++d) sizes.push_back(common[static_cast<std::size_t>(d)]);
  for (std::int64_t d = p.results; d < p.total; ++d)
    if (operands.size() == 1) last.push_back(d);
  if (!last.empty()) out = sum(out, IntArrayRef(last), true);
  for (std::int64_t d = p.total; d-- > p.results;) out = squeeze(out, d);
  return out.sizes() == IntArrayRef(sizes) ? out : expand(out, sizes);
}

}  // namespace athanor::ops

#include "athanor/ops/einsum.glue.inc"
