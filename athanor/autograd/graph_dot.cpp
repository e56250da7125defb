#include "athanor/autograd/graph_dot.h"

#include <unordered_map>

#include "athanor/tape/node.h"

namespace athanor::autograd {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + '"';
}

std::string label_of(const Node& node, const std::map<const TensorImpl*, std::string>& names) {
  if (TensorImpl* leaf = node.variable()) {
    const auto it = names.find(leaf);
    const std::string shape = athanor::detail::str(TensorBase(IntrusivePtr<TensorImpl>(leaf)).sizes());
    return it == names.end() ? shape : it->second + "\n" + shape;
  }
  std::string label = node.name();
  for (std::size_t i = 0; i < node.num_outputs(); ++i)
    label += "\n" + athanor::detail::str(IntArrayRef(node.output(i).sizes));
  return label;
}

}  // namespace

std::string to_dot(const std::vector<Tensor>& roots, const std::map<std::string, Tensor>& names) {
  std::map<const TensorImpl*, std::string> by_tensor;
  for (const auto& [name, t] : names) by_tensor[t.impl()] = name;
  // By falling sequence number: a node comes after all that lead to it.
  std::map<std::uint64_t, IntrusivePtr<Node>, std::greater<>> found;
  std::vector<Node*> todo;
  const auto meet = [&](const IntrusivePtr<Node>& node) {
    if (node && found.emplace(node->sequence_nr(), node).second) todo.push_back(node.get());
  };
  for (const Tensor& root : roots) {
    ATHANOR_CHECK_VALUE(root.defined(), "to_dot: got an undefined tensor");
    meet(gradient_edge(root).node);
  }
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    for (std::size_t i = 0; i < node->num_edges(); ++i) meet(node->edge(i).node);
  }
  std::string out = "digraph autograd {\n  node [shape=ellipse, fontname=\"monospace\"];\n";
  std::unordered_map<const Node*, std::string> ids;
  for (const auto& [number, node] : found) {
    std::string& id = ids[node.get()];
    id = "n" + std::to_string(ids.size());
    out += "  " + id + " [label=" + quoted(label_of(*node, by_tensor));
    if (node->variable()) out += ", shape=box, style=filled, fillcolor=lightblue";
    out += "];\n";
  }
  for (const auto& [number, node] : found)
    for (std::size_t i = 0; i < node->num_edges(); ++i)
      if (node->edge(i).is_valid()) out += "  " + ids[node.get()] + " -> " + ids[node->edge(i).node.get()] + ";\n";
  return out + "}\n";
}

}  // namespace athanor::autograd
