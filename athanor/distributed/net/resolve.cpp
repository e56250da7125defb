// Names and their addresses.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <memory>

#include "athanor/base/env.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/net/socket.h"

namespace athanor::distributed {

std::string Address::text() const {
  char buffer[INET6_ADDRSTRLEN] = "";
  if (family() == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &in.sin_addr, buffer, sizeof buffer);
    return detail::str(buffer, ":", port());
  }
  if (family() == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(storage);
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
      inet_ntop(AF_INET, in.sin6_addr.s6_addr + 12, buffer, sizeof buffer);
      return detail::str(buffer, ":", port());
    }
    inet_ntop(AF_INET6, &in.sin6_addr, buffer, sizeof buffer);
    return detail::str("[", buffer, "]:", port());
  }
  if (family() == AF_UNIX) {
    const auto& un = reinterpret_cast<const sockaddr_un&>(storage);
    const std::size_t size = length - offsetof(sockaddr_un, sun_path);
    if (size > 0 && un.sun_path[0] == '\0') return "@" + std::string(un.sun_path + 1, size - 1);
    return size > 0 ? std::string(un.sun_path) : std::string("unnamed unix socket");
  }
  return "unknown address";
}

int Address::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return 0;
}

Address Address::abstract_unix(const std::string& name) {
  ATHANOR_CHECK_VALUE(!name.empty() && name.size() <= 100, "abstract socket: name '", name, "' has ", name.size(),
                      " characters, expected 1 to 100");
  Address address;
  auto& un = reinterpret_cast<sockaddr_un&>(address.storage);
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Endpoint Endpoint::parse(const std::string& text, const std::string& what) {
  Endpoint endpoint;
  std::string port = text;
  if (!text.empty() && text[0] == '[') {
    const std::size_t close = text.find("]:");
    ATHANOR_CHECK_VALUE(close != std::string::npos, what, ": '", text, "' should be [IPv6 address]:port");
    endpoint.host = text.substr(1, close - 1);
    port = text.substr(close + 2);
  } else if (const std::size_t colon = text.rfind(':'); colon != std::string::npos) {
    endpoint.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    ATHANOR_CHECK_VALUE(endpoint.host.find(':') == std::string::npos, what, ": '", text,
                        "': write an IPv6 address in brackets, as [::1]:29500");
  }
  const auto number = parse_integer(port);
  ATHANOR_CHECK_VALUE(number && *number >= 0 && *number <= 65535, what, ": '", text,
                      "' should end in a port from 0 to 65535, as host:29500");
  endpoint.port = static_cast<int>(*number);
  return endpoint;
}

std::string Endpoint::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? detail::str("[", host, "]:", port) : detail::str(host, ":", port);
}

namespace {

// What an unfinished look-up still writes to: it must outlive a call that gave up.
struct Lookup {
  std::string host, service;
  addrinfo hints{};
  gaicb request{};
  ~Lookup() {
    if (request.ar_result != nullptr) freeaddrinfo(request.ar_result);
  }
};

std::vector<Address> addresses_of(const addrinfo* list) {
  std::vector<Address> addresses;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    Address address;
    std::memcpy(&address.storage, i->ai_addr, i->ai_addrlen);
    address.length = i->ai_addrlen;
    bool known = false;
    for (const Address& a : addresses) known = known || a.text() == address.text();
    if (!known) addresses.push_back(address);
  }
  return addresses;
}

}  // namespace

std::vector<Address> resolve_host(const std::string& host, int port, Deadline deadline, std::string& reason) {
  auto lookup = std::make_unique<Lookup>();
  lookup->host = host;
  lookup->service = std::to_string(port);
  lookup->hints.ai_socktype = SOCK_STREAM;
  // No AI_ADDRCONFIG: it hides ::1 and 127.0.0.1 on machines that have nothing but loopback.
  lookup->hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* numeric = nullptr;
  if (getaddrinfo(host.c_str(), lookup->service.c_str(), &lookup->hints, &numeric) == 0) {
    auto addresses = addresses_of(numeric);
    freeaddrinfo(numeric);
    return addresses;
  }
  lookup->hints.ai_flags = AI_NUMERICSERV;
  lookup->request.ar_name = lookup->host.c_str();
  lookup->request.ar_service = lookup->service.c_str();
  lookup->request.ar_request = &lookup->hints;
#ifdef __SANITIZE_THREAD__
  // The sanitizer does not know the threads that getaddrinfo_a makes, and crashes in them.
  const int outcome = getaddrinfo(host.c_str(), lookup->service.c_str(), &lookup->hints, &lookup->request.ar_result);
  static_cast<void>(deadline);
#else
  gaicb* list[] = {&lookup->request};
  if (const int failed = getaddrinfo_a(GAI_NOWAIT, list, 1, nullptr); failed != 0) {
    reason = gai_strerror(failed);
    return {};
  }
  while (gai_error(&lookup->request) == EAI_INPROGRESS && !deadline.expired()) {
    const auto left = std::min(deadline.remaining(), std::chrono::milliseconds(1000));
    const timespec wait{left.count() / 1000, left.count() % 1000 * 1000000};
    const gaicb* const pending[] = {&lookup->request};
    gai_suspend(pending, 1, &wait);
  }
  const int outcome = gai_error(&lookup->request);
#endif
  if (outcome == 0) return addresses_of(lookup->request.ar_result);
  if (outcome == EAI_INPROGRESS) {
    // The resolver's thread still holds the request; unless it lets go, the few bytes are left to it.
    if (gai_cancel(&lookup->request) == EAI_NOTCANCELED) static_cast<void>(lookup.release());
    reason = "no answer from the name server yet";
  } else {
    reason = gai_strerror(outcome);
  }
  return {};
}

}  // namespace athanor::distributed
