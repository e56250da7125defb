#pragma once
/// Stripes: how the data between two ranks is spread over several networks that both hosts are on.

#include <vector>

#include "athanor/distributed/net/interfaces.h"
#include "athanor/distributed/net/socket.h"

namespace athanor::distributed {

/// The connections that carry the data of collectives between two ranks.
struct Stripes {
  int streams = 0;
  std::vector<Route> routes;  ///< over which the caller deals them in turn; none: over any
};

/// What a rank brings to that.
struct StripeEnd {
  std::vector<InterfaceAddress> addresses;
  bool spread = false;  ///< over several interfaces, if the other one wants it, too
  int streams = 0;      ///< at most; 0: as many as there is use for
};

inline constexpr int kMaxStreams = 16;

/// Of two ranks of which one calls. Both come to the same. Each interface has at most one on the other side: first
/// one in the same network, then, in the order in which the variable names them, one that has to be reached through
/// routers.
Stripes stripes_between(const StripeEnd& caller, const StripeEnd& callee);

}  // namespace athanor::distributed
