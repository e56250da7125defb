#include "athanor/ops/kernels/scan_sort.h"

namespace athanor {

using In = const View&;
constinit Kernel<void(ScanOp, In, In, std::int64_t, bool)> scan_kernel{"cumulative sum or product"};
constinit Kernel<void(ScanExtremeOp, In, In, In, std::int64_t)> scan_extreme_kernel{"cumulative max or min"};
constinit Kernel<void(In, In, In, std::int64_t, bool)> sort_kernel{"sort"};
constinit Kernel<void(In, In, In, std::int64_t, bool, bool)> topk_kernel{"topk"};
constinit Kernel<void(In, In, In, std::int64_t, std::int64_t)> kthvalue_kernel{"kthvalue"};
constinit Kernel<void(In, In, In, std::int64_t, bool)> median_kernel{"median"};
constinit Kernel<void(In, In, In, std::int64_t)> mode_kernel{"mode"};
constinit Kernel<void(In, In, In, In, In, bool)> unique_kernel{"unique"};
constinit Kernel<void(In, In, In, In, In, bool)> unique_rows_kernel{"unique_dim"};
constinit Kernel<void(In, In, In, In, bool)> searchsorted_kernel{"searchsorted"};
constinit Kernel<void(In, In, double, double)> histc_kernel{"histc"};
constinit Kernel<void(In, In, In)> bincount_kernel{"bincount"};

}  // namespace athanor
