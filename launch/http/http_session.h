// The parts of HttpServer (launch/http/http_server.h): what all connections share, and one connection. For
// http_server.cpp and http_session.cpp, which with this are the door to Boost.Beast.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "launch/http/http_server.h"

namespace lockstep {

class HttpSession;

class HttpServer::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(HttpOptions o, Handler h)
      : options(std::move(o)),
        handler(std::move(h)),
        handlers(static_cast<size_t>(options.handler_threads)),
        acceptor_(context),
        retry_(context) {}

  void start(const std::string& what);
  void stop();
  void stop_accepting();
  // Runs `work` in the server's thread; nothing once the server has ended. Any thread.
  void run_in_server(std::function<void()> work);

  const HttpOptions options;
  const Handler handler;
  boost::asio::io_context context{1};
  boost::asio::thread_pool handlers;
  std::atomic<bool> draining{false};
  std::atomic<int64_t> unanswered{0};
  std::set<HttpSession*> sessions;  // of the server's thread
  std::string url;

 private:
  void serve();
  void accept();

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  std::mutex mutex_;
  bool stopped_ = false;  // under the mutex
  std::thread thread_;
};

// One connection. All but its exchanges' methods run in the server's thread.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(boost::asio::ip::tcp::socket socket, std::shared_ptr<HttpServer::Core> core);
  ~HttpSession();
  HttpSession(const HttpSession&) = delete;

  void read_head();
  void refuse(const HttpError& error);
  void close();
  const std::shared_ptr<HttpServer::Core>& core() const { return core_; }

  // Of the exchange `number`; of one that has ended they do nothing.
  void reply(int64_t number, HttpReply reply);
  void begin(int64_t number, HttpReply head);
  void send(int64_t number, std::string part);
  void end(int64_t number);
  void on_gone(int64_t number, std::function<void()> callback);

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class State { kReading, kHandling, kStreaming, kReplied, kClosed };

  void find_head();
  void take_head(std::string_view head);
  bool take_fields();
  void read_body();
  void handle();
  void refuse_body();
  void write(std::string text, std::function<void()> then);
  void watch();
  void watch_again();
  void gone();
  void finish_reply();
  void set_answered();
  void write_next();
  void linger();
  boost::beast::http::response<boost::beast::http::empty_body> head_of(const HttpReply& reply) const;

  std::shared_ptr<HttpServer::Core> core_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer watch_;
  std::optional<Parser> parser_;
  State state_ = State::kReading;
  int64_t number_ = 0;  // of the current exchange
  HttpRequest request_;
  bool head_only_ = false, keep_ = false, chunked_ = true;
  unsigned version_ = 11;
  std::function<void()> on_gone_;
  std::deque<std::string> parts_;  // to be written
  size_t unsent_ = 0;
  bool writing_ = false, ended_ = false;
  size_t dropped_ = 0;
  bool unanswered_ = false;
};

}  // namespace lockstep
