#include "athanor/io/download.h"

#include <sys/wait.h>

#include <thread>

#include "athanor/base/hash.h"
#include "athanor/io/file_lock.h"
#include "helpers.h"
#include "http_server.h"

namespace athanor::io {

namespace {

std::string big_content() {
  std::string text;
  for (int i = 0; text.size() < 200000; ++i) text += std::to_string(i * 7919) + ",";
  return text;
}
const std::string kContent = big_content();
const std::string kSum = sha256(bytes_of(kContent));

Download want(const std::vector<std::string>& urls, const std::string& path) {
  Download d;
  d.urls = urls;
  d.path = path;
  d.sha256 = kSum;
  d.connect_timeout = 5;
  d.stall_timeout = 5;
  d.lock_timeout = 30;
  return d;
}

}  // namespace

TEST(Download, FetchesChecksAndLeavesNothingElse) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent}}});
  Download d = want({server.url("/f")}, folder / "sub/f");
  std::uint64_t last = 0, total = 0;
  d.on_progress = [&](std::uint64_t done, std::uint64_t all) { last = done, total = all; };
  std::vector<std::string> lines;
  d.log = [&](const std::string& line) { lines.push_back(line); };
  EXPECT_EQ(download(d), DownloadResult::Fetched);
  EXPECT_TRUE(read_text(folder / "sub/f") == kContent);
  EXPECT_EQ(last, kContent.size());
  EXPECT_EQ(total, kContent.size());
  EXPECT_EQ(lines, std::vector<std::string>{"downloading " + server.url("/f")});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "sub"), {}), 1);

  EXPECT_EQ(download(d), DownloadResult::Present);
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(Download, FileWithAnotherChecksumIsReplaced) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent}}});
  write_file(folder / "f", "old");
  EXPECT_EQ(download(want({server.url("/f")}, folder / "f")), DownloadResult::Fetched);
  EXPECT_TRUE(read_text(folder / "f") == kContent);
}

TEST(Download, BrokenConnectionIsResumedWhereItEnded) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent, .break_after = 100000}}});
  EXPECT_EQ(download(want({server.url("/f")}, folder / "f")), DownloadResult::Fetched);
  EXPECT_TRUE(read_text(folder / "f") == kContent);
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[1], "/f from 100000");
  EXPECT_EQ(requests[2], "/f from 200000");
}

TEST(Download, PartialFileOfAnEarlierRunIsResumed) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent}}});
  write_file(folder / "f.part", kContent.substr(0, 1234));
  EXPECT_EQ(download(want({server.url("/f")}, folder / "f")), DownloadResult::Fetched);
  EXPECT_TRUE(read_text(folder / "f") == kContent);
  EXPECT_EQ(server.requests(), std::vector<std::string>{"/f from 1234"});
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

TEST(Download, CompletePartialFileNeedsNoRequest) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent}}});
  write_file(folder / "f.part", kContent);
  EXPECT_EQ(download(want({server.url("/f")}, folder / "f")), DownloadResult::Fetched);
  EXPECT_TRUE(server.requests().empty());
}

TEST(Download, StartsAgainWhenThePartialFileIsOfAnotherFileOrTooLong) {
  for (const std::string& old : {std::string(5000, 'z'), kContent + "more"}) {
    const TempFolder folder;
    const HttpServer server({{"/f", {.content = kContent}}});
    write_file(folder / "f.part", old);
    EXPECT_EQ(download(want({server.url("/f")}, folder / "f")), DownloadResult::Fetched);
    EXPECT_TRUE(read_text(folder / "f") == kContent);
    EXPECT_EQ(server.requests().size(), 2U);
  }
}

TEST(Download, StartsAgainWhenTheServerKnowsNoRanges) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent, .ranges = false}}});
  write_file(folder / "f.part", kContent.substr(0, 1234));
  EXPECT_EQ(download(want({server.url("/f")}, folder / "f")), DownloadResult::Fetched);
  EXPECT_TRUE(read_text(folder / "f") == kContent);
}

TEST(Download, MirrorsAreTriedInOrderAndAllErrorsReported) {
  const TempFolder folder;
  const HttpServer server({{"/bad", {.content = "wrong content"}},
                           {"/gone", {.status = 503}},
                           {"/moved", {.status = 302, .location = "/f"}},
                           {"/f", {.content = kContent}}});
  Download d = want({server.url("/none"), server.url("/gone"), server.url("/bad")}, folder / "f");
  const auto message = error_of([&] { download(d); });
  EXPECT_CONTAINS(message, "cannot download '" + folder / "f" + "':");
  EXPECT_CONTAINS(message, server.url("/none") + ": The requested URL returned error: 404");
  EXPECT_CONTAINS(message, server.url("/gone") + ": The requested URL returned error: 503");
  EXPECT_CONTAINS(message, server.url("/bad") + ": SHA-256 is ");
  EXPECT_CONTAINS(message, "expected " + kSum);
  EXPECT_TRUE(folder.names().empty()) << folder.names()[0];
  d.urls.push_back(server.url("/moved"));
  EXPECT_EQ(download(d), DownloadResult::Fetched);
}

TEST(Download, ChecksMd5Too) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent}}});
  Download d = want({server.url("/f")}, folder / "f");
  d.md5 = std::string(32, '0');
  EXPECT_CONTAINS(error_of([&] { download(d); }), "MD5 is ");
  d.md5 = md5(bytes_of(kContent));
  d.sha256 = "";
  EXPECT_EQ(download(d), DownloadResult::Fetched);
}

TEST(Download, MoreThanTheLimitIsRefused) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent}}});
  Download d = want({server.url("/f")}, folder / "f");
  d.max_bytes = 100000;
  EXPECT_CONTAINS(error_of([&] { download(d); }), "more than the limit of 100000 bytes");
  EXPECT_TRUE(folder.names().empty());
}

TEST(Download, FromAFolder) {
  const TempFolder folder;
  write_file(folder / "source", kContent);
  EXPECT_EQ(download(want({"file://" + folder / "source"}, folder / "f")), DownloadResult::Fetched);
  EXPECT_TRUE(read_text(folder / "f") == kContent);
}

TEST(Download, NobodyListeningIsAnError) {
  const TempFolder folder;
  std::string url;
  { url = HttpServer({}).url("/f"); }
  EXPECT_CONTAINS(error_of([&] { download(want({url}, folder / "f")); }), url + ": ");
}

TEST(Download, BadArgumentsAreNamed) {
  EXPECT_THROW(download(want({}, "f")), ValueError);
  EXPECT_CONTAINS(error_of<ValueError>([] { download(want({"ftp://x/f"}, "f")); }), "got 'ftp://x/f'");
  Download unchecked = want({"http://x/f"}, "f");
  unchecked.sha256 = "";
  EXPECT_CONTAINS(error_of<ValueError>([&] { download(unchecked); }), "needs a checksum");
}

TEST(Download, OfManyThreadsOneFetches) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent}}});
  std::atomic<int> fetched = 0, others = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(
        [&] { (download(want({server.url("/f")}, folder / "f")) == DownloadResult::Fetched ? fetched : others)++; });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(fetched, 1);
  EXPECT_EQ(others, 7);
  EXPECT_EQ(server.requests().size(), 1U);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

TEST(Download, OfManyProcessesOneFetches) {
  const TempFolder folder;
  const HttpServer server({{"/f", {.content = kContent}}});
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int status = 99;
      try {
        status = static_cast<int>(download(want({server.url("/f")}, folder / "f")));
      } catch (...) {
      }
      _exit(status);
    }
    children.push_back(child);
  }
  int fetched = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 3) << status;
    fetched += WEXITSTATUS(status) == static_cast<int>(DownloadResult::Fetched);
  }
  EXPECT_EQ(fetched, 1);
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(Download, ThoseWhoWaitedShareTheFailure) {
  const TempFolder folder;
  std::atomic<int> waiting = 0;
  const HttpServer server({{"/f", {.content = "wrong", .before_body = [&] {
                                     while (waiting < 3) std::this_thread::yield();
                                   }}}});
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Download d = want({server.url("/f")}, folder / "f");
      d.log = [&](const std::string& line) { waiting += line.starts_with("waiting for process"); };
      try {
        download(d);
      } catch (const IoError& e) {
        failed += std::string(e.what()).find("SHA-256 is") != std::string::npos;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(server.requests().size(), 1U);
  EXPECT_TRUE(folder.names().empty());
}

TEST(FileLock, TimesOutNamingTheHolder) {
  const TempFolder folder;
  FileLock held(folder / "lock", 1);
  long holder = 0;
  const auto message = error_of([&] { FileLock(folder / "lock", 0.02, [&](long pid) { holder = pid; }); });
  EXPECT_CONTAINS(message, "lock', held by process " + std::to_string(getpid()));
  EXPECT_EQ(holder, getpid());
  held.finish("x");
  const FileLock next(folder / "lock", 1);
  EXPECT_FALSE(next.finished_by_other());
}

TEST(FileLock, IsFreeAfterItsHolderWasKilled) {
  const TempFolder folder;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FileLock lock(folder / "lock", 5);
    const char byte = 'x';
    (void)!write(pipe_ends[1], &byte, 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1);
  EXPECT_THROW(FileLock(folder / "lock", 0), IoError);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const FileLock lock(folder / "lock", 5);
  EXPECT_FALSE(lock.finished_by_other());
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace athanor::io
