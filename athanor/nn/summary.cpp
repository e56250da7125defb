#include "athanor/nn/summary.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace athanor::nn {
namespace {

using Row = std::vector<std::string>;

/// 1234567 as 1,234,567.
std::string grouped(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(digits.begin() + at, ',');
  return digits;
}

/// Columns of equal width; the last one is aligned to the right.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string space(widths[i] - rows[r][i].size(), ' ');
      const bool last = i + 1 == widths.size();
      out += last ? space + rows[r][i] + "\n" : rows[r][i] + space + "  ";
    }
    if (r > 0) continue;
    for (std::size_t i = 0; i < widths.size(); ++i)
      out += std::string(widths[i], '-') + (i + 1 == widths.size() ? "\n" : "  ");
  }
  return out;
}

/// Hooks that note the results' shapes, taken off at the end.
class ShapeHooks {
 public:
  explicit ShapeHooks(const Module& model) {
    for (const auto& module : model.modules())
      hooks_.emplace_back(module,
                          module->register_forward_hook(
                              [this, raw = module.get()](Module&, const std::vector<Tensor>&, const Tensor& out) {
                                shapes[raw] = athanor::detail::str(out.sizes());
                                return Tensor();
                              }));
  }
  ~ShapeHooks() {
    for (auto& [module, id] : hooks_) module->remove_hook(id);
  }
  std::unordered_map<const Module*, std::string> shapes;

 private:
  std::vector<std::pair<std::shared_ptr<Module>, std::uint64_t>> hooks_;
};

}  // namespace

std::string summary(const std::shared_ptr<Module>& model, const std::function<void()>& run) {
  ATHANOR_CHECK_VALUE(model, "summary: got no module");
  std::unordered_map<const Module*, std::string> shapes;
  if (run) {
    const NoGradGuard off;
    ShapeHooks hooks(*model);
    run();
    shapes = std::move(hooks.shapes);
  }
  std::vector<Row> rows{run ? Row{"Module", "Class", "Result", "Parameters"} : Row{"Module", "Class", "Parameters"}};
  std::set<const TensorImpl*> counted;
  std::int64_t total = 0, training = 0, bytes = 0;
  for (const auto& item : model->named_modules()) {
    std::int64_t own = 0;
    for (const Tensor& p : item.value()->parameters(false)) {
      if (!counted.insert(p.impl()).second) continue;
      own += p.numel();
      training += p.requires_grad() ? p.numel() : 0;
      bytes += p.numel() * static_cast<std::int64_t>(p.itemsize());
    }
    total += own;
    Row row{item.key().empty() ? "(model)" : item.key(), item.value()->name()};
    if (run) {
      const auto it = shapes.find(item.value().get());
      row.push_back(it == shapes.end() ? "" : it->second);
    }
    row.push_back(own == 0 ? "" : grouped(own));
    rows.push_back(std::move(row));
  }
  std::int64_t buffers = 0;
  for (const Tensor& b : model->buffers()) {
    buffers += b.numel();
    bytes += b.numel() * static_cast<std::int64_t>(b.itemsize());
  }
  return table(rows) + "\nParameters: " + grouped(total) + ", training: " + grouped(training) +
         ", buffers: " + grouped(buffers) + ", bytes: " + grouped(bytes) + "\n";
}

}  // namespace athanor::nn
