#include "athanor/ops/kernels/ctc.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&, const View&, IntArrayRef, IntArrayRef, std::int64_t)>
    ctc_loss_kernel{"ctc_loss"};
constinit Kernel<void(const View&, const View&, const View&, const View&, const View&, const View&, IntArrayRef,
                      IntArrayRef, std::int64_t, bool)>
    ctc_loss_backward_kernel{"ctc_loss_backward"};

}  // namespace athanor
