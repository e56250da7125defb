#pragma once

namespace athanor::cli {

/// `athanor env [--json]`: what is built in, found and usable on this machine, for bug reports.
int env(int argc, const char* const* argv);
/// `athanor env --backends`: a table in Markdown of what each backend that is usable here does, by trying it.
int env_backends();

}  // namespace athanor::cli
