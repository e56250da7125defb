// libtorch's side of the comparison in C++. Built on demand by benchmarks/run.py against each libtorch it finds; speaks
// the protocol of benchmarks/protocol.h.
//   libtorch_peer THREADS [all]
// With "all" also the throughput rows, which peers/torch_peer.py measures already.
#include <torch/torch.h>
#include <torch/version.h>

#include <cstdlib>

namespace bench {
using c10::InferenceMode;
}

#include "cpp_resnet.h"
#include "cpp_rows.h"
#include "cpp_throughput.h"
#include "cpp_training.h"

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  torch::set_num_threads(threads);
  torch::manual_seed(0);
  bench::Program program("libtorch", TORCH_VERSION, torch::get_num_threads());
  bench::add_overhead_rows(program);
  bench::add_training_rows(program);
  if (argc > 2) bench::add_resnet_rows(program);
  if (argc > 2) bench::add_throughput_rows(program);
  return program.serve();
}
