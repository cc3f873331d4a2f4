// HTTP requests and replies as values, and which requests are refused before anything is done for them. Knows no
// socket.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.h"

namespace lockstep {

struct HttpRequest {
  std::string method;                                        // "GET"
  std::string path;                                          // of the target, without its query
  std::string query = {};                                    // without the "?"
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, in their order
  std::string body = {};

  // The value of a header, by its name in lower case; null where it is absent.
  const std::string* header(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// An error in the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}. `type` follows from the
// status; `param`: the field that is wrong, or empty.
struct HttpError {
  int status = 400;
  std::string message;
  std::string param = {};
  std::string code = {};
};
HttpReply reply_of(const HttpError& error);
// The object alone, as a stream of events sends it.
JsonObject object_of(const HttpError& error);

// What a request must be to be answered at all.
struct HttpPolicy {
  std::string key = {};                   // requests must have "Authorization: Bearer KEY"; empty: none is asked for
  std::vector<std::string> hosts = {};    // names that Host may have, beside localhost and numeric addresses; "*": any
  std::vector<std::string> origins = {};  // pages of other origins that may ask, "https://example.org"; "*": any
  std::vector<std::string> open_paths = {};  // answered without a key
  bool takes_bodies = true;                  // false: nothing but GET, HEAD and OPTIONS
};

// Why the bytes of a request's head (its request line and headers, with the empty line) are not accepted; empty where
// they are. Stricter than RFC 9112 where intermediaries are known to disagree about where a request ends: no folded
// headers, no lone line feeds or control characters, Host, Content-Length and Transfer-Encoding at most once and not
// the last two together, Transfer-Encoding only "chunked" and only in HTTP/1.1.
std::string head_error(std::string_view head);

// Why a request is refused by the policy: a Host that could be a name rebound to this machine, a page of another
// origin, no key or another one, a method that is not taken, or a body that a page could send without asking (neither
// application/json nor an image).
std::optional<HttpError> refused_by(const HttpPolicy& policy, const HttpRequest& request);
// The Access-Control headers of the reply to a page that the policy names; none for others.
std::vector<std::pair<std::string, std::string>> cross_origin_headers(const HttpPolicy& policy,
                                                                      const HttpRequest& request);

// Whether two texts are equal, in a time that depends on their lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace lockstep
