#pragma once
/// Ranks that are processes, each with its process group, of the native backend unless another is named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "athanor/athanor.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/tcp_store.h"
#include "tests/distributed/processes.h"
#include "tests/distributed/transports.h"

namespace athanor::nn::parallel {

using distributed::ProcessGroup;
using distributed::ProcessGroupPtr;

/// Calls body(group) in `ranks` processes. What a rank throws is its RankEnd's error. `transport`: see set_transport.
inline std::vector<distributed::RankEnd> ends_of_world(int ranks,
                                                       const std::function<void(const ProcessGroupPtr&)>& body,
                                                       const char* transport = "auto", const char* backend = "tcp") {
  distributed::TCPStoreOptions store;
  store.is_server = true;
  store.port = 0;
  distributed::TCPStore server("127.0.0.1", store);
  store.is_server = false;
  store.port = server.port();
  return distributed::run_processes(ranks, [&](int rank) {
    distributed::set_transport(transport, rank);
    set_num_threads(1);
    distributed::ProcessGroupOptions options;
    options.backend = backend;
    options.rank = rank;
    options.size = ranks;
    options.name = "test";
    options.timeout = std::chrono::seconds(30);
    const auto client = std::make_shared<distributed::TCPStore>("127.0.0.1", store);
    const auto group = std::make_shared<ProcessGroup>(client, options);
    body(group);
    group->barrier();
  });
}

/// The same where all ranks should end well.
inline void run_world(int ranks, const std::function<void(const ProcessGroupPtr&)>& body,
                      const char* transport = "auto", const char* backend = "tcp") {
  const auto ends = ends_of_world(ranks, body, transport, backend);
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    EXPECT_TRUE(ends[rank].good()) << "rank " << rank << " of " << ranks << " ended with status " << ends[rank].status
                                   << ": " << ends[rank].error;
}

/// Tests whose ranks share a host, have one each, or both: the parameter is their transport.
class InEveryLayout : public testing::TestWithParam<const char*> {
 public:
  static auto layouts() { return testing::Values("auto", "tcp", distributed::kMixed); }
  static std::string name_of(const testing::TestParamInfo<const char*>& info) {
    return info.param == std::string("auto") ? "OneHost" : info.param == std::string("tcp") ? "Sockets" : "Mixed";
  }

 protected:
  static void run_world(int ranks, const std::function<void(const ProcessGroupPtr&)>& body) {
    parallel::run_world(ranks, body, GetParam());
  }
};

/// The text of what `f` throws; fails if it does not.
template <class F>
std::string thrown_by(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  throw Error("expected an exception");
}

inline void expect_contains(const std::string& text, const std::string& part) {
  ATHANOR_CHECK(text.find(part) != std::string::npos, "expected '", part, "' in '", text, "'");
}

/// Throws unless both have the same elements, to an absolute and relative tolerance.
inline void expect_close(const Tensor& a, const Tensor& b, double tolerance, const std::string& what) {
  ATHANOR_CHECK(a.defined() && b.defined() && a.sizes() == b.sizes(), what, ": ", a, " and ", b);
  if (a.numel() == 0) return;
  const Tensor x = a.detach().to(kDouble), y = b.detach().to(kDouble);
  const double off = ((x - y).abs() / (y.abs() + 1)).max().item<double>();
  ATHANOR_CHECK(off <= tolerance, what, ": off by ", off, ", more than ", tolerance);
}

/// Throws unless the tensors have the same bits on all ranks. (One collective for all of them: on a busy machine it is
/// the turns of the ranks that take time.)
inline void expect_same_on_all_ranks(ProcessGroup& group, const std::vector<Tensor>& tensors, const std::string& what) {
  std::size_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.nbytes();
  const Tensor own = empty({static_cast<std::int64_t>(bytes)}, kByte);
  std::vector<Tensor> all;
  for (int r = 0; r < group.size(); ++r) all.push_back(empty_like(own));
  auto* to = own.data_ptr<std::uint8_t>();
  for (const Tensor& t : tensors) {
    if (t.nbytes() > 0) std::memcpy(to, t.detach().contiguous().data_ptr(), t.nbytes());
    to += t.nbytes();
  }
  group.all_gather(all, own);
  for (int r = 0; r < group.size(); ++r) {
    const auto *mine = own.data_ptr<std::uint8_t>(),
               *theirs = all[static_cast<std::size_t>(r)].data_ptr<std::uint8_t>();
    for (std::size_t i = 0; i < tensors.size(); mine += tensors[i].nbytes(), theirs += tensors[i].nbytes(), ++i)
      ATHANOR_CHECK(tensors[i].nbytes() == 0 || std::memcmp(theirs, mine, tensors[i].nbytes()) == 0, what, ": tensor ",
                    i, " of rank ", r, " has other bits than that of rank ", group.rank());
  }
}

}  // namespace athanor::nn::parallel
