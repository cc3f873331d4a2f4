// HttpServer: answers HTTP/1.1 over TCP from a thread of its own. Owned by a command. http_server.cpp is the door to
// Boost.Beast (with http_session.h, its connections); TLS is a proxy's business.
//
// All connections share that thread, each with deadlines of its own, so a slow, silent or half-closed client delays
// nobody else. Requests are handled in other threads. A client that closes its sending side counts as gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/http/http_address.h"
#include "launch/http/http_message.h"

namespace lockstep {

// One request and the reply to it. Any thread may reply, at any time: what comes after the client has gone, or after
// the server has ended, is dropped.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // The whole reply. A second one is dropped.
  virtual void reply(HttpReply reply) = 0;
  // A reply whose body comes in parts: begin(), send() any number of times, end(). `head`: without a body.
  virtual void begin(HttpReply head) = 0;
  virtual void send(std::string part) = 0;
  virtual void end() = 0;
  // Called once, from the server's thread, if the client goes, or has gone, before the reply has ended.
  virtual void on_gone(std::function<void()> callback) = 0;
};

struct HttpOptions {
  HttpAddress address = {};
  HttpPolicy policy = {};
  size_t most_head = 16 << 10;      // bytes of a request line and headers: 431 beyond
  size_t most_body = 16 << 20;      // bytes of a body: 413 beyond
  size_t most_unsent = 4 << 20;     // bytes of a reply in parts that wait for the client: beyond, it is cut off
  int64_t most_connections = 1024;  // at once: beyond, 503
  double head_seconds = 60;         // for a request's head to come, also the wait of an idle connection
  double body_seconds = 60;         // for its body to come
  double write_seconds = 60;        // for a write to end
  int handler_threads = 1;
  std::vector<std::string> quick_paths = {};  // handled in the server's thread: what answers at once, such as /health
};

class HttpServer {
 public:
  // Called in one of the handler threads for each request that the policy lets through. What it throws is answered with
  // 500.
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;

  // Listens from now on. Throws ExitCode::kUsage beginning with `what`, the option that gave the address, where that is
  // not possible.
  HttpServer(HttpOptions options, Handler handler, const std::string& what);
  ~HttpServer();  // waits for the handlers that run, and cuts off all connections
  HttpServer(const HttpServer&) = delete;

  std::string url() const;  // "http://127.0.0.1:8000"
  // New connections are refused from now on, and others closed after their next reply.
  void stop_accepting();
  int64_t unanswered() const;  // requests whose replies have not been written whole

  class Core;

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace lockstep
