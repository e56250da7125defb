#include "athanor/launch/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "athanor/base/cpus.h"
#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/io/utf8.h"

namespace athanor::launch {

using athanor::detail::str;

namespace {

constexpr int kDefaultMasterPort = 29500, kDefaultRendezvousPort = 29400;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// Parts between commas; two commas are one in a part.
std::vector<std::string> split_filters(const std::string& text) {
  std::vector<std::string> parts(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool comma = text[at] == ',';
    if (comma && (at + 1 == text.size() || text[at + 1] != ','))
      parts.emplace_back();
    else
      parts.back() += text[at += comma ? 1 : 0];
  }
  std::erase(parts, "");
  return parts;
}

int parse_number(const std::string& text, const std::string& what, int least = 0) {
  const auto value = parse_integer(text);
  ATHANOR_CHECK_VALUE(value && *value >= least && *value <= INT32_MAX, what, ": '", io::readable(text),
                      "' should be a whole number of at least ", least);
  return static_cast<int>(*value);
}

Seconds parse_seconds(const std::string& text, const std::string& what) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  ATHANOR_CHECK_VALUE(!text.empty() && *end == '\0' && value >= 0 && value < 1e9, what, ": '", text,
                      "' should be a number of seconds");
  return Seconds(value);
}

bool parse_yes(const std::string& text, const std::string& what) {
  for (const char* yes : {"1", "true", "True", "yes", "t", "y"})
    if (text == yes) return true;
  for (const char* no : {"0", "false", "False", "no", "f", "n"})
    if (text == no) return false;
  ATHANOR_THROW(ValueError, what, ": '", text, "' should be 1 or 0");
}

// The flags as they stand, before they are understood.
struct Flags {
  std::string nnodes, nproc = "1", master_addr, rdzv_backend = "static", rdzv_endpoint, rdzv_id = "none", rdzv_conf;
  std::string out_filters, err_filters, completion;
  std::string redirects = "0", tee = "0", log_dir, prefix, filter, signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  std::string hosts, hostfile, start_method, event_handler = "null", logs_specs = "default", numa_binding, logdir,
                                             shutdown_timeout, monitor_interval;
  int node_rank = 0, master_port = 0;
  bool standalone = false, run_path = false, use_env = false;
};

// Adds options in both spellings, with their PET_ variable.
class FlagList {
 public:
  explicit FlagList(CLI::App& app) : app_(app) {}
  template <class T>
  CLI::Option* option(const std::string& name, T& value, const std::string& help, const std::string& letter = "") {
    return both(app_.add_option(spellings(name, letter), value, help), name);
  }
  CLI::Option* flag(const std::string& name, bool& value, const std::string& help, const std::string& letter = "") {
    return both(app_.add_flag(spellings(name, letter), value, help), name);
  }

 private:
  static std::string underscored(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  }
  static std::string spellings(const std::string& name, const std::string& letter) {
    std::string all = letter.empty() ? "--" + name : letter + ",--" + name;
    if (underscored(name) != name) all += ",--" + underscored(name);
    return all;
  }
  static CLI::Option* both(CLI::Option* option, const std::string& name) {
    std::string variable = "PET_" + underscored(name);
    for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return option->envname(variable)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  CLI::App& app_;
};

void declare(CLI::App& app, Flags& f, LaunchOptions& o, bool old_launcher) {
  FlagList list(app);
  list.option("nnodes", f.nnodes, "number of nodes, or MIN:MAX of an elastic job");
  list.option("nproc-per-node", f.nproc, "workers per node: a number, cpu, gpu or auto");
  list.option("node-rank", f.node_rank, "this node's number, of static jobs")->check(CLI::NonNegativeNumber);
  list.option("master-addr", f.master_addr, "host of node 0, of static jobs (127.0.0.1)");
  list.option("master-port", f.master_port, "port there (29500; a free one if there is one node only)")
      ->check(CLI::Range(0, 65535));
  list.option("rdzv-backend", f.rdzv_backend, "how nodes meet: static or c10d")
      ->check(CLI::IsMember({"static", "c10d"}));
  list.option("rdzv-endpoint", f.rdzv_endpoint, "host:port where nodes meet (port 29400)");
  list.option("rdzv-id", f.rdzv_id, "name of the job");
  list.option("rdzv-conf", f.rdzv_conf,
              "key=value,...: join_timeout, last_call_timeout, keep_alive_interval, keep_alive_max_attempt, "
              "read_timeout, is_host");
  list.flag("standalone", f.standalone,
            "one node on a free port under a name of its own (a UUID), whatever nodes and --rdzv-* say");
  list.option("max-restarts", o.max_restarts, "how often all workers are started again after a failure")
      ->check(CLI::NonNegativeNumber);
  list.option("monitor-interval", f.monitor_interval, "without effect: workers are watched without polling; seconds");
  list.option("start-method", f.start_method, "without effect: workers are always new programs")
      ->check(CLI::IsMember({"spawn", "fork", "forkserver"}));
  list.option("role", o.role, "name of this node's kind of workers");
  list.flag("module", o.module, "run the program as 'python -m'", "-m");
  list.flag("no-python", o.no_python, "execute the program itself, whatever its name");
  list.flag("run-path", f.run_path, "without effect: a Python program is run by its path anyway");
  list.option("log-dir", f.log_dir, "folder for log files: <id>_<random>/attempt_<n>/<local rank>/");
  list.option("redirects", f.redirects, "streams that go to files: 0 none, 1 stdout, 2 stderr, 3 both, or 0:1,1:2",
              "-r");
  list.option("tee", f.tee, "streams that go to files and, with a prefix, to the console", "-t");
  list.option("log-line-prefix-template", f.prefix,
              "prefix of such lines: ${role_name} ${local_rank} ${rank} "
              "${hostname}");
  list.option("local-ranks-filter", f.filter, "local ranks shown on the console, separated by commas");
  list.option("local-addr", o.local_address, "address of this node");
  list.option("signals-to-handle", f.signals, "signals handed on to the workers");
  list.option("shutdown-timeout", f.shutdown_timeout, "seconds between a signal and SIGKILL (30)");
  list.flag("virtual-local-rank", o.virtual_local_rank, "each worker sees one GPU, and LOCAL_RANK=0");
  list.option("hosts", f.hosts, "start an agent on each of these, over ssh: a:4,b:4 (host:workers)");
  list.option("hostfile", f.hostfile, "the same from a file with a line 'host slots=4' each");
  app.add_flag("--follow-stdin", o.follow_stdin)->group("");  // for agents that --hosts starts
  list.flag("explain", o.explain, "print node, ranks, devices and addresses before the workers start");
  list.option(
      "duplicate-stdout-filters", f.out_filters,
      "lines of stdout with one of these texts go to filtered_stdout.log as well, of streams to tee: a,b (,, is "
      "a comma)");
  list.option("duplicate-stderr-filters", f.err_filters, "the same of stderr, in filtered_stderr.log");
  list.option("event-log-handler", f.event_handler, "without effect: events are not written, which torchrun calls null")
      ->check(CLI::IsMember({"null"}));
  list.option("logs-specs", f.logs_specs, "without effect: logs are written in one way, which torchrun calls default")
      ->check(CLI::IsMember({"default"}));
  list.option("numa-binding", f.numa_binding,
              "CPUs a worker may use: its NUMA node's, its socket's, a share of the node's cores of its own "
              "(exclusive), or those of one last-level cache")
      ->check(CLI::IsMember({"node", "socket", "exclusive", "core-complex"}));
  list.option("print-completion", f.completion, "print what makes a shell complete the flags, and end: bash, zsh, tcsh")
      ->check(CLI::IsMember({"bash", "zsh", "tcsh"}));
  if (old_launcher) {
    list.flag("use-env", f.use_env, "leave LOCAL_RANK in the environment, append no argument");
    list.option("logdir", f.logdir, "folder for node_<n>_local_rank_<l>_stdout and _stderr");
  }
  app.prefix_command();
}

// What was given by a flag or its variable.
bool given(const CLI::App& app, const char* name) { return app.get_option(name)->count() > 0; }

void read_nodes(const CLI::App& app, const Flags& f, const Scheduler& scheduler, LaunchOptions& o) {
  const auto parts = split(f.nnodes, ':');
  if (given(app, "--nnodes")) {
    ATHANOR_CHECK_VALUE(parts.size() == 1 || parts.size() == 2, "--nnodes: '", f.nnodes,
                        "' should be a number or MIN:MAX");
    o.min_nodes = parse_number(parts[0], "--nnodes", 1);
    o.max_nodes = parse_number(parts.back(), "--nnodes", 1);
    ATHANOR_CHECK_VALUE(o.min_nodes <= o.max_nodes, "--nnodes: '", f.nnodes, "' should be MIN:MAX");
  } else if (scheduler.nodes) {
    o.min_nodes = o.max_nodes = *scheduler.nodes;
  }
  o.node_rank = f.node_rank;
  // A node's number from outside is meant for a job of that size.
  if (!given(app, "--node-rank") && scheduler.node_rank && *scheduler.node_rank < o.max_nodes)
    o.node_rank = *scheduler.node_rank;
}

void read_workers(const Flags& f, LaunchOptions& o) {
  const int gpus = visible_gpus();
  if (f.nproc == "gpu") {
    ATHANOR_CHECK_VALUE(gpus > 0, "--nproc-per-node=gpu: this machine shows no GPU (CUDA_VISIBLE_DEVICES='",
                        env::text("CUDA_VISIBLE_DEVICES").value_or(""), "'); use cpu, auto or a number");
    o.workers = gpus;
  } else if (f.nproc == "auto") {
    o.workers = gpus > 0 ? gpus : usable_cpus();
  } else if (f.nproc == "cpu") {
    o.workers = usable_cpus();
  } else {
    const auto value = parse_integer(f.nproc);
    ATHANOR_CHECK_VALUE(value && *value >= 1 && *value <= 65536, "--nproc-per-node: '", f.nproc,
                        "' should be a number of at least 1, cpu, gpu or auto");
    o.workers = static_cast<int>(*value);
    if (gpus > 0 && o.workers > gpus)
      o.notes.push_back(str("--nproc-per-node ", o.workers, " is more than the ", gpus, gpus == 1 ? " GPU" : " GPUs",
                            " of this node: several workers will share one"));
  }
}

std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

distributed::Endpoint parse_endpoint(const std::string& text, int default_port) {
  const bool has_port = text.back() != ']' && std::count(text.begin(), text.end(), ':') > 0 &&
                        (text[0] == '[' || std::count(text.begin(), text.end(), ':') == 1);
  if (!has_port) return {without_brackets(text), default_port};
  return distributed::Endpoint::parse(text, "--rdzv-endpoint");
}

// A random UUID, of version 4 (RFC 4122).
std::string new_uuid() {
  unsigned char bytes[16];
  ATHANOR_CHECK(::getentropy(bytes, sizeof bytes) == 0, "getentropy: ", distributed::error_text(errno));
  bytes[6] = static_cast<unsigned char>(0x40 | (bytes[6] & 0x0f));
  bytes[8] = static_cast<unsigned char>(0x80 | (bytes[8] & 0x3f));
  std::string text;
  for (std::size_t i = 0; i < sizeof bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 0x0f];
  }
  return text;
}

void read_meeting(const CLI::App& app, const Flags& f, const Scheduler& scheduler, LaunchOptions& o) {
  if (f.standalone) {  // what else is set does not count, not even if it is wrong
    o.run_id = new_uuid();
    o.backend = Backend::C10d;
    o.min_nodes = o.max_nodes = 1;
    o.node_rank = 0;
    o.endpoint = {"127.0.0.1", 0};
    return;
  }
  o.run_id = f.rdzv_id;
  ATHANOR_CHECK_VALUE(!o.run_id.empty() && o.run_id.find('/') == std::string::npos, "--rdzv-id: '", o.run_id,
                      "' should be a name without '/'");
  o.backend = f.rdzv_backend == "c10d" ? Backend::C10d : Backend::Static;
  const bool alone = o.max_nodes == 1;
  if (!f.rdzv_endpoint.empty()) {
    o.endpoint =
        parse_endpoint(f.rdzv_endpoint, o.backend == Backend::C10d ? kDefaultRendezvousPort : kDefaultMasterPort);
  } else if (o.backend == Backend::C10d) {
    ATHANOR_CHECK_VALUE(alone, "--rdzv-backend=c10d with --nnodes=", o.min_nodes, ":", o.max_nodes,
                        " needs --rdzv-endpoint=host:port, where one of the nodes will listen");
    o.endpoint = {"127.0.0.1", 0};
  } else {
    o.endpoint.host = without_brackets(f.master_addr);
    if (o.endpoint.host.empty()) o.endpoint.host = alone ? "" : scheduler.master_host;
    if (o.endpoint.host.empty()) o.endpoint.host = "127.0.0.1";
    o.endpoint.port = given(app, "--master-port") ? f.master_port
                      : alone                     ? 0
                                                  : scheduler.master_port.value_or(kDefaultMasterPort);
    ATHANOR_CHECK_VALUE(alone || o.endpoint.port > 0, "--master-port=0 with ", o.max_nodes,
                        " nodes: they can meet only at a port all know");
  }
  if (o.backend != Backend::Static) return;
  o.min_nodes = o.max_nodes;
  ATHANOR_CHECK_VALUE(o.node_rank < o.max_nodes, "--node-rank=", o.node_rank, " with --nnodes=", o.max_nodes,
                      ": expected 0 to ", o.max_nodes - 1);
}

void read_conf(const Flags& f, LaunchOptions& o) {
  RendezvousTimes& times = o.times;
  std::string idle;
  for (const std::string& item : split(f.rdzv_conf, ',')) {
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    ATHANOR_CHECK_VALUE(equals != std::string::npos && equals > 0, "--rdzv-conf: '", item, "' should be key=value");
    const std::string key = item.substr(0, equals), value = item.substr(equals + 1), what = "--rdzv-conf " + key;
    if (key == "join_timeout" || key == "timeout")
      times.join = parse_seconds(value, what);
    else if (key == "last_call_timeout")
      times.last_call = parse_seconds(value, what);
    else if (key == "keep_alive_interval")
      times.keep_alive = std::max(parse_seconds(value, what), Seconds(0.02));
    else if (key == "keep_alive_max_attempt")
      times.keep_alive_misses = parse_number(value, what, 1);
    else if (key == "read_timeout")
      times.read = parse_seconds(value, what);
    else if (key == "is_host")
      times.is_host = parse_yes(value, what);
    else if (key == "store_type")
      ATHANOR_CHECK_VALUE(value == "tcp", "--rdzv-conf: store_type '", value, "' is not supported, only tcp");
    else {
      if (key == "rank")
        parse_number(value, what);
      else if (key == "close_timeout" || key == "heartbeat_timeout" || key == "cas_backoff_max_seconds")
        parse_seconds(value, what);
      else
        ATHANOR_THROW(ValueError, "--rdzv-conf: unknown key '", key, "'");
      idle += str(idle.empty() ? "" : ", ", key);
    }
  }
  if (!idle.empty()) o.notes.push_back(str("--rdzv-conf: without effect here: ", idle));
}

int signal_of_name(const std::string& name) {
  const std::string bare = name.starts_with("SIG") ? name.substr(3) : name;
  for (int signal = 1; signal < NSIG; ++signal)
    if (const char* known = ::sigabbrev_np(signal); known != nullptr && bare == known) return signal;
  ATHANOR_THROW(ValueError, "--signals-to-handle: unknown signal '", name, "'");
}

// What torchrun's agent finds in its environment.
void read_torchelastic(LaunchOptions& o) {
  if (env::text("TORCHELASTIC_ENABLE_FILE_TIMER") == "1")
    o.timer_file = env::text("TORCHELASTIC_TIMER_FILE").value_or("");
  if (env::text("TORCHELASTIC_HEALTH_CHECK_PORT"))
    o.notes.emplace_back(
        "TORCHELASTIC_HEALTH_CHECK_PORT is set, but there is no health check server (nor is there one in "
        "torchrun as it is published)");
  if (env::text("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"))
    o.notes.emplace_back("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT has no effect here");
}

// Of the shells' own means only: no package is needed.
void print_completion(const CLI::App& app, const std::string& shell, const std::string& subcommand) {
  std::string flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (name.find('_') == std::string::npos && !option->get_group().empty())
        flags += str(flags.empty() ? "" : " ", "--", name);
  std::cout << "# " << subcommand << "\n";
  if (shell == "bash") std::cout << "complete -o bashdefault -o default -W '" << flags << "' athanor\n";
  if (shell == "zsh") std::cout << "compctl -f -k '(" << flags << ")' athanor\n";
  if (shell == "tcsh")
    std::cout << "complete athanor 'c/--/(" << [&] {
      std::string bare = flags;
      for (std::size_t at = 0; (at = bare.find("--", at)) != std::string::npos;) bare.erase(at, 2);
      return bare;
    }() << ")/'\n";
}

void read_rest(const CLI::App& app, const Flags& f, LaunchOptions& o) {
  o.redirects = StreamChoice::parse(f.redirects, "--redirects");
  o.tee = StreamChoice::parse(f.tee, "--tee");
  o.log_dir = f.log_dir;
  o.line_prefix =
      !f.prefix.empty() ? f.prefix : env::text("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or(o.line_prefix);
  for (const std::string& rank : split(f.filter, ','))
    o.shown_ranks.push_back(parse_number(rank, "--local-ranks-filter"));
  for (const std::string& name : split(f.signals, ',')) o.signals.push_back(signal_of_name(name));
  const std::string grace =
      !f.shutdown_timeout.empty() ? f.shutdown_timeout : env::text("TORCH_ELASTIC_SHUTDOWN_TIMEOUT").value_or("30");
  o.kill_grace = parse_seconds(grace, "--shutdown-timeout");
  if (given(app, "--monitor-interval"))
    ATHANOR_CHECK_VALUE(parse_seconds(f.monitor_interval, "--monitor-interval") > Seconds(0), "--monitor-interval: '",
                        f.monitor_interval, "' should be more than 0 seconds");
  o.numa_binding = numa_binding_of(f.numa_binding).value_or(NumaBinding::None);
  o.out_filters = split_filters(f.out_filters);
  o.err_filters = split_filters(f.err_filters);
  if (!f.logdir.empty()) {
    o.log_dir = f.logdir;
    o.plain_log_names = true;
    o.redirects = StreamChoice::parse("3", "--logdir");
  }
}

Host parse_host(const std::string& text, const std::string& flag) {
  Host host;
  const std::size_t colon = text.rfind(':');
  host.name = text.substr(0, colon);
  const bool is_word = std::all_of(host.name.begin(), host.name.end(), [](unsigned char c) {
    return c > ' ' && c != 0x7f && std::strchr("'\"\\;&|<>$`:", c) == nullptr;
  });
  ATHANOR_CHECK_VALUE(!host.name.empty() && host.name[0] != '-' && is_word, flag, ": '", io::readable(text),
                      "' should be host or host:workers");
  if (colon != std::string::npos) host.workers = parse_number(text.substr(colon + 1), flag, 1);
  return host;
}

std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  ATHANOR_CHECK_VALUE(file, "--hostfile: cannot read '", path, "': ", distributed::error_text(errno));
  std::vector<Host> hosts;
  int number = 0;
  for (std::string line; ++number, std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots;
    if (!(words >> name)) continue;
    words >> slots;
    if (slots.starts_with("slots=")) slots = slots.substr(6);
    hosts.push_back(
        parse_host(slots.empty() ? name : str(name, ":", slots), str("--hostfile: '", path, "', line ", number)));
  }
  ATHANOR_CHECK_VALUE(!hosts.empty(), "--hostfile: '", path, "' names no host");
  return hosts;
}

void read_hosts(const CLI::App& app, const Flags& f, int argc, const char* const* argv, LaunchOptions& o) {
  if (f.hosts.empty() && f.hostfile.empty()) return;
  ATHANOR_CHECK_VALUE(f.hosts.empty() || f.hostfile.empty(), "--hosts and --hostfile exclude each other");
  for (const char* flag : {"--nnodes", "--node-rank", "--rdzv-backend", "--rdzv-endpoint", "--standalone"})
    ATHANOR_CHECK_VALUE(!given(app, flag) && (flag != std::string("--standalone") || !f.standalone), flag,
                        " and --hosts exclude each other: there is one node per host");
  if (!f.hostfile.empty()) o.hosts = read_hostfile(f.hostfile);
  for (const std::string& item : split(f.hosts, ',')) o.hosts.push_back(parse_host(item, "--hosts"));
  const auto end = argc - static_cast<int>(app.remaining().size());
  for (int i = 1; i < end; ++i) {
    const std::string word = argv[i];
    if (word == "--hosts" || word == "--hostfile")
      ++i;
    else if (!word.starts_with("--hosts=") && !word.starts_with("--hostfile=") && word != "--")
      o.flags.push_back(word);
  }
}

void read_command(const CLI::App& app, LaunchOptions& o) {
  o.command = app.remaining();
  if (!o.command.empty() && o.command[0] == "--") {
    o.command.erase(o.command.begin());
  } else if (!o.command.empty() && o.command[0].starts_with("-")) {
    ATHANOR_THROW(ValueError, "unknown flag '", o.command[0], "'; flags of the program stand behind its name, see '",
                  o.name, " --help'");
  }
  ATHANOR_CHECK_VALUE(!o.command.empty(), "which program? Usage: ", o.name, " [flags] program [its arguments]");
  ATHANOR_CHECK_VALUE(!o.module || !o.no_python, "-m and --no-python exclude each other");
}

}  // namespace

StreamChoice StreamChoice::parse(const std::string& text, const std::string& flag) {
  const auto streams = [&](const std::string& part) {
    const int value = parse_number(part, flag);
    ATHANOR_CHECK_VALUE(value <= 3, flag, ": '", part, "' should be 0 (none), 1 (stdout), 2 (stderr) or 3 (both)");
    return value;
  };
  StreamChoice choice;
  if (text.find(':') == std::string::npos) {
    choice.everyone_ = text.empty() ? 0 : streams(text);
    return choice;
  }
  for (const std::string& item : split(text, ',')) {
    const auto parts = split(item, ':');
    ATHANOR_CHECK_VALUE(parts.size() == 2, flag, ": '", item, "' should be local rank:streams, as in 0:1,1:2");
    choice.some_[parse_number(parts[0], flag)] = streams(parts[1]);
  }
  return choice;
}

int StreamChoice::of(int local_rank) const {
  const auto found = some_.find(local_rank);
  return found == some_.end() ? everyone_ : found->second;
}

bool StreamChoice::any() const {
  return everyone_ != 0 || std::any_of(some_.begin(), some_.end(), [](const auto& entry) { return entry.second != 0; });
}

std::optional<int> parse_options(int argc, const char* const* argv, bool old_launcher, LaunchOptions& o) {
  o.name = old_launcher ? "athanor launch" : "athanor run";
  CLI::App app{old_launcher ? "Starts a program several times, each with its own --local-rank"
                            : "Starts the workers of a distributed program and watches over them"};
  app.name(o.name);
  app.footer(
      "\nWhat stands behind the flags is the program and its arguments; *.py runs under Python (PYTHON_EXEC).\n"
      "Every flag may also be set as PET_<NAME>, for example PET_NNODES=2.");
  Flags flags;
  declare(app, flags, o, old_launcher);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error, std::cout, std::cerr);
    return status == 0 ? 0 : 2;
  }
  // The operator of PyTorchJobs sets it so for `standalone: true`. CLI11 takes what is empty for unset.
  const char* standalone = std::getenv("PET_STANDALONE");
  if (standalone != nullptr && *standalone == '\0' && !given(app, "--standalone")) flags.standalone = true;
  if (!flags.completion.empty()) {
    print_completion(app, flags.completion, o.name);
    return 0;
  }
  read_torchelastic(o);
  read_hosts(app, flags, argc, argv, o);
  const Scheduler scheduler = flags.standalone || !o.hosts.empty() ? Scheduler() : read_scheduler();
  read_nodes(app, flags, scheduler, o);
  read_workers(flags, o);
  read_meeting(app, flags, scheduler, o);
  read_conf(flags, o);
  read_rest(app, flags, o);
  read_command(app, o);
  o.append_local_rank = old_launcher && !flags.use_env;
  ATHANOR_CHECK_VALUE(!o.append_local_rank || !o.no_python,
                      "--no-python needs --use-env: a program that is no script "
                      "reads LOCAL_RANK from its environment");
  if (o.max_nodes > 1 && scheduler.nodes == o.max_nodes) {
    o.first_local_rank = scheduler.first_local_rank.value_or(0) * o.workers;
    if (scheduler.local_world_size) o.local_world_size = *scheduler.local_world_size * o.workers;
  }
  if (!scheduler.note.empty() && !given(app, "--nnodes")) o.notes.push_back(scheduler.note);
  return std::nullopt;
}

}  // namespace athanor::launch
