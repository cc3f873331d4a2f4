#include "core/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>

#include "core/base/error.h"

namespace lockstep {
namespace {

thread_local std::string prefix;

struct Sinks {
  std::mutex mutex;
  spdlog::logger terminal{"terminal", std::make_shared<spdlog::sinks::stderr_sink_st>()};
  std::unique_ptr<spdlog::logger> file;
  std::function<void(bool)> listener;
  Sinks() {
    terminal.set_pattern("%v");
    terminal.set_level(spdlog::level::info);
  }
};

Sinks& sinks() {
  static Sinks instance;
  return instance;
}

spdlog::level::level_enum translate(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void log(LogLevel level, std::string_view line) {
  std::string text = prefix.empty() ? "" : prefix + ": ";
  if (level == LogLevel::kWarning) text += "warning: ";
  if (level == LogLevel::kError) text += "error: ";
  text += line;
  auto& s = sinks();
  std::lock_guard lock(s.mutex);
  if (s.file) s.file->log(translate(level), text);
  if (!s.terminal.should_log(translate(level))) return;
  if (s.listener) s.listener(true);
  s.terminal.log(translate(level), text);
  s.terminal.flush();
  if (s.listener) s.listener(false);
}

void set_log_level(LogLevel level) { sinks().terminal.set_level(translate(level)); }
void set_log_prefix(std::string value) { prefix = std::move(value); }
const std::string& log_prefix() { return prefix; }

void open_log_file(const std::string& path) {
  auto& s = sinks();
  std::lock_guard lock(s.mutex);
  try {
    s.file = std::make_unique<spdlog::logger>("file", std::make_shared<spdlog::sinks::basic_file_sink_st>(path));
  } catch (const spdlog::spdlog_ex& e) {
    throw Error(ExitCode::kOutputLocked, cat("cannot write the log ", path, ": ", e.what()));
  }
  s.file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  s.file->set_level(spdlog::level::debug);
  s.file->flush_on(spdlog::level::info);
  s.file->set_error_handler([](const std::string&) {});  // a full disk costs log lines, not the run
}

void close_log_file() {
  auto& s = sinks();
  std::lock_guard lock(s.mutex);
  s.file.reset();
}

void set_log_listener(std::function<void(bool)> listener) {
  auto& s = sinks();
  std::lock_guard lock(s.mutex);
  s.listener = std::move(listener);
}

}  // namespace lockstep
