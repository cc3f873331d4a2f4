// Routes: which function answers a request, by path and method, and what a request without one is told. Also what all
// servers of models have: /, /health, and errors in the form of OpenAI's API.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "launch/http/http_server.h"

namespace lockstep {

class Routes {
 public:
  using Exchange = std::shared_ptr<HttpExchange>;
  // Answers, at once or later. What it throws is the reply: an ApiError as it is, an Error of bad data or usage with
  // status 400, others with 500.
  using Route = std::function<void(const Exchange&)>;

  Routes();
  void get(const std::string& path, std::function<HttpReply()> make);
  void post(const std::string& path, Route route);

  // Any thread. All routes are there before the first request.
  void handle(const Exchange& exchange) const;

 private:
  void answer(const Exchange& exchange) const;

  std::map<std::string, std::map<std::string, Route>> routes_;  // by path, and by method
};

HttpReply json_reply(const JsonObject& object);
// The reply to what a request was answered with in the place of a result.
HttpReply reply_of(std::exception_ptr error);

// In Prometheus's text format: metrics of the name lockstep_serve_NAME.
class MetricsText {
 public:
  template <class Value>
  void add(const std::string& name, const char* type, const char* help, Value value) {
    add_text(name, type, help, str(value));
  }
  HttpReply reply() const { return {200, "text/plain; version=0.0.4; charset=utf-8", text_}; }

 private:
  void add_text(const std::string& name, const char* type, const char* help, const std::string& value);
  std::string text_;
};

}  // namespace lockstep
