#pragma once
/// A small HTTP/1.1 server on 127.0.0.1 for tests of downloads: one file per path, byte ranges, and ways to misbehave.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace athanor::io {

struct HttpFile {
  std::string content = {};
  bool ranges = true;
  std::size_t break_after = SIZE_MAX;  ///< each answer ends after so many bytes of the body, the connection with it
  int status = 0;                      ///< another status than 200 or 206
  std::string location = {};           ///< where a redirect goes
  std::function<void()> before_body = {};
};

class HttpServer {
 public:
  explicit HttpServer(std::map<std::string, HttpFile> files) : files_(std::move(files)) {
    // A proxy in the environment would be asked for 127.0.0.1 too.
    setenv("no_proxy", "127.0.0.1", 1);
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    for (auto& t : answers_) t.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  /// The requests so far: path and range.
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (!stopping_) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      answers_.emplace_back([this, connection] {
        answer(connection);
        shutdown(connection, SHUT_RDWR);
        close(connection);
      });
    }
  }

  void answer(int connection) {
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = recv(connection, buffer, sizeof buffer, 0);
      if (n <= 0) return;
      request.append(buffer, static_cast<std::size_t>(n));
    }
    const std::string path = request.substr(4, request.find(' ', 4) - 4);
    std::size_t begin = 0;
    const auto range = request.find("Range: bytes=");
    if (range != std::string::npos) begin = std::strtoull(request.c_str() + range + 13, nullptr, 10);
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(begin > 0 ? path + " from " + std::to_string(begin) : path);
    }
    const auto found = files_.find(path);
    if (found == files_.end()) return send_all(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    const HttpFile& file = found->second;
    if (file.status) {
      const std::string head = "HTTP/1.1 " + std::to_string(file.status) + " As Told\r\nContent-Length: 0\r\n";
      return send_all(connection, head + (file.location.empty() ? "" : "Location: " + file.location + "\r\n") + "\r\n");
    }
    send_file(connection, file, range != std::string::npos && file.ranges, begin);
  }

  static void send_file(int connection, const HttpFile& file, bool ranged, std::size_t begin) {
    const std::string total = std::to_string(file.content.size());
    if (ranged && begin >= file.content.size())
      return send_all(connection, "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n");
    std::string head = "HTTP/1.1 200 OK\r\n";
    if (ranged) {
      head = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(begin) + "-" +
             std::to_string(file.content.size() - 1) + "/" + total + "\r\n";
    }
    const std::string body = file.content.substr(ranged ? begin : 0);
    send_all(connection, head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n");
    if (file.before_body) file.before_body();
    send_all(connection, body.substr(0, file.break_after));
  }

  static void send_all(int connection, const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = send(connection, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return;
      done += static_cast<std::size_t>(n);
    }
  }

  const std::map<std::string, HttpFile> files_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
  std::vector<std::thread> answers_;
};

}  // namespace athanor::io
