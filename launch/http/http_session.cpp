#include "launch/http/http_session.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <sstream>

#include "core/base/error.h"

namespace lockstep {
namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using net::ip::tcp;
using NetError = beast::error_code;

namespace {

constexpr double kLingerSeconds = 2;       // for a client to read a reply to a request that was not read whole
constexpr size_t kReadBytes = 4096;        // at once, of a head
constexpr size_t kLingerBytes = 64 << 20;  // of such a request, which are read and dropped
constexpr auto kWatch = std::chrono::milliseconds(500);  // between looks for the end of a connection

std::chrono::nanoseconds duration_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

std::string text_of(const http::response<http::empty_body>& head) {
  std::ostringstream out;
  out << head.base();
  return out.str();
}

class ServedExchange final : public HttpExchange {
 public:
  ServedExchange(std::shared_ptr<HttpSession> session, int64_t number, HttpRequest request)
      : core_(session->core()), session_(std::move(session)), number_(number), request_(std::move(request)) {}
  ~ServedExchange() override {
    // The last owner may be another thread; the session ends in the server's.
    core_->run_in_server([session = std::move(session_)] {});
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
  void in_server(std::function<void(HttpSession&, int64_t)> use) {
    core_->run_in_server([session = session_, number = number_, use = std::move(use)] { use(*session, number); });
  }

  const std::shared_ptr<HttpServer::Core> core_;
  std::shared_ptr<HttpSession> session_;
  const int64_t number_;
  const HttpRequest request_;
};

}  // namespace

HttpSession::HttpSession(tcp::socket socket, std::shared_ptr<HttpServer::Core> core)
    : core_(std::move(core)), stream_(std::move(socket)), buffer_(core_->options.most_head), watch_(core_->context) {
  core_->sessions.insert(this);
}

HttpSession::~HttpSession() { core_->sessions.erase(this); }

void HttpSession::read_head() {
  state_ = State::kReading;
  keep_ = head_only_ = false, version_ = 11;  // of what is refused before it is known
  request_ = {};
  if (core_->draining) return close();
  stream_.expires_after(duration_of(core_->options.head_seconds));
  find_head();
}

// The head may be in the buffer already, behind an earlier request.
void HttpSession::find_head() {
  if (state_ == State::kClosed) return;
  const std::string_view read(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  if (const size_t end = read.find("\r\n\r\n"); end != read.npos) return take_head(read.substr(0, end + 4));
  const size_t room = buffer_.max_size() - buffer_.size();
  if (room == 0) return refuse({431, str("the request's head has more than ", core_->options.most_head, " bytes")});
  stream_.async_read_some(buffer_.prepare(std::min(room, kReadBytes)),
                          [self = shared_from_this()](NetError failure, size_t size) {
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
  NetError broken;
  buffer_.consume(parser_->put(net::buffer(head.data(), head.size()), broken));
  if (broken == http::error::body_limit) return refuse_body();
  if (broken && broken != http::error::need_more) return unclear(broken.message());
  if (!parser_->is_header_done()) return unclear("its head is not whole");
  const auto& message = parser_->get();
  version_ = message.version();
  head_only_ = message.method() == http::verb::head;
  keep_ = message.keep_alive();
  if (!take_fields()) return;
  if (parser_->is_done()) return handle();
  if (!beast::iequals(message[http::field::expect], "100-continue")) return read_body();
  write("HTTP/1.1 100 Continue\r\n\r\n", [this] { read_body(); });
}

// `then` is called where all was written.
void HttpSession::write(std::string text, std::function<void()> then) {
  const auto held = std::make_shared<std::string>(std::move(text));
  stream_.expires_after(duration_of(core_->options.write_seconds));
  net::async_write(stream_, net::buffer(*held),
                   [self = shared_from_this(), held, then = std::move(then)](NetError failure, size_t) {
                     if (failure) return self->gone();
                     then();
                   });
}

void HttpSession::read_body() {
  stream_.expires_after(duration_of(core_->options.body_seconds));
  http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](NetError failure, size_t) {
    if (!failure) return self->handle();
    self->keep_ = false;
    if (failure == http::error::body_limit) return self->refuse_body();
    if (failure.category() == http::make_error_code(http::error::bad_chunk).category() &&
        failure != http::error::end_of_stream && failure != http::error::partial_message)
      return self->refuse({400, str("the body cannot be read: ", failure.message())});
    self->close();
  });
}

// The request but for its body. False where it is refused, before its body is read.
bool HttpSession::take_fields() {
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
  std::optional<HttpError> refused;
  if (!request_.path.starts_with('/')) refused = HttpError{400, "the request's target is no path"};
  else refused = refused_by(core_->options.policy, request_);
  if (!refused) return true;
  keep_ = keep_ && parser_->is_done();
  refuse(*refused);
  return false;
}

void HttpSession::handle() {
  if (state_ == State::kClosed) return;
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  stream_.expires_never();
  state_ = State::kHandling;
  ++number_;
  unanswered_ = true, ++core_->unanswered;
  on_gone_ = nullptr;
  parts_.clear(), unsent_ = 0, writing_ = ended_ = false;
  if (request_.method == "OPTIONS") return reply(number_, {204, "", "", {}});
  watch();
  auto exchange = std::make_shared<ServedExchange>(shared_from_this(), number_, std::move(request_));
  request_ = exchange->request();
  request_.body.clear();
  const auto handle = [core = core_.get(), exchange] {
    try {
      core->handler(exchange);
    } catch (const std::exception& e) {
      exchange->reply(reply_of(HttpError{500, e.what()}));
    } catch (...) {
      exchange->reply(reply_of(HttpError{500, "the request failed in an unknown way"}));
    }
  };
  const auto& quick = core_->options.quick_paths;
  if (std::find(quick.begin(), quick.end(), exchange->request().path) != quick.end()) handle();
  else net::post(core_->handlers, handle);
}

void HttpSession::refuse(const HttpError& error) {
  if (state_ == State::kReading) {  // it has no exchange
    state_ = State::kHandling;
    ++number_;
  }
  reply(number_, reply_of(error));
}

void HttpSession::refuse_body() {
  keep_ = false;
  refuse({413, str("the body has more than ", core_->options.most_body, " bytes")});
}

// Notices that the client goes while its request is handled. A request that comes meanwhile waits in the socket: behind
// its bytes the end of the connection is looked for now and then.
void HttpSession::watch() {
  if (buffer_.size() > 0) return watch_again();
  stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this(), number = number_](NetError failure) {
    if (failure || number != self->number_) return;
    self->watch_again();
  });
}

void HttpSession::watch_again() {
  if (state_ != State::kHandling && state_ != State::kStreaming) return;
  pollfd polled{stream_.socket().native_handle(), POLLRDHUP, 0};
  if (::poll(&polled, 1, 0) > 0 && (polled.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) return gone();
  watch_.expires_after(kWatch);
  watch_.async_wait([self = shared_from_this(), number = number_](NetError failure) {
    if (!failure && number == self->number_) self->watch_again();
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
  watch_.cancel();
  NetError ignored;
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
  if (unsent_ > core_->options.most_unsent) return gone();  // one part alone may be larger
  unsent_ += part.size();
  parts_.push_back(std::move(part));
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
  NetError ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(duration_of(kLingerSeconds));
  linger();
}

// Closing a socket with unread bytes would discard the reply before the client has read it.
void HttpSession::linger() {
  buffer_.consume(buffer_.size());
  stream_.async_read_some(buffer_.prepare(std::min(kReadBytes, buffer_.max_size())),
                          [self = shared_from_this()](NetError failure, size_t size) {
                            self->dropped_ += size;
                            if (failure || self->dropped_ > kLingerBytes) return self->close();
                            self->linger();
                          });
}

}  // namespace lockstep
