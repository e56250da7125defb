#pragma once
/// Node: one recorded call. Backward walks nodes in reverse order of their sequence numbers, which no two nodes share;
/// edges always lead to nodes with smaller numbers, so no dependency counting is needed. Between nodes of different
/// threads that no edges join the numbers say nothing about time.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "athanor/base/intrusive_ptr.h"
#include "athanor/tensor/tensor_base.h"

namespace athanor {

class Node;

/// Where a gradient goes: input `nr` of `node`; no node means nobody wants it.
struct Edge {
  IntrusivePtr<Node> node;
  std::uint32_t nr = 0;
  bool is_valid() const { return static_cast<bool>(node); }
};

/// The edges of a node, the first two inside it.
class EdgeList {
 public:
  std::size_t size() const { return size_; }
  const Edge& operator[](std::size_t i) const { return i < kInline ? few_[i] : more_[i - kInline]; }
  void push_back(Edge e) {
    if (size_ < kInline)
      few_[size_] = std::move(e);
    else
      more_.push_back(std::move(e));
    ++size_;
  }

 private:
  static constexpr std::size_t kInline = 2;
  Edge few_[kInline];
  std::vector<Edge> more_;
  std::size_t size_ = 0;
};

/// A short list of tensors, the first four inside it.
class GradList {
 public:
  explicit GradList(std::size_t n = 0) { resize(n); }
  GradList(const GradList&) = delete;
  GradList& operator=(const GradList&) = delete;
  GradList(GradList&& o) noexcept = default;
  GradList& operator=(GradList&& o) noexcept = default;
  void resize(std::size_t n) {
    size_ = n;
    if (n > kInline) more_.resize(n);
  }
  /// Lets go of all it holds, also of what a smaller size hides.
  void clear() {
    for (TensorBase& t : few_) t.reset();
    more_.clear();
    size_ = 0;
  }
  std::size_t size() const { return size_; }
  TensorBase& operator[](std::size_t i) { return size_ > kInline ? more_[i] : few_[i]; }
  const TensorBase& operator[](std::size_t i) const { return size_ > kInline ? more_[i] : few_[i]; }
  TensorBase* begin() { return size_ > kInline ? more_.data() : few_; }
  TensorBase* end() { return begin() + size_; }

 private:
  static constexpr std::size_t kInline = 4;
  TensorBase few_[kInline];
  std::vector<TensorBase> more_;
  std::size_t size_ = 0;
};

/// Shape, dtype and device of a forward result: what its gradient must look like.
struct OutputMeta {
  DimVector sizes;
  DType dtype = DType::Undefined;
  Device device;
};

/// Functions called before a node runs and after; they may put other gradients of the same shape, dtype and device in
/// the place of those of `grads` and `out`, of which an undefined one stands for zeros. Every call is of a copy: what a
/// hook is to remember lies behind a pointer.
struct NodeHooks {
  /// `grads`: one for each result of the recorded call.
  using Pre = std::function<void(GradList& grads)>;
  /// `out`: what was computed, one for each input of the recorded call; `in`: from what, as the pre-hooks left it.
  using Post = std::function<void(GradList& out, const GradList& in)>;
  std::vector<std::pair<std::uint64_t, Pre>> pre;
  std::vector<std::pair<std::uint64_t, Pre>> retain;  ///< run last: they see what the other hooks made
  std::vector<std::pair<std::uint64_t, Post>> post;
};

class Node : public RefCounted {
 public:
  Node();
  virtual ~Node();
  /// Gives up a share, if `node` is not null; the last one deletes without recursion, however long the chain of nodes
  /// behind it.
  static void give_up(Node* node);

  /// Computes the gradients of the inputs (`out`, one per edge) from those of the outputs (`in`). Undefined means zero.
  virtual void apply(const GradList& in, GradList& out) = 0;
  /// PyTorch's name of it: "AddBackward0".
  virtual std::string name() const = 0;
  /// Drops what was saved; using the node again throws.
  virtual void release() {}
  /// The tensor that a leaf node accumulates into, else nullptr.
  virtual TensorImpl* variable() const { return nullptr; }
  /// Whether apply() goes backward through a graph of its own, which may lead to any tensor.
  virtual bool has_inner_graph() const { return false; }
  std::uint64_t sequence_nr() const { return sequence_; }
  std::size_t num_edges() const { return edges_.size(); }
  const Edge& edge(std::size_t i) const { return edges_[i]; }
  void add_edge(Edge e) {
    // Made only now, when it is used: a leaf's accumulator, or the new node of a view whose base was changed.
    if (__builtin_expect(e.node && e.node->sequence_ > sequence_, 0)) renumber(e.node->sequence_);
    edges_.push_back(std::move(e));
  }
  /// Notes one more forward result and returns its number.
  std::uint32_t add_output(const TensorBase& t);
  std::size_t num_outputs() const { return first_output_.dtype == DType::Undefined ? 0 : 1 + more_outputs_.size(); }
  const OutputMeta& output(std::size_t i) const { return i == 0 ? first_output_ : more_outputs_[i - 1]; }
  void set_output(std::size_t i, const TensorBase& t);
  bool needs(std::size_t i) const { return i < edges_.size() && edges_[i].is_valid(); }

  /// Registers a hook, to be called after those that are there, at every backward through this node; returns its key.
  /// Hooks may register and remove hooks while they run: that counts from the next call on. Not while a backward of
  /// another thread is under way.
  std::uint64_t add_pre_hook(NodeHooks::Pre hook);
  std::uint64_t add_post_hook(NodeHooks::Post hook);
  /// Takes the hook of that key away. False if there is none (any more).
  bool del_pre_hook(std::uint64_t key);
  bool del_post_hook(std::uint64_t key);
  /// The lists themselves, for what the library keeps in them.
  NodeHooks& hooks();
  NodeHooks* hooks_or_null() const { return hooks_.get(); }
  /// Where the call was made, if anomaly mode was on.
  std::string& forward_trace();
  const std::string* forward_trace_or_null() const { return trace_.get(); }

 protected:
  bool weakly_held_ = false;  ///< a tensor may point at it without a share

 private:
  void renumber(std::uint64_t beyond);

  std::uint64_t sequence_;
  EdgeList edges_;
  OutputMeta first_output_;
  std::vector<OutputMeta> more_outputs_;
  std::unique_ptr<NodeHooks> hooks_;
  std::unique_ptr<std::string> trace_;
};

}  // namespace athanor
