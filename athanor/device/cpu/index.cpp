#include "athanor/ops/kernels/index.h"

#include "athanor/base/error.h"
#include "athanor/device/cpu/index_space.h"

namespace athanor::cpu {
namespace {

std::int64_t item_of(const View& v) { return static_cast<std::int64_t>(v.item_size()); }

/// A view of one value for every point: all strides 0.
struct Repeated {
  ElementBytes value;
  DimVector strides;
  View view;
  Repeated(Scalar s, const View& like) : value(s, like.dtype), strides(static_cast<std::size_t>(like.ndim), 0) {
    view = like;
    view.data = value.bytes;
    view.strides = strides.data();
    view.contiguous = false;
  }
};

void index_select_cpu(const View& out, const View& in, const View& index, std::int64_t dim) {
  run_read(space_along("index_select: ", in, out, index, dim), read_action(item_of(in)));
}

void gather_cpu(const View& out, const View& in, const View& index, std::int64_t dim) {
  run_read(space_pointwise("gather: ", in, out, index, dim), read_action(item_of(in)));
}

void index_copy_cpu(const View& out, const View& index, const View& source, std::int64_t dim) {
  run_write(space_along("index_copy: ", out, source, index, dim), write_action(item_of(out)));
}

void index_fill_cpu(const View& out, const View& index, Scalar value, std::int64_t dim) {
  const Repeated source(value, out);
  run_write(space_along("index_fill: ", out, source.view, index, dim, true), write_action(item_of(out)));
}

void index_cpu(const View& out, const View& in, ArrayRef<View> indices) {
  run_read(space_advanced("", in, out, indices), read_action(item_of(in)));
}

void take_cpu(const View& out, const View& in, const View& index) {
  run_read(space_flat("take: ", in, out, index), read_action(item_of(in)));
}

void embedding_cpu(const View& out, const View& weight, const View& index) {
  // weight[index] by the rules of advanced indexing, but negative indices are refused.
  IndexSpace s = space_advanced("embedding: ", weight, out, index);
  s.unread = false;
  s.operands[0].wrap = false;
  run_read(s, read_action(item_of(weight)));
}

ATHANOR_REGISTER_KERNEL(index_select_kernel, CPU, &index_select_cpu);
ATHANOR_REGISTER_KERNEL(gather_kernel, CPU, &gather_cpu);
ATHANOR_REGISTER_KERNEL(index_copy_kernel, CPU, &index_copy_cpu);
ATHANOR_REGISTER_KERNEL(index_fill_kernel, CPU, &index_fill_cpu);
ATHANOR_REGISTER_KERNEL(index_kernel, CPU, &index_cpu);
ATHANOR_REGISTER_KERNEL(take_kernel, CPU, &take_cpu);
ATHANOR_REGISTER_KERNEL(embedding_kernel, CPU, &embedding_cpu);

}  // namespace
}  // namespace athanor::cpu
