// MetricsServer: answers GET /metrics over HTTP with a text, from a thread of its own. Owned by the launcher.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "core/base/plain_file.h"

namespace lockstep {

class MetricsServer {
 public:
  // `place`: "9400", on this machine alone (127.0.0.1), or "ADDRESS:9400"; port 0: one that is free. `text` is called
  // for each request. Throws ExitCode::kUsage where it cannot listen there.
  MetricsServer(const std::string& place, std::function<std::string()> text);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;

  const std::string& url() const { return url_; }

 private:
  void serve();
  void answer(const Descriptor& client) const;

  const std::function<std::string()> text_;
  Descriptor listener_;
  std::string url_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace lockstep
