#include "launch/http/http_server.h"

#include <fcntl.h>

#include <boost/asio/post.hpp>
#include <chrono>

#include "core/base/error.h"
#include "core/base/log.h"
#include "launch/http/http_session.h"

namespace lockstep {
namespace net = boost::asio;
using net::ip::tcp;
using NetError = boost::system::error_code;

namespace {

constexpr auto kRetry = std::chrono::milliseconds(100);  // after a failed accept, such as for want of descriptors

// Programs that this one starts must not hold the port.
void close_at_exec(int socket) { ::fcntl(socket, F_SETFD, FD_CLOEXEC); }

}  // namespace

void HttpServer::Core::start(const std::string& what) {
  NetError failure;
  const auto address = net::ip::make_address(options.address.host, failure);
  require(!failure, ExitCode::kUsage, what, ": '", options.address.host, "' is no address in digits");
  const tcp::endpoint endpoint(address, options.address.port);
  acceptor_.open(endpoint.protocol(), failure);
  if (!failure) close_at_exec(acceptor_.native_handle());
  if (!failure) acceptor_.set_option(tcp::acceptor::reuse_address(true), failure);
  if (!failure) acceptor_.bind(endpoint, failure);
  if (!failure) acceptor_.listen(net::socket_base::max_listen_connections, failure);
  require(!failure, ExitCode::kUsage, what, ": cannot listen there (", failure.message(), ")");
  const uint16_t port = acceptor_.local_endpoint().port();
  url = address.is_v6() ? str("http://[", options.address.host, "]:", port)
                        : str("http://", options.address.host, ":", port);
  accept();
  thread_ = std::thread([this] { serve(); });
}

// An error that a connection did not expect ends that connection's work alone.
void HttpServer::Core::serve() {
  for (bool done = false; !done;) try {
      context.run();
      done = true;
    } catch (const std::exception& e) {
      log_warning(str("a connection failed: ", e.what()));
    }
}

void HttpServer::Core::accept() {
  acceptor_.async_accept([this](NetError failure, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (failure) {
      retry_.expires_after(kRetry);
      retry_.async_wait([this](NetError cancelled) {
        if (!cancelled && acceptor_.is_open()) accept();
      });
      return;
    }
    close_at_exec(socket.native_handle());
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
    NetError ignored;
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
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  thread_.join();
  context.restart();
  context.poll();  // what was posted since
}

void HttpServer::Core::run_in_server(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!stopped_) net::post(context, std::move(work));
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
