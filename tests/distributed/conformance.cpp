#include "distributed/conformance.h"

#include "athanor/base/env.h"
#include "athanor/distributed/store/store.h"
#include "distributed/conformance_values.h"

namespace athanor::distributed::conformance {
namespace {

// Element counts: empty, one, odd, and enough for several chunks of any algorithm.
constexpr std::int64_t kCounts[] = {0, 1, 3, 17, 1000};
constexpr std::int64_t kLarge = 70'001;

// Runs `each(TypeTag<T>)` for the dtype.
template <class F>
std::function<void(ProcessGroup&, DType)> typed(F each) {
  return [each](ProcessGroup& group, DType dtype) {
    dispatch_all(dtype, [&]<class T>(TypeTag<T> tag) { each(group, tag); });
  };
}

// Whether large tensors are tried too, and strided ones among them.
enum class Large { No, Plain, Strided };

// Many ranks take long over them: there, one operator and one layout stand for all, unless ATHANOR_CONFORMANCE_FULL=1
// (make thorough) asks for all.
Large how_large(const ProcessGroup& g, bool main_case = true) {
  static const bool full = env::flag("ATHANOR_CONFORMANCE_FULL", false);
  if (full) return Large::Strided;
  if (g.size() > 3) return main_case ? Large::Plain : Large::No;
  return main_case ? Large::Strided : Large::Plain;
}

// Element counts times layouts.
template <class F>
void over_shapes(F&& each, Large large) {
  for (const std::int64_t count : kCounts) {
    each(count, Layout::Plain);
    if (count > 1) each(count, Layout::Strided);
    if (count == 1) each(count, Layout::ZeroDim);
  }
  if (large != Large::No) each(kLarge, Layout::Plain);
  if (large == Large::Strided) each(kLarge, Layout::Strided);
}

void finish(const WorkPtr& work) {
  if (work) work->wait();
}

template <class T>
void check_all_reduce(ProcessGroup& g, TypeTag<T>) {
  bool async = false;
  for (const ReduceOp& op : operators<T>())
    over_shapes(
        [&](std::int64_t count, Layout layout) {
          async = !async;
          Tensor t = make<T>(count, layout, [&](std::int64_t i) { return value_of<T>(op.kind(), g.rank(), i); });
          finish(g.all_reduce(t, op, async));
          expect<T>(
              t, [&](std::int64_t i) { return expected_of<T>(op, g.size(), i); }, str("all_reduce(", op.text(), ")"),
              op.kind() == ReduceOp::AVG);
        },
        how_large(g, op.kind() == ReduceOp::SUM));
}

// Half types are summed in float32 and rounded once: rounding after every rank would lose the small ones.
template <class T>
void check_single_rounding(ProcessGroup& g, TypeTag<T>) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    const float large = std::is_same_v<T, Half> ? 2048 : 256;
    Tensor t = make<T>(33, Layout::Plain, [&](std::int64_t) { return T(g.rank() == 0 ? large : 1.0f); });
    g.all_reduce(t);
    expect<T>(
        t, [&](std::int64_t) { return T(large + static_cast<float>(g.size() - 1)); }, "all_reduce of large and small");
  }
}

// NaN wins, whoever brings it; fractions give every rank the same bits, again and again.
template <class T>
void check_special_floats(ProcessGroup& g, TypeTag<T>) {
  if constexpr (!std::is_integral_v<T>) {
    for (const auto kind : {ReduceOp::MIN, ReduceOp::MAX, ReduceOp::SUM})
      for (int who = 0; who < g.size(); ++who) {
        Tensor t = make<T>(19, Layout::Plain, [&](std::int64_t i) {
          return i == 7 && g.rank() == who ? std::numeric_limits<T>::quiet_NaN() : T(1.0f);
        });
        g.all_reduce(t, kind);
        expect<T>(
            t,
            [&](std::int64_t i) {
              if (i == 7) return std::numeric_limits<T>::quiet_NaN();
              return T(kind == ReduceOp::SUM ? static_cast<float>(g.size()) : 1.0f);
            },
            str("all_reduce(", reduce_name(kind), ") with a NaN of rank ", who));
      }
    std::vector<Tensor> runs;
    for (int run = 0; run < 2; ++run) {
      runs.push_back(make<T>(kLarge, Layout::Plain, [&](std::int64_t i) {
        return T(std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(g.rank())));
      }));
      g.all_reduce(runs.back());
    }
    std::vector<Tensor> all;
    for (int r = 0; r < g.size(); ++r) all.push_back(empty_like(runs[0]));
    g.all_gather(all, runs[0]);
    ATHANOR_CHECK(runs[0].equal(runs[1]), "all_reduce gave other bits when it was repeated");
    for (int r = 0; r < g.size(); ++r)
      ATHANOR_CHECK(all[static_cast<std::size_t>(r)].equal(runs[0]), "all_reduce gave rank ", r,
                    " other bits than rank ", g.rank());
  }
}

template <class T>
void check_broadcast(ProcessGroup& g, TypeTag<T>) {
  for (int root = 0; root < g.size(); ++root)
    over_shapes(
        [&](std::int64_t count, Layout layout) {
          Tensor t = make<T>(count, layout, [&](std::int64_t i) { return value_of<T>(ReduceOp::SUM, g.rank(), i); });
          finish(g.broadcast(t, root, root % 2 == 1));
          expect<T>(
              t, [&](std::int64_t i) { return value_of<T>(ReduceOp::SUM, root, i); },
              str("broadcast from rank ", root));
        },
        root == 0 ? how_large(g) : Large::No);
}

template <class T>
void check_reduce(ProcessGroup& g, TypeTag<T>) {
  int root = 0;
  for (const ReduceOp& op : operators<T>())
    over_shapes(
        [&](std::int64_t count, Layout layout) {
          root = (root + 1) % g.size();
          Tensor t = make<T>(count, layout, [&](std::int64_t i) { return value_of<T>(op.kind(), g.rank(), i); });
          finish(g.reduce(t, root, op, root % 2 == 1));
          expect<T>(
              t,
              [&](std::int64_t i) {
                return g.rank() == root ? expected_of<T>(op, g.size(), i) : value_of<T>(op.kind(), g.rank(), i);
              },
              str("reduce(", op.text(), ") to rank ", root), op.kind() == ReduceOp::AVG);
        },
        how_large(g, op.kind() == ReduceOp::SUM));
}

template <class T>
Tensor own_values(const ProcessGroup& g, std::int64_t count, Layout layout) {
  return make<T>(count, layout, [&](std::int64_t i) { return value_of<T>(ReduceOp::SUM, g.rank(), i); });
}

template <class T>
std::vector<Tensor> blank_parts(int size, std::int64_t count, std::int64_t step, Layout layout) {
  std::vector<Tensor> parts;
  for (int r = 0; r < size; ++r) parts.push_back(make<T>(count + step * r, layout, [](std::int64_t) { return T(0); }));
  return parts;
}

template <class T>
void expect_part(const Tensor& part, int rank, const char* op) {
  expect<T>(
      part, [&](std::int64_t i) { return value_of<T>(ReduceOp::SUM, rank, i); }, str(op, ", the part of rank ", rank));
}

template <class T>
void check_all_gather(ProcessGroup& g, TypeTag<T>) {
  for (const std::int64_t step : {0, 5})  // 5: every rank brings another number
    over_shapes(
        [&](std::int64_t count, Layout layout) {
          if (layout == Layout::ZeroDim && step != 0) return;
          auto parts = blank_parts<T>(g.size(), count, step, layout);
          const auto own = static_cast<std::size_t>(g.rank());
          Tensor in = own_values<T>(g, count + step * g.rank(), layout);
          if (count == 17) {  // in place
            parts[own].copy_(in);
            in = parts[own];
          }
          finish(g.all_gather(parts, in, count % 2 == 1));
          for (int r = 0; r < g.size(); ++r) expect_part<T>(parts[static_cast<std::size_t>(r)], r, "all_gather");
        },
        how_large(g));
}

template <class T>
void check_all_gather_into_tensor(ProcessGroup& g, TypeTag<T>) {
  over_shapes(
      [&](std::int64_t count, Layout layout) {
        Tensor out = make<T>(count * g.size(), layout == Layout::ZeroDim ? Layout::Plain : layout,
                             [](std::int64_t) { return T(0); });
        finish(g.all_gather_into_tensor(out, own_values<T>(g, count, layout), count % 2 == 1));
        expect<T>(
            out, [&](std::int64_t i) { return value_of<T>(ReduceOp::SUM, static_cast<int>(i / count), i % count); },
            "all_gather_into_tensor");
      },
      how_large(g));
}

template <class T>
void check_gather(ProcessGroup& g, TypeTag<T>) {
  for (int root = 0; root < g.size(); ++root)
    over_shapes(
        [&](std::int64_t count, Layout layout) {
          auto parts = g.rank() == root ? blank_parts<T>(g.size(), count, 0, layout) : std::vector<Tensor>();
          finish(g.gather(parts, own_values<T>(g, count, layout), root, count % 2 == 1));
          for (std::size_t r = 0; r < parts.size(); ++r) expect_part<T>(parts[r], static_cast<int>(r), "gather");
        },
        root == 0 ? how_large(g) : Large::No);
}

template <class T>
void check_scatter(ProcessGroup& g, TypeTag<T>) {
  for (int root = 0; root < g.size(); ++root)
    over_shapes(
        [&](std::int64_t count, Layout layout) {
          std::vector<Tensor> parts;
          for (int r = 0; r < g.size() && g.rank() == root; ++r)
            parts.push_back(
                make<T>(count, layout, [&](std::int64_t i) { return value_of<T>(ReduceOp::SUM, r + root, i); }));
          Tensor out = make<T>(count, layout, [](std::int64_t) { return T(0); });
          finish(g.scatter(out, parts, root, count % 2 == 1));
          expect<T>(
              out, [&](std::int64_t i) { return value_of<T>(ReduceOp::SUM, g.rank() + root, i); },
              str("scatter from rank ", root));
        },
        root == 0 ? how_large(g) : Large::No);
}

template <class T>
void check_reduce_scatter(ProcessGroup& g, TypeTag<T>) {
  for (const ReduceOp& op : operators<T>())
    over_shapes(
        [&](std::int64_t count, Layout layout) {
          // The part of rank r starts at place r * 100; the parts of odd counts differ in size.
          const std::int64_t step = count % 2 == 1 && layout != Layout::ZeroDim ? 3 : 0;
          std::vector<Tensor> parts;
          for (int r = 0; r < g.size(); ++r)
            parts.push_back(make<T>(count + step * r, layout,
                                    [&](std::int64_t i) { return value_of<T>(op.kind(), g.rank(), i + 100 * r); }));
          Tensor out = make<T>(count + step * g.rank(), layout, [](std::int64_t) { return T(0); });
          finish(g.reduce_scatter(out, parts, op, count % 2 == 1));
          expect<T>(
              out, [&](std::int64_t i) { return expected_of<T>(op, g.size(), i + 100 * g.rank()); },
              str("reduce_scatter(", op.text(), ")"), op.kind() == ReduceOp::AVG);
        },
        how_large(g, op.kind() == ReduceOp::SUM));
}

template <class T>
void check_reduce_scatter_tensor(ProcessGroup& g, TypeTag<T>) {
  for (const ReduceOp& op : operators<T>())
    over_shapes(
        [&](std::int64_t count, Layout layout) {
          const Tensor in = make<T>(count * g.size(), layout == Layout::ZeroDim ? Layout::Plain : layout,
                                    [&](std::int64_t i) { return value_of<T>(op.kind(), g.rank(), i); });
          Tensor out = make<T>(count, layout, [](std::int64_t) { return T(0); });
          finish(g.reduce_scatter_tensor(out, in, op, count % 2 == 1));
          expect<T>(
              out, [&](std::int64_t i) { return expected_of<T>(op, g.size(), i + count * g.rank()); },
              str("reduce_scatter_tensor(", op.text(), ")"), op.kind() == ReduceOp::AVG);
        },
        how_large(g, op.kind() == ReduceOp::SUM));
}

// Rank a sends rank b (a + 2 b) % 5 times `unit` elements.
std::int64_t pair_count(int a, int b, std::int64_t unit) { return (a + 2 * b) % 5 * unit; }

template <class T>
T pair_value(int a, int b, std::int64_t i) {
  return value_of<T>(ReduceOp::SUM, a, i + 1000 * b);
}

template <class T>
void check_all_to_all(ProcessGroup& g, TypeTag<T>) {
  for (const std::int64_t unit : {0, 1, 7, 9001})
    for (const Layout layout : {Layout::Plain, Layout::Strided}) {
      std::vector<Tensor> in, out;
      for (int r = 0; r < g.size(); ++r) {
        in.push_back(make<T>(pair_count(g.rank(), r, unit), layout,
                             [&](std::int64_t i) { return pair_value<T>(g.rank(), r, i); }));
        out.push_back(make<T>(pair_count(r, g.rank(), unit), layout, [](std::int64_t) { return T(0); }));
      }
      finish(g.all_to_all(out, in, unit % 2 == 1));
      for (int r = 0; r < g.size(); ++r)
        expect<T>(
            out[static_cast<std::size_t>(r)], [&](std::int64_t i) { return pair_value<T>(r, g.rank(), i); },
            str("all_to_all from rank ", r));
    }
}

template <class T>
void check_all_to_all_single(ProcessGroup& g, TypeTag<T>) {
  const int n = g.size();
  for (const std::int64_t count : {0, 1, 33}) {  // evenly
    const Tensor in = make<T>(count * n, Layout::Plain, [&](std::int64_t i) {
      return pair_value<T>(g.rank(), static_cast<int>(i / count), i % count);
    });
    Tensor out = make<T>(count * n, Layout::Strided, [](std::int64_t) { return T(0); });
    finish(g.all_to_all_single(out, in, {}, {}, count == 1));
    expect<T>(
        out, [&](std::int64_t i) { return pair_value<T>(static_cast<int>(i / count), g.rank(), i % count); },
        "all_to_all_single");
  }
  std::vector<std::int64_t> from, to;  // rows of two elements
  for (int r = 0; r < n; ++r) {
    from.push_back(pair_count(g.rank(), r, 3));
    to.push_back(pair_count(r, g.rank(), 3));
  }
  std::vector<T> sent, wanted;
  for (int r = 0; r < n; ++r) {
    for (std::int64_t i = 0; i < 2 * from[static_cast<std::size_t>(r)]; ++i)
      sent.push_back(pair_value<T>(g.rank(), r, i));
    for (std::int64_t i = 0; i < 2 * to[static_cast<std::size_t>(r)]; ++i)
      wanted.push_back(pair_value<T>(r, g.rank(), i));
  }
  const auto rows = [](const std::vector<T>& values) { return static_cast<std::int64_t>(values.size()) / 2; };
  const Tensor in = make<T>(2 * rows(sent), Layout::Plain, [&](std::int64_t i) {
                      return sent[static_cast<std::size_t>(i)];
                    }).view({rows(sent), 2});
  Tensor out = empty({rows(wanted), 2}, dtype_of_v<T>);
  g.all_to_all_single(out, in, to, from);
  expect<T>(
      out, [&](std::int64_t i) { return T(wanted[static_cast<std::size_t>(i)]); },
      "all_to_all_single with split sizes");
}

// Whoever leaves the barrier finds that everyone had come to it.
void check_barrier(ProcessGroup& g, DType dtype) {
  for (int round = 0; round < 5; ++round) {
    const std::string key = str("conformance/", dtype, "/", round);
    g.store()->add(key, 1);
    finish(g.barrier(round % 2 == 1));
    const auto come = g.store()->add(key, 0);
    ATHANOR_CHECK(come == g.size(), "barrier: only ", come, " of ", g.size(), " ranks had come");
  }
}

template <class T>
void check_send_recv(ProcessGroup& g, TypeTag<T>) {
  if (g.size() == 1) return;
  const int right = (g.rank() + 1) % g.size(), left = (g.rank() + g.size() - 1) % g.size();
  over_shapes(
      [&](std::int64_t count, Layout layout) {
        const Tensor out = own_values<T>(g, count, layout);
        Tensor in = make<T>(count, layout, [](std::int64_t) { return T(0); });
        int source = -1;
        if (g.rank() % 2 == 0) {
          g.send(out, right, 3);
          source = g.recv(in, left, 3);
        } else {
          source = g.recv(in, left, 3);
          g.send(out, right, 3);
        }
        ATHANOR_CHECK(source == left, "recv says the message came from rank ", source, ", expected ", left);
        expect_part<T>(in, left, "recv");
      },
      how_large(g));
}

// In flight at once: several tags and several messages of one tag, waited for in another order; then from any rank.
template <class T>
void check_isend_irecv(ProcessGroup& g, TypeTag<T>) {
  if (g.size() == 1) return;
  const int right = (g.rank() + 1) % g.size(), left = (g.rank() + g.size() - 1) % g.size();
  std::vector<Tensor> out, in;
  std::vector<WorkPtr> sends, receives;
  for (int k = 0; k < 12; ++k) {
    out.push_back(make<T>(10 + k, Layout::Plain, [&](std::int64_t i) { return pair_value<T>(g.rank(), k, i); }));
    in.push_back(empty({10 + k}, dtype_of_v<T>));
    sends.push_back(g.isend(out.back(), right, k % 3));
  }
  for (int tag = 2; tag >= 0; --tag)
    for (int k = tag; k < 12; k += 3) receives.push_back(g.irecv(in[static_cast<std::size_t>(k)], left, tag));
  for (auto it = receives.rbegin(); it != receives.rend(); ++it) (*it)->wait();
  for (const auto& send : sends) send->wait();
  for (int k = 0; k < 12; ++k)
    expect<T>(
        in[static_cast<std::size_t>(k)], [&](std::int64_t i) { return pair_value<T>(left, k, i); },
        str("irecv of message ", k));
  if (g.rank() != 0) {
    g.send(own_values<T>(g, 25, Layout::Plain), 0, 9);
    finish(g.barrier());  // no rank's next message of this tag may overtake another's
    return;
  }
  std::vector<bool> seen(static_cast<std::size_t>(g.size()));
  for (int r = 1; r < g.size(); ++r) {
    Tensor t = empty({25}, dtype_of_v<T>);
    const int source = g.recv(t, kAnySourceRank, 9);
    expect_part<T>(t, source, "recv from any rank");
    ATHANOR_CHECK(!seen[static_cast<std::size_t>(source)], "recv from any rank: twice from rank ", source);
    seen[static_cast<std::size_t>(source)] = true;
  }
  g.barrier();
}

// Beyond a chunk of every algorithm, with an odd tail.
template <class T>
void check_several_chunks(ProcessGroup& g) {
  constexpr std::int64_t kCount = 1'500'003;
  for (const ReduceOp& op : {ReduceOp(ReduceOp::SUM), ReduceOp(ReduceOp::MAX), farthest_from_zero()}) {
    const auto own = [&](std::int64_t i) { return value_of<T>(op.kind(), g.rank(), i); };
    const auto all = [&](std::int64_t i) { return expected_of<T>(op, g.size(), i); };
    Tensor t = make<T>(kCount, Layout::Plain, own);
    g.all_reduce(t, op);
    expect<T>(t, all, str("all_reduce(", op.text(), ")"));
    t = make<T>(kCount, Layout::Plain, own);
    g.reduce(t, g.size() - 1, op);
    if (g.rank() == g.size() - 1) expect<T>(t, all, str("reduce(", op.text(), ")"));
    Tensor part = empty({kCount}, dtype_of_v<T>);
    g.reduce_scatter_tensor(part, make<T>(kCount * g.size(), Layout::Plain, own), op);
    expect<T>(
        part, [&](std::int64_t i) { return all(i + kCount * g.rank()); },
        str("reduce_scatter_tensor(", op.text(), ")"));
  }
}

#define ATHANOR_TYPED(function) typed([](ProcessGroup& g, auto tag) { function(g, tag); })

}  // namespace

const std::vector<Check>& checks() {
  static const std::vector<Check> all = {
      {"broadcast", ATHANOR_TYPED(check_broadcast)},
      {"all_reduce", typed([](ProcessGroup& g, auto tag) {
         check_all_reduce(g, tag);
         check_single_rounding(g, tag);
         check_special_floats(g, tag);
       })},
      {"reduce", ATHANOR_TYPED(check_reduce)},
      {"all_gather", ATHANOR_TYPED(check_all_gather)},
      {"all_gather_into_tensor", ATHANOR_TYPED(check_all_gather_into_tensor)},
      {"gather", ATHANOR_TYPED(check_gather)},
      {"scatter", ATHANOR_TYPED(check_scatter)},
      {"reduce_scatter", ATHANOR_TYPED(check_reduce_scatter)},
      {"reduce_scatter_tensor", ATHANOR_TYPED(check_reduce_scatter_tensor)},
      {"all_to_all", ATHANOR_TYPED(check_all_to_all)},
      {"all_to_all_single", ATHANOR_TYPED(check_all_to_all_single)},
      {"barrier", check_barrier},
      {"send, recv", ATHANOR_TYPED(check_send_recv)},
      {"isend, irecv", ATHANOR_TYPED(check_isend_irecv)},
  };
  return all;
}

void run_all(ProcessGroup& group) {
  for (const Check& check : checks())
    for (int d = 0; d < kNumDTypes; ++d) check.run(group, static_cast<DType>(d));
}

void run_large(ProcessGroup& group) {
  check_several_chunks<float>(group);
  check_several_chunks<Half>(group);
  check_several_chunks<std::int8_t>(group);
}

}  // namespace athanor::distributed::conformance
