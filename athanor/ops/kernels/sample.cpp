#include "athanor/ops/kernels/sample.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&, const View&)> sample_points_kernel{"grid_sampler"};
constinit Kernel<void(const View&, const View&, const View&, const View&)> sample_points_scatter_kernel{
    "grid_sampler_backward"};
constinit Kernel<void(const View&, const View&, const View&, const View&)> sample_points_weight_kernel{
    "grid_sampler_backward"};
constinit Kernel<void(const View&, const View&, const View&, const GridSampling&)> grid_sample_kernel{"grid_sampler"};
constinit Kernel<void(const View&, const View&, const View&, const GridSampling&)> grid_sample_source_kernel{
    "grid_sampler_backward"};
constinit Kernel<void(const View&, const View&, const View&, const View&, const GridSampling&)> grid_sample_grid_kernel{
    "grid_sampler_backward"};

}  // namespace athanor
