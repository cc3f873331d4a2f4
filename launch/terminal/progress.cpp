#include "launch/terminal/progress.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text_table.h"
#include "launch/terminal/terminal.h"

namespace lockstep {
namespace {

constexpr double kShortest = 0.001;  // seconds of which a rate is told
constexpr double kFrame = 0.1;       // seconds between drawings
constexpr double kSmoothing = 10;    // seconds over which the speed is averaged
constexpr double kLongestPause = 30;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_tail(char c) { return (c & 0xC0) == 0x80; }
std::string cut(std::string_view text, int width) {
  size_t at = 0;
  for (int n = 0; at < text.size(); ++at)
    if (!is_tail(text[at]) && n++ == std::max(0, width)) break;
  return std::string(text.substr(0, at));
}
// Replaces escapes and newlines, so that the text stays on one line.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return out;
}

// A descriptor of the terminal of mpirun, or -1. mpirun gives its local processes a pipe as standard error and forwards
// it to its own standard error, which may be a terminal.
int launcher_terminal(int fd) {
  struct stat st = {};
  bool forwarded = ::fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) &&
                   (std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMI_RANK") || std::getenv("PMIX_RANK"));
  if (!forwarded) return -1;
  std::string path = str("/proc/", static_cast<int64_t>(::getppid()), "/fd/2");
  // Only a terminal can be opened a second time without side effects, unlike a pipe or a log file.
  if (::stat(path.c_str(), &st) != 0 || !S_ISCHR(st.st_mode)) return -1;
  int terminal = ::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (terminal >= 0 && ::isatty(terminal) != 1) {
    ::close(terminal);
    return -1;
  }
  return terminal;
}

std::string format(const char* pattern, double v) {
  std::array<char, 64> buffer;
  std::snprintf(buffer.data(), buffer.size(), pattern, v);
  return buffer.data();
}

std::string count_text(const ProgressView& v) {
  if (v.total <= 0) return str(v.done, " ", v.unit);
  std::string done = to_text(v.done), total = to_text(v.total);
  return str(std::string(total.size() - std::min(total.size(), done.size()), ' '), done, "/", total);
}
std::string percent_text(const ProgressView& v) {
  return format("%3.0f%%", std::floor(100.0 * static_cast<double>(v.done) / static_cast<double>(v.total)));
}
std::string rate_text(const ProgressView& v) { return str(short_number(v.rate), " ", v.rate_unit, "/s"); }

}  // namespace

std::string short_time(double seconds) {
  auto s = static_cast<int64_t>(std::clamp(seconds, 0.0, 8.64e8));
  std::array<char, 64> out;
  long long days = s / 86400, hours = s / 3600 % 24, minutes = s / 60 % 60, rest = s % 60;
  if (days > 0) {
    std::snprintf(out.data(), out.size(), "%lldd %02lld:%02lld:%02lld", days, hours, minutes, rest);
  } else if (hours > 0) {
    std::snprintf(out.data(), out.size(), "%lld:%02lld:%02lld", hours, minutes, rest);
  } else {
    std::snprintf(out.data(), out.size(), "%lld:%02lld", minutes, rest);
  }
  return out.data();
}

std::string live_line(const ProgressView& v, int width) {
  std::string head = str(printable(v.title), "  ", count_text(v));
  if (v.total > 0) head += str(" ", percent_text(v));
  std::string tail;
  if (!v.extra.empty()) tail += str("  ", printable(v.extra));
  if (v.rate >= 0) tail += str("  ", rate_text(v));
  tail += str("  ", short_time(v.elapsed));
  if (v.remaining >= 0) tail += str(" left ", short_time(v.remaining));
  constexpr int kSmallest = 8, kLargest = 30;
  int room = width - static_cast<int>(columns(head) + columns(tail)) - 3;  // a space and two brackets
  if (v.total > 0 && room >= kSmallest) {
    int cells = std::min(room, kLargest);
    double share = std::clamp(static_cast<double>(v.done) / static_cast<double>(v.total), 0.0, 1.0);
    int full = static_cast<int>(share * cells);
    std::string bar(static_cast<size_t>(full), '=');
    if (full < cells) bar += '>';
    bar.resize(static_cast<size_t>(cells), ' ');
    head += str(" [", bar, "]");
  }
  return cut(head + tail, width);
}

std::string plain_line(const ProgressView& v) {
  std::string out = str(printable(v.title), " ", v.total > 0 ? str(v.done, "/", v.total, " ", v.unit) : count_text(v));
  if (v.total > 0)
    out +=
        str(" (", format("%.0f", std::floor(100.0 * static_cast<double>(v.done) / static_cast<double>(v.total))), "%)");
  if (!v.extra.empty()) out += str(", ", printable(v.extra));
  if (v.rate >= 0) out += str(", ", rate_text(v));
  out += str(", ", short_time(v.elapsed));
  if (v.remaining > 0) out += str(", ", short_time(v.remaining), " left");
  return out;
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {
  if (!options_.clock) options_.clock = steady_seconds;
  if (options_.rate_unit.empty()) options_.rate_unit = options_.unit;
  const char* kind = std::getenv("TERM");
  bool dumb = kind && std::strcmp(kind, "dumb") == 0;
  if (options_.style != ProgressStyle::kPlain)
    terminal_ = ::isatty(options_.fd) == 1 ? options_.fd : launcher_terminal(options_.fd);
  live_ = options_.style == ProgressStyle::kLive || (terminal_ >= 0 && !dumb);
  const char* wanted = std::getenv("LOCKSTEP_PROGRESS");
  finished_ = wanted && std::strcmp(wanted, "off") == 0;  // a launcher shows one display for all ranks
  if (finished_) return;
  done_ = mark_done_ = said_done_ = options_.start;
  begin_ = mark_time_ = said_ = options_.clock();
  if (live_) listen();
}

void Progress::listen() {
  set_log_listener([this](bool before) {
    std::lock_guard lock(mutex_);
    if (before) {
      erase();
    } else if (!finished_ && !paused_ && drawn_ >= 0) {
      draw(options_.clock());
    }
  });
}

void Progress::pause() {
  if (live_) set_log_listener({});
  std::lock_guard lock(mutex_);
  erase();
  paused_ = true;
}

Progress::~Progress() {
  if (live_) {
    if (!paused_) set_log_listener({});  // waits for a log line in progress, so mutex_ must not be locked
    std::lock_guard lock(mutex_);
    if (!finished_) erase();
  }
  if (terminal_ >= 0 && terminal_ != options_.fd) ::close(terminal_);
}

void Progress::set(int64_t done, std::string_view extra) {
  std::string line;
  if (paused_ && live_) listen();
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    double now = options_.clock();
    done_ = done;
    extra_ = extra;
    if (paused_) {
      paused_ = false;
      mark_time_ = now;
      mark_done_ = done;
    }
    double span = now - mark_time_;
    if (span >= 2 * kFrame || (speed_ < 0 && span >= kShortest)) {
      double speed = static_cast<double>(done_ - mark_done_) / span;
      // At first the average since the beginning, which no single moment governs.
      double weight = std::max(1 - std::exp(-span / kSmoothing), span / (now - begin_));
      if (span >= 2 * kFrame || done_ > mark_done_) speed_ = (speed_ < 0 ? 0 : speed_ * (1 - weight)) + speed * weight;
      mark_time_ = now;
      mark_done_ = done_;
    }
    if (live_) {
      if (drawn_ < 0 || now - drawn_ >= kFrame) draw(now);
    } else if (plain_is_due(now)) {
      line = plain_line(view(now));
    }
  }
  if (!line.empty()) log_info(line);
}

void Progress::finish() {
  std::string line;
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    double now = options_.clock();
    // The average rate of the whole run.
    double span = now - begin_;
    if (span >= kShortest) speed_ = static_cast<double>(done_ - options_.start) / span;
    if (live_) {
      draw(now);
      write("\n");
      shown_ = false;
    } else if (said_done_ != done_ || done_ == options_.start) {
      line = plain_line(view(now));
    }
    finished_ = true;
  }
  if (!line.empty()) log_info(line);
}

bool Progress::plain_is_due(double now) {
  if (options_.every > 0) {
    bool due = done_ / options_.every > said_done_ / options_.every;
    if (due) said_done_ = done_;
    return due;
  }
  bool first = said_done_ == options_.start && done_ > options_.start;
  if (!first && now - said_ < pause_) return false;
  if (!first) pause_ = std::min(2 * pause_, kLongestPause);
  said_ = now;
  said_done_ = done_;
  return true;
}

ProgressView Progress::view(double now) const {
  ProgressView v{options_.title, options_.unit, options_.rate_unit, extra_};
  v.done = done_;
  v.total = options_.total;
  v.elapsed = now - begin_;
  if (speed_ >= 0) v.rate = speed_ * options_.rate_scale;
  if (speed_ > 0 && options_.total > 0)
    v.remaining = static_cast<double>(std::max<int64_t>(0, options_.total - done_)) / speed_;
  return v;
}

void Progress::draw(double now) {
  // One column less than the width: writing the last column makes some terminals wrap.
  write(str("\r", live_line(view(now), terminal_columns(terminal_) - 1), "\x1b[K"));
  drawn_ = now;
  shown_ = true;
}

void Progress::erase() {
  if (shown_) write("\r\x1b[K");
  shown_ = false;
}

void Progress::write(std::string_view text) const {
  while (!text.empty()) {
    ssize_t n = ::write(options_.fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a closed terminal is not an error
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace lockstep
