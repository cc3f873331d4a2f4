#include "launch/http/http_server.h"

#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace lockstep {
namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using net::ip::tcp;
using Failure = beast::error_code;

namespace {

constexpr double kLingerSeconds = 2;       // for a client to read a reply to a request that was not read whole
constexpr size_t kReadBytes = 4096;        // at once, of a head
constexpr size_t kLingerBytes = 64 << 20;  // of such a request, which are read and dropped
constexpr auto kRetry = std::chrono::milliseconds(100);  // after a failed accept, such as for want of descriptors

std::chrono::nanoseconds duration_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

std::string text_of(const http::response<http::empty_body>& head) {
  std::ostringstream out;
  out << head.base();
  return out.str();
}

}  // namespace

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

  const HttpOptions options;
  const Handler handler;
  net::io_context context{1};
  net::thread_pool handlers;
  std::atomic<bool> stopped{false}, draining{false};
  std::atomic<int64_t> unanswered{0};
  std::set<HttpSession*> sessions;  // of the server's thread
  std::string url;

 private:
  void accept();

  tcp::acceptor acceptor_;
  net::steady_timer retry_;
  std::thread thread_;
};

// One connection. All but its exchanges' methods run in the server's thread.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(tcp::socket socket, std::shared_ptr<HttpServer::Core> core)
      : core_(std::move(core)), stream_(std::move(socket)), buffer_(core_->options.most_head) {
    core_->sessions.insert(this);
  }
  ~HttpSession() { core_->sessions.erase(this); }
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
  using Parser = http::request_parser<http::string_body>;
  enum class State { kReading, kHandling, kStreaming, kReplied, kClosed };

  void find_head();
  void take_head(std::string_view head);
  void read_body();
  void handle();
  void refuse_body();
  void write(std::string text, std::function<void()> then);
  void watch();
  void gone();
  void finish_reply();
  void set_answered();
  void write_next();
  void linger();
  http::response<http::empty_body> head_of(const HttpReply& reply) const;

  std::shared_ptr<HttpServer::Core> core_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
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

class ServedExchange final : public HttpExchange {
 public:
  ServedExchange(std::shared_ptr<HttpSession> session, int64_t number, HttpRequest request)
      : core_(session->core()), session_(std::move(session)), number_(number), request_(std::move(request)) {}
  ~ServedExchange() override {
    // The last owner may be another thread; the session ends in the server's.
    if (!core_->stopped) net::post(core_->context, [session = std::move(session_)] {});
  }
  const HttpRequest& request() const override { return request_; }
  void reply(HttpReply reply) override {
    in_server([reply = std::move(reply)](HttpSession& s, int64_t n) mutable { s.reply(n, std::move(reply)); });
  }
  void begin(HttpReply head) override {
    in_server([head = std::move(head)](HttpSession& s, int64_t n) mutable { s.begin(n, std::move(head)); });
  }
  void send(std::string part) override {
    in_server([part = std::move(part)](HttpSession& s, int64_t n) mutable { s.send(n, std::move(part)); });
  }
  void end() override {
    in_server([](HttpSession& s, int64_t n) { s.end(n); });
  }
  void on_gone(std::function<void()> callback) override {
    in_server(
        [callback = std::move(callback)](HttpSession& s, int64_t n) mutable { s.on_gone(n, std::move(callback)); });
  }

 private:
  template <class Use>
  void in_server(Use use) {
    if (core_->stopped) return;
    net::post(core_->context,
              [session = session_, number = number_, use = std::move(use)]() mutable { use(*session, number); });
  }

  const std::shared_ptr<HttpServer::Core> core_;
  std::shared_ptr<HttpSession> session_;
  const int64_t number_;
  const HttpRequest request_;
};

void HttpSession::read_head() {
  state_ = State::kReading;
  keep_ = head_only_ = false, version_ = 11;  // of what is refused before it is known
  if (core_->draining) return close();
  stream_.expires_after(duration_of(core_->options.head_seconds));
  find_head();
}

// The head may be in the buffer already, behind an earlier request.
void HttpSession::find_head() {
  const std::string_view read(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  if (const size_t end = read.find("\r\n\r\n"); end != read.npos) return take_head(read.substr(0, end + 4));
  const size_t room = buffer_.max_size() - buffer_.size();
  if (room == 0) return refuse({431, str("the request's head has more than ", core_->options.most_head, " bytes")});
  stream_.async_read_some(buffer_.prepare(std::min(room, kReadBytes)),
                          [self = shared_from_this()](Failure failure, size_t size) {
                            if (failure) return self->close();  // a stream that was too slow is closed already
                            self->buffer_.commit(size);
                            self->find_head();
                          });
}

void HttpSession::take_head(std::string_view head) {
  const auto unclear = [this](const std::string& why) {
    refuse({400, "this is no request that can be answered: " + why});
  };
  if (const std::string error = head_error(head); !error.empty()) return unclear(error);
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(core_->options.most_head));
  parser_->body_limit(core_->options.most_body);
  Failure broken;
  buffer_.consume(parser_->put(net::buffer(head.data(), head.size()), broken));
  if (broken == http::error::body_limit) return refuse_body();
  if (broken && broken != http::error::need_more) return unclear(broken.message());
  if (!parser_->is_header_done()) return unclear("its head is not whole");
  const auto& message = parser_->get();
  version_ = message.version();
  head_only_ = message.method() == http::verb::head;
  keep_ = message.keep_alive();
  if (parser_->is_done()) return handle();
  if (!beast::iequals(message[http::field::expect], "100-continue")) return read_body();
  write("HTTP/1.1 100 Continue\r\n\r\n", [this] { read_body(); });
}

// `then` is called where all was written.
void HttpSession::write(std::string text, std::function<void()> then) {
  const auto held = std::make_shared<std::string>(std::move(text));
  stream_.expires_after(duration_of(core_->options.write_seconds));
  net::async_write(stream_, net::buffer(*held),
                   [self = shared_from_this(), held, then = std::move(then)](Failure failure, size_t) {
                     if (failure) return self->gone();
                     then();
                   });
}

void HttpSession::read_body() {
  stream_.expires_after(duration_of(core_->options.body_seconds));
  http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](Failure failure, size_t) {
    if (!failure) return self->handle();
    self->keep_ = false;
    if (failure == http::error::body_limit) return self->refuse_body();
    if (failure.category() == http::make_error_code(http::error::bad_chunk).category() &&
        failure != http::error::end_of_stream && failure != http::error::partial_message)
      return self->refuse({400, str("the body cannot be read: ", failure.message())});
    self->close();
  });
}

void HttpSession::handle() {
  const auto& message = parser_->get();
  request_ = {};
  request_.method = std::string(message.method_string());
  const std::string target(message.target());
  const size_t query = target.find('?');
  request_.path = target.substr(0, query);
  if (query != target.npos) request_.query = target.substr(query + 1);
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    request_.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  stream_.expires_never();
  state_ = State::kHandling;
  ++number_;
  unanswered_ = true, ++core_->unanswered;
  on_gone_ = nullptr;
  parts_.clear(), unsent_ = 0, writing_ = ended_ = false;
  if (!request_.path.starts_with('/')) return refuse({400, "the request's target is no path"});
  const HttpPolicy& policy = core_->options.policy;
  if (const auto refused = refused_by(policy, request_)) return refuse(*refused);
  if (request_.method == "OPTIONS") return reply(number_, {204, "", "", {}});
  watch();
  auto exchange = std::make_shared<ServedExchange>(shared_from_this(), number_, std::move(request_));
  request_ = exchange->request();
  request_.body.clear();
  net::post(core_->handlers, [core = core_.get(), exchange] {
    try {
      core->handler(exchange);
    } catch (const std::exception& e) {
      exchange->reply(reply_of(HttpError{500, e.what()}));
    }
  });
}

void HttpSession::refuse(const HttpError& error) {
  if (state_ == State::kReading) {  // nothing was read that names the exchange
    state_ = State::kHandling;
    ++number_;
    request_ = {};
  }
  reply(number_, reply_of(error));
}

void HttpSession::refuse_body() {
  keep_ = false;
  refuse({413, str("the body has more than ", core_->options.most_body, " bytes")});
}

// Notices that the client goes while its request is handled. A request that comes meanwhile waits in the socket.
void HttpSession::watch() {
  if (buffer_.size() > 0) return;
  stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this(), number = number_](Failure failure) {
    if (failure || number != self->number_) return;
    if (self->state_ != State::kHandling && self->state_ != State::kStreaming) return;
    char byte = 0;
    const ssize_t got = ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) self->gone();
  });
}

void HttpSession::gone() {
  const auto callback = std::exchange(on_gone_, nullptr);
  close();
  if (callback) callback();
}

void HttpSession::set_answered() {
  if (std::exchange(unanswered_, false)) --core_->unanswered;
}

void HttpSession::close() {
  if (state_ == State::kClosed) return;
  set_answered();
  state_ = State::kClosed;
  Failure ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.close();
}

void HttpSession::on_gone(int64_t number, std::function<void()> callback) {
  if (number != number_) return;
  if (state_ == State::kClosed) callback();
  else if (state_ != State::kReplied) on_gone_ = std::move(callback);
}

http::response<http::empty_body> HttpSession::head_of(const HttpReply& reply) const {
  http::response<http::empty_body> out;
  out.version(version_);
  out.result(static_cast<unsigned>(reply.status));
  if (!reply.content_type.empty()) out.set(http::field::content_type, reply.content_type);
  out.set(http::field::cache_control, "no-store");
  out.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : reply.headers) out.set(name, value);
  for (const auto& [name, value] : cross_origin_headers(core_->options.policy, request_)) out.set(name, value);
  out.keep_alive(keep_);
  return out;
}

void HttpSession::reply(int64_t number, HttpReply reply) {
  if (number != number_ || state_ != State::kHandling) return;
  state_ = State::kReplied;
  if (core_->draining) keep_ = false;
  auto head = head_of(reply);
  if (reply.status != 204) head.content_length(reply.body.size());
  write(text_of(head) + (head_only_ ? "" : reply.body), [this] { finish_reply(); });
}

void HttpSession::begin(int64_t number, HttpReply reply) {
  if (number != number_ || state_ != State::kHandling) return;
  state_ = State::kStreaming;
  if (core_->draining) keep_ = false;
  chunked_ = version_ >= 11;
  if (!chunked_) keep_ = false;  // its end is that of the connection
  auto head = head_of(reply);
  if (chunked_) head.chunked(true);
  parts_.push_back(text_of(head));
  unsent_ += parts_.back().size();
  write_next();
}

void HttpSession::send(int64_t number, std::string part) {
  if (number != number_ || state_ != State::kStreaming || ended_ || part.empty() || head_only_) return;
  if (chunked_) {
    char size[20];
    std::snprintf(size, sizeof size, "%zx\r\n", part.size());
    part = size + part + "\r\n";
  }
  unsent_ += part.size();
  parts_.push_back(std::move(part));
  if (unsent_ > core_->options.most_unsent) return gone();
  write_next();
}

void HttpSession::end(int64_t number) {
  if (number != number_ || state_ != State::kStreaming || ended_) return;
  if (chunked_ && !head_only_) parts_.emplace_back("0\r\n\r\n"), unsent_ += 5;
  ended_ = true;
  write_next();
}

void HttpSession::write_next() {
  if (writing_ || state_ != State::kStreaming) return;
  if (parts_.empty()) {
    if (ended_) state_ = State::kReplied, finish_reply();
    return;
  }
  writing_ = true;
  std::string part = std::move(parts_.front());
  parts_.pop_front();
  const size_t size = part.size();
  write(std::move(part), [this, size] {
    writing_ = false;
    unsent_ -= size;
    write_next();
  });
}

void HttpSession::finish_reply() {
  on_gone_ = nullptr;
  set_answered();
  if (state_ == State::kClosed) return;
  if (keep_) return read_head();
  Failure ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(duration_of(kLingerSeconds));
  linger();
}

// Closing a socket with unread bytes would discard the reply before the client has read it.
void HttpSession::linger() {
  buffer_.consume(buffer_.size());
  stream_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](Failure failure, size_t size) {
    self->dropped_ += size;
    if (failure || self->dropped_ > kLingerBytes) return self->close();
    self->linger();
  });
}

void HttpServer::Core::start(const std::string& what) {
  Failure failure;
  const auto address = net::ip::make_address(options.address.host, failure);
  require(!failure, ExitCode::kUsage, what, ": '", options.address.host, "' is no address in digits");
  const tcp::endpoint endpoint(address, options.address.port);
  acceptor_.open(endpoint.protocol(), failure);
  if (!failure) acceptor_.set_option(tcp::acceptor::reuse_address(true), failure);
  if (!failure) acceptor_.bind(endpoint, failure);
  if (!failure) acceptor_.listen(net::socket_base::max_listen_connections, failure);
  require(!failure, ExitCode::kUsage, what, ": cannot listen there (", failure.message(), ")");
  const uint16_t port = acceptor_.local_endpoint().port();
  url = address.is_v6() ? str("http://[", options.address.host, "]:", port)
                        : str("http://", options.address.host, ":", port);
  accept();
  thread_ = std::thread([this] { context.run(); });
}

void HttpServer::Core::accept() {
  acceptor_.async_accept([this](Failure failure, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (failure) {
      retry_.expires_after(kRetry);
      retry_.async_wait([this](Failure cancelled) {
        if (!cancelled && acceptor_.is_open()) accept();
      });
      return;
    }
    socket.set_option(tcp::no_delay(true), failure);
    const bool full = static_cast<int64_t>(sessions.size()) >= options.most_connections;
    const auto session = std::make_shared<HttpSession>(std::move(socket), shared_from_this());
    if (full) session->refuse({503, str("there are ", options.most_connections, " connections already")});
    else session->read_head();
    accept();
  });
}

void HttpServer::Core::stop_accepting() {
  draining = true;
  net::post(context, [self = shared_from_this()] {
    Failure ignored;
    self->acceptor_.close(ignored);
    self->retry_.cancel();
  });
}

void HttpServer::Core::stop() {
  stop_accepting();
  net::post(context, [self = shared_from_this()] {
    for (HttpSession* session : std::set<HttpSession*>(self->sessions)) session->close();
  });
  handlers.join();
  stopped = true;
  thread_.join();
  context.restart();
  context.poll();  // what was posted since
}

HttpServer::HttpServer(HttpOptions options, Handler handler, const std::string& what)
    : core_(std::make_shared<Core>(std::move(options), std::move(handler))) {
  core_->start(what);
}

HttpServer::~HttpServer() { core_->stop(); }

std::string HttpServer::url() const { return core_->url; }

int64_t HttpServer::unanswered() const { return core_->unanswered; }

void HttpServer::stop_accepting() { core_->stop_accepting(); }

}  // namespace lockstep
