#pragma once
/// Calling hooks that may register and remove hooks meanwhile, themselves too.

#include <algorithm>

namespace athanor::detail {

/// `call(hook)` for every hook of a list of (id, hook) pairs. What is registered meanwhile is called from the next time
/// on, what is removed not any more. Hooks are copied: who registers one with a state of its own shares it.
template <class List, class Call>
void for_each_hook(const List& list, Call&& call) {
  const List now = list;  // NOLINT(performance-unnecessary-copy-initialization): the list may change meanwhile
  for (const auto& entry : now) {
    const auto same = [&](const auto& other) { return other.first == entry.first; };
    if (std::any_of(list.begin(), list.end(), same)) call(entry.second);
  }
}

}  // namespace athanor::detail
