#include "athanor/launch/launch.h"

#include <cstdio>

#include "athanor/base/error.h"
#include "athanor/launch/agent.h"
#include "athanor/launch/hosts.h"

namespace athanor::launch {
namespace {

int run_agent(int argc, const char* const* argv, bool old_launcher) {
  LaunchOptions options;
  bool understood = false;
  try {
    if (const auto status = parse_options(argc, argv, old_launcher, options)) return *status;
    if (options.follow_stdin) take_secret_from_stdin();
    if (!options.hosts.empty()) return run_on_hosts(options, old_launcher);
    Agent agent(options);
    understood = true;
    if (old_launcher)
      std::fputs("athanor launch: deprecated, use athanor run; programs find LOCAL_RANK in their environment\n",
                 stderr);
    return agent.run();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", options.name.c_str(), error.what());
    return understood ? 1 : 2;
  }
}

}  // namespace

int run(int argc, const char* const* argv) { return run_agent(argc, argv, false); }
int launch(int argc, const char* const* argv) { return run_agent(argc, argv, true); }

}  // namespace athanor::launch
