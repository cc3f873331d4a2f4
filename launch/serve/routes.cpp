#include "launch/serve/routes.h"

#include <array>
#include <cstdio>
#include <random>

#include "core/base/trace.h"
#include "launch/serve/page.h"
#include "launch/serve/request_fields.h"

namespace lockstep {
namespace {

std::string random_text() {
  std::random_device device;
  std::array<char, 40> out{};
  std::snprintf(out.data(), out.size(), "%08x%08x%08x%08x", device(), device(), device(), device());
  return out.data();
}

// Its script and style run by a nonce, and nothing that a model or a client wrote.
HttpReply page() {
  const std::string nonce = random_text();
  std::string text = kServePage;
  constexpr std::string_view kMark = "NONCE";
  for (size_t at = 0; (at = text.find(kMark, at)) != text.npos;) text.replace(at, kMark.size(), nonce);
  const std::string policy =
      str("default-src 'none'; script-src 'nonce-", nonce, "'; style-src 'nonce-", nonce,
          "'; img-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  return {200,
          "text/html; charset=utf-8",
          std::move(text),
          {{"Content-Security-Policy", policy}, {"Referrer-Policy", "no-referrer"}}};
}

}  // namespace

Routes::Routes() {
  get("/", page);
  get("/health", [] { return json_reply({{"status", "ok"}}); });
}

void Routes::get(const std::string& path, std::function<HttpReply()> make) {
  routes_[path]["GET"] = [make = std::move(make)](const Exchange& e) { e->reply(make()); };
}

void Routes::post(const std::string& path, Route route) { routes_[path]["POST"] = std::move(route); }

void Routes::handle(const Exchange& exchange) const {
  trace_mark();
  try {
    answer(exchange);
  } catch (...) {
    exchange->reply(reply_of(std::current_exception()));
  }
}

void Routes::answer(const Exchange& exchange) const {
  const HttpRequest& request = exchange->request();
  const auto path = routes_.find(request.path);
  if (path == routes_.end()) {
    std::string all;
    for (const auto& [name, methods] : routes_) all += (all.empty() ? "" : ", ") + name;
    throw ApiError({404, str("there is nothing at ", request.path, "; there is ", all)});
  }
  const auto route = path->second.find(request.method == "HEAD" ? "GET" : request.method);
  if (route == path->second.end())
    throw ApiError({405, str(request.path, " is asked by ", path->second.begin()->first, ", not by ", request.method)});
  route->second(exchange);
}

HttpReply json_reply(const JsonObject& object) { return {200, "application/json", json_line(object) + "\n"}; }

HttpReply reply_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& e) {
    return reply_of(e.error());
  } catch (const Error& e) {
    const bool of_client = e.code() == ExitCode::kBadData || e.code() == ExitCode::kUsage;
    return reply_of(HttpError{of_client ? 400 : 500, e.what()});
  } catch (const std::exception& e) {
    return reply_of(HttpError{500, e.what()});
  } catch (...) {
    return reply_of(HttpError{500, "the request failed in an unknown way"});
  }
}

void MetricsText::add_text(const std::string& name, const char* type, const char* help, const std::string& value) {
  text_ += str("# HELP lockstep_serve_", name, " ", help, "\n# TYPE lockstep_serve_", name, " ", type,
               "\nlockstep_serve_", name, " ", value, "\n");
}

}  // namespace lockstep
