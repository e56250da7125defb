#include "athanor/parallel/agreement.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "athanor/base/hash.h"
#include "athanor/ops/factory.h"

namespace athanor::nn::parallel {

using athanor::detail::str;

namespace {

// What is larger goes by itself, without being copied.
constexpr std::int64_t kTogether = std::int64_t{256} << 10;

std::int64_t bytes_of(const Tensor& t) { return t.numel() * static_cast<std::int64_t>(item_size(t.dtype())); }

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += str(i > 0 ? ", " : "", ranks[i]);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// "rank 0: float32 [3, 4]; ranks 1, 2: float32 [3, 5]".
std::string by_value(const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t r = 0; r < values.size(); ++r) {
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == values[r]; });
    if (it == groups.end()) it = groups.insert(groups.end(), {values[r], {}});
    it->second.push_back(static_cast<int>(r));
  }
  std::string text;
  for (const auto& [value, ranks] : groups) text += str(text.empty() ? "" : "; ", ranks_text(ranks), ": ", value);
  return text;
}

}  // namespace

std::vector<std::string> gather_texts(distributed::ProcessGroup& group, const std::string& text) {
  const auto n = static_cast<std::size_t>(group.size());
  Tensor lengths = zeros({group.size()}, kLong);
  const distributed::CallSite where = call_for("comparing the ranks' models");
  group.all_gather_into_tensor(lengths, athanor::tensor({static_cast<std::int64_t>(text.size())}), false, where);
  std::vector<Tensor> parts;
  for (std::size_t r = 0; r < n; ++r) parts.push_back(empty({lengths.data_ptr<std::int64_t>()[r]}, kByte));
  Tensor own = empty({static_cast<std::int64_t>(text.size())}, kByte);
  if (!text.empty()) std::memcpy(own.data_ptr(), text.data(), text.size());
  group.all_gather(parts, own, false, where);
  std::vector<std::string> texts;
  for (const Tensor& part : parts)
    texts.emplace_back(static_cast<const char*>(part.data_ptr()), static_cast<std::size_t>(part.numel()));
  return texts;
}

distributed::CallSite call_for(const std::string& purpose) {
  static std::mutex mutex;
  static auto* kept = new std::set<std::string>;  // the flight recorder may be read at the very end
  const std::lock_guard lock(mutex);
  return {kept->insert(purpose).first->c_str(), 0};
}

void broadcast_tensors(distributed::ProcessGroup& group, const std::vector<Tensor>& tensors, int root,
                       const std::string& purpose) {
  const NoGradGuard off;
  const distributed::CallSite where = call_for(purpose);
  std::int64_t total = 0;
  std::vector<Tensor> small;
  for (const Tensor& t : tensors) {
    if (bytes_of(t) > kTogether) {
      group.broadcast(t, root, false, where);
    } else if (t.numel() > 0) {
      small.push_back(t);
      total += bytes_of(t);
    }
  }
  if (total == 0) return;
  const Tensor packed = empty({total}, kByte);
  char* const base = static_cast<char*>(packed.data_ptr());
  std::int64_t at = 0;
  if (group.rank() == root)
    for (const Tensor& t : small) {
      const Tensor host = t.detach().to(Device()).contiguous();
      std::memcpy(base + at, host.data_ptr(), static_cast<std::size_t>(bytes_of(t)));
      at += bytes_of(t);
    }
  group.broadcast(packed, root, false, where);
  if (group.rank() == root) return;
  for (const Tensor& t : small) {
    const Tensor host = empty(t.sizes(), t.dtype());
    std::memcpy(host.data_ptr(), base + at, static_cast<std::size_t>(bytes_of(t)));
    at += bytes_of(t);
    Tensor(t).copy_(host);
  }
}

void check_same_tensors(distributed::ProcessGroup& group, const char* what, const char* kind,
                        const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::string text;
  for (const auto& [name, t] : tensors)
    text += str(name, '\t', t.dtype(), ' ', t.sizes(), t.is_contiguous() ? "" : str(" of strides ", t.strides()), '\n');
  const std::vector<std::string> all = gather_texts(group, text);
  if (std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == all[0]; })) return;

  std::vector<std::vector<std::string>> lists;
  std::vector<std::string> counts;
  std::size_t most = 0;
  for (const std::string& one : all) {
    lists.push_back(lines_of(one));
    most = std::max(most, lists.back().size());
    counts.push_back(str(lists.back().size()));
  }
  for (std::size_t i = 0; i < most; ++i) {
    std::vector<std::string> values, names;
    for (const auto& lines : lists) {
      const std::string line = i < lines.size() ? lines[i] : "\tnone";
      names.push_back(line.substr(0, line.find('\t')));
      values.push_back(line.substr(line.find('\t') + 1));
    }
    const auto alike = [](const auto& list) {
      return std::all_of(list.begin(), list.end(), [&](const auto& x) { return x == list[0]; });
    };
    if (alike(names) && alike(values)) continue;
    if (alike(names))
      ATHANOR_THROW(ValueError, what, ": ", kind, " '", names[0], "' differs between the ranks: ", by_value(values));
    for (std::size_t r = 0; r < names.size(); ++r)
      values[r] = names[r].empty() ? "none" : str("'", names[r], "' ", values[r]);
    ATHANOR_THROW(ValueError, what, ": the ranks' modules differ, beginning with ", kind, " number ", i + 1, ": ",
                  by_value(values), ". The number of ", kind, "s: ", by_value(counts));
  }
}

}  // namespace athanor::nn::parallel
