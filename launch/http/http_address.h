// The address that a server listens at, as an option names it.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct HttpAddress {
  std::string host = "127.0.0.1";  // numeric, IPv4 or IPv6
  uint16_t port = 0;               // 0: one that is free
  bool is_loopback = true;         // whether other machines cannot reach it
};

// Of "8000", "127.0.0.1:8000" or "[::1]:8000". Throws ExitCode::kUsage beginning with `option`, its name.
HttpAddress parse_http_address(const std::string& text, const std::string& option);

}  // namespace lockstep
