#include "core/base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "core/base/escape.h"
#include "core/base/plain_file.h"
#include "core/base/system_call.h"

namespace lockstep {
namespace {

thread_local std::string prefix;

// spdlog opens by name and follows links, so the file is opened here. A line that cannot be written is dropped.
class FileSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit FileSink(Descriptor file) : file_(std::move(file)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_all(file_, {line.data(), line.size()});
  }
  void flush_() override {}
  Descriptor file_;
};

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
  text += escaped(line);
  auto& s = sinks();
  std::lock_guard lock(s.mutex);
  if (s.file) s.file->log(translate(level), text);
  if (!s.terminal.should_log(translate(level))) return;
  if (s.listener) s.listener(true);
  s.terminal.log(translate(level), text);
  s.terminal.flush();
  if (s.listener) s.listener(false);
}

void log_warning_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> given;
  {
    std::lock_guard lock(mutex);
    if (!given.insert(line).second) return;
  }
  log_warning(line);
}

void set_log_level(LogLevel level) { sinks().terminal.set_level(translate(level)); }
void set_log_prefix(std::string value) { prefix = std::move(value); }
const std::string& log_prefix() { return prefix; }

void open_log_file(const std::string& path) {
  auto& s = sinks();
  std::lock_guard lock(s.mutex);
  Descriptor file = open_to_append(path);
  const bool link = !file && errno == ELOOP;
  require_done(file || link, ExitCode::kOutputLocked, "cannot write the log ", path);
  require(!link, ExitCode::kOutputLocked, "cannot write the log ", path, ": it is a symbolic link; remove it");
  s.file = std::make_unique<spdlog::logger>("file", std::make_shared<FileSink>(std::move(file)));
  s.file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  s.file->set_level(spdlog::level::debug);
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
