#pragma once

namespace athanor::cli {

/// `athanor env [--json]`: what is built in, found and usable on this machine, for bug reports.
int env(int argc, const char* const* argv);

}  // namespace athanor::cli
