// Into and out of blocks of channels: planes of (block, plane) elements turned over in the cache.
#include "athanor/device/cpu/hidden_layout.h"

#include <bit>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/gemm.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/hidden.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrainBytes = 65536;

}  // namespace

void turn(void* to, const void* from, std::int64_t matrices, std::int64_t rows, std::int64_t cols,
          std::size_t item_size) {
  const auto transpose = block_ops().transpose[std::countr_zero(item_size)];
  const std::int64_t bytes = rows * cols * static_cast<std::int64_t>(item_size);
  const bool stream = matrices * bytes > kPastCache;
  parallel_for(0, matrices, std::max<std::int64_t>(1, kGrainBytes / std::max<std::int64_t>(1, bytes)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (; begin < end; ++begin)
                   transpose(static_cast<char*>(to) + begin * bytes, rows,
                             static_cast<const char*>(from) + begin * bytes, cols, rows, cols, stream);
                 if (stream) block_ops().stream_fence();
               });
}

namespace {

/// The products of a column and a row of float32.
void restore_outer(void* plain, const void* stored, const ChannelBlocks& b) {
  GemmProblem g;
  g.m = b.samples, g.n = b.channels, g.k = 1;
  g.a = stored, g.a_row = g.a_col = 1;
  g.b = static_cast<const float*>(stored) + b.samples, g.b_row = b.channels, g.b_col = 1;
  g.c = plain, g.c_row = b.channels, g.c_col = 1;
  gemm(g);
}

void outer_layout_cpu(const View& out, const View& column, const View& row) {
  auto* to = out.ptr<float>();
  for (const View* v : {&column, &row})
    for (std::int64_t i = 0; i < v->size(1); ++i) *to++ = v->ptr<float>()[i * v->stride(1)];
}

void restore_cpu(void* plain, const void* stored, const ChannelBlocks& b) {
  if (b.block == kOuterProduct) return restore_outer(plain, stored, b);
  if (b.nbytes()) turn(plain, stored, b.samples * (b.channels / b.block), b.plane, b.block, b.item_size);
}

ChannelBlocks blocks_of(const View& v, int block) {
  const std::int64_t images = v.size(0) * v.size(1);
  return {v.size(0), v.size(1), images ? v.numel / images : 0, block, static_cast<std::uint32_t>(v.item_size())};
}

/// The memory of `v`, which is in blocks, seen as (samples, channels / block, block, spatial…).
class BlockedView {
 public:
  explicit BlockedView(const View& v) : view_(v) {
    const ChannelBlocks b = blocks_of(v, v.block);
    for (const std::int64_t n : {b.samples, b.channels / b.block, std::int64_t{b.block}}) dims_.push_back(n);
    for (int d = 2; d < v.ndim; ++d) dims_.push_back(v.size(d));
    for (const std::int64_t n : {b.channels * b.plane, b.plane * b.block, std::int64_t{1}}) dims_.push_back(n);
    std::int64_t step = b.block;
    DimVector steps;
    for (int d = v.ndim - 1; d >= 2; --d) {
      steps.push_back(step);
      step *= v.size(d);
    }
    for (std::size_t d = steps.size(); d-- > 0;) dims_.push_back(steps[d]);
    view_.ndim = static_cast<std::int8_t>(v.ndim + 1);
    view_.sizes = dims_.data();
    view_.strides = dims_.data() + view_.ndim;
    view_.contiguous = false;
    view_.block = 0;
  }
  const View& get() const { return view_; }

 private:
  View view_;
  DimVector dims_;
};

/// A plain view with its channels cut in two dims.
class SplitView {
 public:
  SplitView(const View& v, int block) : view_(v) {
    dims_ = {v.size(0), v.size(1) / block, block};
    for (int d = 2; d < v.ndim; ++d) dims_.push_back(v.size(d));
    for (const std::int64_t n : {v.stride(0), v.stride(1) * block, v.stride(1)}) dims_.push_back(n);
    for (int d = 2; d < v.ndim; ++d) dims_.push_back(v.stride(d));
    view_.ndim = static_cast<std::int8_t>(v.ndim + 1);
    view_.sizes = dims_.data();
    view_.strides = dims_.data() + view_.ndim;
  }
  const View& get() const { return view_; }

 private:
  View view_;
  DimVector dims_;
};

void relayout_cpu(const View& out, const View& in) {
  if (out.numel == 0) return;
  const auto copy = copy_kernel.get(DeviceType::CPU);
  if (out.block && in.block == 0 && in.contiguous) {
    const ChannelBlocks b = blocks_of(out, out.block);
    turn(out.data, in.data, b.samples * (b.channels / b.block), b.block, b.plane, b.item_size);
  } else if (out.block && in.block == 0) {
    copy(BlockedView(out).get(), SplitView(in, out.block).get());
  } else if (out.block == 0 && in.block) {
    restore_cpu(out.data, in.data, blocks_of(in, in.block));
  } else if (out.block == in.block) {
    View to = out, from = in;
    if (out.block) to.contiguous = from.contiguous = true;
    to.block = from.block = 0;
    copy(to, from);
  } else {
    ATHANOR_THROW(NotImplementedError, "relayout: from blocks of ", in.block, " channels to blocks of ", out.block);
  }
}

ATHANOR_REGISTER_KERNEL(relayout_kernel, CPU, &relayout_cpu);
ATHANOR_REGISTER_KERNEL(outer_layout_kernel, CPU, &outer_layout_cpu);
ATHANOR_REGISTER_KERNEL(restore_layout_kernel, CPU, &restore_cpu);

}  // namespace
}  // namespace athanor::cpu
