#include "athanor/ops/history.h"

#include <mutex>
#include <utility>

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/retain_grad.h"
#include "athanor/ops/view.h"
#include "athanor/tape/run_hooks.h"
#include "athanor/tape/wanted_edges.h"

namespace athanor {

AccumulateGrad::AccumulateGrad(TensorBase variable) : variable_(std::move(variable)) {
  weakly_held_ = true;
  add_output(variable_);
}

AccumulateGrad::~AccumulateGrad() {
  AutogradMeta& meta = *variable_.impl()->autograd;
  const std::lock_guard lock(meta.lock);
  if (meta.accumulator == this) meta.accumulator = nullptr;
}

namespace {
bool fills_storage(const TensorBase& t, std::int64_t numel) {
  return t.storage()->nbytes() == static_cast<std::size_t>(numel) * item_size(t.dtype());
}
}  // namespace

std::int64_t sole_holders(const TensorBase& t) {
  if (t.use_count() != 1) return 0;
  const AutogradMeta* meta = t.impl()->autograd;
  if (!meta || !meta->is_view) return 1;
  return meta->view_base.use_count() == 1 ? 2 : 0;
}

TensorBase joined_again(const GradList& parts, std::size_t count, std::int64_t dim) {
  if (GradMode::is_enabled() || !parts[0].defined()) return {};
  const TensorBase& first = parts[0];
  DimVector sizes(first.sizes());
  std::int64_t holders = 0, total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const TensorBase& part = parts[i];
    if (!part.defined() || part.impl()->tracked || !part.is_alias_of(first) || part.dtype() != first.dtype() ||
        part.strides() != first.strides() ||
        part.storage_offset() != first.storage_offset() + total * first.stride(dim))
      return {};
    const std::int64_t own = sole_holders(part);
    if (own == 0) return {};
    holders += own;
    total += part.size(dim);
  }
  if (first.storage()->use_count() != holders) return {};
  sizes[static_cast<std::size_t>(dim)] = total;
  std::int64_t numel = 1;
  for (const std::int64_t n : sizes) numel *= n;
  if (!fills_storage(first, numel)) return {};
  return detail::alias(first, sizes, first.strides(), first.storage_offset());
}

namespace {

/// Whether nobody else can see the gradient change. It must fill its storage, which it keeps.
bool is_sole(const TensorBase& grad) {
  return fills_storage(grad, grad.numel()) && grad.storage()->use_count() == sole_holders(grad);
}

/// The gradient may become `.grad` as it is.
bool may_steal(const TensorBase& grad) {
  return !GradMode::is_enabled() && is_sole(grad) && !grad.impl()->tracked && grad.is_non_overlapping_and_dense();
}

/// The gradient as `.grad`: no view, which it was of what the backward made.
TensorBase stolen(const TensorBase& grad) {
  const AutogradMeta* meta = grad.impl()->autograd;
  if (!meta || !meta->is_view) return grad;
  return detail::alias(grad, grad.sizes(), grad.strides(), grad.storage_offset());
}

void accumulate(AutogradMeta& meta, const TensorBase& variable, const TensorBase& grad) {
  ATHANOR_CHECK(!GradMode::is_enabled() || !meta.gradient_home.defined(),
                "backward with create_graph reached a parameter of a DistributedDataParallel, whose gradients are "
                "averaged outside the graph. Use autograd::grad(outputs, inputs, grad_outputs, true, true) for the "
                "gradient to differentiate again, and backward() without create_graph for the last one");
  if (!meta.grad.defined()) {
    if (meta.gradient_home.defined()) {
      ops::copy_(meta.gradient_home, grad);
      meta.grad = meta.gradient_home;
    } else if (may_steal(grad) && grad.strides() == variable.strides()) {
      meta.grad = stolen(grad);
    } else if (GradMode::is_enabled()) {
      meta.grad = ops::clone(grad);
    } else {
      meta.grad = ops::empty_like(variable);
      ops::copy_(meta.grad, grad);
    }
  } else if (!GradMode::is_enabled()) {
    ops::add_(meta.grad, grad);
  } else {
    meta.grad = ops::add(meta.grad, grad);
  }
}

}  // namespace

void AccumulateGrad::apply(const GradList& in, GradList&) {
  if (!in[0].defined()) return;
  AutogradMeta& meta = *variable_.impl()->autograd;
  {
    const std::lock_guard lock(meta.lock);
    accumulate(meta, variable_, in[0]);
  }
  if (meta.hooks) detail::for_each_hook(meta.hooks->post_accumulate, [&](const auto& hook) { hook(variable_); });
}

namespace {

/// Every gradient is wanted for as long as its scope.
struct AllWanted {
  ~AllWanted() { detail::wanted_edges = saved; }
  const detail::WantedEdges* saved = std::exchange(detail::wanted_edges, nullptr);
};

/// In-place change of a view, seen from its base: routes the gradient of the viewed part through the op's node.
class CopySlices final : public Node {
 public:
  CopySlices(const TensorBase& base, const TensorBase& view, IntrusivePtr<Node> inner)
      : base_sizes_(base.sizes()),
        base_strides_(base.strides()),
        view_sizes_(view.sizes()),
        view_strides_(view.strides()),
        offset_(view.storage_offset() - base.storage_offset()),
        inner_(std::move(inner)) {
    add_edge(gradient_edge(base));
    for (std::size_t i = 1; i < inner_->num_edges(); ++i) add_edge(inner_->edge(i));
  }

  void apply(const GradList& in, GradList& out) override {
    ATHANOR_CHECK(inner_,
                  "Trying to backward through the graph a second time (or directly access saved tensors after "
                  "they have already been freed). Specify retain_graph=True if you need it. In CopySlices");
    if (!in[0].defined()) return;
    TensorBase result = detail::empty_tensor(base_sizes_, in[0].dtype(), in[0].device(), base_strides_);
    ops::copy_(result, in[0]);
    TensorBase slice = ops::as_strided(result, view_sizes_, view_strides_, offset_);
    GradList inner_in(1);
    inner_in[0] = ops::clone(slice);
    GradList inner_out(inner_->num_edges());
    {
      // Its edges are not those that the backward walks; the first one's gradient goes on to the base.
      const AllWanted all;
      inner_->apply(inner_in, inner_out);
    }
    if (inner_out.size() > 0 && inner_out[0].defined())
      ops::copy_(slice, inner_out[0]);
    else
      ops::zero_(slice);
    out[0] = result;
    for (std::size_t i = 1; i < inner_out.size(); ++i) out[i] = inner_out[i];
  }
  std::string name() const override { return "CopySlices"; }
  void release() override {
    // A gradient's graph may lead to the inner node as well, from a result that it saved: then it runs once more.
    if (inner_ && inner_->use_count() == 1)
      inner_->release();
    else
      inner_.reset();
  }

 private:
  DimVector base_sizes_, base_strides_, view_sizes_, view_strides_;
  std::int64_t offset_;
  IntrusivePtr<Node> inner_;
};

/// The hook by which a tensor that is no leaf keeps its gradient.
struct RetainGrad {
  std::shared_ptr<TensorImpl*> self;  // the node must not keep the tensor alive, nor write to one that is gone
  std::uint32_t nr;

  void operator()(const GradList& grads) const {
    if (nr >= grads.size() || !grads[nr].defined() || !*self) return;
    const TensorBase keep{IntrusivePtr<TensorImpl>(*self)};
    TensorBase& grad = keep.impl()->autograd->grad;
    grad = grad.defined() ? ops::add(grad, grads[nr]) : ops::clone(grads[nr]);
  }
};

void stop_retaining(NodeHooks& hooks, const AutogradMeta& meta) {
  std::erase_if(hooks.retain, [&](const auto& entry) {
    const auto* hook = entry.second.template target<RetainGrad>();
    return hook && hook->self == meta.self;
  });
}

void start_retaining(Node& node, const AutogradMeta& meta) {
  node.hooks().retain.emplace_back(detail::next_hook_id(), RetainGrad{meta.self, meta.output_nr});
}

void attach(const TensorBase& t, IntrusivePtr<Node> node, std::uint32_t nr) {
  AutogradMeta& meta = detail::autograd_meta(t);
  const bool moves = meta.retains_grad && meta.grad_fn;
  if (moves) stop_retaining(meta.grad_fn->hooks(), meta);
  meta.grad_fn = std::move(node);
  meta.output_nr = nr;
  t.impl()->tracked = true;
  if (moves) start_retaining(*meta.grad_fn, meta);
}

}  // namespace

void retain_grad(const TensorBase& t) {
  const auto fn = grad_fn(t);
  if (!fn) return;
  AutogradMeta& meta = detail::autograd_meta(t);
  if (meta.retains_grad) return;
  meta.retains_grad = true;
  if (!meta.self) meta.self = std::make_shared<TensorImpl*>(t.impl());
  start_retaining(*fn, meta);
}

IntrusivePtr<Node> grad_fn(const TensorBase& t) {
  AutogradMeta* meta = detail::autograd_meta_or_null(t);
  if (!meta) return {};
  if (meta->is_view && meta->view_base.impl()->tracked && !meta->requires_grad &&
      meta->view_version != t.impl()->version()) {
    auto node = ops::make_as_strided_node(meta->view_base, t.sizes(), t.strides(), t.storage_offset());
    node->add_output(t);
    attach(t, std::move(node), 0);
    meta->view_version = t.impl()->version();
  }
  return meta->grad_fn;
}

Edge gradient_edge(const TensorBase& t) {
  if (!t.requires_grad()) {
    // A view of something that became tracked by an in-place op on another view.
    const AutogradMeta* meta = detail::autograd_meta_or_null(t);
    if (!meta || !meta->is_view || !meta->view_base.requires_grad() || meta->view_version == t.impl()->version())
      return {};
  }
  if (auto fn = grad_fn(t)) return {std::move(fn), t.impl()->autograd->output_nr};
  AutogradMeta& meta = *t.impl()->autograd;
  const std::lock_guard lock(meta.lock);
  if (meta.accumulator && meta.accumulator->try_retain()) return {IntrusivePtr<Node>::adopt(meta.accumulator), 0};
  auto node = make_intrusive<AccumulateGrad>(t);
  meta.accumulator = node.get();
  return {IntrusivePtr<Node>(std::move(node)), 0};
}

void set_history(const TensorBase& t, IntrusivePtr<Node> node) {
  const std::uint32_t nr = node->add_output(t);
  attach(t, std::move(node), nr);
  AutogradMeta& meta = *t.impl()->autograd;
  if (meta.is_view) meta.view_version = t.impl()->version();
}

void rebase_history(const TensorBase& t, const IntrusivePtr<Node>& node) {
  AutogradMeta* meta = detail::autograd_meta_or_null(t);
  if (!meta || !meta->is_view) {
    AutogradMeta& own = detail::autograd_meta(t);
    own.hooks.reset();
    set_history(t, node);
    return;
  }
  const TensorBase base = meta->view_base;
  node->add_output(t);
  auto slices = make_intrusive<CopySlices>(base, t, node);
  slices->add_output(base);
  attach(base, IntrusivePtr<Node>(std::move(slices)), 0);
  t.impl()->tracked = true;
  meta->view_version = t.impl()->version() - 1;  // grad_fn() makes a new node from the base
  grad_fn(t);
}

namespace {

void check_inplace_slow(const TensorBase& t, std::string_view op) {
  const TensorImpl* i = t.impl();
  ATHANOR_CHECK(i, op, ": an undefined tensor cannot be changed in place");
  if (__builtin_expect(i->inference && !InferenceMode::is_enabled(), 0))
    ATHANOR_THROW(Error, "Inplace update to inference tensor outside InferenceMode is not allowed (", op,
                  "). You can make a clone to get a normal tensor before doing inplace update.");
  const AutogradMeta* meta = i->autograd;
  if (!GradMode::is_enabled() || !meta) return;
  ATHANOR_CHECK(!(i->tracked && is_leaf(t)), op,
                ": a leaf Variable that requires grad is being used in an in-place operation.");
  // Whether another input gives the tensor a history is known only when the op records.
  if (t.requires_grad() || (meta->is_view && meta->view_base.requires_grad())) ops::check_recorded_view(t, op);
}

}  // namespace

void check_inplace(const TensorBase& t, const char* op) {
  if (__builtin_expect(t.impl() && !t.impl()->inference && !t.impl()->autograd, 1)) return;
  check_inplace_slow(t, std::string_view(op).substr(0, std::string_view(op).find_first_of(".(")));
}

void note_view(const TensorBase& view, const TensorBase& base, ViewOrigin origin) {
  if (InferenceMode::is_enabled()) return;
  AutogradMeta& meta = detail::autograd_meta(view);
  const AutogradMeta* base_meta = detail::autograd_meta_or_null(base);
  meta.is_view = true;
  meta.origin = GradMode::is_enabled() ? origin : ViewOrigin::NoGrad;
  // A leaf that happens to be a view of something else is where changes of its views end.
  if (base_meta && base_meta->is_view && !base_meta->requires_grad) {
    if (base_meta->origin != ViewOrigin::Ordinary && meta.origin == ViewOrigin::Ordinary)
      meta.origin = base_meta->origin;
    meta.view_base = base_meta->view_base;
  } else {
    meta.view_base = base;
  }
  meta.view_version = view.impl()->version();
}

bool is_leaf(const TensorBase& t) {
  const AutogradMeta* meta = detail::autograd_meta_or_null(t);
  if (!meta) return true;
  return !grad_fn(t);
}

void set_requires_grad(const TensorBase& t, bool on) {
  ATHANOR_CHECK(t.defined(), "requires_grad_: the tensor is not defined");
  ATHANOR_CHECK(!on || t.is_floating_point(), "Only Tensors of floating point dtype can require gradients, got ",
                t.dtype());
  ATHANOR_CHECK(is_leaf(t) || on,
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in "
                "a subgraph that doesn't require differentiation use var_no_grad = var.detach().");
  ATHANOR_CHECK(!(on && t.impl()->inference && !InferenceMode::is_enabled()),
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.");
  if (!on && !t.impl()->autograd) return;
  AutogradMeta& meta = detail::autograd_meta(t);
  if (meta.grad_fn) return;
  meta.requires_grad = on;
  t.impl()->tracked = on;
}

const TensorBase& grad_of(const TensorBase& t) {
  static const TensorBase& none = *new TensorBase;
  const AutogradMeta* meta = detail::autograd_meta_or_null(t);
  return meta ? meta->grad : none;
}

const char* why_no_grad(const TensorBase& t) {
  const AutogradMeta* meta = detail::autograd_meta_or_null(t);
  if (!meta || meta->grad.defined() || meta->retains_grad || is_leaf(t)) return nullptr;
  return "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
         "populated during autograd.backward(). Call .retain_grad() on the Tensor first if you want it; access the "
         "leaf Tensor instead if you are here by mistake.";
}

void set_grad(const TensorBase& t, const TensorBase& grad) {
  if (grad.defined()) {
    ATHANOR_CHECK(grad.sizes() == t.sizes(), "assigned grad has data of a different size: expected ", t.sizes(),
                  ", got ", grad.sizes());
    ATHANOR_CHECK(grad.dtype() == t.dtype(), "assigned grad has data of a different type: expected ", t.dtype(),
                  ", got ", grad.dtype());
    ATHANOR_CHECK(grad.device() == t.device(), "assigned grad has data located on a different device: expected ",
                  t.device(), ", got ", grad.device());
  }
  detail::autograd_meta(t).grad = grad;
}

}  // namespace athanor
