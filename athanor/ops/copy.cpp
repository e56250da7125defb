// Copies and conversions: copy_, clone, contiguous, to, fill_, detach.
#include "athanor/ops/copy.h"

#include "athanor/ops/create.h"
#include "athanor/ops/kept_strides.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/op.h"
#include "athanor/ops/promote.h"

namespace athanor::ops {

namespace {

// Nothing of the old values remains: their gradient is zero. A view's is cleared where it is cut out of its base's.
bool is_view(const Tensor& t) {
  const AutogradMeta* meta = athanor::detail::autograd_meta_or_null(t);
  return meta && meta->is_view;
}

struct FillNode {
  static constexpr const char* schema = "fill(Tensor self) -> Tensor";
  bool is_view;
  void grad(GradCall& g) {
    if (g.needs(0) && !is_view) g.set(0, zeros_like(g.grad()));
  }
};

struct CopyNode {
  [[maybe_unused]] static constexpr const char* schema = "copy(Tensor self, Tensor src) -> Tensor";
  static constexpr const char* grad_name = "CopyBackwards";
  Device device;
  bool is_view;
  void grad(GradCall& g) {
    if (g.needs(0) && !is_view) g.set(0, zeros_like(g.grad()));
    if (!g.needs(1)) return;
    g.set(1, g.grad().device() == device ? g.grad() : to_device(g.grad(), device));
  }
};

}  // namespace

void record_overwrite(const Tensor& self) {
  self.impl()->bump_version();
  if (!GradMode::is_enabled() || !wants_grad(self)) return;
  FillNode fill{is_view(self)};
  rebase_history(self, IntrusivePtr<Node>(make_node(fill, self)));
}

/// self = src converted to self's dtype and device; src broadcasts. Gradients flow to src.
ATHANOR_FUNCTION("copy_(Tensor self, Tensor src, bool non_blocking=False) -> Tensor | method");
void copy_(const Tensor& self, const Tensor& src, bool /*non_blocking*/) {
  const CallScope scope("copy_", profiler::detail::Form::Plain, self, src);
  ATHANOR_CHECK(src.defined(), "copy_: the source is not defined");
  check_inplace(self, "copy_");
  check_no_internal_overlap(self, "copy_");
  if (self.is_same(src)) return;
  const DimVector shape = broadcast_shapes(self.sizes(), src.sizes(), "copy_");
  ATHANOR_CHECK(IntArrayRef(shape) == self.sizes(), "copy_: source of shape ", src.sizes(),
                " does not broadcast to shape ", self.sizes());
  if (GradMode::is_enabled() && self.is_floating_point() && (wants_grad(self) || wants_grad(src))) {
    check_recorded_view(self, "copy_");
    CopyNode copy{src.device(), is_view(self)};
    auto node = make_node(copy, self, src);
    launch(copy_kernel, self, without_overlap(src, self));
    self.impl()->bump_version();
    rebase_history(self, IntrusivePtr<Node>(node));
    return;
  }
  launch(copy_kernel, self, without_overlap(src, self));
  self.impl()->bump_version();
}

namespace {

/// `t` with the elements that share memory counted once.
Tensor once(const Tensor& t) {
  if (!is_expanded(t)) return t;
  DimVector sizes(t.sizes());
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (t.strides()[d] == 0) sizes[d] = std::min<std::int64_t>(sizes[d], 1);
  return detail::alias(t, sizes, t.strides(), t.storage_offset());
}

}  // namespace

/// Sets all elements to value; also those of an expanded tensor, unless gradients are recorded.
ATHANOR_FUNCTION("fill_(Tensor self, Scalar value) -> Tensor");
void fill_(const Tensor& self, const Scalar& value) {
  const CallScope scope("fill_", profiler::detail::Form::Plain, self);
  check_inplace(self, "fill_");
  if (GradMode::is_enabled() && wants_grad(self)) check_no_internal_overlap(self, "fill_");
  value.check_fits(self.dtype(), "fill_");
  launch(fill_kernel, once(self), value);
  record_overwrite(self);
}

ATHANOR_FUNCTION("fill_.Tensor(Tensor self, Tensor value) -> Tensor");
void fill_(const Tensor& self, const Tensor& value) {
  ATHANOR_CHECK(value.defined() && value.dim() == 0, "fill_ only supports a 0-dimension value tensor, got ", value);
  copy_(self, value);
}

/// Sets all elements to zero.
ATHANOR_FUNCTION("zero_(Tensor self) -> Tensor");
void zero_(const Tensor& self) { fill_(self, 0); }

/// A copy with its own storage; differentiable. Dense strides are kept by default.
struct Clone {
  ATHANOR_OP("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor");
  std::optional<MemoryFormat> memory_format;
  Meta infer(const Tensor& self) {
    Meta m{DimVector(given(schema, self).sizes()), self.dtype(), self.device(), {}};
    const MemoryFormat f = memory_format.value_or(MemoryFormat::Preserve);
    if (f == MemoryFormat::Preserve) {
      if (!self.is_contiguous()) m.strides = kept_strides(self);
    } else if (f != MemoryFormat::Contiguous) {
      m.strides = detail::strides_for(self.sizes(), f);
    }
    return m;
  }
  void run(const Tensor& out, const Tensor& self) { launch(copy_kernel, out, self); }
  void grad(GradCall& g) { g.set(0, g.grad()); }
};

/// self converted to dtype.
struct ToDtype {
  ATHANOR_OP("to_dtype(Tensor self, ScalarType dtype) -> Tensor | function internal");
  static constexpr const char* grad_name = "ToCopyBackward0";
  DType dtype;
  DType from = DType::Undefined;
  Meta infer(const Tensor& self) {
    from = given(schema, self).dtype();
    return pointwise_meta(schema, dtype, {&self});
  }
  void run(const Tensor& out, const Tensor& self) { launch(copy_kernel, out, self); }
  void grad(GradCall& g) { g.set(0, cast(g.grad(), from)); }
};

/// self copied to device.
struct ToDevice {
  ATHANOR_OP("to_device(Tensor self, Device device) -> Tensor | function internal");
  static constexpr const char* grad_name = "ToCopyBackward0";
  Device device;
  Device from;
  Meta infer(const Tensor& self) {
    from = given(schema, self).device();
    device = resolve(device);
    return {DimVector(self.sizes()), self.dtype(), device, {}};
  }
  void run(const Tensor& out, const Tensor& self) { launch(copy_kernel, out, self); }
  void grad(GradCall& g) { g.set(0, to_device(g.grad(), from)); }
};

/// self if it is already laid out so, else a copy that is.
ATHANOR_FUNCTION("contiguous(Tensor self, *, MemoryFormat memory_format=MemoryFormat::Contiguous) -> Tensor | method");
Tensor contiguous(const Tensor& self, MemoryFormat memory_format) {
  return given("contiguous", self).is_contiguous(memory_format) ? self : clone(self, memory_format);
}

Tensor in_format_of(const Tensor& like, const Tensor& t) {
  if (like.is_contiguous()) return t;
  for (const MemoryFormat f : {MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d})
    if (like.is_contiguous(f)) return contiguous(t, f);
  return t;
}

/// self with the dtype, device and memory format of options; itself if nothing changes and copy is false.
ATHANOR_FUNCTION(
    "to(Tensor self, TensorOptions options, bool non_blocking=False, bool copy=False, "
    "MemoryFormat? memory_format=None) -> Tensor | method");
Tensor to(const Tensor& self, const TensorOptions& options, bool /*non_blocking*/, bool copy,
          std::optional<MemoryFormat> memory_format) {
  ATHANOR_CHECK(!options.requires_grad(),
                "to(options) expects unset requires_grad flag, but got TensorOptions with "
                "requires_grad(true); call requires_grad_() on the result");
  Tensor out = given("to", self);
  const auto format = memory_format ? memory_format : options.memory_format_opt();
  if (auto t = options.dtype_opt(); t && *t != out.dtype()) out = to_dtype(out, *t);
  if (options.has_device())
    if (const Device d = resolve(options.device()); !(d == out.device())) out = to_device(out, d);
  if (format && *format != MemoryFormat::Preserve && !out.is_contiguous(*format)) out = clone(out, format);
  return copy && out.is_same(self) ? clone(self, format) : out;
}

ATHANOR_FUNCTION(
    "to.dtype(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False) -> Tensor | method");
Tensor to(const Tensor& self, DType dtype, bool non_blocking, bool copy) {
  return to(self, TensorOptions(dtype), non_blocking, copy, std::nullopt);
}

ATHANOR_FUNCTION(
    "to.device(Tensor self, Device device, ScalarType dtype, bool non_blocking=False, bool copy=False) -> Tensor | "
    "method");
Tensor to(const Tensor& self, Device device, DType dtype, bool non_blocking, bool copy) {
  return to(self, TensorOptions(dtype).device(device), non_blocking, copy, std::nullopt);
}

ATHANOR_FUNCTION("to.other(Tensor self, Tensor other, bool non_blocking=False, bool copy=False) -> Tensor | method");
Tensor to(const Tensor& self, const Tensor& other, bool non_blocking, bool copy) {
  return to(self, given("to", other).options(), non_blocking, copy, std::nullopt);
}

/// The tensor in the dtype, and on the device, of other.
ATHANOR_FUNCTION("type_as(Tensor self, Tensor other) -> Tensor | method");
Tensor type_as(const Tensor& self, const Tensor& other) {
  return cast(given("type_as", self), given("type_as", other).dtype());
}

/// The same values outside the graph, on the same storage.
ATHANOR_FUNCTION("detach(Tensor self) -> Tensor");
Tensor detach(const Tensor& self) {
  ATHANOR_CHECK(self.defined(), "detach: the tensor is not defined");
  Tensor out = detail::alias(self, self.sizes(), self.strides(), self.storage_offset());
  out.impl()->wrapped_number = self.impl()->wrapped_number;
  return out;
}

/// Cuts self from the graph in place; it becomes a leaf that does not require grad.
ATHANOR_FUNCTION("detach_(Tensor self) -> Tensor | method");
void detach_(const Tensor& self) {
  AutogradMeta* meta = detail::autograd_meta_or_null(self);
  if (!meta) return;
  ATHANOR_CHECK(!meta->is_view || !self.requires_grad(), "Can't detach views in-place. Use detach() instead.");
  meta->grad_fn.reset();
  meta->output_nr = 0;
  meta->requires_grad = false;
  self.impl()->tracked = false;
}

}  // namespace athanor::ops

#include "athanor/ops/copy.glue.inc"
