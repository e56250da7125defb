#pragma once

namespace athanor::cli {

/// `athanor bench collectives …`: measures the collectives on this machine, or on a launcher's ranks.
int bench(int argc, const char* const* argv);

}  // namespace athanor::cli
