#pragma once
/// How the ranks of a test reach each other.

#include <cstdlib>
#include <string_view>

namespace athanor::distributed {

/// Of rank 1 on a host of its own, the others together.
inline constexpr const char* kMixed = "mixed";

/// Sets ATHANOR_TRANSPORT in the rank's process, before it joins: `transport` itself, or what kMixed asks of that rank.
inline void set_transport(const char* transport, int rank) {
  if (transport == std::string_view(kMixed)) transport = rank == 1 ? "tcp" : "auto";
  ::setenv("ATHANOR_TRANSPORT", transport, 1);
}

}  // namespace athanor::distributed
