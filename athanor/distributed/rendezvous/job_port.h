#pragma once
/// Where a job's processes meet when nothing names a port.

#include <cstdint>

namespace athanor::distributed {

/// The port of a number that all processes of a job know: 20000 to 31999. That is below the ports that systems give to
/// outgoing connections (Linux: from 32768 on), one of which might have it just then.
constexpr int job_port(std::uint64_t number) { return 20000 + static_cast<int>(number % 12000); }

}  // namespace athanor::distributed
