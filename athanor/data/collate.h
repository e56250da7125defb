#pragma once
/// default_collate: a list of examples of any type to one batch, as Python's DataLoader does it. Not part of athanor.h.
///
/// Tensors are stacked; numbers become a tensor, texts a list; pairs, tuples, maps and lists of one length, and
/// Example, are collated part by part. `dataset.map(DefaultCollate<MyExample>())` makes it a loader's last transform.

#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "athanor/data/example.h"
#include "athanor/data/transforms.h"

namespace athanor::data {

namespace detail {
void check_collate(std::size_t examples);
[[noreturn]] void fail_collate_length(std::size_t expected, std::size_t got);
[[noreturn]] void fail_collate_key();

template <class T>
struct Collator {
  static_assert(std::is_arithmetic_v<T>,
                "default_collate knows tensors, numbers, texts, pairs, tuples, maps, lists and Example");
  static Tensor run(const std::vector<T>& values) {
    // float64 and int64 as Python's numbers, unless the type says otherwise.
    Tensor out = empty({static_cast<std::int64_t>(values.size())}, dtype_of_v<T>);
    std::copy(values.begin(), values.end(), out.template data_ptr<T>());
    return out;
  }
};
}  // namespace detail

/// Throws ValueError for no examples, lists of several lengths or maps of other keys; Error for tensors of several
/// shapes.
template <class T>
auto default_collate(const std::vector<T>& examples) {
  detail::check_collate(examples.size());
  return detail::Collator<T>::run(examples);
}

namespace detail {

/// The batch of what `part` gives of each example.
template <class T, class F>
auto collate_part(const std::vector<T>& examples, F&& part) {
  std::vector<std::decay_t<decltype(part(examples[0]))>> parts;
  parts.reserve(examples.size());
  for (const T& e : examples) parts.push_back(part(e));
  return default_collate(parts);
}

template <>
struct Collator<Tensor> {
  static Tensor run(const std::vector<Tensor>& values) {
    const NoGradGuard off;
    return stack(values);
  }
};
template <>
struct Collator<std::string> {
  static std::vector<std::string> run(const std::vector<std::string>& values) { return values; }
};
template <class A, class B>
struct Collator<std::pair<A, B>> {
  static auto run(const std::vector<std::pair<A, B>>& values) {
    return std::pair(collate_part(values, [](const auto& v) { return v.first; }),
                     collate_part(values, [](const auto& v) { return v.second; }));
  }
};
template <class... Parts>
struct Collator<std::tuple<Parts...>> {
  template <std::size_t... I>
  static auto each(const std::vector<std::tuple<Parts...>>& values, std::index_sequence<I...>) {
    return std::tuple(collate_part(values, [](const auto& v) { return std::get<I>(v); })...);
  }
  static auto run(const std::vector<std::tuple<Parts...>>& values) {
    return each(values, std::index_sequence_for<Parts...>());
  }
};
template <class T>
struct Collator<std::vector<T>> {
  static auto run(const std::vector<std::vector<T>>& values) {
    std::vector<decltype(default_collate(values[0]))> out;
    for (const auto& v : values)
      if (v.size() != values[0].size()) fail_collate_length(values[0].size(), v.size());
    for (std::size_t i = 0; i < values[0].size(); ++i)
      out.push_back(collate_part(values, [i](const auto& v) { return v[i]; }));
    return out;
  }
};
template <class Key, class T>
struct Collator<std::map<Key, T>> {
  static auto run(const std::vector<std::map<Key, T>>& values) {
    std::map<Key, decltype(default_collate(std::vector<T>()))> out;
    for (const auto& v : values)
      if (v.size() != values[0].size()) fail_collate_key();
    for (const auto& [key, first] : values[0])
      out.emplace(key, collate_part(values, [&key = key](const auto& v) {
                    const auto found = v.find(key);
                    if (found == v.end()) fail_collate_key();
                    return found->second;
                  }));
    return out;
  }
};
template <class Data>
struct Collator<Example<Data, example::NoTarget>> {
  static auto run(const std::vector<Example<Data, example::NoTarget>>& values) {
    auto data = collate_part(values, [](const auto& v) { return v.data; });
    return Example<decltype(data), example::NoTarget>(std::move(data));
  }
};
template <class Data, class Target>
struct Collator<Example<Data, Target>> {
  static auto run(const std::vector<Example<Data, Target>>& values) {
    auto data = collate_part(values, [](const auto& v) { return v.data; });
    auto target = collate_part(values, [](const auto& v) { return v.target; });
    return Example<decltype(data), decltype(target)>(std::move(data), std::move(target));
  }
};

}  // namespace detail

namespace transforms {

/// default_collate as the last transform of a dataset whose examples are of type Single.
template <class Single>
class DefaultCollate
    : public BatchTransform<std::vector<Single>, decltype(default_collate(std::declval<std::vector<Single>>()))> {
 public:
  using OutputBatch = decltype(default_collate(std::declval<std::vector<Single>>()));
  OutputBatch apply_batch(std::vector<Single> batch) override { return default_collate(batch); }
};

}  // namespace transforms

}  // namespace athanor::data
