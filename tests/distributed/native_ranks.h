#pragma once
// Ranks of the native backend as processes, in every layout of hosts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "athanor/distributed/backend/native.h"
#include "athanor/distributed/store/tcp_store.h"
#include "tests/distributed/processes.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;
using std::chrono::seconds;

// How many ranks, which of them pretend to be hosts of their own, which may not read the others' memory, and how many
// connections rank 0 wants to each other host; every further rank wants one more.
struct Layout {
  std::string name;
  int ranks;
  std::vector<int> apart;
  std::vector<int> staging = {};
  int streams = 1;
  const char* staged_sums = nullptr;  // or what ATHANOR_STAGED_SUMS is for rank 0; the others say 0

  // In the rank's process, before it joins.
  void place(int rank) const {
    const auto among = [&](const std::vector<int>& some) {
      return std::find(some.begin(), some.end(), rank) != some.end();
    };
    ::setenv("ATHANOR_TRANSPORT", among(apart) ? "tcp" : "auto", 1);
    ::setenv("ATHANOR_SINGLE_COPY", among(staging) ? "0" : "1", 1);
    if (staged_sums != nullptr) ::setenv("ATHANOR_STAGED_SUMS", rank == 0 ? staged_sums : "0", 1);
    if (streams > 1) ::setenv("ATHANOR_TCP_STREAMS", std::to_string(streams + rank).c_str(), 1);
  }
};
inline void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

inline std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int n : {1, 2, 3, 4, 8}) all.push_back({str("SharedMemory", n), n, {}});
  for (const int n : {2, 3, 4}) {
    std::vector<int> everyone(static_cast<std::size_t>(n));
    std::iota(everyone.begin(), everyone.end(), 0);
    all.push_back({str("Tcp", n), n, everyone});
  }
  all.push_back({"TcpSeveralStreams3", 3, {0, 1, 2}, {}, 2});
  all.push_back({"MixedSeveralStreams4", 4, {2}, {}, 3});
  all.push_back({"Staged2", 2, {}, {0, 1}});
  all.push_back({"OneMayNotReadOf3", 3, {}, {1}});
  all.push_back({"SumsFromTheOthersMemory3", 3, {}, {}, 1, "0"});
  for (const int n : {2, 3, 5}) all.push_back({str("SumsStagedByOneOf", n), n, {}, {}, 1, "1"});
  all.push_back({"Mixed3", 3, {1}});
  all.push_back({"Mixed5", 5, {0, 3}});
  return all;
}

struct Rank {
  std::unique_ptr<Backend> backend;
  std::uint64_t sequence = 0;
  milliseconds timeout{20'000};

  int me() const { return backend->rank(); }
  int size() const { return backend->size(); }
  Call call(OpType op, std::int64_t count, DType dtype, int root = -1) {
    Call call;
    call.op = op;
    call.dtype = dtype;
    call.root = root;
    call.count = count;
    call.sequence = ++sequence;
    call.fingerprint = (sequence << 32) ^ (static_cast<std::uint64_t>(op) << 24) ^
                       (static_cast<std::uint64_t>(dtype) << 16) ^ static_cast<std::uint64_t>(count * 64 + root);
    call.timeout = timeout;
    call.deadline = Deadline::after(timeout);
    call.where = CallSite::current();
    return call;
  }
};

// A store that the parent serves.
class Job {
 public:
  Job() : store_("127.0.0.1", options(0, true)) {}
  int port() const { return store_.port(); }
  Rank join(int rank, int ranks, milliseconds timeout = seconds(20)) const {
    BackendOptions backend;
    backend.store = std::make_shared<TCPStore>("127.0.0.1", options(port(), false));
    backend.rank = rank;
    backend.size = ranks;
    backend.group_name = "test";
    backend.timeout = timeout;
    Rank result;
    result.backend = make_native_backend(backend);
    result.timeout = timeout;
    return result;
  }

 private:
  static TCPStoreOptions options(int port, bool server) {
    TCPStoreOptions o;
    o.port = port;
    o.is_server = server;
    o.timeout = seconds(20);
    return o;
  }
  TCPStore store_;
};

class NativeBackend : public testing::TestWithParam<Layout> {
 protected:
  void run(const std::function<void(Rank&)>& body, milliseconds timeout = seconds(30)) {
    const Layout& layout = GetParam();
    const Job job;
    const auto ends = run_processes(layout.ranks, [&](int rank) {
      layout.place(rank);
      Rank me = job.join(rank, layout.ranks, timeout);
      body(me);
    });
    for (std::size_t rank = 0; rank < ends.size(); ++rank)
      EXPECT_TRUE(ends[rank].good()) << "rank " << rank << " ended with status " << ends[rank].status << ": "
                                     << ends[rank].error;
  }
};

}  // namespace
}  // namespace athanor::distributed
