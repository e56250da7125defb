#include "athanor/distributed/transport/stager.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "athanor/device/cpu/combine.h"

namespace athanor::distributed {
namespace {

// What `copy` writes, at all alignments, and what it leaves alone.
void check_copies(const std::function<void(void*, const void*, std::size_t)>& copy) {
  constexpr std::size_t kMost = 70'001, kMargin = 128;
  std::vector<unsigned char> from(kMost + 64), to(kMost + 2 * kMargin);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(3));
  for (const std::size_t bytes : {0, 1, 63, 64, 4096, 8191, 8192, 8193, 16'385, 70'001})
    for (std::size_t lead = 0; lead < 80; lead += 7) {
      std::fill(to.begin(), to.end(), static_cast<unsigned char>(0xee));
      unsigned char* const begin = to.data() + lead;
      copy(begin, from.data() + lead % 64, bytes);
      ASSERT_EQ(std::memcmp(begin, from.data() + lead % 64, bytes), 0) << bytes << " bytes at " << lead;
      for (std::size_t i = 0; i < kMargin - 80; ++i) ASSERT_EQ(begin[bytes + i], 0xee) << bytes << " bytes at " << lead;
      if (lead > 0) {
        ASSERT_EQ(begin[-1], 0xee);
      }
    }
}

TEST(Stager, CopiesWhatIsThereAndNothingElse) {
  for (const bool may_bypass : {false, true}) {
    Stager stager(may_bypass);
    check_copies([&](void* to, const void* from, std::size_t bytes) { stager.copy(to, from, bytes); });
  }
}

TEST(Stager, CopiesTheSameByEitherWayAtEverySize) {
  for (const bool bypass : {false, true})
    check_copies([&](void* to, const void* from, std::size_t bytes) { cpu::copy_bytes(to, from, bytes, bypass); });
}

}  // namespace
}  // namespace athanor::distributed
