// Files that the launcher reads: hostfiles, workers' error files and timers, the system's lists of CPUs. Whatever is in
// them, it goes on or says what is wrong with which file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "athanor/base/log.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/io/utf8.h"
#include "athanor/launch/affinity.h"
#include "athanor/launch/file_timers.h"
#include "athanor/launch/local_rank_flag.h"
#include "athanor/launch/options.h"
#include "athanor/launch/output.h"
#include "athanor/launch/report.h"
#include "folder.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

using namespace std::string_literals;

void fuzz_hostfile(const std::uint8_t* data, std::size_t size) {
  const std::string path = written("hosts", data, size), flag = "--hostfile=" + path;
  const char* words[] = {"athanor", flag.c_str(), "program"};
  launch::LaunchOptions options;
  try {
    EXPECT_FALSE(launch::parse_options(3, words, false, options));
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    EXPECT_TRUE(io::is_utf8(e.what()));
    return;
  }
  EXPECT_FALSE(options.hosts.empty());
  for (const launch::Host& host : options.hosts) {
    // ssh takes it as one word, and not as a flag.
    EXPECT_FALSE(host.name.empty() || host.name[0] == '-');
    EXPECT_TRUE(std::ranges::all_of(host.name, [](unsigned char c) { return c > ' ' && c != 0x7f; })) << host.name;
    EXPECT_GE(host.workers, 0);
  }
}

void fuzz_error_file(const std::uint8_t* data, std::size_t size) {
  const std::string message = launch::read_error_file(written("error.json", data, size));
  EXPECT_TRUE(io::is_utf8(message));
  EXPECT_LE(message.size(), size);
  // It is told to the other nodes.
  launch::Failure failure;
  failure.message = message;
  EXPECT_EQ(launch::Failure::from_json(failure.json()).message, message);
}

void fuzz_failure(const std::uint8_t* data, std::size_t size) {
  try {
    const launch::Failure failure = launch::Failure::from_json(std::string(data, data + size));
    launch::describe("athanor run", failure, 1);
    EXPECT_GE(failure.likely_consequence(), 0);
    launch::Failure::from_json(failure.json());
  } catch (const Error&) {
  }
}

void fuzz_cpu_lists(const std::uint8_t* data, std::size_t size) {
  static const std::string system = [] {
    for (int cpu = 0; cpu < 4; ++cpu) {
      const std::string place = folder() / ("cpu/cpu" + std::to_string(cpu) + "/topology");
      std::filesystem::create_directories(place);
      const std::string own = std::to_string(cpu);
      io::write_file(place + "/thread_siblings_list", std::as_bytes(std::span(own)));
    }
    std::filesystem::create_directories(folder() / "node/node0");
    return folder().path();
  }();
  written("node/node0/cpulist", data, size);
  for (const auto binding : {launch::NumaBinding::Node, launch::NumaBinding::Exclusive}) {
    try {
      for (const auto& cpus : launch::cpus_of_workers(binding, 2, {0, 1, 2, 3}, system))
        for (const int cpu : cpus) EXPECT_TRUE(cpu >= 0 && cpu < 4) << cpu;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find("--numa-binding"), std::string::npos) << e.what();
    }
  }
}

void fuzz_timers(const std::uint8_t* data, std::size_t size) {
  launch::FileTimers timers(folder() / "timers");
  const distributed::Descriptor pipe(::open(timers.path().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  for (std::size_t at = 0; at < size;) {
    const ssize_t put = ::write(pipe.get(), data + at, std::min<std::size_t>(size - at, 4096));
    ASSERT_GT(put, 0);
    at += static_cast<std::size_t>(put);
    timers.read();
  }
  EXPECT_LE(timers.next().poll_milliseconds(), 3600 * 1000);
  for (const auto& timer : timers.expired()) {
    // Of a process: 0 and negative numbers stand for many, to whoever sends a signal.
    EXPECT_GT(timer.pid, 0);
    timers.forget(timer.pid);
  }
}

// Any bytes are a log or a program: what is looked for is text.
void fuzz_texts(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size), path = written("text", data, size);
  const std::string spelling = launch::local_rank_spelling(text);
  EXPECT_TRUE(spelling.empty() || text.find(spelling) != std::string::npos);
  const std::string tail = launch::Tail::of_file(path);
  EXPECT_LE(tail.size(), size + 1);
}

}  // namespace

TEST(Fuzz, Hostfile) {
  FuzzOptions options;
  for (const char* text : {"a\nb 2\n", "user@host:4\n# all of them\n10.0.0.1 slots=8 max_slots=9\n\n", "[::1]\n",
                           "host:0", "-oProxyCommand=x\n", "a;b\n", "\r\na\r\nb 2\r\n", "# nothing\n", ""})
    options.corpus.push_back(bytes_of(text));
  options.words = {"slots=", "\n", ":", "#", " ", "\t", "\r", "\0"s, "-", "@", "99999999999", "\xff", "\x7f", "\x1b"};
  run_fuzzer(fuzz_hostfile, options);
}

TEST(Fuzz, WorkersErrorFile) {
  FuzzOptions options;
  for (const char* text :
       {R"({"message": {"message": "RuntimeError: no", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1"}}})",
        R"({"message": "in one \u00e9\ud83d\ude42"})", R"({"message": {"extraInfo": []}})", R"({"message": 3})", "[]",
        R"({"message": {"message": null, "extraInfo": {"py_callstack": 1}}})", ""})
    options.corpus.push_back(bytes_of(text));
  options.corpus.emplace_back(20000, '[');
  options.words = {"\"message\"", "\"extraInfo\"", "\"py_callstack\"", "{",    "}",  "[", ":", ",",
                   "null",        "1e999",         "\\ud800",          "\xff", "\0"s};
  options.memory_per_byte = 200;
  run_fuzzer(fuzz_error_file, options);
}

TEST(Fuzz, FailureOfAnotherNode) {
  launch::Failure failure;
  failure.rank = 1, failure.pid = 12, failure.host = "a", failure.message = "rank 0 is gone", failure.ranks = "rank 0";
  FuzzOptions options;
  options.corpus = {bytes_of(failure.json()), bytes_of("{}"), bytes_of("[]"), {}};
  options.words = {"\"rank\"", "\"message\"", "\"rank 2 (host) \"", "null", "1e300", "-1", "4294967296", "{", "}"};
  options.memory_per_byte = 200;
  run_fuzzer(fuzz_failure, options);
}

TEST(Fuzz, CpuLists) {
  FuzzOptions options;
  for (const char* text : {"0-3\n", "0,2\n", "0-1,3-900\n", "0-1:1/2", "", "-5-3", "3-0", "99999999999999999999-"})
    options.corpus.push_back(bytes_of(text));
  options.words = {"-", ",", "-9223372036854775808", "9223372036854775807", "\n", "0-3"};
  options.memory_per_byte = 4096;
  run_fuzzer(fuzz_cpu_lists, options);
}

TEST(Fuzz, TimersOfWorkers) {
  FuzzOptions options;
  for (const char* text :
       {"{\"pid\": 7, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}\n"
        "{\"pid\": 7, \"scope_id\": \"b\", \"expiration_time\": 9e9, \"signal\": 0}\n",
        "{\"pid\": 7, \"scope_id\": \"a\", \"expiration_time\": -1, \"signal\": 9}\n", "\n\n{\n", "[]\n"})
    options.corpus.push_back(bytes_of(text));
  options.words = {"\"pid\"", "-1", "4294967297", "1e300", "true", "null", "\n", "{", "}", "\"a\"", "0.5", "\xff"};

  set_log_level(LogLevel::Error);  // what is not understood is told
  run_fuzzer(fuzz_timers, options);
  set_log_level(LogLevel::Warning);
}

TEST(Fuzz, ProgramsAndLogs) {
  FuzzOptions options;
  options.corpus = {bytes_of("parser.add_argument('--local_rank', type=int)\n"),
                    bytes_of("--local-rank"),
                    Input(9000, '\n'),
                    Input(9000, 'x'),
                    {}};
  options.words = {"--local_rank", "--local-rank", "\n", "\r", "\0"s};
  run_fuzzer(fuzz_texts, options);
}

}  // namespace athanor::fuzz
