// A backend from outside the library: registers the one of store_backend.h and sums over three processes with it.
#include <athanor/athanor.h>
#include <athanor/distributed/distributed.h>

#include <iostream>

#include "store_backend.h"

namespace dist = athanor::distributed;

int main() {
  dist::register_backend("store", [](const dist::BackendOptions& options) {
    return std::make_unique<store_backend::StoreBackend>(options);
  });
  dist::spawn(
      [](int rank) {
        dist::init_process_group("store", "env://", 3, rank);
        athanor::Tensor t = athanor::full({4}, rank + 1.0);
        dist::all_reduce(t);
        if (rank == 0) std::cout << "sum over " << dist::get_world_size() << " ranks:\n" << t << "\n";
        dist::destroy_process_group();
      },
      3);
  return 0;
}
