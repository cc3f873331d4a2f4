#include "launch/http/metrics_server.h"

#include "core/base/error.h"

namespace lockstep {
namespace {

HttpOptions options_of(const std::string& address) {
  HttpOptions out;
  out.address = parse_http_address(address, "--metrics-port");
  out.policy.takes_bodies = false;
  out.most_body = 0, out.most_connections = 64;
  out.head_seconds = out.write_seconds = 5;
  if (!out.address.is_loopback) out.policy.hosts = {"*"};  // who listens there means to be asked by name
  return out;
}

HttpReply reply_to(const HttpRequest& request, const std::function<std::string()>& text) {
  if (request.path != "/metrics") return reply_of(HttpError{404, "the metrics are at /metrics"});
  try {
    return {200, "text/plain; version=0.0.4; charset=utf-8", text()};
  } catch (const std::exception& e) {
    return reply_of(HttpError{503, e.what()});
  }
}

}  // namespace

MetricsServer::MetricsServer(const std::string& address, const std::function<std::string()>& text)
    : server_(
          options_of(address),
          [text](const std::shared_ptr<HttpExchange>& exchange) {
            exchange->reply(reply_to(exchange->request(), text));
          },
          "--metrics-port " + address) {}

}  // namespace lockstep
