// A worker that does what its arguments say, one after the other:
//
//   env               prints the variables that launchers set, one "NAME=value" a line
//   args WORD...      prints the rest of its arguments, each in brackets
//   out TEXT, err TEXT, raw TEXT   a line on stdout, on stderr; raw: on stderr without an end of line
//   meet              comes together with the others through env://, prints "rank R of N met"
//   reduce            sums the ranks of all in a process group, prints "sum S"
//   join URL          makes a process group by that init_method with every collective in it, prints "joined N: S"
//   group             sums something in a process group and stays in it
//   call              after that: sums something once more
//   device            makes a tensor on cuda:LOCAL_RANK, prints "rank R uses cuda:N"
//   exit N, raise N   ends with an exit code, by a signal
//   hang              until a signal ends it
//   ignore, polite    SIGTERM does nothing; SIGTERM prints "saved" and ends with exit code 0
//   child, daemon     leaves a process that hangs, in its group or in a session of its own, and prints its pid
//   touch FILE, await FILE
//
// "@2" before an action: only as rank 2; "+1": only in the attempt after the first restart. "{r}" is the rank, "{p}"
// the process id.
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "athanor/athanor.h"
#include "athanor/distributed/collectives.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/rendezvous/rendezvous.h"

namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void print_environment() {
  for (const char* name :
       {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
        "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"})
    std::printf("%s=%s\n", name, variable(name));
}

void hang() {
  while (true) ::pause();
}

void on_polite_term(int) {
  constexpr char kText[] = "saved\n";
  [[maybe_unused]] const auto written = ::write(1, kText, sizeof kText - 1);
  ::_exit(0);
}

void leave_process(bool own_session) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (own_session) ::setsid();
    // Its output would keep the test waiting if it were left over.
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    hang();
  }
  std::printf("left %d\n", pid);
}

void meet() {
  athanor::distributed::RendezvousOptions options;
  options.timeout = std::chrono::seconds(60);
  const auto met = athanor::distributed::rendezvous("env://", options);
  met.store->set("hello/" + std::to_string(met.rank), "from there");
  for (int r = 0; r < met.world_size; ++r) met.store->get_text("hello/" + std::to_string(r));
  std::printf("rank %d of %d met\n", met.rank, met.world_size);
  // Who serves the store stays until all have read.
  const auto left = met.store->add("left", 1);
  if (left == met.world_size) met.store->set("all", "left");
  if (met.rank == 0) met.store->get_text("all");
}

void reduce() {
  namespace dist = athanor::distributed;
  dist::init_process_group();
  const athanor::Tensor sum = athanor::full({3}, static_cast<double>(dist::get_rank()));
  dist::all_reduce(sum);
  std::printf("sum %g\n", sum[2].item<double>());
  dist::destroy_process_group();
}

// A little and as much as goes through any buffer several times.
void join(const std::string& url) {
  namespace dist = athanor::distributed;
  const int size = std::atoi(variable("WORLD_SIZE")), rank = std::atoi(variable("RANK"));
  dist::init_process_group("tcp", url, size, rank);
  double sum = 0;
  for (const std::int64_t count : {1, 2'000'000}) {
    const athanor::Tensor mine = athanor::full({count}, static_cast<double>(rank + 1));
    const athanor::Tensor all = athanor::empty({count * size}), part = athanor::empty({count});
    dist::broadcast(mine, 0);
    dist::all_reduce(mine);
    dist::all_gather_into_tensor(all, mine);
    dist::reduce_scatter_tensor(part, all);
    dist::all_to_all_single(athanor::empty({count * size}), all);
    if (rank > 0) dist::send(part, 0);
    for (int from = 1; rank == 0 && from < size; ++from) dist::recv(part, from);
    dist::barrier();
    sum += part[count - 1].item<double>();
  }
  std::printf("joined %d: %g\n", size, sum);
  dist::destroy_process_group();
}

void join_group() {
  namespace dist = athanor::distributed;
  dist::init_process_group();
  dist::all_reduce(athanor::ones({7}));
  dist::barrier();
}

void use_device() {
  const std::string device = std::string("cuda:") + variable("LOCAL_RANK");
  try {
    athanor::ones({3}, athanor::TensorOptions().device(athanor::Device(device))).sum().item<float>();
  } catch (const athanor::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(1);
  }
  std::printf("rank %s uses %s\n", variable("RANK"), device.c_str());
}

std::string filled_in(std::string text) {
  const std::pair<std::string, std::string> values[] = {{"{r}", variable("RANK")}, {"{p}", std::to_string(::getpid())}};
  for (const auto& [name, value] : values)
    if (const std::size_t at = text.find(name); at != std::string::npos) text.replace(at, name.size(), value);
  return text;
}

int act(const std::vector<std::string>& words) {
  bool mine = true;
  const std::map<std::string, std::function<void(const std::string&)>> with_text = {
      {"out", [](const std::string& text) { std::printf("%s\n", text.c_str()); }},
      {"err", [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }},
      {"raw", [](const std::string& text) { std::fputs(text.c_str(), stderr); }},
      {"exit", [](const std::string& code) { std::exit(std::atoi(code.c_str())); }},
      {"raise", [](const std::string& signal) { std::raise(std::atoi(signal.c_str())); }},
      {"join", join},
      {"touch", [](const std::string& path) { std::ofstream(path) << "here\n"; }},
      {"await",
       [](const std::string& path) {
         while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
       }},
  };
  const std::map<std::string, std::function<void()>> plain = {
      {"env", print_environment},
      {"meet", meet},
      {"reduce", reduce},
      {"group", join_group},
      {"call", [] { athanor::distributed::all_reduce(athanor::ones({7})); }},
      {"device", use_device},
      {"hang", hang},
      {"ignore", [] { std::signal(SIGTERM, SIG_IGN); }},
      {"polite", [] { std::signal(SIGTERM, on_polite_term); }},
      {"child", [] { leave_process(false); }},
      {"daemon", [] { leave_process(true); }},
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word[0] == '@' || word[0] == '+') {
      const char* value = variable(word[0] == '@' ? "RANK" : "TORCHELASTIC_RESTART_COUNT");
      mine = mine && word.substr(1) == value;
      continue;
    }
    if (word == "args") {
      for (++i; i < words.size(); ++i) std::printf("[%s]", words[i].c_str());
      std::printf("\n");
    } else if (const auto simple = plain.find(word); simple != plain.end()) {
      if (mine) simple->second();
    } else if (const auto action = with_text.find(word); action != with_text.end() && i + 1 < words.size()) {
      const std::string text = filled_in(words[++i]);
      if (mine) action->second(text);
    } else {
      std::fprintf(stderr, "worker: unknown action '%s'\n", word.c_str());
      return 99;
    }
    mine = true;
    std::fflush(nullptr);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return act(std::vector<std::string>(argv + 1, argv + argc)); }
