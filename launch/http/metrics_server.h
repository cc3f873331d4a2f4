// MetricsServer: answers GET /metrics over HTTP with a text. Owned by the launcher.
#pragma once

#include <functional>
#include <string>

#include "launch/http/http_server.h"

namespace lockstep {

class MetricsServer {
 public:
  // `address`: "9400", on this machine alone (127.0.0.1), or "ADDRESS:9400"; port 0: one that is free. `text` is called
  // for each request, in the server's thread. Throws ExitCode::kUsage where it cannot listen there.
  MetricsServer(const std::string& address, const std::function<std::string()>& text);

  std::string url() const { return server_.url() + "/metrics"; }

 private:
  HttpServer server_;
};

}  // namespace lockstep
