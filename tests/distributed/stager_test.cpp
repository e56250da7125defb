#include "athanor/distributed/transport/stager.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace athanor::distributed {
namespace {

// So many copies that both ways are taken, also where one of them is not worth it.
TEST(Stager, CopiesWhatIsThereAndNothingElseByEitherWay) {
  constexpr std::size_t kMost = 70'001, kMargin = 128;
  std::vector<unsigned char> from(kMost + 64), to(kMost + 2 * kMargin);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(3));
  Stager stager(true);
  for (const std::size_t bytes : {0, 1, 63, 64, 4096, 8191, 8192, 8193, 16'385, 70'001})
    for (std::size_t lead = 0; lead < 80; lead += 7) {
      std::fill(to.begin(), to.end(), static_cast<unsigned char>(0xee));
      unsigned char* const begin = to.data() + lead;
      stager.copy(begin, from.data() + lead % 64, bytes);
      ASSERT_EQ(std::memcmp(begin, from.data() + lead % 64, bytes), 0) << bytes << " bytes at " << lead;
      for (std::size_t i = 0; i < kMargin - 80; ++i) ASSERT_EQ(begin[bytes + i], 0xee) << bytes << " bytes at " << lead;
      if (lead > 0) {
        ASSERT_EQ(begin[-1], 0xee);
      }
    }
}

}  // namespace
}  // namespace athanor::distributed
