#pragma once
/// `athanor run` and `athanor launch`.

namespace athanor::launch {

/// Starts the workers that the command line asks for and watches over them until the job ends. `argv[0]` is ignored.
/// Returns what the process should exit with: 0; the status of the rank that failed first (128 + n for signal n);
/// 128 + n when stopped by signal n; 1 when the nodes did not come together; 2 for a wrong command line. To be called
/// from the main thread of a process without others; threads may be left waiting for the network, so end with _exit.
int run(int argc, const char* const* argv);
/// The same with the flags and habits of torch.distributed.launch: workers get --local-rank=N.
int launch(int argc, const char* const* argv);

}  // namespace athanor::launch
