#pragma once
#include <string>

namespace athanor::distributed {

/// 224.0.0.0/4 or ff00::/8.
bool is_multicast(const std::string& host);

}  // namespace athanor::distributed
