#include "athanor/ops/kernels/rnn.h"

namespace athanor {

using In = const View&;
constinit Kernel<void(In, In, In, In, In, In, In, In, In, In, In, In, IntArrayRef, RnnMode, bool)> rnn_sequence_kernel{
    "rnn_sequence"};
constinit Kernel<void(In, In, In, In, In, In, In, In, In, In, In, In, In, In, In, In, IntArrayRef, RnnMode, bool)>
    rnn_sequence_backward_kernel{"rnn_sequence_backward"};

}  // namespace athanor
