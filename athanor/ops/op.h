#pragma once
/// The pattern of an op. An op is one struct in a .cpp file of athanor/ops:
///
///     struct Softmax {
///       ATHANOR_OP("_softmax(Tensor self, int dim) -> Tensor");
///       std::int64_t dim;                                   // its parameters, named as in the schema
///       SavedTensor y;                                      // what backward needs
///       Meta infer(const Tensor& self);                     // checks, result shape and dtype
///       void run(const Tensor& out, const Tensor& self);    // launches the kernel into `out`
///       void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
///       void grad(GradCall& g) { g.set(0, softmax_backward(g.grad(), g.get(y), dim)); }
///     };
///
/// From the schema the generator makes the function, the method and, if marked after the return type with
/// `| inplace out`, the in-place and out forms; `call` and its siblings below do the rest: allocation, grad recording,
/// version counting, view bookkeeping. Optional members: `save(const Node&, inputs...)`, called before run;
/// `save_results(Node*, outputs...)`, called after; `prepare(inputs&...)`, which may replace inputs (type promotion);
/// `grad_name`, PyTorch's name of the node where it is not the op's own name; `keeps_self`, true (or a function of the
/// node that returns true) if backward reads self's old values, so that the in-place form saves a copy of them;
/// `in_place`, a bool that the in-place form sets before it saves;
/// `accepts_hidden`, true if run() copes with tensors in hidden layouts (athanor/ops/hidden.h); `inputs_apart`, true if
/// run() may read an input where it has written already, so that the in-place and out= forms copy inputs that share
/// memory with what they write; `out_rule`, what the out= form asks of the dtype (OutRule). No `grad`: not
/// differentiable.
/// Gradients are written with public ops, so they can be differentiated again; the engine reduces a gradient to its
/// input's shape and dtype, so broadcasting needs no code.
///
/// A view op (ATHANOR_VIEW) has `Geometry view(const Tensor& self)` instead of infer and run; the flag `inplace_view`
/// adds the form that turns self into the view.
/// A composite (ATHANOR_FUNCTION) is a plain function written with other ops; only its declaration is generated.
/// ATHANOR_ALIAS("absolute", "abs") gives an op another name, all overloads and forms included.

#include <array>
#include <initializer_list>
#include <optional>
#include <tuple>

#include "athanor/ops/history.h"
#include "athanor/ops/launch.h"
#include "athanor/profiler/record.h"
#include "athanor/tape/wanted_edges.h"
#include "athanor/tensor/generator.h"

#define ATHANOR_OP(text) static constexpr const char* schema = text
#define ATHANOR_VIEW(text) static constexpr const char* schema = text
#define ATHANOR_FUNCTION(text) static_assert(sizeof(text) > 1)
#define ATHANOR_ALIAS(alias, name) static_assert(sizeof(alias) > 1 && sizeof(name) > 1)

namespace athanor::ops {

/// In this room a tensor has no methods; programs see athanor::Tensor.
using Tensor = TensorBase;
using TensorList = TensorBaseList;

/// Shape, dtype and device of a result to be made; no strides means row-major.
struct Meta {
  DimVector sizes;
  DType dtype = DType::Undefined;
  Device device;
  DimVector strides;
  /// Positive: made in blocks of as many channels, if the op accepts hidden layouts (athanor/ops/hidden.h).
  std::int16_t block = 0;
};

/// Geometry of a view.
struct Geometry {
  DimVector sizes, strides;
  std::int64_t offset = 0;
};

/// "softmax" of "softmax.int(Tensor self, …)".
std::string op_name(const char* schema);
/// Throws Error naming the op of `schema` (or of a plain name): one of its tensors is undefined.
[[noreturn]] void fail_undefined_operand(const char* schema);
/// t itself, if it is defined.
inline const Tensor& given(const char* schema, const Tensor& t) {
  if (__builtin_expect(!t.defined(), 0)) fail_undefined_operand(schema);
  return t;
}
/// "SoftmaxBackward0".
std::string default_grad_name(const char* schema);

/// Tells the profiler, if one records, of the call of an op for as long as its scope. `code`: the form, the number of
/// inputs from bit 2, and from bit 8 a bit for each that is a list. Then the addresses of the inputs.
[[gnu::cold]] std::uint64_t begin_call(const char* schema, unsigned code, ...) noexcept;
class CallScope : public profiler::detail::Scope {
 public:
  template <class... In>
  CallScope(const char* schema, profiler::detail::Form form, const In&... in) {
    if (__builtin_expect(profiler::detail::is_recording(), 0)) {
      static_assert(sizeof...(In) <= 24);
      unsigned bit = 128, lists = 0;
      ((bit <<= 1, lists |= std::is_same_v<In, Tensor> ? 0 : bit), ...);
      token_ = begin_call(schema, static_cast<unsigned>(form) | sizeof...(In) << 2 | lists, &in...);
    }
  }
};

/// What grad() works on.
class GradCall {
 public:
  GradCall(Node* node, const GradList& in, GradList& out) : node_(node), in_(in), out_(out) {}
  /// Gradient of result i; undefined if nothing flowed there.
  const Tensor& grad(std::size_t i = 0) const { return in_[i]; }
  bool has(std::size_t i) const { return i < in_.size() && in_[i].defined(); }
  /// The same with zeros in place of undefined.
  Tensor grad_or_zeros(std::size_t i) const;
  /// True if input i (tensors counted in schema order, lists element by element) wants its gradient, and so does the
  /// backward that runs.
  bool needs(std::size_t i) const { return athanor::detail::wants_gradient(*node_, i); }
  void set(std::size_t i, Tensor g) { out_[i] = std::move(g); }
  Tensor get(const SavedTensor& s) const { return s.get(node_); }
  Node* node() const { return node_; }
  std::size_t num_inputs() const { return node_->num_edges(); }

 private:
  Node* node_;
  const GradList& in_;
  GradList& out_;
};

[[noreturn]] void fail_released(const Node& node);

struct SaveNames {
  int save, save_results;
};
template <class Op>
struct WithSaveNames : Op, SaveNames {};
/// Whether the op keeps tensors for backward. Where it keeps none, nothing is freed and backward may come again, as in
/// PyTorch. A name that both bases have is ambiguous: that finds members which are templates or overloaded, too.
template <class Op>
inline constexpr bool saves_for_backward = !requires {
  &WithSaveNames<Op>::save;
  &WithSaveNames<Op>::save_results;
};

template <class Op>
class OpNode final : public Node, public FreeList<OpNode<Op>> {
 public:
  explicit OpNode(Op&& o) : op_(std::move(o)) {}
  Op& op() { return *op_; }
  void apply(const GradList& in, GradList& out) override {
    if (__builtin_expect(!op_.has_value(), 0)) fail_released(*this);
    GradCall call(this, in, out);
    op_->grad(call);
  }
  std::string name() const override {
    if constexpr (requires { Op::grad_name; })
      return Op::grad_name;
    else
      return default_grad_name(Op::schema);
  }
  void release() override {
    if constexpr (saves_for_backward<Op>) op_.reset();
  }

 private:
  std::optional<Op> op_;
};

template <class Op>
inline constexpr bool is_differentiable = requires(Op& o, GradCall& g) {
  o.grad(g);
};

inline bool wants_grad(const Tensor& t) {
  return t.requires_grad() || (t.impl() && t.impl()->autograd && gradient_edge(t).is_valid());
}
inline bool wants_grad(const TensorList& list) {
  for (const auto& t : list)
    if (wants_grad(t)) return true;
  return false;
}
inline void add_edges(Node& n, const Tensor& t) { n.add_edge(gradient_edge(t)); }
inline void add_edges(Node& n, const TensorList& list) {
  for (const auto& t : list) n.add_edge(gradient_edge(t));
}

/// Throws unless all tensors are on one device; 0-d host tensors go anywhere.
void check_device_list(const char* schema, const std::vector<const Tensor*>& tensors);

template <class Op, class... In>
IntrusivePtr<OpNode<Op>> make_node(Op& op, const In&... in) {
  // Edges first: a leaf's accumulator made here must be older than the node.
  IntrusivePtr<OpNode<Op>> node;
  if constexpr ((std::is_same_v<In, Tensor> && ...)) {
    Edge edges[] = {gradient_edge(in)...};
    node = make_intrusive<OpNode<Op>>(std::move(op));
    for (Edge& e : edges) node->add_edge(std::move(e));
  } else {
    node = make_intrusive<OpNode<Op>>(std::move(op));
    (add_edges(*node, in), ...);
  }
  if constexpr (requires { node->op().save(std::as_const(static_cast<Node&>(*node)), in...); })
    node->op().save(static_cast<const Node&>(*node), in...);
  return node;
}

/// The old values of `self`, for a node that will read them after an in-place op; differentiable like self.
Tensor copy_for_backward(const Tensor& self);

/// Whether the in-place form must keep a copy of self: `keeps_self` of the op, a constant or a function of the node.
template <class Op>
bool keeps_self(const Op& op, const Node& node) {
  (void)op, (void)node;
  if constexpr (requires { op.keeps_self(node); })
    return op.keeps_self(node);
  else if constexpr (requires { Op::keeps_self; })
    return Op::keeps_self;
  else
    return false;
}

/// What check_inplace asks of a tensor that requires grad, asked of one that is about to get a history. Throws Error
/// for a view of a leaf, and for views whose origin forbids it.
void check_recorded_view(const Tensor& self, std::string_view op);

/// make_node for an in-place op on `self`.
template <class Op, class... In>
IntrusivePtr<OpNode<Op>> make_inplace_node(Op& op, const Tensor& self, const In&... in) {
  if (self.impl()->autograd) check_recorded_view(self, Op::schema);
  // Edges first, as in make_node.
  IntrusivePtr<OpNode<Op>> node;
  if constexpr ((std::is_same_v<In, Tensor> && ...)) {
    Edge edges[] = {gradient_edge(self), gradient_edge(in)...};
    node = make_intrusive<OpNode<Op>>(std::move(op));
    for (Edge& e : edges) node->add_edge(std::move(e));
  } else {
    node = make_intrusive<OpNode<Op>>(std::move(op));
    add_edges(*node, self);
    (add_edges(*node, in), ...);
  }
  const Node& n = *node;
  if constexpr (requires { node->op().in_place; }) node->op().in_place = true;
  if constexpr (requires { node->op().save(n, self, in...); }) {
    if (keeps_self(node->op(), n))
      node->op().save(n, copy_for_backward(self), in...);
    else
      node->op().save(n, self, in...);
  }
  return node;
}

/// The op declares `static constexpr bool accepts_hidden = true`.
template <class Op>
inline constexpr bool accepts_hidden = requires {
  requires Op::accepts_hidden;
};

Tensor allocate_hidden(const Meta& m);
template <class Op>
inline Tensor allocate(const Meta& m) {
  if constexpr (accepts_hidden<Op>) {
    if (__builtin_expect(m.block > 0, 0)) return allocate_hidden(m);
  }
  return detail::empty_tensor(m.sizes, m.dtype, m.device, m.strides);
}
inline void mark_inference(const Tensor& t) {
  if (__builtin_expect(InferenceMode::is_enabled(), 0)) t.impl()->inference = true;
}

template <class... In>
inline void check_inputs(const char* schema, const In&... in) {
  bool host = true;
  auto look = [&](const auto& t) {
    if constexpr (std::is_same_v<std::decay_t<decltype(t)>, Tensor>)
      host = host && (!t.defined() || t.impl()->device.is_host());
    else
      for (const auto& e : t) host = host && (!e.defined() || e.impl()->device.is_host());
  };
  (look(in), ...);
  if (__builtin_expect(!host, 0)) {
    std::vector<const Tensor*> all;
    auto add = [&](const auto& t) {
      if constexpr (std::is_same_v<std::decay_t<decltype(t)>, Tensor>)
        all.push_back(&t);
      else
        for (const auto& e : t) all.push_back(&e);
    };
    (add(in), ...);
    check_device_list(schema, all);
  }
}

/// Makes a result of `node`, which an undefined or integer one does not keep, that node's. `attach_only_result` takes
/// the share of `node` over if it keeps it.
void attach_result(const Tensor& t, const IntrusivePtr<Node>& node);
void attach_only_result(const Tensor& t, IntrusivePtr<Node>& node);

template <class Op, class Out, std::size_t... I>
void attach_results(OpNode<Op>& node, IntrusivePtr<Node>& holder, const Out& outs, std::index_sequence<I...>) {
  if constexpr (sizeof...(I) == 1)
    (attach_only_result(outs[I], holder), ...);
  else
    (attach_result(outs[I], holder), ...);
  if constexpr (requires { node.op().save_results(static_cast<Node*>(&node), outs[I]...); })
    node.op().save_results(static_cast<Node*>(&node), outs[I]...);
}

/// The part of a call after its inputs were prepared.
template <class Op, std::size_t N, class... In>
std::array<Tensor, N> call_prepared(Op op, const In&... in) {
  check_inputs(Op::schema, in...);
  std::array<Tensor, N> outs;
  auto spec = op.infer(in...);
  if constexpr (N == 1)
    outs[0] = allocate<Op>(spec);
  else
    for (std::size_t i = 0; i < N; ++i)
      if (spec[i].dtype != DType::Undefined) outs[i] = allocate<Op>(spec[i]);
  auto run = [&]<std::size_t... I>(Op & o, std::index_sequence<I...>) { o.run(outs[I]..., in...); };
  constexpr auto indices = std::make_index_sequence<N>();
  if constexpr (is_differentiable<Op>) {
    if (GradMode::is_enabled() && (wants_grad(in) || ...)) {
      auto made = make_node(op, in...);
      OpNode<Op>& node = *made;
      IntrusivePtr<Node> holder = std::move(made);
      run(node.op(), indices);
      attach_results(node, holder, outs, indices);
      return outs;
    }
  }
  run(op, indices);
  for (const Tensor& t : outs)
    if (t.defined()) mark_inference(t);
  return outs;
}

/// An op's `ready(inputs...)` tells whether prepare() would change nothing, which spares copies of the handles.
template <class Op, std::size_t N, class... In>
std::array<Tensor, N> call_n(Op op, const In&... in) {
  const CallScope scope(Op::schema, profiler::detail::Form::Plain, in...);
  if constexpr (requires { op.ready(in...); }) {
    if (__builtin_expect(op.ready(in...), 1)) return call_prepared<Op, N, In...>(std::move(op), in...);
  }
  if constexpr (requires(In & ... copy) { op.prepare(copy...); }) {
    return [&](In... copy) {
      op.prepare(copy...);
      return call_prepared<Op, N, In...>(std::move(op), copy...);
    }(in...);
  } else {
    return call_prepared<Op, N, In...>(std::move(op), in...);
  }
}

/// Runs an op with one result.
template <class Op, class... In>
inline Tensor call(Op op, const In&... in) {
  return std::move(call_n<Op, 1, In...>(std::move(op), in...)[0]);
}

void check_result_fits(const char* schema, const Meta& m, const Tensor& self);
void check_no_internal_overlap(const Tensor& t, const char* schema);
/// Whether a stride of 0 lets several elements share memory.
bool is_expanded(const Tensor& t);
/// `in` itself, or a copy if it shares memory with `out` in another geometry, or, if it has to be `apart`, in any.
Tensor without_overlap(const Tensor& in, const Tensor& out, bool apart = false);
inline TensorList without_overlap(const TensorList& in, const Tensor&, bool = false) { return in; }
/// The op declares `static constexpr bool inputs_apart = true`.
template <class Op>
inline constexpr bool inputs_apart = requires {
  requires Op::inputs_apart;
};

/// What the out= form asks of the dtype of `out`, where it is not that the result can be cast to it.
enum OutRule : unsigned {
  kCastable = 0,
  kOwnDtype = 1,        ///< the result's
  kOwnDtypeOrByte = 2,  ///< that or uint8, and bool for uint8
  kAnyDtype = 3,        ///< any
};
/// That of a call: a dtype that was asked for is to be that of `out`.
template <class Op>
OutRule out_rule_of(const Op& op) {
  (void)op;
  if constexpr (requires { Op::out_rule; })
    return Op::out_rule;
  else if constexpr (requires { op.dtype.has_value(); })
    return op.dtype.has_value() ? kOwnDtype : kCastable;
  else
    return kCastable;
}
/// Resizes `out` to fit; throws unless autograd allows an out= call.
void prepare_out(const char* schema, const Meta& m, const Tensor& out, bool any_requires_grad,
                 OutRule rule = kCastable);
/// The same before an op runs; inputs that read what `out` will hold are replaced by copies.
void begin_out(const char* schema, const Meta& m, const Tensor& out, std::initializer_list<Tensor*> inputs, bool apart,
               OutRule rule);
/// Counts and records that every element of `self` was replaced by something that has no gradient.
void record_overwrite(const Tensor& self);
/// out = value converted; used where the result's dtype is not the destination's.
void copy_into(const Tensor& out, const Tensor& value);
/// The out= form of composites, whose value is computed aside and then copied. First, what can be refused before the
/// value is there: `out` as autograd sees it.
void check_out(const char* name, const Tensor& out, bool any_requires_grad = false);
/// Of those that make a tensor: its dtype and device, with the same checks.
TensorOptions options_of_out(const char* name, const Tensor& out);
void composite_out(const char* name, const Tensor& out, const Tensor& value, OutRule rule = kCastable);
/// Of those that fill what there is: `out` keeps its shape if it has as many elements.
void filling_out(const char* name, const Tensor& out, const Tensor& value);
/// Gives `out` the size; its elements stay if that is the one it has, and are any if not.
void resize_out(const char* name, const Tensor& out, IntArrayRef size);
/// The out= form of ops with several results. Throws, before anything is written, unless each `out` has its result's
/// dtype.
void composite_outs(const char* name, std::initializer_list<Tensor> outs, std::initializer_list<Tensor> values);
/// The in-place form of composites: computed aside, then copied.
/// `compute` makes the new value from self, or from a copy of it if a gradient will need the old one.
template <class F>
void composite_inplace(const char* name, const Tensor& self, F&& compute) {
  check_inplace(self, name);
  check_no_internal_overlap(self, name);
  const Tensor value = compute(GradMode::is_enabled() && wants_grad(self) ? copy_for_backward(self) : self);
  check_result_fits(name, Meta{DimVector(value.sizes()), value.dtype(), value.device(), {}}, self);
  copy_into(self, value);
}

/// The in-place form: the same kernel with out = self.
template <class Op, class... In>
void call_inplace(Op op, const Tensor& self_, In... in) {
  const CallScope scope(Op::schema, profiler::detail::Form::InPlace, self_, in...);
  check_inplace(self_, Op::schema);
  Tensor self = self_;  // NOLINT(performance-unnecessary-copy-initialization): prepare() may change it
  if constexpr (requires { op.prepare(self, in...); }) op.prepare(self, in...);
  check_inputs(Op::schema, self, in...);
  const Meta m = op.infer(self, in...);
  check_result_fits(Op::schema, m, self_);
  check_no_internal_overlap(self_, Op::schema);
  if (__builtin_expect(m.dtype != self_.dtype() || !self.is_same(self_), 0)) {
    copy_into(self_, call(std::move(op), self_, in...));
    return;
  }
  ((in = without_overlap(in, self, inputs_apart<Op>)), ...);
  if constexpr (is_differentiable<Op>) {
    if (GradMode::is_enabled() && (wants_grad(self) || ... || wants_grad(in))) {
      auto node = make_inplace_node(op, self, in...);
      node->op().run(self, self, in...);
      self.impl()->bump_version();
      rebase_history(self, IntrusivePtr<Node>(node));
      if constexpr (requires { node->op().save_results(static_cast<Node*>(node.get()), self); })
        node->op().save_results(static_cast<Node*>(node.get()), self);
      return;
    }
  }
  op.run(self, self, in...);
  self.impl()->bump_version();
}

/// The out= form. `out` is resized if its shape differs; it may be one of the inputs.
template <class Op, class... In>
void call_out(Op op, const Tensor& out, In... in) {
  const CallScope scope(Op::schema, profiler::detail::Form::Out, in...);
  ATHANOR_CHECK(out.defined(), op_name(Op::schema), ": out= is not defined; make it with empty({0})");
  if constexpr (requires { op.prepare(in...); }) op.prepare(in...);
  check_inputs(Op::schema, in...);
  const Meta m = op.infer(in...);
  begin_out(Op::schema, m, out, {&in...}, inputs_apart<Op>, out_rule_of(op));
  if (m.dtype != out.dtype()) {
    copy_into(out, call(std::move(op), in...));
    return;
  }
  op.run(out, in...);
  out.impl()->bump_version();
}

/// Runs a view op: shares storage, records, notes the base.
template <class Op>
Tensor call_view(Op op, const Tensor& self, ViewOrigin origin = ViewOrigin::Ordinary) {
  const CallScope scope(Op::schema, profiler::detail::Form::Plain, self);
  const Geometry g = op.view(given(Op::schema, self));
  Tensor out = detail::alias(self, g.sizes, g.strides, g.offset);
  note_view(out, self, origin);
  if (GradMode::is_enabled() && wants_grad(self)) {
    set_history(out, make_node(op, self));
  }
  return out;
}

/// Gives `t` the geometry g, keeping storage and identity.
void set_geometry(const Tensor& t, const Geometry& g);

/// The in-place form of a view op: self becomes the view, and its graph goes on through the view's node.
template <class Op>
void call_view_inplace(Op op, const Tensor& self) {
  const CallScope scope(Op::schema, profiler::detail::Form::InPlace, self);
  check_inplace(self, Op::schema);
  const Geometry g = op.view(self);
  IntrusivePtr<Node> node;
  if (GradMode::is_enabled() && wants_grad(self)) node = IntrusivePtr<Node>(make_node(op, self));
  set_geometry(self, g);
  if (node) set_history(self, node);
}

}  // namespace athanor::ops
