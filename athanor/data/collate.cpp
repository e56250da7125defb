#include "athanor/data/collate.h"

namespace athanor::data::detail {

void check_collate(std::size_t examples) { ATHANOR_CHECK_VALUE(examples > 0, "default_collate: the batch is empty"); }
void fail_collate_length(std::size_t expected, std::size_t got) {
  ATHANOR_THROW(ValueError, "default_collate: each element in list of batch should be of equal size, got ", expected,
                " and ", got, "; pad them or give a collate function of your own (BatchLambda)");
}
void fail_collate_key() { ATHANOR_THROW(ValueError, "default_collate: the maps of a batch have different keys"); }

}  // namespace athanor::data::detail
