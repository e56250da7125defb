#include "athanor/launch/workers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <map>

#include "athanor/base/env.h"
#include "athanor/base/error.h"

extern char** environ;

namespace athanor::launch {

using athanor::detail::str;
namespace fs = std::filesystem;

struct WorkerGroup::Worker {
  int rank = 0, local_rank = 0;
  std::optional<Process> process;
  bool alive = false;
  std::vector<Stream> streams;  // those that go through the agent
  std::optional<std::size_t> err_stream;
  std::string err_file, error_file;
  Descriptor error_memory;
  std::chrono::steady_clock::time_point started;
};

LogFolder::LogFolder(const LaunchOptions& options) : options_(options), path_(options.log_dir) {
  const bool filters = !options.out_filters.empty() || !options.err_filters.empty();
  if (path_.empty() && !options.redirects.any() && !filters) return;
  try {
    const fs::path base = path_.empty() ? fs::temp_directory_path() : fs::path(path_);
    fs::create_directories(base);
    if (options.plain_log_names) return;
    std::string name = (base / str(path_.empty() ? "athanor_" : "", options.run_id, "_XXXXXX")).string();
    ATHANOR_CHECK_TYPE(IoError, ::mkdtemp(name.data()) != nullptr, "cannot make the log folder ", name, ": ",
                       distributed::error_text(errno));
    path_ = name;
  } catch (const fs::filesystem_error& error) {
    ATHANOR_THROW(IoError, "--log-dir: ", error.what());
  }
}

std::string LogFolder::worker_folder(const Placement& placement, int local_rank) const {
  const fs::path folder = fs::path(path_) / str("attempt_", placement.round) / str(local_rank);
  std::error_code error;
  fs::create_directories(folder, error);
  ATHANOR_CHECK_TYPE(IoError, !error, "cannot make the log folder ", folder.string(), ": ", error.message());
  return folder.string();
}

std::string LogFolder::stream_file(const Placement& placement, int local_rank, const char* stream) const {
  if (options_.plain_log_names)
    return str(path_, "/node_", placement.group_rank, "_local_rank_", local_rank, "_std", stream);
  return str(worker_folder(placement, local_rank), "/std", stream, ".log");
}

std::string LogFolder::filtered_file(const Placement& placement, const char* stream) const {
  if (options_.plain_log_names) return str(path_, "/node_", placement.group_rank, "_filtered_std", stream);
  return str(fs::path(worker_folder(placement, 0)).parent_path().string(), "/filtered_std", stream, ".log");
}

std::string LogFolder::error_file(const Placement& placement, int local_rank) const {
  if (path_.empty() || options_.plain_log_names) return {};
  return worker_folder(placement, local_rank) + "/error.json";
}

WorkerGroup::WorkerGroup(const LaunchOptions& options, const Command& command, Guardian& guardian,
                         const std::string& mark, Console& out, Console& err)
    : options_(options), command_(command), guardian_(guardian), mark_(mark), out_(out), err_(err), logs_(options) {
  char name[256] = "?";
  ::gethostname(name, sizeof name - 1);
  host_ = name;
  // Other agents of this host bind the workers before and behind these.
  const int on_host = options.local_world_size.value_or(options.workers);
  auto all = cpus_of_workers(options.numa_binding, std::max(on_host, options.first_local_rank + options.workers),
                             options.numa_binding == NumaBinding::None ? std::vector<int>() : allowed_cpus());
  cpus_.assign(all.begin() + options.first_local_rank, all.begin() + options.first_local_rank + options.workers);
  if (options.log_dir.empty() && !logs_.path().empty())
    err_.write(str(options.name, ": log files are in ", logs_.path(), "\n"));
}

WorkerGroup::~WorkerGroup() {
  signal(SIGKILL);
  const Deadline patience = Deadline::after(std::chrono::seconds(5));
  for (const auto& worker : workers_)
    if (worker->alive && distributed::wait_for(worker->process->watched_fd(), POLLIN, patience)) ended(*worker);
}

namespace {

std::string replaced(std::string text, const std::map<std::string, std::string>& macros) {
  for (const auto& [name, value] : macros)
    for (std::size_t at = 0; (at = text.find("${" + name + "}", at)) != std::string::npos; at += value.size())
      text.replace(at, name.size() + 3, value);
  return text;
}

Descriptor open_log(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  ATHANOR_CHECK_TYPE(IoError, fd, "cannot write the log file ", path, ": ", distributed::error_text(errno));
  return fd;
}

// The device that local rank n of this node sees alone.
std::string device_of(int local_rank) {
  const std::string list = env::text("CUDA_VISIBLE_DEVICES").value_or("");
  std::size_t begin = 0;
  for (int skip = local_rank; skip > 0 && begin != std::string::npos; --skip) {
    begin = list.find(',', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (list.empty() || begin == std::string::npos) return std::to_string(local_rank);
  return list.substr(begin, list.find(',', begin) - begin);
}

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%F %T", &parts);
  return text;
}

}  // namespace

std::vector<std::string> WorkerGroup::environment(const Placement& p, const Worker& worker) const {
  const int local_rank = worker.local_rank;
  const auto text = [](int value) { return std::to_string(value); };
  std::map<std::string, std::string> own = {
      {"RANK", text(worker.rank)},
      {"LOCAL_RANK", text(options_.virtual_local_rank ? 0 : local_rank)},
      {"WORLD_SIZE", text(p.world_size)},
      {"LOCAL_WORLD_SIZE", text(options_.local_world_size.value_or(options_.workers))},
      {"GROUP_RANK", text(p.group_rank)},
      {"GROUP_WORLD_SIZE", text(p.group_size)},
      {"ROLE_RANK", text(p.first_role_rank + worker.rank - p.first_rank)},
      {"ROLE_NAME", options_.role},
      {"ROLE_WORLD_SIZE", text(p.role_size)},
      {"MASTER_ADDR", p.master_host},
      {"MASTER_PORT", text(p.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", text(p.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", text(options_.max_restarts)},
      {"TORCHELASTIC_RUN_ID", options_.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", p.agent_store ? "True" : "False"},
      {"TORCHELASTIC_ERROR_FILE", worker.error_file},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", env::text("TORCH_NCCL_ASYNC_ERROR_HANDLING").value_or("1")},
  };
  if (!timer_file_.empty()) own["TORCHELASTIC_TIMER_FILE"] = timer_file_;
  if (!env::text("OMP_NUM_THREADS") && options_.workers > 1) own["OMP_NUM_THREADS"] = "1";
  if (options_.virtual_local_rank) own["CUDA_VISIBLE_DEVICES"] = device_of(local_rank);
  const std::size_t equals = mark_.find('=');
  own[mark_.substr(0, equals)] = mark_.substr(equals + 1);

  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    if (own.count(variable.substr(0, variable.find('='))) == 0) all.push_back(variable);
  }
  for (const auto& [name, value] : own) all.push_back(str(name, "=", value));
  return all;
}

// Where a stream of a worker goes. `log_file` is set if the worker can write there itself.
Stream::Where WorkerGroup::where(const Placement& p, const Worker& worker, bool err, std::string& log_file) const {
  const int local_rank = worker.local_rank;
  const bool tee = err ? options_.tee.err(local_rank) : options_.tee.out(local_rank);
  const bool redirect = err ? options_.redirects.err(local_rank) : options_.redirects.out(local_rank);
  const auto& shown = options_.shown_ranks;
  const bool show = shown.empty() || std::find(shown.begin(), shown.end(), local_rank) != shown.end();
  Stream::Where where;
  where.keep_tail = err;
  if ((tee || redirect) && !logs_.path().empty()) log_file = logs_.stream_file(p, local_rank, err ? "err" : "out");
  if (redirect && !tee) return where;
  if (!log_file.empty()) where.file = open_log(log_file);
  const std::string prefix = tee ? replaced(options_.line_prefix, {{"role_name", options_.role},
                                                                   {"local_rank", std::to_string(local_rank)},
                                                                   {"rank", std::to_string(worker.rank)},
                                                                   {"hostname", host_}})
                                 : std::string();
  where.filters = err ? options_.err_filters : options_.out_filters;
  if (tee && !where.filters.empty()) {
    const std::string path = logs_.filtered_file(p, err ? "err" : "out");
    where.filtered.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    ATHANOR_CHECK_TYPE(IoError, where.filtered, "cannot write the log file ", path, ": ",
                       distributed::error_text(errno));
    where.filter_prefix = prefix;
  }
  if (!show) return where;
  where.prefix = prefix;
  where.console = err ? &err_ : &out_;
  return where;
}

void WorkerGroup::start_one(const Placement& p, int index) {
  auto owned = std::make_unique<Worker>();
  Worker& worker = *owned;
  worker.local_rank = options_.first_local_rank + index;
  worker.rank = p.first_rank + index;
  worker.error_file = logs_.error_file(p, worker.local_rank);
  if (worker.error_file.empty()) {
    // No file that anyone would have to remove.
    worker.error_memory.reset(::memfd_create("athanor-error", MFD_CLOEXEC));
    worker.error_file = str("/proc/", ::getpid(), "/fd/", worker.error_memory.get());
  }
  Descriptor given[2];  // what the worker gets; -1: the agent's own
  for (const bool err : {false, true}) {
    std::string file;
    Stream::Where to = where(p, worker, err, file);
    const bool straight = to.console == nullptr && !to.file && !to.filtered;
    if (err) worker.err_file = file;
    if (straight && !file.empty()) {
      given[err] = open_log(file);
    } else if (straight && !err) {
      given[err].reset(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    } else if (err || to.file || to.filtered || !to.prefix.empty()) {
      if (err) worker.err_stream = worker.streams.size();
      worker.streams.emplace_back(std::move(to), given[err]);
    }  // otherwise stdout is the agent's, so that a terminal stays one
  }
  // An agent's stdin that others speak through is not the workers'.
  const Descriptor in(options_.follow_stdin ? ::open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
  worker.process.emplace(command_.for_worker(worker.local_rank), environment(p, worker), given[0].get(), given[1].get(),
                         in.get(), cpus(index));
  guardian_.watch(worker.process->pid());
  worker.started = std::chrono::steady_clock::now();
  worker.alive = true;
  ++alive_;
  workers_.push_back(std::move(owned));
}

void WorkerGroup::start(const Placement& placement) {
  workers_.clear();
  failures_.clear();
  stopped_.clear();
  end_expected_ = false;
  placement_ = placement;
  try {
    for (int i = 0; i < options_.workers; ++i) start_one(placement, i);
  } catch (...) {
    signal(SIGKILL);
    throw;
  }
}

void WorkerGroup::signal(int signal) {
  for (const auto& worker : workers_) {
    if (!worker->alive) continue;
    worker->process->signal(signal);
    if (signal != SIGSTOP && signal != SIGKILL) worker->process->signal(SIGCONT);
  }
}

void WorkerGroup::expect_end() { end_expected_ = true; }

std::vector<pid_t> WorkerGroup::pids() const {
  std::vector<pid_t> all;
  for (const auto& worker : workers_)
    if (worker->alive) all.push_back(worker->process->pid());
  return all;
}

std::optional<int> WorkerGroup::rank_of(pid_t pid) const {
  const pid_t group = pid > 1 ? ::getpgid(pid) : -1;
  for (const auto& worker : workers_)
    if (worker->alive && (worker->process->pid() == pid || worker->process->pid() == group)) return worker->rank;
  return std::nullopt;
}

void WorkerGroup::add_waits(std::vector<pollfd>& waits) const {
  for (const auto& worker : workers_) {
    if (!worker->alive) continue;
    waits.push_back({worker->process->watched_fd(), POLLIN, 0});
    for (const Stream& stream : worker->streams)
      if (stream.open() && !stream.paused()) waits.push_back({stream.fd(), POLLIN, 0});
  }
}

Deadline WorkerGroup::next_wake() const {
  Deadline next = Deadline::after(std::chrono::hours(1));
  for (const auto& worker : workers_)
    for (const Stream& stream : worker->streams)
      if (const Deadline* at = stream.unfinished()) next = next.sooner(*at);
  return next;
}

void WorkerGroup::handle(const std::vector<pollfd>& waits) {
  const auto ready = [&](int fd) {
    return std::any_of(waits.begin(), waits.end(), [&](const pollfd& p) { return p.fd == fd && p.revents != 0; });
  };
  const auto noticed_before = static_cast<std::ptrdiff_t>(failures_.size());
  for (const auto& worker : workers_) {
    if (!worker->alive) continue;
    const bool over = ready(worker->process->watched_fd());
    for (Stream& stream : worker->streams) {
      if (stream.open() && ready(stream.fd())) stream.readable();
      if (stream.unfinished() != nullptr && stream.unfinished()->expired()) stream.show_unfinished();
    }
    if (over) ended(*worker);
  }
  // Nobody knows which of those that are noticed together was first: by what they say.
  std::stable_sort(failures_.begin() + noticed_before, failures_.end(),
                   [](const Failure& a, const Failure& b) { return a.likely_consequence() < b.likely_consequence(); });
}

void WorkerGroup::ended(Worker& worker) {
  const Ending ending = worker.process->collect();
  guardian_.forget(worker.process->pid());
  for (Stream& stream : worker.streams) stream.finish();
  worker.alive = false;
  --alive_;
  if (end_expected_) {
    stopped_.insert(std::upper_bound(stopped_.begin(), stopped_.end(), worker.rank), worker.rank);
    return;
  }
  if (ending.good()) return;
  Failure failure;
  failure.rank = worker.rank;
  failure.local_rank = worker.local_rank;
  failure.pid = worker.process->pid();
  failure.ending = ending;
  failure.host = host_;
  failure.when = local_time();
  failure.after_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - worker.started).count();
  failure.message = read_error_file(worker.error_file);
  failure.last_lines = worker.err_stream ? worker.streams[*worker.err_stream].tail() : Tail::of_file(worker.err_file);
  failure.log_file = worker.err_file;
  failure.attempt = placement_.restarts;
  failures_.push_back(failure);
}

}  // namespace athanor::launch
