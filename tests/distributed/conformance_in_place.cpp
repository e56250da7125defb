// Calls whose input is exactly this rank's part of the output, or the other way round.
#include "distributed/conformance.h"
#include "distributed/conformance_values.h"

namespace athanor::distributed::conformance {
namespace {

float value(int rank, std::int64_t i) { return value_of<float>(ReduceOp::SUM, rank, i); }

// A tensor, and the parts of it that belong to the ranks.
struct Whole {
  Tensor all;
  std::vector<Tensor> parts;

  Whole(int size, std::int64_t count, Layout layout) : all(make<float>(size * count, layout, [](auto) { return 0; })) {
    for (int r = 0; r < size; ++r) parts.push_back(all.narrow(0, r * count, count));
  }
  Tensor& part(int rank) { return parts[static_cast<std::size_t>(rank)]; }
  void expect_values(const char* op, std::int64_t count) {
    expect<float>(
        all, [&](std::int64_t i) { return value(static_cast<int>(i / count), i % count); }, str(op, " in place"));
  }
};

void check_gathers(ProcessGroup& g, std::int64_t count, Layout layout, bool async) {
  const auto own = [&](Whole& to) {
    to.part(g.rank()).copy_(make<float>(count, Layout::Plain, [&](std::int64_t i) { return value(g.rank(), i); }));
    return to.part(g.rank());
  };
  const auto finish = [](const WorkPtr& work) {
    if (work) work->wait();
  };
  Whole list(g.size(), count, layout), tensor(g.size(), count, layout), gathered(g.size(), count, layout);
  finish(g.all_gather(list.parts, own(list), async));
  list.expect_values("all_gather", count);
  finish(g.all_gather_into_tensor(tensor.all, own(tensor), async));
  tensor.expect_values("all_gather_into_tensor", count);
  const int root = g.size() - 1;
  finish(g.gather(g.rank() == root ? gathered.parts : std::vector<Tensor>(), own(gathered), root, async));
  if (g.rank() == root) gathered.expect_values("gather", count);
}

void check_scatters(ProcessGroup& g, std::int64_t count, Layout layout, bool async) {
  const auto finish = [](const WorkPtr& work) {
    if (work) work->wait();
  };
  Whole list(g.size(), count, layout), tensor(g.size(), count, layout), scattered(g.size(), count, layout);
  const Tensor values = make<float>(g.size() * count, Layout::Plain, [&](auto i) { return value(g.rank(), i); });
  for (Whole* whole : {&list, &tensor, &scattered}) whole->all.copy_(values);
  const auto expect_sum = [&](Whole& in, const char* op) {
    expect<float>(
        in.part(g.rank()),
        [&](std::int64_t i) { return expected_of<float>(ReduceOp::SUM, g.size(), i + g.rank() * count); },
        str(op, " in place"));
  };
  finish(g.reduce_scatter(list.part(g.rank()), list.parts, ReduceOp::SUM, async));
  expect_sum(list, "reduce_scatter");
  finish(g.reduce_scatter_tensor(tensor.part(g.rank()), tensor.all, ReduceOp::SUM, async));
  expect_sum(tensor, "reduce_scatter_tensor");
  const int root = g.size() - 1;
  const Tensor out = scattered.part(g.rank());
  finish(g.scatter(out, g.rank() == root ? scattered.parts : std::vector<Tensor>(), root, async));
  expect<float>(
      out, [&](std::int64_t i) { return value(root, i + g.rank() * count); }, "scatter in place");
}

}  // namespace

void run_in_place(ProcessGroup& group) {
  for (const std::int64_t count : {4, 1000, 50'000, 1'000'000})
    for (const Layout layout : {Layout::Plain, Layout::Strided})
      for (const bool async : {false, true}) {
        if (count > 50'000 && (layout == Layout::Strided || async)) continue;
        check_gathers(group, count, layout, async);
        check_scatters(group, count, layout, async);
      }
}

}  // namespace athanor::distributed::conformance
