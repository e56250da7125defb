#include "athanor/tape/saved_hooks.h"

#include <mutex>
#include <utility>

#include "athanor/base/error.h"
#include "athanor/tape/autograd_meta.h"
#include "athanor/tape/grad_mode.h"

namespace athanor {

namespace detail {
thread_local SavedTensorHooks* saved_tensor_hooks __attribute__((tls_model("initial-exec"))) = nullptr;
}  // namespace detail

SavedTensorHooks::SavedTensorHooks() : outer_(std::exchange(detail::saved_tensor_hooks, this)) {}
SavedTensorHooks::~SavedTensorHooks() { detail::saved_tensor_hooks = outer_; }
SavedTensorHooks* SavedTensorHooks::current() { return detail::saved_tensor_hooks; }

namespace {

// What lies behind a packed tensor's stand-in, where a tensor that programs see has its Python object.
struct Packed {
  std::unique_ptr<PackedTensor> content;
  OutputMeta meta;
  bool contiguous;
  bool is_result;
  Edge history;  // of an input
};

void release_packed(void* p) { delete static_cast<Packed*>(p); }

// Where the gradient of `t` goes. The call that saves it asked before, so that a leaf's accumulator is there.
Edge edge_of(const TensorBase& t) {
  AutogradMeta* meta = detail::autograd_meta_or_null(t);
  if (!meta) return {};
  if (meta->grad_fn) return {meta->grad_fn, meta->output_nr};
  const std::lock_guard lock(meta->lock);
  if (!meta->accumulator || !meta->accumulator->try_retain()) return {};
  return {IntrusivePtr<Node>::adopt(meta->accumulator), 0};
}

// Carries a leaf's gradient on, so that its tensor may be another than the leaf.
struct LeafNode final : Node {
  explicit LeafNode(Edge to) { add_edge(std::move(to)); }
  void apply(const GradList& in, GradList& out) override { out[0] = in[0]; }
  std::string name() const override { return "UnpackBackward"; }
};

}  // namespace

namespace detail {

bool is_packed(const TensorBase& t) { return t.impl()->identity_release == release_packed; }

TensorBase pack_saved(const TensorBase& t, bool is_result) {
  auto packed = std::make_unique<Packed>();
  packed->meta = {DimVector(t.sizes()), t.dtype(), t.device()};
  packed->contiguous = t.is_contiguous();
  packed->is_result = is_result;
  if (!is_result) packed->history = edge_of(t);
  {
    const NoGradGuard off;
    const std::uint32_t version = t.impl()->version();
    const TensorBase shown = is_result ? alias(t, t.sizes(), t.strides(), t.storage_offset()) : t;
    packed->content = saved_tensor_hooks->pack(shown);
    ATHANOR_CHECK(t.impl()->version() == version,
                  "A saved tensor pack hook is modifying its input in place: a tensor of shape ", t.sizes(),
                  ". Other calls may need its values; change a clone");
  }
  static const TensorBase& none = *new TensorBase(empty_tensor({0}, DType::Byte, Device()));
  TensorBase stand_in = alias(none, none.sizes(), none.strides(), 0);
  stand_in.impl()->identity = packed.release();
  stand_in.impl()->identity_release = release_packed;
  return stand_in;
}

TensorBase unpack_saved(const TensorBase& stand_in, Node* node, std::uint32_t nr) {
  const Packed& packed = *static_cast<const Packed*>(stand_in.impl()->identity);
  const OutputMeta& want = packed.meta;
  const TensorBase t = packed.content->unpack();
  ATHANOR_CHECK(t.defined() && t.sizes() == IntArrayRef(want.sizes) && t.dtype() == want.dtype &&
                    t.device() == want.device && (t.is_contiguous() || !packed.contiguous),
                "A saved tensor unpack hook should return what the pack hook was given, ", want.dtype, " ",
                IntArrayRef(want.sizes), " on ", want.device, packed.contiguous ? ", contiguous" : "", "; got ",
                t.defined() ? str(t.dtype(), " ", t.sizes(), " on ", t.device()) : "nothing", " for ", node->name());
  TensorBase result = alias(t, t.sizes(), t.strides(), t.storage_offset());
  Edge history = packed.is_result ? Edge{IntrusivePtr<Node>(node), nr} : packed.history;
  if (!history.node) return result;
  if (history.node->variable()) {
    auto leaf = make_intrusive<LeafNode>(std::move(history));
    leaf->add_output(result);
    history = {IntrusivePtr<Node>(std::move(leaf)), 0};
  }
  AutogradMeta& meta = autograd_meta(result);
  meta.grad_fn = std::move(history.node);
  meta.output_nr = history.nr;
  result.impl()->tracked = true;
  return result;
}

}  // namespace detail

}  // namespace athanor
