#pragma once
/// What goes over a TCPStore's connections. Numbers in host order; a text is a uint64 length and its bytes.

#include <cstdint>
#include <string>

#include "athanor/base/hash.h"

namespace athanor::distributed::tcp_protocol {

enum class Query : std::uint8_t {
  Validate,    // uint32 kMagic; no answer
  Set,         // key, value; no answer
  CompareSet,  // key, expected, desired -> value
  Get,         // key -> value
  Add,         // key, int64 -> int64
  Check,       // uint64 n, n keys -> uint8 Ready or NotReady
  Wait,        // uint64 n, n keys -> uint8 StopWaiting, once all are there, or WaitCanceled
  GetNumKeys,  // -> int64
  DeleteKey,   // key -> int64
  Append,      // key, value; no answer
  MultiGet,    // uint64 n, n keys -> n values
  MultiSet,    // uint64 n, n times key and value; no answer
  CancelWait,  // ends this connection's Wait
  Ping,        // uint32 -> the same uint32
  // Ours: a nonce -> the server's nonce and its proof; then the client's proof -> uint8 1, or the connection ends.
  Authenticate = 0xA7,
  AppendAtEnd = 0xA8,  // key, value, appended when this connection ends; no answer
};
inline constexpr std::uint32_t kMagic = 0x3C85F7CE;
inline constexpr std::uint8_t kReady = 0, kNotReady = 1;
inline constexpr std::uint8_t kStopWaiting = 0, kWaitCanceled = 1;
/// Before every key of users, as in PyTorch's: none can be taken for one that the store itself keeps.
inline constexpr const char* kUserPrefix = "/";
inline constexpr std::uint64_t kMaxKeys = 128 * 1024;
inline constexpr std::uint64_t kMaxKey = 1 << 20;
inline constexpr std::uint64_t kMaxValue = std::uint64_t{1} << 30;

inline constexpr std::size_t kNonceSize = 16;
/// What `side` ("server" or "client") shows to prove that it knows the secret.
Sha256Digest proof(const std::string& secret, const char* side, const std::string& client_nonce,
                   const std::string& server_nonce);
std::string random_nonce();

}  // namespace athanor::distributed::tcp_protocol
