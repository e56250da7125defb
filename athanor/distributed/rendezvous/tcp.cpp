// tcp://host:port — rank 0 serves the store there.
#include "athanor/distributed/error.h"
#include "athanor/distributed/rendezvous/multicast.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/tcp_store.h"

namespace athanor::distributed {

using athanor::detail::str;

RendezvousResult meeting::rendezvous_tcp(const RendezvousUrl& url, const RendezvousOptions& options) {
  const Endpoint endpoint = Endpoint::parse(url.location, str("init_method '", url.text, "'"));
  ATHANOR_CHECK_VALUE(!endpoint.host.empty() && endpoint.port > 0, "init_method '", url.text,
                      "': expected tcp://host:port with a port from 1 to 65535");
  if (is_multicast(endpoint.host)) return rendezvous_multicast(url, options);
  check_rank(url, options, false);
  const Deadline deadline = Deadline::after(options.timeout);
  TCPStoreOptions store_options;
  store_options.port = endpoint.port;
  store_options.is_server = options.rank == 0;
  store_options.multi_tenant = true;  // groups of several names, one after the other, at one address
  store_options.timeout = options.timeout;
  store_options.secret = options.secret;
  return meet_at(endpoint.host, store_options, str("athanor/", options.group_name), options.rank, options.world_size,
                 deadline, str("init_method '", url.text, "'"), true);
}

}  // namespace athanor::distributed
