#include "athanor/tape/node.h"

#include <atomic>

#include "athanor/profiler/record.h"
#include "athanor/tape/anomaly.h"
#include "athanor/tape/autograd_meta.h"
#include "athanor/tape/grad_mode.h"
#include "athanor/tape/saved_hooks.h"
#include "athanor/tape/saved_tensor.h"
#include "athanor/tape/wanted_edges.h"

namespace athanor {

namespace detail {

thread_local TapeState tape_state __attribute__((tls_model("initial-exec")));
thread_local const WantedEdges* wanted_edges __attribute__((tls_model("initial-exec"))) = nullptr;

void destroy_autograd_meta(AutogradMeta* meta) { delete meta; }

bool view_got_history(const TensorImpl& view) {
  const AutogradMeta& meta = *view.autograd;
  if (!meta.is_view || meta.requires_grad || meta.view_version == view.version()) return false;
  const TensorImpl* base = meta.view_base.impl();
  return base->tracked && base->autograd && base->autograd->grad_fn;
}

AutogradMeta& autograd_meta(const TensorBase& t) {
  TensorImpl* i = t.impl();
  ATHANOR_CHECK(i, "autograd was asked about a tensor that is not defined");
  if (!i->autograd) i->autograd = new AutogradMeta;
  return *i->autograd;
}

std::uint64_t next_hook_id() {
  static std::atomic<std::uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace detail

namespace {

/// Each thread takes many numbers at a time; those taken last are greater than all in use.
constexpr std::uint64_t kNumbersTaken = 1024;
std::atomic<std::uint64_t> next_taken{1};
struct Numbers {
  std::uint64_t next = 0, end = 0;
};
constinit thread_local Numbers numbers __attribute__((tls_model("initial-exec")));

std::uint64_t next_number() {
  Numbers& own = numbers;
  if (__builtin_expect(own.next == own.end, 0)) {
    own.next = next_taken.fetch_add(kNumbersTaken, std::memory_order_relaxed);
    own.end = own.next + kNumbersTaken;
  }
  return own.next++;
}

/// Nodes whose deletion was asked for while another one is being deleted. Lies on the stack of who deletes the first: a
/// thread's destructors, in whatever order they run, may delete nodes.
struct Graveyard {
  static constexpr std::size_t kFew = 16;
  Node* few[kFew];  // most graphs need no more
  std::size_t count = 0;
  std::vector<Node*> more;
  void push(Node* node) {
    if (count < kFew)
      few[count++] = node;
    else
      more.push_back(node);
  }
  Node* pop() {
    if (!more.empty()) {
      Node* last = more.back();
      more.pop_back();
      return last;
    }
    return count > 0 ? few[--count] : nullptr;
  }
};
constinit thread_local Graveyard* graveyard __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

void Node::renumber(std::uint64_t beyond) {
  sequence_ = next_number();
  if (sequence_ < beyond) {
    numbers = {};
    sequence_ = next_number();
  }
  if (__builtin_expect(profiler::detail::is_recording(), 0)) profiler::detail::note_sequence(sequence_);
}

Node::Node() : sequence_(next_number()) {
  if (__builtin_expect(autograd::anomaly_enabled(), 0)) forward_trace() = autograd::current_backtrace();
  if (__builtin_expect(profiler::detail::is_recording(), 0)) profiler::detail::note_sequence(sequence_);
}
Node::~Node() = default;

void Node::give_up(Node* node) {
  if (!node || !node->give_up_share(node->weakly_held_)) return;
  if (graveyard) {
    graveyard->push(node);
    return;
  }
  Graveyard own;
  graveyard = &own;
  for (; node; node = own.pop()) delete node;
  graveyard = nullptr;
}

std::uint32_t Node::add_output(const TensorBase& t) {
  const std::size_t nr = num_outputs();
  if (nr > 0) more_outputs_.emplace_back();
  set_output(nr, t);
  return static_cast<std::uint32_t>(nr);
}

void Node::set_output(std::size_t i, const TensorBase& t) {
  OutputMeta& m = i == 0 ? first_output_ : more_outputs_[i - 1];
  if (!t.defined()) return;  // an optional result that this call does not have
  m.sizes = DimVector(t.sizes());
  m.dtype = t.dtype();
  m.device = t.device();
}

NodeHooks& Node::hooks() {
  if (!hooks_) hooks_ = std::make_unique<NodeHooks>();
  return *hooks_;
}

std::uint64_t Node::add_pre_hook(NodeHooks::Pre hook) {
  ATHANOR_CHECK(hook, "add_pre_hook: the hook is empty");
  return hooks().pre.emplace_back(detail::next_hook_id(), std::move(hook)).first;
}

std::uint64_t Node::add_post_hook(NodeHooks::Post hook) {
  ATHANOR_CHECK(hook, "add_post_hook: the hook is empty");
  return hooks().post.emplace_back(detail::next_hook_id(), std::move(hook)).first;
}

bool Node::del_pre_hook(std::uint64_t key) {
  return hooks_ && std::erase_if(hooks_->pre, [key](const auto& h) { return h.first == key; }) > 0;
}

bool Node::del_post_hook(std::uint64_t key) {
  return hooks_ && std::erase_if(hooks_->post, [key](const auto& h) { return h.first == key; }) > 0;
}

std::string& Node::forward_trace() {
  if (!trace_) trace_ = std::make_unique<std::string>();
  return *trace_;
}

namespace {
// Never the version of a stand-in: get() looks for these only where versions differ.
constexpr std::uint32_t kPacked = 1;
}  // namespace

void SavedTensor::save(const TensorBase& t) {
  is_result_ = false;
  if (__builtin_expect(t.defined() && t.impl()->inference && !InferenceMode::is_enabled(), 0))
    ATHANOR_THROW(Error,
                  "Inference tensors cannot be saved for backward. To work around you can make a clone to get a normal "
                  "tensor and use it in autograd.");
  if (__builtin_expect(detail::saved_tensor_hooks != nullptr, 0) && t.defined()) {
    tensor_ = detail::pack_saved(t, false);
    version_ = kPacked;
    return;
  }
  tensor_ = t;
  if (t.defined()) version_ = t.impl()->version();
}

void SavedTensor::save_result(const TensorBase& t, Node* node) {
  if (!t.defined()) return;
  const bool packs = __builtin_expect(detail::saved_tensor_hooks != nullptr, 0);
  version_ = packs ? kPacked : t.impl()->version();
  tensor_ = packs ? detail::pack_saved(t, true) : detail::alias(t, t.sizes(), t.strides(), t.storage_offset());
  is_result_ = true;
  const AutogradMeta* meta = t.impl()->autograd;
  result_nr_ = meta && meta->grad_fn.get() == node ? meta->output_nr : 0;
}

TensorBase SavedTensor::get(Node* node) const {
  if (!tensor_.defined()) return {};
  const std::uint32_t now = tensor_.impl()->version();
  if (__builtin_expect(now != version_, 0)) {
    if (detail::is_packed(tensor_)) return detail::unpack_saved(tensor_, node, result_nr_);
    std::string which;
    const AutogradMeta* meta = tensor_.impl()->autograd;
    if (is_result_)
      which = detail::str(", which is output ", result_nr_, " of ", node->name(), ",");
    else if (meta && meta->grad_fn)
      which = detail::str(", which is output ", meta->output_nr, " of ", meta->grad_fn->name(), ",");
    ATHANOR_THROW(Error,
                  "one of the variables needed for gradient computation has been modified by an inplace operation: [",
                  dtype_libtorch_name(tensor_.dtype()), "Tensor ", tensor_.sizes(), "]", which, " is at version ", now,
                  "; expected version ", version_, " instead. Hint: it was saved by ", node->name(),
                  "; clone it before the in-place change, or enable anomaly detection to find the call.");
  }
  if (!is_result_) return tensor_;
  TensorBase t = detail::alias(tensor_, tensor_.sizes(), tensor_.strides(), tensor_.storage_offset());
  AutogradMeta& meta = detail::autograd_meta(t);
  meta.grad_fn = IntrusivePtr<Node>(node);
  meta.output_nr = result_nr_;
  t.impl()->tracked = true;
  return t;
}

}  // namespace athanor
