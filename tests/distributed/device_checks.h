#pragma once
/// What the conformance suite checks with tensors of the host, with tensors of a queued device: every call is made with
/// both, which have to give the same.

#include <functional>
#include <string>
#include <vector>

#include "athanor/distributed/process_group.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"

namespace athanor::distributed::device_checks {

/// Puts a host tensor where the call should find it.
using Place = std::function<Tensor(const Tensor&)>;

/// Small whole numbers, which every dtype has; others for another `seed`.
inline Tensor values(std::int64_t count, std::int64_t seed, DType dtype) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back((3 * i + seed) % 5);
  return tensor(numbers).to(dtype);
}

inline std::vector<Tensor> parts(int size, std::int64_t seed, DType dtype, const Place& place) {
  std::vector<Tensor> all;
  for (int r = 0; r < size; ++r) all.push_back(place(values(7, seed + r, dtype)));
  return all;
}

/// Makes the calls of a row of conformance::checks(); what they wrote. Throws Error for a row that it does not know.
inline std::vector<Tensor> results_of(const std::string& op, ProcessGroup& g, DType dtype, const Place& place) {
  const int me = g.rank(), size = g.size(), next = (me + 1) % size, previous = (me + size - 1) % size;
  const Tensor one = place(values(7, me, dtype)), other = place(values(7, 100, dtype));
  const Tensor many = place(values(7 * size, me, dtype)), into = place(values(7 * size, 100, dtype));
  if (op == "broadcast") return g.broadcast(one, size - 1), std::vector{one};
  if (op == "all_reduce")
    return g.all_reduce(one), g.all_reduce(other, ReduceOp::MAX, true)->wait(), std::vector{one, other};
  if (op == "reduce") return g.reduce(one, 0), std::vector{one};
  if (op == "all_gather_into_tensor") return g.all_gather_into_tensor(into, one), std::vector{into};
  if (op == "reduce_scatter_tensor") return g.reduce_scatter_tensor(other, many), std::vector{other};
  if (op == "all_to_all_single") return g.all_to_all_single(into, many), std::vector{into};
  if (op == "reduce_scatter") return g.reduce_scatter(other, parts(size, me, dtype, place)), std::vector{other};
  if (op == "barrier") return g.barrier(), std::vector{one};
  std::vector<Tensor> list = parts(size, 100, dtype, place);
  if (op == "all_gather") return g.all_gather(list, one), list;
  if (op == "all_to_all") return g.all_to_all(list, parts(size, 10 * me, dtype, place)), list;
  if (op == "gather") return g.gather(me == 0 ? list : std::vector<Tensor>(), one, 0), list;
  if (op == "scatter") return g.scatter(other, me == 0 ? list : std::vector<Tensor>(), 0), std::vector{other};
  if (op == "isend, irecv") {
    const WorkPtr sent = g.isend(one, next), came = g.irecv(other, previous);
    came->wait();
    sent->wait();
    return {other};
  }
  ATHANOR_CHECK(op == "send, recv", "device_checks: no calls for the row '", op, "'");
  if (me == 0) g.send(one, next);
  g.recv(other, previous);
  if (me > 0) g.send(one, next);
  return {other};
}

/// Throws Error unless tensors of `device`, with work queued before the call, get what those of the host get, there.
inline void check(const std::string& op, ProcessGroup& g, DType dtype, Device device) {
  const std::vector<Tensor> expected = results_of(op, g, dtype, [](const Tensor& t) { return t; });
  const std::vector<Tensor> got = results_of(op, g, dtype, [&](const Tensor& t) {
    Tensor placed = t.to(TensorOptions(device));
    for (int i = 0; i < 5; ++i) placed = placed.clone();
    return placed;
  });
  for (std::size_t i = 0; i < got.size(); ++i)
    ATHANOR_CHECK(got[i].device() == device && got[i].cpu().equal(expected[i]), op, " of ", dtype_name(dtype), " on ",
                  device, ": result ", i, " differs from that of host tensors");
}

}  // namespace athanor::distributed::device_checks
