#include "athanor/ops/kernels/resample.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, std::int64_t, const ResampleTableRef&)> resample_kernel{"resample"};

std::int64_t ResampleTable::taps() const {
  const std::int64_t n = rows() > 0 ? begin[1] : 0;
  for (std::size_t r = 0; r + 1 < begin.size(); ++r)
    if (begin[r + 1] - begin[r] != n) return 0;
  return n;
}

ResampleTable ResampleTable::transposed() const {
  ResampleTable t;
  t.sources = rows();
  t.begin.assign(static_cast<std::size_t>(sources) + 1, 0);
  for (const std::int64_t a : at) ++t.begin[static_cast<std::size_t>(a) + 1];
  for (std::size_t r = 1; r < t.begin.size(); ++r) t.begin[r] += t.begin[r - 1];
  t.at.resize(at.size());
  t.weight.resize(at.size());
  std::vector<std::int64_t> next(t.begin.begin(), t.begin.end() - 1);
  for (std::int64_t r = 0; r < rows(); ++r)
    for (std::int64_t k = begin[static_cast<std::size_t>(r)]; k < begin[static_cast<std::size_t>(r) + 1]; ++k) {
      const auto place = static_cast<std::size_t>(next[static_cast<std::size_t>(at[static_cast<std::size_t>(k)])]++);
      t.at[place] = r;
      t.weight[place] = weight[static_cast<std::size_t>(k)];
    }
  return t;
}

}  // namespace athanor
