#include "athanor/distributed/overlap.h"

#include <algorithm>
#include <vector>

namespace athanor::distributed {

using athanor::detail::str;
using athanor::detail::view_of;

namespace {

std::uintptr_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

// The bytes from a tensor's first element to the end of its last.
struct Reach {
  std::uintptr_t begin, end;

  explicit Reach(const Tensor& t) : begin(address_of(view_of(t).data)), end(begin) {
    std::int64_t last = 0;
    for (std::int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    if (t.numel() > 0) end += static_cast<std::uintptr_t>(last + 1) * item_size(t.dtype());
  }
  bool meets(const Reach& other) const { return begin < other.end && other.begin < end; }
};

// The bytes from the first to the last of what remains of a tensor without the dimensions that step by multiples of
// `period`.
std::uintptr_t width_within(const Tensor& t, std::uintptr_t period) {
  const std::size_t item = item_size(t.dtype());
  std::uintptr_t width = item;
  for (std::int64_t d = 0; d < t.dim(); ++d)
    if (const auto step = static_cast<std::uintptr_t>(t.stride(d)) * item; step % period != 0)
      width += static_cast<std::uintptr_t>(t.size(d) - 1) * step;
  return width;
}

// Whether the tensors lie at different places of every row, were memory cut into rows of `period` bytes.
bool apart_in_rows(const Tensor& a, const Tensor& b, std::uintptr_t period) {
  const std::uintptr_t at = address_of(view_of(a).data) % period, other = address_of(view_of(b).data) % period;
  const std::uintptr_t distance = (other + period - at) % period;
  return distance >= width_within(a, period) && period - distance >= width_within(b, period);
}

// Whether both have the same elements at the same places.
bool same_elements(const Tensor& a, const Tensor& b) {
  if (view_of(a).data != view_of(b).data || a.numel() != b.numel() || a.dtype() != b.dtype()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  const auto next = [](const Tensor& t, std::int64_t d) {
    while (d < t.dim() && t.size(d) == 1) ++d;
    return d;
  };
  std::int64_t i = next(a, 0), j = next(b, 0);
  for (; i < a.dim() && j < b.dim(); i = next(a, i + 1), j = next(b, j + 1))
    if (a.size(i) != b.size(j) || a.stride(i) != b.stride(j)) return false;
  return i == a.dim() && j == b.dim();
}

bool is_slot(const Tensor& part, const Tensor& whole, int rank, int size) {
  if (whole.is_contiguous())
    return part.is_contiguous() && address_of(view_of(part).data) ==
                                       address_of(view_of(whole).data) + static_cast<std::size_t>(rank) * part.nbytes();
  if (whole.dim() == 0 || whole.size(0) % size != 0) return false;
  const std::int64_t rows = whole.size(0) / size;
  return same_elements(part, whole.data().narrow(0, rank * rows, rows));
}

struct Placed : Reach {
  Placed(const Tensor& t, bool is_written, std::size_t place) : Reach(t), written(is_written), index(place) {}
  bool written;
  std::size_t index;
};

std::string name_of(const CallList& list, std::size_t i) {
  if (list.alone) return list.name;
  if (list.row_size > 0) return str(list.name, "[", i / list.row_size, "][", i % list.row_size, "]");
  return str(list.name, "[", i, "]");
}

void check_pair(const char* op, int rank, const CallList& output, const CallList& input, const SamePlace* allowed,
                const Placed& a, const Placed& b) {
  if (!(a.written || b.written) || !a.meets(b)) return;
  const bool outputs = a.written && b.written;
  const Placed& first = outputs ? (a.index < b.index ? a : b) : a.written ? a : b;
  const Placed& second = &first == &a ? b : a;
  const Tensor& to = output.tensors[first.index];
  const Tensor& other = (outputs ? output : input).tensors[second.index];
  const bool own = !outputs && allowed != nullptr && allowed->output == first.index && allowed->input == second.index;
  if ((own && same_elements(to, other)) || !may_share_memory(to, other)) return;
  const std::string name = name_of(output, first.index), other_name = name_of(outputs ? output : input, second.index);
  ATHANOR_CHECK_VALUE(!outputs, op, ": on rank ", rank, ", ", name, " and ", other_name,
                      " share memory; every output needs memory of its own: clone() one of them");
  ATHANOR_CHECK_VALUE(false, op, ": on rank ", rank, ", ", name, " and ", other_name, " share memory",
                      own                  ? " without being the same elements"
                      : allowed == nullptr ? ""
                                           : str("; only ", name_of(output, allowed->output), " may be ",
                                                 name_of(input, allowed->input)),
                      ". An output would be written before the input has been read: clone() the input");
}

}  // namespace

bool may_share_memory(const Tensor& a, const Tensor& b) {
  if (!Reach(a).meets(Reach(b))) return false;
  for (const Tensor* t : {&a, &b})
    for (std::int64_t d = 0; d < t->dim(); ++d)
      if (t->size(d) > 1 && t->stride(d) > 0 &&
          apart_in_rows(a, b, static_cast<std::uintptr_t>(t->stride(d)) * item_size(t->dtype())))
        return false;
  return true;
}

void check_apart(const char* op, int rank, const CallList& output, const CallList& input, const SamePlace* allowed) {
  std::vector<Placed> all;
  all.reserve(output.tensors.size() + input.tensors.size());
  const auto add = [&](TensorList list, bool written) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].numel() > 0) all.emplace_back(list[i], written, i);
  };
  add(output.tensors, true);
  add(input.tensors, false);
  std::sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  // A run of tensors each of which begins before one of those before it ends.
  std::size_t run = 0;
  std::uintptr_t end = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].begin >= end) run = i;
    for (std::size_t j = run; j < i; ++j) check_pair(op, rank, output, input, allowed, all[j], all[i]);
    end = std::max(end, all[i].end);
  }
}

void check_slot(const char* op, int rank, int size, const char* whole_name, const Tensor& whole, const char* part_name,
                const Tensor& part) {
  if (whole.numel() == 0 || part.numel() == 0 || !may_share_memory(whole, part) || is_slot(part, whole, rank, size))
    return;
  ATHANOR_THROW(ValueError, op, ": on rank ", rank, ", ", whole_name, " and ", part_name, " share memory, and ",
                part_name, " is not what rank ", rank, " has in ", whole_name, ", its elements ", rank * part.numel(),
                " to ", (rank + 1) * part.numel() - 1, ". Give exactly those, or clone() the input");
}

}  // namespace athanor::distributed
