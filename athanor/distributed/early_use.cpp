#include "athanor/distributed/early_use.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "athanor/distributed/staging.h"
#include "athanor/tensor/use_watch.h"

namespace athanor::distributed {

struct EarlyUse::Watched {
  Tensor tensor;
  std::string used_by;
};

namespace {

struct Watches {
  std::mutex mutex;
  std::vector<EarlyUse::Watched*> all;
};
Watches& watches() {
  static auto* one = new Watches;  // ops may run while statics are destroyed
  return *one;
}

thread_local bool is_own = false;

// Where in its storage each element begins, in elements.
std::vector<std::int64_t> places(const TensorBase& t) {
  std::vector<std::int64_t> all = {t.storage_offset()};
  for (std::int64_t d = 0; d < t.dim(); ++d) {
    std::vector<std::int64_t> next;
    next.reserve(all.size() * static_cast<std::size_t>(t.size(d)));
    for (const std::int64_t at : all)
      for (std::int64_t i = 0; i < t.size(d); ++i) next.push_back(at + i * t.stride(d));
    all = std::move(next);
  }
  return all;
}

bool share_elements(const TensorBase& a, const TensorBase& b) {
  if (a.storage().get() != b.storage().get() || a.numel() == 0 || b.numel() == 0) return false;
  const auto bytes = [](const TensorBase& t) {
    std::int64_t last = t.storage_offset();
    for (std::int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    const auto item = static_cast<std::int64_t>(item_size(t.dtype()));
    return std::pair(t.storage_offset() * item, (last + 1) * item);
  };
  const auto [a_begin, a_end] = bytes(a);
  const auto [b_begin, b_end] = bytes(b);
  if (a_end <= b_begin || b_end <= a_begin) return false;
  if ((a.is_contiguous() && b.is_contiguous()) || a.dtype() != b.dtype()) return true;
  std::vector<std::int64_t> of_a = places(a);
  std::sort(of_a.begin(), of_a.end());
  const auto of_b = places(b);
  return std::any_of(of_b.begin(), of_b.end(),
                     [&](std::int64_t at) { return std::binary_search(of_a.begin(), of_a.end(), at); });
}

void on_use(const char* op, const TensorBase& tensor) noexcept {
  if (is_own || !tensor.storage()) return;
  try {
    Watches& w = watches();
    const std::lock_guard lock(w.mutex);
    for (EarlyUse::Watched* watched : w.all)
      if (watched->used_by.empty() && share_elements(watched->tensor, tensor))
        watched->used_by = std::string(op, std::strcspn(op, ".("));
  } catch (const std::exception&) {  // no memory to look closely
  }
}

}  // namespace

EarlyUse::EarlyUse(const Tensor& tensor) : watched_(std::make_unique<Watched>()) {
  if (Staged::direct(tensor)) {
    const Span span = Staged(tensor, Staged::Out).span();
    if (span.bytes() > 0) std::memset(span.data, span.dtype == DType::Bool ? 1 : 0xff, span.bytes());
  }
  watched_->tensor = tensor;
  Watches& w = watches();
  const std::lock_guard lock(w.mutex);
  w.all.push_back(watched_.get());
  if (w.all.size() == 1) athanor::detail::watch_uses(on_use);
}

EarlyUse::~EarlyUse() { end(); }

std::string EarlyUse::end() {
  if (!watched_) return {};
  {
    Watches& w = watches();
    const std::lock_guard lock(w.mutex);
    std::erase(w.all, watched_.get());
    if (w.all.empty()) athanor::detail::watch_uses(nullptr);
  }
  const auto ended = std::move(watched_);
  return ended->used_by;
}

void EarlyUse::note(const char* call, const Tensor& tensor) noexcept { athanor::detail::note_use(call, tensor); }

EarlyUse::Own::Own() : before_(std::exchange(is_own, true)) {}
EarlyUse::Own::~Own() { is_own = before_; }

}  // namespace athanor::distributed
