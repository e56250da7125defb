// Distinct values and distinct rows.
#include <algorithm>
#include <numeric>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/order_lines.h"
#include "athanor/device/cpu/owned_view.h"
#include "athanor/device/cpu/radix_sort.h"
#include "athanor/device/cpu/sort_line.h"
#include "athanor/ops/kernels/scan_sort.h"

namespace athanor::cpu {
namespace {

/// Most different values for which a table of counts is kept instead of sorting.
constexpr std::int64_t kMostTable = 1 << 16;

/// What unique gives besides the values; inverse and counts may be null.
struct Found {
  std::int64_t* inverse;
  std::int64_t* counts;
  std::int64_t* count;
};

/// NaNs are all distinct.
template <class T>
bool same_element(T a, T b) {
  return order_key(a) == order_key(b) && !is_nan_element(a);
}

/// Groups of neighbours. `starts(i)`: position i > 0 begins a new group; `take(group, i)`: it is the first of it;
/// `place(i)`: where position i's group number goes.
template <class Starts, class Take, class Place>
void group(std::int64_t n, const Found& found, const Starts& starts, const Take& take, const Place& place) {
  std::int64_t g = -1, first = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (i == 0 || starts(i)) {
      if (found.counts && g >= 0) found.counts[g] = i - first;
      first = i;
      take(++g, i);
    }
    if (found.inverse) found.inverse[place(i)] = g;
  }
  if (found.counts && g >= 0) found.counts[g] = n - first;
  *found.count = g + 1;
}

template <class T>
void unique_by_table(T* values, const T* in, std::int64_t n, const Ranker<T>& ranker, const Found& found) {
  const std::int64_t size = std::int64_t{1} << ranker.bits;
  std::vector<std::int64_t> table(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < n; ++i) ++table[ranker(in[i])];
  std::int64_t g = 0;
  for (std::int64_t r = 0; r < size; ++r) {
    std::int64_t& entry = table[static_cast<std::size_t>(r)];
    if (entry == 0) continue;
    values[g] = order_value<T>(ranker.key(static_cast<KeyOf<T>>(r)));
    if (found.counts) found.counts[g] = entry;
    entry = g++;
  }
  *found.count = g;
  if (!found.inverse) return;
  parallel_for(0, n, kRadixGrain, [&](std::int64_t b, std::int64_t e) {
    for (; b < e; ++b) found.inverse[b] = table[ranker(in[b])];
  });
}

template <class T>
void unique_values(T* values, const T* in, std::int64_t n, bool consecutive, const Found& found) {
  if (n == 0) {
    *found.count = 0;
    return;
  }
  if (consecutive)
    return group(
        n, found, [&](std::int64_t i) { return !same_element(in[i], in[i - 1]); },
        [&](std::int64_t g, std::int64_t i) { values[g] = in[i]; }, [](std::int64_t i) { return i; });
  if constexpr (!is_floating_v<T>) {
    const Ranker<T> ranker(line_key_range(in, dtype_of_v<T>, n), false);
    if (ranker.bits < 62 && std::int64_t{1} << ranker.bits <= std::min(kMostTable, 4 * n))
      return unique_by_table(values, in, n, ranker, found);
  }
  const HostBuffer<T> sorted(n);
  const HostBuffer<std::int64_t> places(found.inverse ? n : 0);
  sort_line(in, n, false, sorted.data(), places.data());
  group(
      n, found, [&](std::int64_t i) { return !same_element(sorted[i], sorted[i - 1]); },
      [&](std::int64_t g, std::int64_t i) { values[g] = sorted[i]; }, [&](std::int64_t i) { return places[i]; });
}

/// A view's int64 elements in dense memory, written back at the end if they were not.
class DenseIndices {
 public:
  explicit DenseIndices(const View& v) : view_(v), copy_(v.defined() && !v.contiguous ? v.numel : 0) {}
  std::int64_t* data() const {
    return !view_.defined() ? nullptr : view_.contiguous ? view_.ptr<std::int64_t>() : copy_.data();
  }
  void finish() const {
    if (copy_.data()) store_range(view_, 0, copy_.data(), DType::Long, view_.numel);
  }

 private:
  const View& view_;
  HostBuffer<std::int64_t> copy_;
};

void unique_cpu(const View& values, const View& inverse, const View& counts, const View& count, const View& in,
                bool consecutive) {
  const View from = as_bytes(in);
  const Dense dense(from);
  const DenseIndices places(inverse);
  const Found found{places.data(), counts.defined() ? counts.ptr<std::int64_t>() : nullptr, count.ptr<std::int64_t>()};
  dispatch_all(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) unique_values(values.ptr<T>(), dense.as<T>(), in.numel, consecutive, found);
  });
  places.finish();
}

// ---- rows

template <class T>
class RowGroups {
 public:
  RowGroups(const T* in, std::int64_t rows, std::int64_t width) : in_(in), rows_(rows), width_(width) {}

  bool same(std::int64_t a, std::int64_t b) const {
    for (std::int64_t c = 0; c < width_; ++c)
      if (!same_element(at(a, c), at(b, c))) return false;
    return true;
  }

  /// Rows in lexicographic order, equals by index: by the first column at once, then each run of equals by the rest.
  std::vector<std::int64_t> order() const {
    std::vector<std::int64_t> places(static_cast<std::size_t>(rows_));
    std::iota(places.begin(), places.end(), std::int64_t{0});
    if (width_ == 0 || rows_ == 0) return places;
    const HostBuffer<T> column(rows_), sorted(rows_);
    for (std::int64_t r = 0; r < rows_; ++r) column[r] = at(r, 0);
    sort_line(column.data(), rows_, false, sorted.data(), places.data());
    for (std::int64_t i = 0; i < rows_;) {
      std::int64_t e = i + 1;
      while (e < rows_ && order_key(sorted[e]) == order_key(sorted[i])) ++e;
      if (e - i > 1)
        std::stable_sort(places.begin() + i, places.begin() + e,
                         [this](std::int64_t a, std::int64_t b) { return less(a, b); });
      i = e;
    }
    return places;
  }

 private:
  T at(std::int64_t row, std::int64_t column) const { return in_[row * width_ + column]; }
  bool less(std::int64_t a, std::int64_t b) const {
    for (std::int64_t c = 1; c < width_; ++c) {
      const auto x = order_key(at(a, c)), y = order_key(at(b, c));
      if (x != y) return x < y;
    }
    return false;
  }

  const T* in_;
  std::int64_t rows_, width_;
};

void unique_rows_cpu(const View& rows, const View& inverse, const View& counts, const View& count, const View& in,
                     bool consecutive) {
  const View from = as_bytes(in);
  const std::int64_t n = in.size(0), width = in.size(1);
  const DenseIndices places(inverse);
  const Found found{places.data(), counts.defined() ? counts.ptr<std::int64_t>() : nullptr, count.ptr<std::int64_t>()};
  dispatch_all(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) {
      const T* p = from.ptr<T>();
      const RowGroups<T> groups(p, n, width);
      const std::vector<std::int64_t> order = consecutive ? std::vector<std::int64_t>() : groups.order();
      const auto row = [&](std::int64_t i) { return consecutive ? i : order[static_cast<std::size_t>(i)]; };
      group(
          n, found, [&](std::int64_t i) { return !groups.same(row(i), row(i - 1)); },
          [&](std::int64_t g, std::int64_t i) { std::copy_n(p + row(i) * width, width, rows.ptr<T>() + g * width); },
          row);
    }
  });
  places.finish();
}

}  // namespace

ATHANOR_REGISTER_KERNEL(unique_kernel, CPU, &unique_cpu);
ATHANOR_REGISTER_KERNEL(unique_rows_kernel, CPU, &unique_rows_cpu);

}  // namespace athanor::cpu
