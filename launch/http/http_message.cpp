#include "launch/http/http_message.h"

#include <algorithm>
#include <cctype>

#include "core/base/error.h"

namespace lockstep {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

bool is_token(std::string_view text) {
  constexpr std::string_view kOther = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || kOther.find(c) != kOther.npos;
  });
}

std::string_view type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

// The host of "host:port", "[::1]:port" or "host", in lower case.
std::string host_of(std::string_view authority) {
  if (authority.starts_with('[')) return lower(authority.substr(0, authority.find(']') + 1));
  return lower(authority.substr(0, authority.find(':')));
}

// An address in digits cannot be rebound to another machine, as a name can.
bool is_address(std::string_view host) {
  return host.starts_with('[') || (!host.empty() && host.find_first_not_of("0123456789.") == host.npos);
}

bool contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Names of hosts and origins have no case; an origin may be given with a slash at its end.
bool names(const std::vector<std::string>& list, std::string_view text) {
  return std::any_of(list.begin(), list.end(), [&](std::string_view each) {
    if (each.ends_with('/')) each.remove_suffix(1);
    return each == "*" || lower(each) == lower(text);
  });
}

// "http://host:port" and "https://host:port" are of the page itself where its Host is "host:port".
bool is_own_origin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme) && lower(origin.substr(scheme.size())) == lower(host)) return true;
  return false;
}

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return &value;
  return nullptr;
}

JsonObject object_of(const HttpError& e) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? JsonValue(nullptr) : JsonValue(text); };
  return {{"error", JsonText{json_line({{"message", e.message},
                                        {"type", std::string(type_of(e.status))},
                                        {"param", text_or_null(e.param)},
                                        {"code", text_or_null(e.code)}})}}};
}

HttpReply reply_of(const HttpError& e) {
  HttpReply out{e.status, "application/json", json_line(object_of(e)) + "\n"};
  if (e.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (e.status == 429 || e.status == 503) out.headers.emplace_back("Retry-After", "1");
  return out;
}

std::string head_error(std::string_view head) {
  bool old = false;
  int hosts = 0, lengths = 0, encodings = 0;
  for (size_t at = 0, line_number = 0; at < head.size(); ++line_number) {
    const size_t end = head.find('\n', at);
    if (end == head.npos || end == at || head[end - 1] != '\r') return "a line of its head does not end in CR LF";
    const std::string_view line = head.substr(at, end - 1 - at);
    at = end + 1;
    for (const char c : line)
      if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) return "its head holds a control character";
    if (line_number == 0) {
      old = line.ends_with(" HTTP/1.0");
      if (!old && !line.ends_with(" HTTP/1.1")) return "its version is neither HTTP/1.1 nor HTTP/1.0";
      continue;
    }
    if (line.empty()) break;
    if (line[0] == ' ' || line[0] == '\t') return "a header is folded over two lines";
    const size_t colon = line.find(':');
    if (colon == line.npos || !is_token(line.substr(0, colon))) return "a line of its head is no header";
    const std::string name = lower(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    hosts += name == "host", lengths += name == "content-length", encodings += name == "transfer-encoding";
    if (name == "content-length" &&
        (value.empty() || value.size() > 18 || value.find_first_not_of("0123456789") != value.npos))
      return "its Content-Length is no number";
    if (name == "transfer-encoding" && lower(value) != "chunked") return "its Transfer-Encoding is not 'chunked'";
  }
  if (hosts > 1) return "it has more than one Host";
  if (hosts == 0 && !old) return "it has no Host";
  if (lengths > 1) return "it has more than one Content-Length";
  if (encodings > 1) return "it has more than one Transfer-Encoding";
  if (encodings && lengths) return "it has both Content-Length and Transfer-Encoding";
  if (encodings && old) return "it has a Transfer-Encoding, which HTTP/1.0 does not know";
  return "";
}

std::optional<HttpError> refused_by(const HttpPolicy& policy, const HttpRequest& r) {
  const std::string* host = r.header("host");
  const std::string name = host ? host_of(*host) : "localhost";
  if (name != "localhost" && !is_address(name) && !names(policy.hosts, name))
    return HttpError{403, str("the request's Host is '", name, "', and this server does not go by that name; --host ",
                              name, " lets it (others are refused, as a web page can point a name of its own here)")};
  const std::string* origin = r.header("origin");
  if (origin && !is_own_origin(*origin, host ? *host : "") && !names(policy.origins, *origin))
    return HttpError{403,
                     str("pages of ", *origin, " may not use this server; --allow-origin ", *origin, " lets them")};
  const bool preflight = r.method == "OPTIONS" && r.header("access-control-request-method");
  if (!policy.key.empty() && !preflight && !contains(policy.open_paths, r.path)) {
    const std::string* given = r.header("authorization");
    constexpr std::string_view kScheme = "bearer ";
    if (!given || lower(std::string_view(*given).substr(0, kScheme.size())) != kScheme)
      return HttpError{401, "the header 'Authorization: Bearer KEY' is needed", "", "missing_api_key"};
    if (!equal_in_constant_time(trimmed(std::string_view(*given).substr(kScheme.size())), policy.key))
      return HttpError{401, "the key is not this server's", "", "invalid_api_key"};
  }
  if (r.method != "GET" && r.method != "HEAD" && r.method != "OPTIONS" && !(policy.takes_bodies && r.method == "POST"))
    return HttpError{405, str("the method ", r.method, " is not taken")};
  if (r.method == "POST") {
    const std::string* type = r.header("content-type");
    const std::string media = type ? lower(trimmed(std::string_view(*type).substr(0, type->find(';')))) : "";
    if (media != "application/json" && media != "image/png" && media != "image/jpeg")
      return HttpError{415, str("the Content-Type is '", media, "'; a body must be application/json")};
  }
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> cross_origin_headers(const HttpPolicy& policy, const HttpRequest& r) {
  const std::string* origin = r.header("origin");
  if (!origin || !names(policy.origins, *origin)) return {};
  const std::string* asked = r.header("access-control-request-headers");  // clients have headers of their own
  return {{"Access-Control-Allow-Origin", *origin},
          {"Access-Control-Allow-Headers", asked ? *asked : "authorization, content-type"},
          {"Access-Control-Allow-Methods", "GET, POST"},
          {"Vary", "Origin"}};
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace lockstep
