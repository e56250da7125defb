#include "athanor/device/cpu/line_driver.h"

#include <algorithm>
#include <memory>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/walk_order.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 8192;           // elements for which a second thread pays
constexpr std::int64_t kCacheElements = 65536;  // a strip of columns should stay in the second cache
constexpr std::int64_t kLeastStrip = 16;

class LineJob {
 public:
  LineJob(const LineFns& fns, DType compute, const View& out, const View& a, const View& b, std::int64_t dim)
      : fns_(fns),
        compute_(compute),
        views_{&out, &a, &b},
        operands_(b.defined() ? 3 : 2),
        lines_(views_, 3, dim),
        n_(lines_.length) {
    for (int v = 0; v < operands_; ++v) native_ = native_ && views_[v]->dtype == compute;
    stream_ = out.numel * static_cast<std::int64_t>(item_size(out.dtype)) > kStreamBytes && out.data != a.data;
  }

  void run() {
    if (lines_.count == 0 || n_ == 0) return;
    bool dense_lines = true, dense_across = lines_.ndim > 0 && lines_.sizes[0] >= 4 && n_ > 1;
    for (int v = 0; v < operands_; ++v) {
      dense_lines = dense_lines && lines_.line_stride[v] == 1;
      dense_across = dense_across && lines_.strides[v][0] == 1;
    }
    if (dense_across && !dense_lines)
      run_columns();
    else
      run_rows(dense_lines && native_);
  }

 private:
  char* at(int v, std::int64_t offset) const { return element(views_[v]->data, offset, item_size(views_[v]->dtype)); }
  std::size_t size() const { return item_size(compute_); }

  void run_rows(bool direct) {
    const std::int64_t row = n_ * static_cast<std::int64_t>(size());
    const bool backwards = direct && !stream_ && begins_at_end(operands_ * lines_.count * row);
    const std::int64_t stretch = std::max<std::int64_t>(1, kStretchBytes / row);
    parallel_for(0, lines_.count, std::max<std::int64_t>(1, kGrain / n_), [&](std::int64_t b, std::int64_t e) {
      if (!direct) return staged_rows(b, e);
      walk_stretches(b, e, stretch, backwards, [&](std::int64_t i, std::int64_t end) { direct_rows(i, end); });
      if (stream_) block_ops().stream_fence();
    });
  }

  void direct_rows(std::int64_t b, std::int64_t e) const {
    const std::int64_t inner = lines_.ndim ? lines_.sizes[0] : 1;
    while (b < e) {
      const std::int64_t m = std::min(e - b, inner - b % inner);
      char* p[3];
      std::int64_t step[3];
      for (int v = 0; v < 3; ++v) {
        p[v] = v < operands_ ? at(v, lines_.offset(v, b)) : nullptr;
        step[v] = v < operands_ && lines_.ndim ? lines_.strides[v][0] * static_cast<std::int64_t>(size()) : 0;
      }
      for (std::int64_t i = 0; i < m; ++i)
        fns_.row(p[0] + i * step[0], p[1] + i * step[1], p[2] ? p[2] + i * step[2] : nullptr, n_, stream_);
      b += m;
    }
  }

  void staged_rows(std::int64_t b, std::int64_t e) const {
    const std::size_t bytes = (static_cast<std::size_t>(n_) * size() + 63) / 64 * 64;
    const std::unique_ptr<char[]> room(new char[bytes * 2]);
    char* const stage[2] = {room.get(), room.get() + bytes};
    for (; b < e; ++b) {
      for (int v = 1; v < operands_; ++v)
        load_line(stage[v - 1], compute_, at(v, lines_.offset(v, b)), views_[v]->dtype, lines_.line_stride[v], n_);
      fns_.row(stage[0], stage[0], operands_ > 2 ? stage[1] : nullptr, n_, false);
      store_line(at(0, lines_.offset(0, b)), views_[0]->dtype, lines_.line_stride[0], stage[0], compute_, n_);
    }
  }

  void run_columns() {
    const std::int64_t width = lines_.sizes[0], outer = lines_.count / width;
    const std::int64_t strip = std::clamp(kCacheElements / n_ / kLeastStrip * kLeastStrip, kLeastStrip, kLineStrip);
    const std::int64_t strips = (width + strip - 1) / strip;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (n_ * std::min(strip, width)));
    parallel_for(0, outer * strips, grain, [&](std::int64_t b, std::int64_t e) {
      std::unique_ptr<char[]> room;
      const std::size_t bytes = static_cast<std::size_t>(n_ * strip) * size();
      if (!native_) room.reset(new char[bytes * 2]);
      for (; b < e; ++b) {
        const std::int64_t c = b % strips * strip, w = std::min(strip, width - c), line = b / strips * width + c;
        if (native_)
          fns_.columns(at(0, lines_.offset(0, line)), lines_.line_stride[0], at(1, lines_.offset(1, line)),
                       lines_.line_stride[1], operands_ > 2 ? at(2, lines_.offset(2, line)) : nullptr,
                       lines_.line_stride[2], n_, w);
        else
          staged_columns(room.get(), room.get() + bytes, line, w);
      }
    });
  }

  void staged_columns(char* first, char* second, std::int64_t line, std::int64_t w) const {
    char* const stage[2] = {first, second};
    for (int v = 1; v < operands_; ++v)
      for (std::int64_t i = 0; i < n_; ++i)
        load_line(element(stage[v - 1], i * w, size()), compute_,
                  at(v, lines_.offset(v, line) + i * lines_.line_stride[v]), views_[v]->dtype, 1, w);
    fns_.columns(first, w, first, w, operands_ > 2 ? second : nullptr, w, n_, w);
    for (std::int64_t i = 0; i < n_; ++i)
      store_line(at(0, lines_.offset(0, line) + i * lines_.line_stride[0]), views_[0]->dtype, 1,
                 element(first, i * w, size()), compute_, w);
  }

  const LineFns& fns_;
  DType compute_;
  const View* views_[3];
  int operands_;
  Lines lines_;
  std::int64_t n_;
  bool native_ = true, stream_ = false;
};

}  // namespace

void run_lines(const LineFns& fns, DType compute, const View& out, const View& a, const View& b, std::int64_t dim) {
  LineJob(fns, compute, out, a, b, dim).run();
}

}  // namespace athanor::cpu
