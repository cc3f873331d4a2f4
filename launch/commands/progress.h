// Progress of something countable: one live line on a terminal, otherwise plain log lines at a growing distance.
// Owned by whoever does the work, on one rank; at most one is live at a time. It uses the log's listener while it
// lives.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

// kAuto: live where `fd` is a terminal, or a launcher (mpirun) forwards it to its own terminal.
enum class ProgressStyle { kAuto, kLive, kPlain };

struct ProgressOptions {
  std::string title;           // "train"
  int64_t total = 0;           // 0: unknown, then no percentage and no remaining time
  int64_t start = 0;           // done before, by the run that is resumed
  std::string unit = "steps";  // of done and total
  std::string rate_unit = "";  // "tokens": the rate counts these; empty: counts `unit`
  double rate_scale = 1;       // rate units in one unit, e.g. tokens a step
  int64_t every = 0;           // plain lines: every so many units; 0: by time, 1 s apart at first, 30 s later
  ProgressStyle style = ProgressStyle::kAuto;
  int fd = 2;                     // where the live line goes
  std::function<double()> clock;  // seconds, monotonic; for tests
};

// What one line shows; `rate` in units of rate_unit a second, times in seconds, negative: not known yet.
struct ProgressView {
  std::string_view title, unit, rate_unit, extra;
  int64_t done = 0, total = 0;
  double rate = -1, elapsed = 0, remaining = -1;
};
// "train  120/2000   6% [=>    ] loss 2.31  12.3k tokens/s  0:04 left 1:10", never wider than `width` columns.
std::string live_line(const ProgressView& view, int width);
std::string plain_line(const ProgressView& view);

std::string short_number(double v);      // 950, 12.3k, 4.56M
std::string short_time(double seconds);  // 0:04, 12:30, 3:02:10, 2d 03:10:00

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // leaves a clean line, says nothing

  // `extra` is shown as it is: "loss 2.31". Cheap: draws at most ten times a second.
  void set(int64_t done, std::string_view extra = "");
  // Clears the line, for another Progress (an evaluation within a run); the next set() shows it again. The time between
  // is not part of the rate.
  void pause();
  // The last state, drawn for good. Nothing more is shown after it.
  void finish();

  bool live() const { return live_; }

 private:
  void listen();
  ProgressView view(double now) const;
  void draw(double now);
  void erase();
  void write(std::string_view text) const;
  int width() const;
  bool plain_is_due(double now);

  ProgressOptions options_;
  int terminal_ = -1;  // whose width counts: options_.fd, or the launcher's, which is ours to close
  bool live_ = false;
  bool paused_ = false;
  bool finished_ = false;
  mutable std::mutex mutex_;  // set() and log lines of other threads
  std::string extra_;
  int64_t done_ = 0;
  double begin_ = 0, drawn_ = -1, said_ = 0;
  int64_t said_done_ = 0;
  double pause_ = 1;                   // before the next plain line
  double mark_time_ = 0, speed_ = -1;  // units a second, smoothed
  int64_t mark_done_ = 0;
  bool shown_ = false;
};

}  // namespace lockstep
