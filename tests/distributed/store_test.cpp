// The same behaviour of every kind of store, and what is particular to each.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "athanor/distributed/error.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/store/file_store.h"
#include "athanor/distributed/store/hash_store.h"
#include "athanor/distributed/store/tcp_store.h"
#include "distributed/helpers.h"
#include "distributed/ports.h"

namespace athanor::distributed {
namespace {

using std::chrono::milliseconds;

Store::Value bytes(std::string_view text) { return {text.begin(), text.end()}; }

// Opens the same store again, as another process would.
struct Kind {
  const char* name;
  std::function<std::function<std::shared_ptr<Store>()>(const TemporaryFolder&)> make;
};

std::function<std::shared_ptr<Store>()> tcp(const TemporaryFolder&) {
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  auto server = std::make_shared<TCPStore>("127.0.0.1", options);
  return [server, first = std::make_shared<bool>(true)]() -> std::shared_ptr<Store> {
    if (std::exchange(*first, false)) return server;
    TCPStoreOptions client;
    client.port = server->port();
    return std::make_shared<TCPStore>("127.0.0.1", client);
  };
}

const Kind kKinds[] = {
    {"hash",
     [](const TemporaryFolder&) {
       auto store = std::make_shared<HashStore>();
       return [store]() -> std::shared_ptr<Store> { return store; };
     }},
    {"file",
     [](const TemporaryFolder& folder) {
       return [path = folder / "store"]() -> std::shared_ptr<Store> { return std::make_shared<FileStore>(path); };
     }},
    {"tcp", tcp},
    {"prefix",
     [](const TemporaryFolder& folder) {
       return [open = tcp(folder)]() -> std::shared_ptr<Store> { return std::make_shared<PrefixStore>("p", open()); };
     }},
};

class Stores : public testing::TestWithParam<Kind> {
 protected:
  TemporaryFolder folder_;
  std::function<std::shared_ptr<Store>()> open_ = GetParam().make(folder_);
  std::shared_ptr<Store> a_ = open_(), b_ = open_();
};

TEST_P(Stores, OneSeesWhatTheOtherSet) {
  a_->set("key", "value");
  EXPECT_EQ(b_->get_text("key"), "value");
  b_->set("key", std::string_view("\0with zeros\0", 12));
  EXPECT_EQ(a_->get("key"), bytes(std::string_view("\0with zeros\0", 12)));
  a_->set("empty", "");
  EXPECT_TRUE(b_->get("empty").empty());
}

TEST_P(Stores, LargeValuesComeThroughWhole) {
  Store::Value large(3'000'001);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  a_->set("large", large);
  EXPECT_EQ(b_->get("large"), large);
}

TEST_P(Stores, GetWaitsUntilTheKeyIsThere) {
  std::thread other([&] { b_->set("late", "came"); });
  EXPECT_EQ(a_->get_text("late"), "came");
  other.join();
}

TEST_P(Stores, WaitingEndsAtTheTimeoutAndNamesTheKeys) {
  a_->set("here", "1");
  try {
    a_->wait({"here", "missing", "lost"}, milliseconds(50));
    FAIL() << "no error";
  } catch (const DistStoreError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("missing'"), std::string::npos) << text;
    EXPECT_NE(text.find("lost'"), std::string::npos) << text;
    EXPECT_EQ(text.find("here'"), std::string::npos) << text;
    EXPECT_NE(text.find("50 ms"), std::string::npos) << text;
  }
  EXPECT_THROW(b_->get("missing", milliseconds(1)), DistStoreError);
  a_->set("missing", "x");  // the store still works
  EXPECT_EQ(b_->get_text("missing"), "x");
}

TEST_P(Stores, AddCountsAcrossClientsAndThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) (t % 2 == 0 ? a_ : b_)->add("count", 2);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(a_->add("count", -1), 199);
  EXPECT_EQ(b_->get_text("count"), "199");
}

TEST_P(Stores, AddToWhatIsNoNumberIsRefused) {
  a_->set("text", "seven");
  EXPECT_THROW(a_->add("text", 1), DistStoreError);
  EXPECT_EQ(b_->get_text("text"), "seven");
}

TEST_P(Stores, CompareSetSetsOnlyWhatWasExpected) {
  EXPECT_EQ(a_->compare_set("k", bytes("old"), bytes("new")), bytes("old"));  // no key: nothing is set
  EXPECT_FALSE(a_->check({"k"}));
  EXPECT_EQ(a_->compare_set("k", {}, bytes("one")), bytes("one"));
  EXPECT_EQ(b_->compare_set("k", bytes("zero"), bytes("two")), bytes("one"));
  EXPECT_EQ(b_->compare_set("k", bytes("one"), bytes("two")), bytes("two"));
  EXPECT_EQ(a_->get_text("k"), "two");
}

TEST_P(Stores, DeletedKeysAreGone) {
  a_->set("k", "v");
  EXPECT_TRUE(b_->delete_key("k"));
  EXPECT_FALSE(b_->delete_key("k"));
  EXPECT_FALSE(a_->check({"k"}));
}

TEST_P(Stores, CheckNeedsAllKeys) {
  EXPECT_TRUE(a_->check({}));
  a_->set("x", "1");
  EXPECT_TRUE(b_->check({"x"}));
  EXPECT_FALSE(b_->check({"x", "y"}));
}

TEST_P(Stores, AppendJoins) {
  a_->append("log", bytes("one,"));
  b_->append("log", bytes("two"));
  EXPECT_EQ(a_->get_text("log"), "one,two");
}

TEST_P(Stores, SeveralKeysAtOnce) {
  a_->multi_set({"m1", "m2", "m3"}, {bytes("1"), {}, bytes("333")});
  EXPECT_EQ(b_->multi_get({"m3", "m2", "m1"}), (std::vector<Store::Value>{bytes("333"), {}, bytes("1")}));
  EXPECT_TRUE(b_->multi_get({}).empty());
  EXPECT_THROW(a_->multi_set({"m1"}, {}), ValueError);
  EXPECT_GE(a_->num_keys(), 3);
}

INSTANTIATE_TEST_SUITE_P(All, Stores, testing::ValuesIn(kKinds), [](const auto& info) { return info.param.name; });

TEST(PrefixStore, KeepsItsKeysApart) {
  auto store = std::make_shared<HashStore>();
  PrefixStore a("a", store), b("b", store);
  a.set("k", "1");
  EXPECT_FALSE(b.check({"k"}));
  EXPECT_TRUE(store->check({"a/k"}));
}

TEST(FileStore, LastUserRemovesTheFile) {
  const TemporaryFolder folder;
  {
    FileStore a(folder / "s");
    { FileStore b(folder / "s"); }
    EXPECT_TRUE(std::filesystem::exists(folder / "s"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "s"));
}

// A process that is killed has no chance to clean up.
TEST(FileStore, FileOfAKilledJobIsAnErrorNotAHang) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    FileStore store(folder / "s");
    store.set("rank0", "here");
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(std::filesystem::exists(folder / "s"));
  try {
    FileStore store(folder / "s");
    FAIL() << "no error";
  } catch (const DistStoreError& error) {
    EXPECT_NE(std::string(error.what()).find("left over from an earlier job"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(folder / "s"), std::string::npos) << error.what();
  }
}

TEST(FileStore, TailOfAKilledWriterIsWrittenOver) {
  const TemporaryFolder folder;
  FileStore a(folder / "s");
  a.set("k", "v");
  const auto size = std::filesystem::file_size(folder / "s");
  a.set("torn", "never to be seen whole");
  std::filesystem::resize_file(folder / "s", size + 30);
  FileStore b(folder / "s");
  EXPECT_EQ(b.get_text("k"), "v");
  EXPECT_FALSE(b.check({"torn"}));
  b.set("next", "1");
  FileStore c(folder / "s");
  EXPECT_EQ(c.get_text("next"), "1");
}

TEST(FileStore, EntryThatWasDamagedIsAnErrorNotTheEndOfTheFile) {
  const TemporaryFolder folder;
  FileStore a(folder / "s");
  a.set("k", "v");
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(folder / "s"));
  a.set("later", "1");
  std::fstream(folder / "s", std::ios::in | std::ios::out | std::ios::binary).seekp(size - 1).put('\0');
  try {
    FileStore b(folder / "s");
    FAIL() << "no error; keys: " << b.num_keys();
  } catch (const DistStoreError& error) {
    EXPECT_NE(std::string(error.what()).find("damaged"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(a.check({"later"}));
}

TEST(FileStore, OtherContentIsRefusedAndKept) {
  const TemporaryFolder folder;
  { std::ofstream(folder / "s") << std::string(100, 'x'); }
  EXPECT_THROW(FileStore(folder / "s"), DistStoreError);
  EXPECT_EQ(std::filesystem::file_size(folder / "s"), 100u);
  EXPECT_THROW(FileStore(folder / "no/such/folder/s"), DistStoreError);
  EXPECT_THROW(FileStore(folder / "."), DistStoreError);
}

TCPStoreOptions server_options(std::string secret = {}) {
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  options.secret = std::move(secret);
  return options;
}
TCPStoreOptions client_options(const TCPStore& server, std::string secret = {}) {
  TCPStoreOptions options;
  options.port = server.port();
  options.secret = std::move(secret);
  options.timeout = milliseconds(5000);
  return options;
}

TEST(TCPStore, ManyClientsAreServed) {
  TCPStore server("localhost", server_options());
  std::vector<std::unique_ptr<TCPStore>> clients;
  for (int i = 0; i < 300; ++i) clients.push_back(std::make_unique<TCPStore>("localhost", client_options(server)));
  for (std::size_t i = 0; i < clients.size(); ++i) clients[i]->set("k" + std::to_string(i), "v");
  EXPECT_EQ(server.num_keys(), 300);
}

TEST(TCPStore, WaitsForItsWorkers) {
  TCPStoreOptions options = server_options();
  options.num_workers = 2;
  options.wait_workers = false;
  TCPStore server("localhost", options);
  TCPStoreOptions worker = client_options(server);
  worker.num_workers = 3;
  worker.timeout = milliseconds(60);
  try {
    TCPStore lonely("localhost", worker);
    FAIL() << "no error";
  } catch (const DistStoreError& error) {
    EXPECT_NE(std::string(error.what()).find("2 of 3 workers"), std::string::npos) << error.what();
  }
  worker.timeout = milliseconds(5000);
  TCPStore third("localhost", worker);
}

TEST(TCPStore, SecretKeepsStrangersOut) {
  TCPStore server("localhost", server_options("open sesame"));
  server.set("k", "v");
  TCPStore friendly("localhost", client_options(server, "open sesame"));
  EXPECT_EQ(friendly.get_text("k"), "v");
  for (const char* secret : {"", "wrong"}) try {
      TCPStore stranger("localhost", client_options(server, secret));
      FAIL() << "let in with '" << secret << "'";
    } catch (const DistStoreError& error) {
      EXPECT_NE(std::string(error.what()).find("ATHANOR_JOB_SECRET"), std::string::npos) << error.what();
    }
  TCPStore open("localhost", server_options());
  EXPECT_THROW(TCPStore("localhost", client_options(open, "open sesame")), DistStoreError);
}

TEST(TCPStore, SurvivesGarbage) {
  TCPStore server("localhost", server_options());
  for (int seed = 0; seed < 64; ++seed) {
    Socket socket = Socket::connect({"localhost", server.port()}, Deadline::after(milliseconds(5000)));
    std::string noise;
    std::uint32_t state = static_cast<std::uint32_t>(seed) * 2654435761u + 1;
    for (int i = 0; i < 512; ++i) noise += static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    // Half of them speak the right greeting first, and then nonsense with every opcode.
    if (seed % 2 == 0) {
      noise.insert(0, 1, static_cast<char>(seed / 2 % 20));
      noise.insert(0, "\x00\xce\xf7\x85\x3c", 5);
    }
    try {
      socket.send_all(noise.data(), noise.size(), Deadline::after(milliseconds(5000)));
    } catch (const DistNetworkError&) {  // it hung up on us, as it should
    }
  }
  TCPStore client("localhost", client_options(server));
  client.set("alive", "yes");
  EXPECT_EQ(server.get_text("alive"), "yes");
}

TEST(TCPStore, DeadServerIsAnErrorThatNamesIt) {
  auto server = std::make_unique<TCPStore>("localhost", server_options());
  const int port = server->port();
  TCPStore client("localhost", client_options(*server));
  server.reset();
  try {
    client.get("k");
    FAIL() << "no error";
  } catch (const DistError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(port)), std::string::npos) << error.what();
  }
}

// Who is let in by the system but not yet by the server loses the connection with it: before, at or after the first
// word.
TEST(TCPStore, ServerThatGoesWhileOneConnectsIsAnErrorOfTheStore) {
  for (int i = 0; i < 600; ++i) {
    Listener listener = Listener::on_port(0);
    TCPStoreOptions options;
    options.port = listener.port();
    options.timeout = milliseconds(2);
    std::atomic<bool> begins = false;
    std::thread server([&] {
      while (!begins) {
      }
      const auto start = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(i)) {
      }
      listener.close();
    });
    begins = true;
    try {
      const TCPStore store("127.0.0.1", options);
      ADD_FAILURE() << "no error";
    } catch (const DistStoreError&) {  // what is wanted
    } catch (const DistNetworkError& error) {
      EXPECT_NE(std::string(error.what()).find("could not connect"), std::string::npos) << error.what();
    }
    server.join();
  }
}

TEST(TCPStore, StoppedServerHoldsNobodyBeyondTheThreadsDeadline) {
  int ports[2];
  ASSERT_EQ(::pipe(ports), 0);
  const pid_t server = ::fork();
  if (server == 0) {
    TCPStore store("localhost", server_options());
    const int port = store.port();
    static_cast<void>(!::write(ports[1], &port, sizeof port));
    while (true) ::pause();
  }
  TCPStoreOptions options;
  ASSERT_EQ(::read(ports[0], &options.port, sizeof options.port), ssize_t{sizeof options.port});
  {
    TCPStore client("localhost", options);  // its own timeout is five minutes
    const StoreDeadline outer(Deadline::after(std::chrono::minutes(10)));
    client.set("before", "x");
    ::kill(server, SIGSTOP);
    ::waitpid(server, nullptr, WUNTRACED);  // until all its threads have stopped
    const auto start = std::chrono::steady_clock::now();
    {
      const StoreDeadline limit(Deadline::after(std::chrono::milliseconds(50)));
      EXPECT_THROW(client.set("key", "value"), DistStoreError);
      EXPECT_THROW(client.wait({"never"}), DistError);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    ::kill(server, SIGCONT);
    EXPECT_EQ(client.get_text("before"), "x");  // the limit is over
  }
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  ::close(ports[0]);
  ::close(ports[1]);
}

TEST(TCPStore, NobodyListeningIsAnErrorAtTheTimeout) {
  const int port = free_port();
  TCPStoreOptions options;
  options.port = port;
  options.timeout = milliseconds(100);
  try {
    TCPStore client("127.0.0.1", options);
    FAIL() << "no error";
  } catch (const DistNetworkError& error) {
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:" + std::to_string(port)), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("refused"), std::string::npos) << error.what();
  }
}

TEST(TCPStore, TakenPortIsAnErrorThatSaysSo) {
  TCPStore server("localhost", server_options());
  TCPStoreOptions second = server_options();
  second.port = server.port();
  try {
    TCPStore store("localhost", second);
    FAIL() << "no error";
  } catch (const DistNetworkError& error) {
    EXPECT_NE(std::string(error.what()).find("Another process listens there"), std::string::npos) << error.what();
  }
  TCPStoreOptions shared = server_options();
  shared.multi_tenant = true;
  TCPStore one("localhost", shared);
  shared.port = one.port();
  TCPStore two("localhost", shared);
  one.set("k", "v");
  EXPECT_EQ(two.get_text("k"), "v");
}

}  // namespace
}  // namespace athanor::distributed
