// The `athanor` program: a table of subcommands.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "athanor/launch/launch.h"
#include "cli/bench.h"
#include "cli/env.h"

namespace {

struct Subcommand {
  const char* name;
  const char* summary;
  /// argv[0] is the subcommand's name.
  int (*run)(int argc, const char* const* argv);
};

constexpr Subcommand kSubcommands[] = {
    {"run", "start the workers of a distributed program (torchrun's flags)", athanor::launch::run},
    {"launch", "the same with the habits of torch.distributed.launch", athanor::launch::launch},
    {"bench", "measure collectives, or ways of data parallelism", athanor::cli::bench},
    {"env", "tell what is built in, found and usable", athanor::cli::env},
};

void print_usage(std::FILE* to) {
  std::fputs("Usage: athanor <subcommand> [...]\n\n", to);
  for (const Subcommand& subcommand : kSubcommands)
    std::fprintf(to, "  %-8s %s\n", subcommand.name, subcommand.summary);
  std::fputs("\n'athanor <subcommand> --help' tells more.\n", to);
}

int dispatch(int argc, const char* const* argv) {
  if (argc < 2) {
    print_usage(stderr);
    return 2;
  }
  for (const Subcommand& subcommand : kSubcommands)
    if (std::strcmp(argv[1], subcommand.name) == 0) return subcommand.run(argc - 1, argv + 1);
  const bool help = std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0;
  if (!help) std::fprintf(stderr, "athanor: there is no subcommand '%s'\n\n", argv[1]);
  print_usage(help ? stdout : stderr);
  return help ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  const int status = dispatch(argc, argv);
  std::fflush(nullptr);
  // Threads of a subcommand may still wait for the network: nothing they use may be taken down under them.
  ::_exit(status);
}
