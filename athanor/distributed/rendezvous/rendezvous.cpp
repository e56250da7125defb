#include "athanor/distributed/rendezvous/rendezvous.h"

#include <mutex>

#include "athanor/base/env.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {

using athanor::detail::str;

RendezvousUrl RendezvousUrl::parse(const std::string& text) {
  RendezvousUrl url;
  url.text = text;
  const std::size_t scheme_end = text.find("://");
  ATHANOR_CHECK_VALUE(scheme_end != std::string::npos && scheme_end > 0, "init_method '", text,
                      "': expected scheme://…, as env://, tcp://host:port or file:///path");
  url.scheme = text.substr(0, scheme_end);
  std::string rest = text.substr(scheme_end + 3);
  if (const std::size_t mark = rest.find('?'); mark != std::string::npos) {
    std::string query = rest.substr(mark + 1);
    rest.erase(mark);
    while (!query.empty()) {
      const std::size_t end = std::min(query.find('&'), query.size());
      const std::string part = query.substr(0, end);
      query.erase(0, std::min(end + 1, query.size()));
      const std::size_t equals = part.find('=');
      ATHANOR_CHECK_VALUE(equals != std::string::npos && equals > 0, "init_method '", text, "': '", part,
                          "' should be key=value");
      url.query[part.substr(0, equals)] = part.substr(equals + 1);
    }
  }
  const std::size_t slash = rest.find('/');
  url.location = rest.substr(0, slash);
  if (slash != std::string::npos) url.path = rest.substr(slash);
  return url;
}

namespace {

struct Handlers {
  std::mutex mutex;
  std::map<std::string, RendezvousHandler> by_scheme = {
      {"env", meeting::rendezvous_env}, {"tcp", meeting::rendezvous_tcp}, {"file", meeting::rendezvous_file}};
};
Handlers& handlers() {
  static Handlers table;
  return table;
}

// A number may come from the URL or as an argument, not both unless they agree.
void take(const RendezvousUrl& url, const char* key, int& value) {
  const auto found = url.query.find(key);
  if (found == url.query.end()) return;
  const auto number = parse_integer(found->second);
  ATHANOR_CHECK_VALUE(number && *number >= 0 && *number <= INT32_MAX, "init_method '", url.text, "': ", key, "='",
                      found->second, "' should be a number");
  ATHANOR_CHECK_VALUE(value < 0 || value == *number, "init_method '", url.text, "': ", key, "=", *number,
                      " in the URL, but ", value, " as an argument");
  value = static_cast<int>(*number);
}

}  // namespace

void register_rendezvous_handler(const std::string& scheme, RendezvousHandler handler) {
  Handlers& table = handlers();
  const std::lock_guard lock(table.mutex);
  ATHANOR_CHECK_VALUE(table.by_scheme.emplace(scheme, std::move(handler)).second, "rendezvous: the scheme '", scheme,
                      "' has a handler already");
}

RendezvousResult rendezvous(const std::string& text, const RendezvousOptions& given) {
  const RendezvousUrl url = RendezvousUrl::parse(text);
  RendezvousOptions options = given;
  take(url, "rank", options.rank);
  take(url, "world_size", options.world_size);
  RendezvousHandler handler;
  {
    Handlers& table = handlers();
    const std::lock_guard lock(table.mutex);
    const auto found = table.by_scheme.find(url.scheme);
    if (found == table.by_scheme.end()) {
      std::string known;
      for (const auto& [scheme, unused] : table.by_scheme) known += str(known.empty() ? "" : ", ", scheme, "://");
      ATHANOR_THROW(ValueError, "init_method '", text, "': unknown scheme '", url.scheme, "', expected one of ", known);
    }
    handler = found->second;
  }
  ATHANOR_LOG(Debug, "rendezvous at ", text, ", rank ", options.rank, " of ", options.world_size);
  RendezvousResult result = handler(url, options);
  ATHANOR_LOG(Debug, "rendezvous done: rank ", result.rank, " of ", result.world_size, ", ", result.store->describe());
  return result;
}

void meeting::check_rank(const RendezvousUrl& url, const RendezvousOptions& options, bool self_assigned) {
  ATHANOR_CHECK_VALUE(options.world_size > 0, "init_method '", url.text, "': world_size is missing: give it as an ",
                      "argument or in the URL (?world_size=2)");
  ATHANOR_CHECK_VALUE(self_assigned || options.rank >= 0, "init_method '", url.text,
                      "': rank is missing: give it as an argument or in the URL (?rank=0)");
  ATHANOR_CHECK_VALUE(options.rank < options.world_size, "init_method '", url.text, "': rank ", options.rank,
                      " in a world of ", options.world_size, ", expected 0 to ", options.world_size - 1);
}

}  // namespace athanor::distributed
