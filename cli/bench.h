#pragma once

namespace athanor::cli {

class CommandLine;

/// `athanor bench collectives …`: measures the collectives on this machine, or on a launcher's ranks.
/// `athanor bench dp_ddp …`: one training by DataParallel and by DistributedDataParallel.
int bench(int argc, const char* const* argv);
/// The second of them.
void add_dp_ddp(CommandLine& app);

}  // namespace athanor::cli
