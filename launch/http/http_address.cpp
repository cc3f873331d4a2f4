#include "launch/http/http_address.h"

#include <arpa/inet.h>

#include <charconv>

#include "core/base/error.h"

namespace lockstep {

HttpAddress parse_http_address(const std::string& text, const std::string& option) {
  HttpAddress out;
  const size_t colon = text.rfind(':');
  if (colon != text.npos) out.host = text.substr(0, colon);
  if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  const std::string digits = colon == text.npos ? text : text.substr(colon + 1);
  const auto [at, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
  in_addr v4{};
  in6_addr v6{};
  const bool is_v4 = ::inet_pton(AF_INET, out.host.c_str(), &v4) == 1;
  const bool is_v6 = !is_v4 && ::inet_pton(AF_INET6, out.host.c_str(), &v6) == 1;
  require((is_v4 || is_v6) && error == std::errc() && at == digits.data() + digits.size() && !digits.empty(),
          ExitCode::kUsage, option, " ", text, ": must be a port, such as 9400, or ADDRESS:PORT");
  out.is_loopback = is_v4 ? ntohl(v4.s_addr) >> 24 == 127 : IN6_IS_ADDR_LOOPBACK(&v6);
  return out;
}

}  // namespace lockstep
