#pragma once
/// The partitioner of the distributed tutorial: the same random parts on every process, the same as its Python text
/// makes.

#include <cstdint>
#include <utility>
#include <vector>

#include "athanor/data/datasets.h"

namespace athanor::data {

/// CPython's random.Random: Mersenne Twister (Matsumoto & Nishimura, 1998) seeded as Random(seed) of any Python 3, with
/// the same draws. For reproducing what a Python program did, not for new work.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint64_t seed);
  /// getrandbits(bits), bits at most 64. Throws ValueError for more.
  std::uint64_t bits(int bits);
  /// randrange(n). Throws ValueError for 0.
  std::uint64_t below(std::uint64_t n);
  /// random(): in [0, 1), of 53 bits.
  double uniform();
  /// shuffle(x).
  template <class T>
  void shuffle(std::vector<T>& x) {
    for (std::size_t i = x.size(); i > 1; --i) std::swap(x[i - 1], x[below(i)]);
  }

 private:
  static constexpr std::size_t kWords = 624;
  std::uint32_t word();
  void refill();
  std::uint32_t state_[kWords];
  std::size_t next_ = kWords;
};

/// Indices 0 … n-1 shuffled by Random(seed) and cut into parts of int(fraction · n) each. As in the tutorial, what
/// rounding leaves over belongs to no part: three parts of a third of 100 examples have 33 each and one example is
/// never used. Throws ValueError for a fraction that is negative or not finite.
std::vector<std::vector<std::size_t>> partition_indices(std::size_t n, const std::vector<double>& fractions,
                                                        std::uint64_t seed = 1234);

/// One part of a dataset.
template <class Source>
using Partition = datasets::Subset<Source>;

/// `DataPartitioner(dataset, {0.5, 0.5}).use(rank)`: every process makes the same parts and uses its own.
template <class Source>
class DataPartitioner {
 public:
  explicit DataPartitioner(Source data, const std::vector<double>& sizes = {0.7, 0.2, 0.1}, std::uint64_t seed = 1234)
      : data_(std::move(data)), partitions_(partition_indices(data_.size().value(), sizes, seed)) {}
  /// Throws IndexError out of range.
  Partition<Source> use(std::size_t partition) const {
    ATHANOR_CHECK_INDEX(partition < partitions_.size(), "DataPartitioner: part ", partition, " of ",
                        partitions_.size());
    return Partition<Source>(data_, partitions_[partition]);
  }
  const std::vector<std::vector<std::size_t>>& partitions() const { return partitions_; }

 private:
  Source data_;
  std::vector<std::vector<std::size_t>> partitions_;
};

}  // namespace athanor::data
