#include "athanor/base/error.h"

#include <gtest/gtest.h>

#include "athanor/base/array_ref.h"

namespace athanor {

TEST(Error, MessageConcatenatesValuesAndShapes) {
  const std::vector<std::int64_t> shape{2, 3};
  try {
    ATHANOR_CHECK_INDEX(false, "op: dim ", 5, " of ", shape, ' ', true, ' ', 0.5);
    FAIL();
  } catch (const IndexError& e) {
    EXPECT_STREQ(e.what(), "op: dim 5 of [2, 3] true 0.5");
    EXPECT_NE(std::string(e.where()).find("error_test.cpp:"), std::string::npos);
  }
}

TEST(Error, ContextLinesAreAppended) {
  Error e("bad");
  e.add_context("in net.conv2");
  EXPECT_STREQ(e.what(), "bad\nin net.conv2");
}

}  // namespace athanor
