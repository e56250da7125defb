// TCPStore speaks PyTorch's protocol: each side serves the other. Needs a Python with PyTorch 2.x in
// ATHANOR_PEER_PYTHON.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "athanor/base/error.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/store/tcp_store.h"
#include "distributed/ports.h"

namespace athanor::distributed {
namespace {

class TorchStore : public testing::Test {
 protected:
  void SetUp() override {
    const char* python = std::getenv("ATHANOR_PEER_PYTHON");
    if (python == nullptr) GTEST_SKIP() << "ATHANOR_PEER_PYTHON names no Python with PyTorch";
    python_ = std::string(python).substr(0, std::string(python).find(':'));
    if (!run("import torch.distributed; assert int(torch.__version__.split('.')[0]) >= 2").empty())
      GTEST_SKIP() << python_ << " has no PyTorch 2 with torch.distributed";
  }
  // What the program prints, errors included.
  std::string run(const std::string& program) const {
    const std::string command = "TORCH_CPP_LOG_LEVEL=ERROR " + python_ + " -c \"" + program + "\" 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    std::string text;
    for (int c = 0; (c = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(c);
    return text;
  }
  std::string python_;
};

TEST_F(TorchStore, ServesPyTorchsClients) {
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  TCPStore server("localhost", options);
  server.set("ours", "from C++");
  const std::string text = run(athanor::detail::str(
      "import torch.distributed as d, datetime\n"
      "s = d.TCPStore('localhost', ",
      server.port(),
      ", None, False, datetime.timedelta(seconds=20))\n"
      "print(s.get('ours').decode(), s.add('count', 5), s.add('count', 2))\n"
      "s.set('theirs', 'from Python'); s.append('log', 'a'); s.append('log', 'b')\n"
      "print(s.compare_set('theirs', 'x', 'y').decode(), s.check(['log']), s.check(['no']))\n"
      "s.multi_set(['m1', 'm2'], ['1', '22']); print(s.multi_get(['m2', 'm1']), s.delete_key('m1'))\n"
      "try: s.wait(['never'], datetime.timedelta(milliseconds=50))\n"
      "except Exception as e: print('timed out')\n"
      "print(s.get('log').decode())\n"));
  EXPECT_EQ(text, "from C++ 5 7\nfrom Python True False\n[b'22', b'1'] True\ntimed out\nab\n");
  EXPECT_EQ(server.get_text("theirs"), "from Python");
}

TEST_F(TorchStore, IsServedByPyTorch) {
  const int port = free_port();
  std::string text;
  std::thread python([&] {
    text =
        run(athanor::detail::str("import torch.distributed as d, datetime\n"
                                 "s = d.TCPStore('localhost', ",
                                 port,
                                 ", None, True, datetime.timedelta(seconds=20), wait_for_workers=False)\n"
                                 "s.set('theirs', 'from Python')\n"
                                 "s.wait(['done'])\n"
                                 "print(s.get('ours').decode(), s.get('count').decode())\n"));
  });
  TCPStoreOptions options;
  options.port = port;
  options.timeout = std::chrono::seconds(30);
  {
    TCPStore client("localhost", options);
    EXPECT_EQ(client.get_text("theirs"), "from Python");
    client.set("ours", "from C++");
    EXPECT_EQ(client.add("count", 5), 5);
    EXPECT_EQ(client.add("count", 2), 7);
    EXPECT_EQ(client.compare_set("ours", Store::Value{'x'}, Store::Value{'y'}).size(), 8u);
    EXPECT_TRUE(client.check({"ours", "theirs"}));
    EXPECT_FALSE(client.check({"ours", "missing"}));
    client.append("log", {'a'});
    EXPECT_EQ(client.multi_get({"log", "ours"})[0], Store::Value{'a'});
    EXPECT_TRUE(client.delete_key("log"));
    EXPECT_THROW(client.get("never", std::chrono::milliseconds(50)), Error);
    client.set("done", "1");
  }
  python.join();
  EXPECT_EQ(text, "from C++ 7\n");
}

}  // namespace
}  // namespace athanor::distributed
