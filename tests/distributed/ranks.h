#pragma once
/// Runs ranks as threads of this process, each with its process group.

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/hash_store.h"
#include "examples/store_backend.h"

namespace athanor::distributed {

/// Of groups over the example backend.
inline ProcessGroupOptions over_store() {
  ProcessGroupOptions options;
  options.backend = "store";
  return options;
}

/// What each rank threw; empty for those that ended well.
using RankErrors = std::vector<std::string>;

/// Calls `body` with the group of each of `size` ranks at once; the errors' texts are returned.
inline RankErrors errors_of_ranks(int size, const std::function<void(ProcessGroup&)>& body,
                                  ProcessGroupOptions options = over_store()) {
  store_backend::register_once();
  if (options.timeout == kDefaultTimeout) options.timeout = std::chrono::seconds(20);
  const auto store = std::make_shared<HashStore>();
  RankErrors errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const ThreadTeamGuard one(1);  // the ranks share the processors
      try {
        ProcessGroupOptions own = options;
        own.rank = rank;
        own.size = size;
        if (own.name.empty()) own.name = "test";
        const auto group = std::make_shared<ProcessGroup>(store, own);
        body(*group);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
        if (errors[static_cast<std::size_t>(rank)].empty()) errors[static_cast<std::size_t>(rank)] = "?";
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

/// The same where no rank should fail.
inline void run_ranks(int size, const std::function<void(ProcessGroup&)>& body,
                      ProcessGroupOptions options = over_store()) {
  const RankErrors errors = errors_of_ranks(size, body, std::move(options));
  for (std::size_t rank = 0; rank < errors.size(); ++rank)
    EXPECT_EQ(errors[rank], "") << "on rank " << rank << " of " << size;
}

}  // namespace athanor::distributed
