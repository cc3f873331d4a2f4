// Which requests are refused before anything is done for them.
#include "launch/http/http_message.h"

#include <gtest/gtest.h>

namespace lockstep::http_message_test {
namespace {

TEST(HttpHead, WhatHasOneMeaningIsAccepted) {
  EXPECT_EQ(head_error("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "");
  EXPECT_EQ(head_error("GET / HTTP/1.0\r\n\r\n"), "");
  EXPECT_EQ(head_error("POST /a?b HTTP/1.1\r\nhost:x\r\nContent-Length: 12\r\nX-Tab: a\tb\r\n\r\n"), "");
  EXPECT_EQ(head_error("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"), "");
  EXPECT_EQ(head_error("GET / HTTP/1.1\r\nHost: x\r\nX: \xc3\xa9\r\n\r\n"), "");
}

TEST(HttpHead, WhatCouldBeReadInTwoWaysIsRefused) {
  const auto error = [](const std::string& headers) {
    return head_error("POST / HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
  };
  EXPECT_EQ(error("Content-Length: 1\r\nContent-Length: 1\r\n"), "it has more than one Content-Length");
  EXPECT_EQ(error("Content-Length: 1, 1\r\n"), "its Content-Length is no number");
  EXPECT_EQ(error("Content-Length: +1\r\n"), "its Content-Length is no number");
  EXPECT_EQ(error("Content-Length: 0x1\r\n"), "its Content-Length is no number");
  EXPECT_EQ(error("Content-Length:\r\n"), "its Content-Length is no number");
  EXPECT_EQ(error("Content-Length: 1111111111111111111\r\n"), "its Content-Length is no number");
  EXPECT_EQ(error("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            "it has both Content-Length and Transfer-Encoding");
  EXPECT_EQ(error("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            "it has more than one Transfer-Encoding");
  EXPECT_EQ(error("Transfer-Encoding: gzip, chunked\r\n"), "its Transfer-Encoding is not 'chunked'");
  EXPECT_EQ(error("Transfer-Encoding: xchunked\r\n"), "its Transfer-Encoding is not 'chunked'");
  EXPECT_EQ(error("Host: y\r\n"), "it has more than one Host");
  EXPECT_EQ(error("X: a\r\n b\r\n"), "a header is folded over two lines");
  EXPECT_EQ(error("Content-Length : 1\r\n"), "a line of its head is no header");
  EXPECT_EQ(error(": 1\r\n"), "a line of its head is no header");
  EXPECT_EQ(error("X: a\nContent-Length: 1\r\n"), "a line of its head does not end in CR LF");
  EXPECT_EQ(error("X: a\rb\r\n"), "its head holds a control character");
  EXPECT_EQ(error(std::string("X: a\0b\r\n", 8)), "its head holds a control character");
  EXPECT_EQ(head_error("GET / HTTP/1.1\r\n\r\n"), "it has no Host");
  EXPECT_EQ(head_error("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "it has a Transfer-Encoding, which HTTP/1.0 does not know");
  EXPECT_EQ(head_error("GET /\r\n\r\n"), "its version is neither HTTP/1.1 nor HTTP/1.0");
}

HttpRequest post(std::vector<std::pair<std::string, std::string>> headers) {
  headers.emplace_back("content-type", "application/json; charset=utf-8");
  return {.method = "POST", .path = "/v1/completions", .headers = std::move(headers)};
}
int status(const HttpPolicy& policy, const HttpRequest& request) {
  const auto refused = refused_by(policy, request);
  return refused ? refused->status : 200;
}

TEST(HttpPolicy, AHostIsThisMachineOrNamed) {
  for (const char* host : {"localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "192.168.1.7"})
    EXPECT_EQ(status({}, post({{"host", host}})), 200) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "a:b"})
    EXPECT_EQ(status({}, post({{"host", host}})), 403) << host;
  EXPECT_EQ(status({.hosts = {"node7"}}, post({{"host", "Node7:8000"}})), 200);
  EXPECT_EQ(status({.hosts = {"*"}}, post({{"host", "anything"}})), 200);
}

TEST(HttpPolicy, APageOfAnotherOriginIsRefused) {
  EXPECT_EQ(status({}, post({{"host", "localhost:8000"}, {"origin", "http://localhost:8000"}})), 200);
  for (const char* origin : {"http://localhost:8001", "http://localhost", "https://evil.example", "null"})
    EXPECT_EQ(status({}, post({{"host", "localhost:8000"}, {"origin", origin}})), 403) << origin;
  const HttpPolicy named{.origins = {"https://page.example"}};
  const HttpRequest asked = post({{"host", "localhost"}, {"origin", "https://page.example"}});
  EXPECT_EQ(status(named, asked), 200);
  EXPECT_EQ(cross_origin_headers(named, asked).at(0).second, "https://page.example");
  EXPECT_TRUE(cross_origin_headers({}, asked).empty());
}

TEST(HttpPolicy, AKeyIsComparedWhole) {
  const HttpPolicy policy{.key = "abc", .open_paths = {"/health"}};
  EXPECT_EQ(status(policy, post({{"authorization", "Bearer abc"}})), 200);
  EXPECT_EQ(status(policy, post({{"authorization", "bearer  abc "}})), 200);
  for (const char* given : {"Bearer ab", "Bearer abcd", "Bearer ", "abc", "Basic abc", ""})
    EXPECT_EQ(status(policy, post({{"authorization", given}})), 401) << given;
  EXPECT_EQ(status(policy, post({})), 401);
  EXPECT_EQ(status(policy, {.method = "GET", .path = "/health", .headers = {}}), 200);
  EXPECT_EQ(status(policy, {.method = "GET", .path = "/healthy", .headers = {}}), 401);
}

TEST(HttpPolicy, ABodyIsOneThatAPageCannotSendUnasked) {
  const auto of = [](const char* type) {
    return HttpRequest{.method = "POST", .path = "/", .headers = {{"content-type", type}}};
  };
  EXPECT_EQ(status({}, of("application/json")), 200);
  EXPECT_EQ(status({}, of("image/png")), 200);
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""})
    EXPECT_EQ(status({}, of(type)), 415) << type;
  EXPECT_EQ(status({.takes_bodies = false}, of("application/json")), 405);
  EXPECT_EQ(status({}, {.method = "DELETE", .path = "/", .headers = {}}), 405);
}

TEST(HttpError, HasTheFormOfOpenAi) {
  EXPECT_EQ(reply_of(HttpError{400, "\"n\" is 0", "n"}).body,
            "{\"error\":{\"message\":\"\\\"n\\\" is "
            "0\",\"type\":\"invalid_request_error\",\"param\":\"n\",\"code\":null}}\n");
}

}  // namespace
}  // namespace lockstep::http_message_test
