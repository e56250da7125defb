#include "athanor/ops/kernels/hidden.h"

namespace athanor {

constinit Kernel<void(const View&, const View&)> relayout_kernel{"relayout"};
constinit Kernel<void(const View&, const View&, const View&)> outer_layout_kernel{"outer_layout"};
constinit Kernel<void(void*, const void*, const ChannelBlocks&)> restore_layout_kernel{"restore_layout"};

}  // namespace athanor
