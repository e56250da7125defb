#include "athanor/ops/op.h"

#include <cstdarg>
#include <unordered_set>

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/hidden.h"
#include "athanor/ops/kernels/kernels_of.h"
#include "athanor/ops/view.h"
#include "athanor/profiler/recording.h"
#include "athanor/tensor/use_watch.h"

namespace athanor::ops {

std::string op_name(const char* schema) {
  const std::string_view text(schema);
  return std::string(text.substr(0, text.find_first_of(".(")));
}

void fail_undefined_operand(const char* schema) {
  ATHANOR_THROW(Error, op_name(schema), ": expected a tensor, got an undefined one");
}

std::string default_grad_name(const char* schema) {
  std::string out;
  bool upper = true;
  for (const char c : op_name(schema)) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    upper = false;
  }
  return out + "Backward0";
}

namespace {

/// Shapes and device of a call's inputs, as the profiler takes them.
struct CallInputs {
  bool with_shapes;
  SmallVector<std::int64_t, 32> shapes;
  std::int16_t device = -1;

  const char* used_by = nullptr;

  void add(const Tensor& t) {
    if (used_by && t.defined()) detail::note_use(used_by, t);
    if (t.defined() && !t.device().is_host())
      device = profiler::detail::device_number(t.device().is_cuda(), t.device().index());
    if (!with_shapes) return;
    const IntArrayRef sizes = t.defined() ? t.sizes() : IntArrayRef();
    shapes.push_back(static_cast<std::int64_t>(sizes.size()));
    for (const std::int64_t n : sizes) shapes.push_back(n);
  }
};

// A view looks at no element.
bool uses_elements(const char* schema) {
#define ATHANOR_OP_ROW(name, overload, kind, text) \
  if (std::string_view(kind) == "VIEW") all.insert(text);
  static const auto& views = *new std::unordered_set<std::string_view>([] {
    std::unordered_set<std::string_view> all;
#include "athanor/ops/op_list.inc"
    return all;
  }());
#undef ATHANOR_OP_ROW
  return !views.contains(schema);
}

}  // namespace

std::uint64_t begin_call(const char* schema, unsigned code, ...) noexcept try {
  CallInputs inputs{profiler::detail::records_shapes(), {}};
  const auto watched = profiler::detail::recording.load(std::memory_order_relaxed) & profiler::detail::kWatched;
  if (watched && uses_elements(schema)) inputs.used_by = schema;
  va_list addresses;
  va_start(addresses, code);
  for (unsigned i = 0; i < (code >> 2 & 63); ++i) {
    if (code >> (8 + i) & 1) {
      for (const Tensor& t : *va_arg(addresses, const TensorList*)) inputs.add(t);
    } else {
      inputs.add(*va_arg(addresses, const Tensor*));
    }
  }
  va_end(addresses);
  return profiler::detail::begin({.fixed_name = schema,
                                  .form = static_cast<profiler::detail::Form>(code & 3),
                                  .device = inputs.device,
                                  .shapes = inputs.shapes.data(),
                                  .shape_words = inputs.shapes.size()});
} catch (...) {
  return 0;  // no memory for the shapes
}

Tensor GradCall::grad_or_zeros(std::size_t i) const {
  if (in_[i].defined()) return in_[i];
  const OutputMeta& m = node_->output(i);
  return zeros(m.sizes, TensorOptions(m.dtype).device(m.device));
}

void fail_released(const Node& node) {
  ATHANOR_THROW(Error,
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
                "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
                "if you need to access saved tensors after calling backward. In ",
                node.name());
}

void attach_result(const Tensor& t, const IntrusivePtr<Node>& node) {
  IntrusivePtr<Node> share = node;
  attach_only_result(t, share);
}

void attach_only_result(const Tensor& t, IntrusivePtr<Node>& node) {
  if (t.defined() && t.is_floating_point())
    set_history(t, std::move(node));
  else
    node->add_output(t);
}

void check_device_list(const char* schema, const std::vector<const Tensor*>& tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* t : tensors) {
    if (!t->defined() || (t->dim() == 0 && t->device().is_host())) continue;
    if (!first) first = t;
    ATHANOR_CHECK(t->device() == first->device(), op_name(schema),
                  ": Expected all tensors to be on the same device, but found at least two devices, ", first->device(),
                  " and ", t->device(), "; move one with .to(device)");
  }
}

void check_recorded_view(const Tensor& self, std::string_view schema) {
  const AutogradMeta* meta = athanor::detail::autograd_meta_or_null(self);
  if (!meta || !meta->is_view) return;
  const std::string_view op = schema.substr(0, schema.find_first_of(".("));
  ATHANOR_CHECK(meta->origin != ViewOrigin::NoGrad, op,
                ": A view was created in no_grad mode and is being modified inplace with grad mode enabled. Make the "
                "view and the change in the same mode.");
  ATHANOR_CHECK(!(meta->view_base.requires_grad() && is_leaf(meta->view_base)), op,
                ": a view of a leaf Variable that requires grad is being used in an in-place operation.");
  ATHANOR_CHECK(
      meta->origin != ViewOrigin::MultiOutput, op,
      ": this view is the output of a function that returns multiple views, or of a custom Function that returned "
      "its input. Such functions do not allow the output views to be modified inplace. You should replace the inplace "
      "operation by an out-of-place one.");
}

void check_result_fits(const char* schema, const Meta& m, const Tensor& self) {
  ATHANOR_CHECK(IntArrayRef(m.sizes) == self.sizes(), op_name(schema), "_: output with shape ", self.sizes(),
                " doesn't match the broadcast shape ", IntArrayRef(m.sizes));
  ATHANOR_CHECK(can_cast(m.dtype, self.dtype()), op_name(schema), "_: result type ", dtype_libtorch_name(m.dtype),
                " can't be cast to the desired output type ", dtype_libtorch_name(self.dtype()));
}

bool is_expanded(const Tensor& t) {
  const TensorImpl* i = t.impl();
  if (i->contiguous) return false;
  for (int d = 0; d < i->ndim; ++d)
    if (i->dims[d] > 1 && i->dims[i->ndim + d] == 0) return true;
  return false;
}

void check_no_internal_overlap(const Tensor& t, const char* schema) {
  ATHANOR_CHECK(!is_expanded(t), op_name(schema),
                ": unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation.");
}

Tensor allocate_hidden(const Meta& m) {
  return detail::empty_hidden_tensor(m.sizes, m.dtype, m.device, m.block,
                                     restore_layout_kernel.get(kernels_of(m.device)));
}

Tensor copy_for_backward(const Tensor& self) { return clone(self); }

Tensor without_overlap(const Tensor& in, const Tensor& out, bool apart) {
  if (!in.defined() || in.storage().get() != out.storage().get()) return in;
  if (!apart && in.storage_offset() == out.storage_offset() && in.sizes() == out.sizes() &&
      in.strides() == out.strides())
    return in;
  auto end_of = [](const Tensor& t) {
    std::int64_t last = t.storage_offset();
    for (std::int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    return last;
  };
  if (in.numel() == 0 || out.numel() == 0 || end_of(in) < out.storage_offset() || end_of(out) < in.storage_offset())
    return in;
  return clone(in);
}

void set_geometry(const Tensor& t, const Geometry& g) {
  TensorImpl* i = t.impl();
  if (i->dims != i->inline_dims) {
    delete[] i->dims;
    i->dims = i->inline_dims;
  }
  i->set_geometry(g.sizes, g.strides);
  i->storage_offset = g.offset;
}

namespace {

/// Gives `out` the shape of m, with new storage if it is too small; its identity stays.
void resize_to(const Tensor& out, const Meta& m) {
  TensorImpl* i = out.impl();
  ATHANOR_CHECK(!i->autograd || !i->autograd->is_view, "out=: a view cannot be resized to ", IntArrayRef(m.sizes),
                "; give a tensor of that shape");
  if (i->dims != i->inline_dims) {
    delete[] i->dims;
    i->dims = i->inline_dims;
  }
  i->set_contiguous(m.sizes);
  const std::size_t bytes = static_cast<std::size_t>(i->numel) * item_size(i->dtype);
  if (bytes > i->storage->nbytes()) i->storage = Storage::allocate(i->device, bytes);
  i->storage_offset = 0;
}

}  // namespace

void check_out(const char* name, const Tensor& out, bool any_requires_grad) {
  ATHANOR_CHECK(out.defined(), op_name(name), ": out= is not defined; make it with empty({0})");
  ATHANOR_CHECK(!GradMode::is_enabled() || !(any_requires_grad || out.requires_grad()), op_name(name),
                "(): functions with out=... arguments don't support automatic differentiation, but one of the "
                "arguments requires grad. Use NoGradGuard or the form without out.");
}

void prepare_out(const char* schema, const Meta& m, const Tensor& out, bool any_requires_grad, OutRule rule) {
  check_out(schema, out, any_requires_grad);
  const DType have = out.dtype();
  const bool is_truth = rule == kOwnDtypeOrByte && (have == DType::Byte || have == DType::Bool);
  ATHANOR_CHECK(rule == kAnyDtype || is_truth || can_cast(m.dtype, have), op_name(schema), ": result type ",
                dtype_libtorch_name(m.dtype), " can't be cast to the desired output type ", dtype_libtorch_name(have));
  ATHANOR_CHECK(have == m.dtype || is_truth || rule == kCastable || rule == kAnyDtype, op_name(schema),
                ": Expected out tensor to have dtype ", m.dtype, ", but got ", have,
                " instead; make it with that dtype");
  ATHANOR_CHECK(out.device() == m.device, op_name(schema), ": out= is on ", out.device(), ", expected ", m.device);
  if (out.sizes() == IntArrayRef(m.sizes))
    check_no_internal_overlap(out, schema);
  else
    resize_to(out, m);
}

void begin_out(const char* schema, const Meta& m, const Tensor& out, std::initializer_list<Tensor*> inputs, bool apart,
               OutRule rule) {
  bool any_requires_grad = false;
  const bool resized = out.sizes() != IntArrayRef(m.sizes);
  for (Tensor* in : inputs) {
    any_requires_grad = any_requires_grad || wants_grad(*in);
    // Resizing would change its shape, too.
    if (resized && in->is_same(out)) *in = detail::alias(out, out.sizes(), out.strides(), out.storage_offset());
  }
  prepare_out(schema, m, out, any_requires_grad, rule);
  for (Tensor* in : inputs) *in = without_overlap(*in, out, apart);
}

void copy_into(const Tensor& out, const Tensor& value) { copy_(out, value); }

TensorOptions options_of_out(const char* name, const Tensor& out) {
  check_out(name, out);
  return TensorOptions(out.dtype()).device(out.device());
}

void composite_out(const char* name, const Tensor& out, const Tensor& value, OutRule rule) {
  const Meta m{DimVector(value.sizes()), value.dtype(), value.device(), {}};
  prepare_out(name, m, out, value.requires_grad(), rule);
  copy_(out, value);
}

void filling_out(const char* name, const Tensor& out, const Tensor& value) {
  composite_out(name, out, out.numel() == value.numel() ? reshape(value, out.sizes()) : value);
}

void resize_out(const char* name, const Tensor& out, IntArrayRef size) {
  check_out(name, out);
  checked_numel(size, name);
  prepare_out(name, {DimVector(size), out.dtype(), out.device(), {}}, out, false);
}

void composite_outs(const char* name, std::initializer_list<Tensor> outs, std::initializer_list<Tensor> values) {
  for (std::size_t i = 0; i < outs.size(); ++i) {
    const Tensor &out = outs.begin()[i], &value = values.begin()[i];
    ATHANOR_CHECK(out.defined(), name, ": out= has a tensor that is not defined at place ", i,
                  "; make it with empty({0})");
    check_out(name, out, value.requires_grad());
    ATHANOR_CHECK(out.dtype() == value.dtype(), name, ": out= has dtype ", out.dtype(), " at place ", i,
                  ", but the result has ", value.dtype(), "; make it with that dtype");
  }
  for (std::size_t i = 0; i < outs.size(); ++i) composite_out(name, outs.begin()[i], values.begin()[i]);
}

}  // namespace athanor::ops
