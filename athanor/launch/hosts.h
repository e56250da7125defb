#pragma once
/// Jobs whose agents are started from one place, over ssh: `athanor run --hosts a:4,b:4 program`.
///
/// An agent started this way follows its stdin: a first line with the job's secret (may be empty), then a byte for each
/// signal that it should act on; the end of it is taken for SIGTERM. So nothing is left on any host when the process
/// that started the agents, or the connection, is gone.

#include "athanor/launch/options.h"

namespace athanor::launch {

/// Starts an agent on each of options.hosts and waits for them. Returns the exit status. ATHANOR_SSH is what starts a
/// command on a host (default "ssh -o BatchMode=yes -x -T"): its words, the host and the command line are executed.
int run_on_hosts(const LaunchOptions& options, bool old_launcher);

/// Of an agent that follows its stdin: reads the first line and sets ATHANOR_JOB_SECRET.
void take_secret_from_stdin();

}  // namespace athanor::launch
