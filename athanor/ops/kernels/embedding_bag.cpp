#include "athanor/ops/kernels/embedding_bag.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&, const View&, const View&, const View&, const View&,
                      const View&, BagMode, std::int64_t)>
    embedding_bag_kernel{"embedding_bag"};

}  // namespace athanor
