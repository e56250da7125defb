#include "athanor/io/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>

#include "helpers.h"

namespace athanor::io {

TEST(ReadFile, ReturnsTheWholeContent) {
  const TempFolder folder;
  const std::string text("a\0b\n", 4);
  write_file(folder / "f", text);
  EXPECT_EQ(read_text(folder / "f"), text);
  EXPECT_EQ(text_of(read_file(folder / "f")), text);
}

TEST(ReadFile, EmptyFileIsEmpty) {
  const TempFolder folder;
  write_file(folder / "f", "");
  EXPECT_TRUE(read_file(folder / "f").empty());
  EXPECT_EQ(MappedFile(folder / "f").size(), 0U);
}

TEST(ReadFile, ErrorsNameActionPathAndReason) {
  const TempFolder folder;
  const auto missing = error_of([&] { read_file(folder / "none"); });
  EXPECT_CONTAINS(missing, "cannot open '" + folder / "none" + "': No such file or directory");
  EXPECT_CONTAINS(error_of([&] { read_file(folder.path()); }), "it is a folder");
  EXPECT_CONTAINS(error_of([&] { MappedFile{folder.path()}; }), "it is a folder");
  EXPECT_CONTAINS(error_of([&] { read_file("/dev/zero"); }), "not a regular file");
}

TEST(ReadFile, NamedPipeIsRefusedWithoutWaiting) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_CONTAINS(error_of([&] { read_file(folder / "pipe"); }), "not a regular file");
}

TEST(ReadFile, RefusesMoreThanTheLimit) {
  const TempFolder folder;
  write_file(folder / "f", "12345");
  EXPECT_EQ(read_text(folder / "f", 5), "12345");
  EXPECT_CONTAINS(error_of([&] { read_text(folder / "f", 4); }), "5 bytes, more than the limit of 4");
  EXPECT_CONTAINS(error_of([&] { MappedFile(folder / "f", 4); }), "more than the limit of 4");
}

TEST(MappedFile, ShowsTheContentAndWritesOnlyToItsOwnCopy) {
  const TempFolder folder;
  write_file(folder / "f", "abc");
  const MappedFile file(folder / "f");
  EXPECT_EQ(text_of(file.bytes()), "abc");
  file.mutable_data()[0] = std::byte{'X'};
  EXPECT_EQ(text_of(file.bytes()), "Xbc");
  EXPECT_EQ(read_text(folder / "f"), "abc");
}

TEST(MappedFile, KeepsItsContentWhenTheFileIsReplaced) {
  const TempFolder folder;
  write_file(folder / "f", "old content");
  MappedFile file(folder / "f");
  write_file(folder / "f", "new");
  EXPECT_EQ(text_of(file.bytes()), "old content");
  MappedFile moved = std::move(file);
  EXPECT_EQ(text_of(moved.bytes()), "old content");
  EXPECT_EQ(file.size(), 0U);  // NOLINT: the moved-from state is documented
  moved = MappedFile(folder / "f");
  EXPECT_EQ(text_of(moved.bytes()), "new");
}

TEST(AtomicFile, NothingIsVisibleBeforeCommit) {
  const TempFolder folder;
  write_file(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.write("new");
    EXPECT_EQ(read_text(folder / "f"), "old");
    file.commit();
    EXPECT_EQ(read_text(folder / "f"), "new");
    EXPECT_EQ(file.size(), 3U);
    EXPECT_THROW(file.write("more"), Error);
    EXPECT_THROW(file.commit(), Error);
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

TEST(AtomicFile, DestroyedWithoutCommitLeavesTheOldFileAndNoTemporary) {
  const TempFolder folder;
  write_file(folder / "f", "old");
  { AtomicFile(folder / "f").write("half"); }
  EXPECT_EQ(read_text(folder / "f"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

namespace {
/// How a child process ends that returns what `body` returns; whatever it throws fails it.
template <class Body>
int status_of_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      _exit(body());
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      _exit(1);
    }
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}
}  // namespace

TEST(AtomicFile, AKilledProcessLeavesTheOldFileAndNoOther) {
  const TempFolder folder;
  {
    const int unnamed = open(folder.path().c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    if (unnamed < 0) GTEST_SKIP() << "the file system of " << folder.path() << " has no files without a name";
    close(unnamed);
  }
  write_file(folder / "f", "old");
  const int status = status_of_child([&] {
    AtomicFile file(folder / "f");
    file.write(std::string(1 << 20, 'x'));
    return kill(getpid(), SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(read_text(folder / "f"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

TEST(AtomicFile, WritesWhereFilesNeedNames) {
  if (geteuid() != 0) GTEST_SKIP() << "chroot into a folder without /proc needs root";
  const TempFolder folder;
  write_file(folder / "f", "old");
  const int status = status_of_child([&] {
    if (chroot(folder.path().c_str()) != 0 || chdir("/") != 0) return errno == EPERM ? 2 : 1;
    {
      AtomicFile file("/f");
      file.write("half");
    }
    const bool kept = read_text("/f") == "old";
    write_file("f", "new");
    return kept && read_text("/f") == "new" ? 0 : 1;
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) GTEST_SKIP() << "chroot is not permitted";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

TEST(AtomicFile, StaysInItsFolderWhateverTheCurrentOneBecomes) {
  const TempFolder folder;
  make_folders(folder / "a");
  make_folders(folder / "b");
  write_file(folder / "b/f", "another's");
  const int status = status_of_child([&] {
    if (chdir((folder / "a").c_str()) != 0) return 1;
    AtomicFile file("f");
    file.write("mine");
    if (chdir((folder / "b").c_str()) != 0) return 1;
    file.commit();
    return 0;
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(read_text(folder / "a/f"), "mine");
  EXPECT_EQ(read_text(folder / "b/f"), "another's");
}

TEST(AtomicFile, SaysThatItsFolderIsGone) {
  const TempFolder folder;
  make_folders(folder / "a");
  AtomicFile file(folder / "a/f");
  file.write("x");
  std::filesystem::remove_all(folder / "a");
  EXPECT_CONTAINS(error_of([&] { file.commit(); }), "cannot write '" + folder / "a/f" + "': No such file or directory");
}

TEST(AtomicFile, SmallAndLargePiecesArriveInOrder) {
  const TempFolder folder;
  std::string expected;
  AtomicFile file(folder / "f");
  for (int i = 0; i < 200; ++i) {
    const std::string piece(static_cast<std::size_t>(i * i * 31 % 400000), static_cast<char>('a' + i % 26));
    file.write(piece);
    expected += piece;
  }
  file.commit();
  EXPECT_EQ(file.size(), expected.size());
  EXPECT_TRUE(read_text(folder / "f") == expected);
}

TEST(AtomicFile, ErrorsNameThePathAskedFor) {
  const TempFolder folder;
  EXPECT_CONTAINS(error_of([&] { write_file(folder / "none/f", "x"); }), "none/f': No such file or directory");
  EXPECT_CONTAINS(error_of([&] { write_file(folder.path(), "x"); }), "it is a folder");
  EXPECT_CONTAINS(error_of([&] { write_file("", "x"); }), "empty name");
  EXPECT_CONTAINS(error_of([&] { write_file(folder / std::string("a\0b", 3), "x"); }), "zero byte");
  EXPECT_CONTAINS(error_of([&] { read_file(folder / std::string("a\0b", 3)); }), "zero byte");
}

TEST(AtomicFile, NeverReplacesADevice) {
  const auto message = error_of([] { write_file("/dev/null", "x"); });
  EXPECT_CONTAINS(message, "/dev/null': it exists and is not a regular file");
  struct stat status {};
  ASSERT_EQ(stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
}

TEST(AtomicFile, FollowsASymbolicLinkAndKeepsTheMode) {
  const TempFolder folder;
  write_file(folder / "real", "old");
  ASSERT_EQ(chmod((folder / "real").c_str(), 0640), 0);
  ASSERT_EQ(symlink("real", (folder / "link").c_str()), 0);
  write_file(folder / "link", "new");
  EXPECT_EQ(read_text(folder / "real"), "new");
  struct stat status {};
  ASSERT_EQ(lstat((folder / "link").c_str(), &status), 0);
  EXPECT_TRUE(S_ISLNK(status.st_mode));
  ASSERT_EQ(stat((folder / "real").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640U);
}

TEST(AtomicFile, LongNamesAreWritten) {
  const TempFolder folder;
  const std::string name(255, 'n');
  write_file(folder / name, "x");
  EXPECT_EQ(read_text(folder / name), "x");
}

TEST(AtomicFile, AFailingWriteLeavesTheOldFile) {
  const TempFolder folder;
  write_file(folder / "f", "old");
  const auto previous_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  rlimit limit = old_limit;
  limit.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &limit);
  const auto message = error_of([&] { write_file(folder / "f", std::string(1 << 20, 'x')); });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, previous_handler);
  EXPECT_CONTAINS(message, "cannot write '" + folder / "f" + "': File too large");
  EXPECT_EQ(read_text(folder / "f"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

TEST(Folders, AreMadeWithTheirParents) {
  const TempFolder folder;
  make_folders(folder / "a/b/c");
  make_folders(folder / "a/b/c");
  write_file(folder / "a/b/c/f", "x");
  EXPECT_CONTAINS(error_of([&] { make_folders(folder / "a/b/c/f/d"); }), "cannot create folder");
  EXPECT_EQ(folder_of("/f"), "/");
  EXPECT_EQ(folder_of("f"), ".");
  EXPECT_EQ(folder_of("a/b/f"), "a/b");
}

}  // namespace athanor::io
