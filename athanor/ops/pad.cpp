// Padding: sizes are given from the last dim on, two per dim (before, after).
#include "athanor/ops/pad.h"

#include "athanor/base/parallel.h"
#include "athanor/ops/autocast.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/index.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/index.h"
#include "athanor/ops/kernels/pointwise.h"
#include "athanor/ops/op.h"
#include "athanor/ops/spatial.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

void check_pad(const char* op, const Tensor& self, IntArrayRef pad) {
  ATHANOR_CHECK(self.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK(pad.size() % 2 == 0, op, ": Padding length must be divisible by 2, got ", pad);
  ATHANOR_CHECK(static_cast<std::int64_t>(pad.size()) <= 2 * self.dim(), op, ": Padding length should be less than or ",
                "equal to two times the input dimension but got padding length ", pad.size(),
                " and input of dimension ", self.dim());
}

/// The part of `inner`, laid into a padded tensor or cut from it: what of each is common to both.
struct Overlap {
  DimVector sizes, inner_start, outer_start;
};
Overlap overlap_of(IntArrayRef inner, IntArrayRef pad) {
  Overlap o{DimVector(inner), DimVector(inner.size()), DimVector(inner.size())};
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    const std::size_t d = inner.size() - 1 - i;
    const std::int64_t before = pad[2 * i], after = pad[2 * i + 1];
    o.inner_start[d] = before < 0 ? -before : 0;
    o.outer_start[d] = before > 0 ? before : 0;
    o.sizes[d] =
        std::max<std::int64_t>(inner[d] + std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(after, 0), 0);
  }
  return o;
}

Tensor part_alias(const Tensor& t, IntArrayRef start, IntArrayRef sizes) {
  std::int64_t offset = t.storage_offset();
  for (std::size_t d = 0; d < sizes.size(); ++d) offset += start[d] * t.strides()[d];
  return detail::alias(t, sizes, t.strides(), offset);
}

}  // namespace

/// self with `value` around it; negative sizes cut off.
struct ConstantPadNd {
  ATHANOR_OP("constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> Tensor");
  DimVector pad;
  Scalar value;
  Meta infer(const Tensor& self) {
    check_pad("constant_pad_nd", self, pad);
    value.check_fits(self.dtype(), "constant_pad_nd");
    DimVector sizes(self.sizes());
    for (std::size_t i = 0; i < pad.size() / 2; ++i) {
      const std::size_t d = sizes.size() - 1 - i;
      ATHANOR_CHECK(!__builtin_add_overflow(sizes[d], pad[2 * i], &sizes[d]) &&
                        !__builtin_add_overflow(sizes[d], pad[2 * i + 1], &sizes[d]),
                    "constant_pad_nd: no tensor can be as large as size ", self.sizes()[d], " and padding ", pad[2 * i],
                    " and ", pad[2 * i + 1], " of dimension ", d, " make it");
      ATHANOR_CHECK(sizes[d] >= 0, "constant_pad_nd: The input size ", self.sizes()[d], ", plus negative padding ",
                    pad[2 * i], " and ", pad[2 * i + 1],
                    " resulted in a negative output size, which is invalid. Check ", "dimension ", d,
                    " of your input.");
    }
    return {sizes, self.dtype(), self.device(), layout_like(self, sizes)};
  }
  void run(const Tensor& out, const Tensor& self) {
    const Overlap o = overlap_of(self.sizes(), pad);
    launch(fill_kernel, out, value);
    launch(copy_kernel, part_alias(out, o.outer_start, o.sizes), part_alias(self, o.inner_start, o.sizes));
  }
  void grad(GradCall& g) {
    DimVector back(pad);
    for (auto& p : back) p = -p;
    g.set(0, constant_pad_nd(g.grad(), back, 0));
  }
};

namespace {

enum class PadMode { Reflect, Replicate, Circular };

/// What lies on one side of a dim of a padded tensor, and the part of the same tensor that it repeats.
struct Border {
  Tensor there, source;
};

/// The borders of `padded`, whose middle has `inner` sizes; of both sides of dim d, across all of the dims after it and
/// the middle of those before it. `pad` is not negative.
std::array<Border, 2> borders_of(const Tensor& padded, IntArrayRef inner, IntArrayRef pad, std::size_t d,
                                 PadMode mode) {
  const auto before_of = [&](std::size_t e) {
    const std::size_t i = inner.size() - 1 - e;
    return i < pad.size() / 2 ? pad[2 * i] : 0;
  };
  DimVector start(inner.size()), sizes(padded.sizes());
  for (std::size_t e = 0; e < d; ++e) start[e] = before_of(e), sizes[e] = inner[e];
  const auto part = [&](std::int64_t from, std::int64_t length) {
    start[d] = from, sizes[d] = length;
    return part_alias(padded, start, sizes);
  };
  const std::int64_t n = inner[d], before = before_of(d), after = padded.sizes()[d] - n - before, end = before + n;
  if (mode == PadMode::Reflect)
    return {Border{part(0, before), part(before + 1, before)}, {part(end, after), part(end - 1 - after, after)}};
  if (mode == PadMode::Replicate)
    return {Border{part(0, before), part(before, 1)}, {part(end, after), part(end - 1, 1)}};
  return {Border{part(0, before), part(n, before)}, {part(end, after), part(before, after)}};
}

}  // namespace

/// self with what PadMode says around it. `pad` is not negative, and `mode` is known.
struct PadByMode {
  ATHANOR_OP("_pad_by_mode(Tensor self, int[] pad, int mode) -> Tensor | function");
  static constexpr const char* grad_name = "PadBackward0";
  DimVector pad;
  std::int64_t mode;
  DimVector inner;
  Meta infer(const Tensor& self) {
    inner = DimVector(self.sizes());
    DimVector sizes = inner;
    for (std::size_t i = 0; i < pad.size(); ++i) sizes[sizes.size() - 1 - i / 2] += pad[i];
    return {sizes, self.dtype(), self.device(), layout_like(self, sizes)};
  }
  /// Cut along a dim that is not padded: borders repeat what is still in the caches.
  void run(const Tensor& out, const Tensor& self) {
    const std::size_t first = inner.size() - pad.size() / 2;
    std::size_t d = 0;
    while (d < first && inner[d] == 1) ++d;
    if (d == first || out.numel() == 0 || !out.device().is_cpu()) return pad_part(out, self);
    constexpr std::int64_t kPieceBytes = 1 << 18;
    const std::int64_t item = static_cast<std::int64_t>(item_size(out.dtype())), whole = inner[d];
    const std::int64_t most = std::max<std::int64_t>(kPieceBytes * get_num_threads() / (out.numel() / whole * item), 1);
    DimVector start(inner.size()), sizes(out.sizes());
    for (; start[d] < whole; start[d] += most) {
      inner[d] = sizes[d] = std::min(most, whole - start[d]);
      pad_part(part_alias(out, start, sizes), part_alias(self, start, inner));
    }
    inner[d] = whole;
  }
  void grad(GradCall& g) { g.set(0, _pad_by_mode_backward(g.grad(), inner, pad, mode)); }

 private:
  void pad_part(const Tensor& out, const Tensor& self) const {
    const Overlap o = overlap_of(inner, pad);
    launch(copy_kernel, part_alias(out, o.outer_start, o.sizes), self);
    for (std::size_t i = 0; i < pad.size() / 2; ++i) {
      const std::size_t d = inner.size() - 1 - i;
      for (const Border& b : borders_of(out, inner, pad, d, static_cast<PadMode>(mode))) {
        if (b.there.numel() == 0) continue;
        if (mode == static_cast<std::int64_t>(PadMode::Reflect))
          launch(flip_kernel, b.there, b.source, IntArrayRef{static_cast<std::int64_t>(d)});
        else
          launch(copy_kernel, b.there, b.source);
      }
    }
  }
};

/// Gradients of the borders are added to those of what they repeat.
struct PadByModeBackward {
  ATHANOR_OP("_pad_by_mode_backward(Tensor grad, int[] size, int[] pad, int mode) -> Tensor | function");
  DimVector size, pad;
  std::int64_t mode;
  Meta infer(const Tensor& grad) { return {size, grad.dtype(), grad.device(), layout_like(grad, size)}; }
  void run(const Tensor& out, const Tensor& grad) {
    const DType wide = is_half(grad.dtype()) ? DType::Float : grad.dtype();  // halves are rounded once
    const Tensor sum = detail::empty_tensor(grad.sizes(), wide, grad.device(), layout_like(grad, grad.sizes()));
    launch(copy_kernel, sum, grad);
    for (std::size_t d = size.size() - pad.size() / 2; d < size.size(); ++d)
      for (const Border& b : borders_of(sum, size, pad, d, static_cast<PadMode>(mode)))
        if (b.there.numel() > 0) add_border(b, static_cast<std::int64_t>(d));
    const Overlap o = overlap_of(size, pad);
    launch(copy_kernel, out, part_alias(sum, o.outer_start, o.sizes));
  }
  void grad(GradCall& g) { g.set(0, _pad_by_mode(g.grad(), pad, mode)); }

 private:
  void add_border(const Border& b, std::int64_t d) const {
    const auto add = [](const Tensor& to, const Tensor& what) {
      launch(binary_kernel, BinaryOp::Add, to, to, what, Scalar(1), Scalar(0));
    };
    if (mode == static_cast<std::int64_t>(PadMode::Reflect)) {
      const Tensor turned = detail::empty_tensor(b.there.sizes(), b.there.dtype(), b.there.device());
      launch(flip_kernel, turned, b.there, IntArrayRef{d});
      return add(b.source, turned);
    }
    if (mode == static_cast<std::int64_t>(PadMode::Circular)) return add(b.source, b.there);
    // Halves of the border are added up until one line is left: no call per line, and sums of few terms.
    DimVector start(b.there.sizes().size()), later = start, sizes(b.there.sizes());
    const auto at = static_cast<std::size_t>(d);
    for (std::int64_t lines = b.there.size(d); lines > 1; lines -= sizes[at]) {
      sizes[at] = lines / 2, later[at] = lines - lines / 2;
      add(part_alias(b.there, start, sizes), part_alias(b.there, later, sizes));
    }
    add(b.source, part_alias(b.there, start, b.source.sizes()));
  }
};

namespace {

/// Where in 0 … n - 1 position i outside it reads, unless positions wrap around.
std::int64_t source_of(std::int64_t i, std::int64_t n, PadMode mode) {
  if (mode == PadMode::Replicate) return std::clamp<std::int64_t>(i, 0, n - 1);
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

void check_room(const Tensor& self, std::int64_t d, std::int64_t before, std::int64_t after, PadMode mode) {
  const std::int64_t n = self.size(d);
  if (mode == PadMode::Reflect)
    ATHANOR_CHECK(
        before < n && after < n, "pad: Argument #4: Padding size should be less than the corresponding input ",
        "dimension, but got: padding (", before, ", ", after, ") at dimension ", d, " of input ", self.sizes());
  else if (mode == PadMode::Circular)
    ATHANOR_CHECK(before <= n && after <= n, "pad: Padding value causes wrapping around more than once, got padding (",
                  before, ", ", after, ") at dimension ", d, " of input ", self.sizes());
  constexpr std::int64_t kMost = std::int64_t{1} << 60;  // sums of three stay in range
  ATHANOR_CHECK(std::max({n, before, after}) < kMost && std::min(before, after) > -kMost,
                "pad: no tensor can be as large as size ", n, " and padding ", before, " and ", after, " of dimension ",
                d, " make it");
  ATHANOR_CHECK(n > 0, "pad: Expected a non-empty dimension ", d, " to pad, got input of size ", self.sizes());
  const std::int64_t left = n + std::min<std::int64_t>(0, before) + std::min<std::int64_t>(0, after);
  // What wraps around may all be cut off, unless something is to be made of it.
  ATHANOR_CHECK(
      mode == PadMode::Circular ? left > 0 || (left == 0 && before <= 0 && after <= 0) : n + before + after > 0,
      "pad: padding (", before, ", ", after, ") leaves nothing of dimension ", d, " of input ", self.sizes());
}

Tensor pad_by_mode(const Tensor& input, IntArrayRef pad, PadMode mode) {
  const Tensor self = mode == PadMode::Circular ? input : autocast_to_float(input);
  check_pad("pad", self, pad);
  bool cuts = false, adds = false;
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    const std::int64_t before = pad[2 * i], after = pad[2 * i + 1];
    cuts = cuts || before < 0 || after < 0, adds = adds || before > 0 || after > 0;
    if (before != 0 || after != 0) check_room(self, self.dim() - 1 - static_cast<std::int64_t>(i), before, after, mode);
  }
  if (adds && !cuts) return _pad_by_mode(self, pad, static_cast<std::int64_t>(mode));
  Tensor out;
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    const std::int64_t d = self.dim() - 1 - static_cast<std::int64_t>(i), n = self.size(d);
    const std::int64_t before = pad[2 * i], after = pad[2 * i + 1];
    if (before == 0 && after == 0) continue;
    std::vector<std::int64_t> from;
    from.reserve(static_cast<std::size_t>(n + before + after));
    // Negative padding takes away first; what is left wraps around.
    const std::int64_t start = std::max<std::int64_t>(0, -before);
    const std::int64_t length = n - start + std::min<std::int64_t>(0, after);
    for (std::int64_t k = -before; k < n + after; ++k)
      from.push_back(mode == PadMode::Circular ? start + (k - start + n * length) % length : source_of(k, n, mode));
    out = index_select(out.defined() ? out : self, d, index_tensor(from, {n + before + after}, self.device()));
  }
  return out.defined() ? out : clone(self);  // the caller may write to it
}

}  // namespace

/// `mode`: "constant" (with value, 0 by default), "reflect", "replicate" or "circular".
ATHANOR_FUNCTION("pad(Tensor self, int[] pad, str mode='constant', float? value=None) -> Tensor | function");
Tensor pad(const Tensor& self, IntArrayRef pad, std::string_view mode, std::optional<double> value) {
  if (mode == "constant") return constant_pad_nd(self, pad, value.value_or(0));
  ATHANOR_CHECK(!value || *value == 0, "Padding mode \"", mode, "\" doesn't take in value argument");
  if (mode == "reflect") return pad_by_mode(self, pad, PadMode::Reflect);
  if (mode == "replicate") return pad_by_mode(self, pad, PadMode::Replicate);
  if (mode == "circular") return pad_by_mode(self, pad, PadMode::Circular);
  ATHANOR_THROW(NotImplementedError, "pad: Unrecognised padding mode ", mode,
                "; known: constant, reflect, replicate, circular");
}

}  // namespace athanor::ops

#include "athanor/ops/pad.glue.inc"
