// Progress: a progress display of counted work: one line that is redrawn on a terminal, otherwise log lines at
// increasing intervals. Owned by the code that does the work, on one rank; at most one live display at a time. It
// occupies the log's listener while it exists.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

// kAuto: live if `fd` is a terminal, or if a launcher (mpirun) forwards it to its own terminal.
enum class ProgressStyle { kAuto, kLive, kPlain };

struct ProgressOptions {
  std::string title;           // "train"
  int64_t total = 0;           // 0: unknown; percentage and remaining time are not shown
  int64_t start = 0;           // units done before, by the run that is resumed
  std::string unit = "steps";  // of done and total
  std::string rate_unit = "";  // "tokens": the rate counts these; empty: counts `unit`
  double rate_scale = 1;       // rate units per unit, e.g. tokens per step
  int64_t every = 0;           // plain lines: one every so many units; 0: at intervals that grow from 1 s to 30 s
  ProgressStyle style = ProgressStyle::kAuto;
  int fd = 2;                     // the descriptor of the live line
  std::function<double()> clock;  // seconds, monotonic; for tests
};

// The content of one line. `rate` in rate_unit per second, times in seconds; negative: not known yet.
struct ProgressView {
  std::string_view title, unit, rate_unit, extra;
  int64_t done = 0, total = 0;
  double rate = -1, elapsed = 0, remaining = -1;
};
// "train  120/2000   6% [=>    ] loss 2.31  12.3k tokens/s  0:04 left 1:10", never wider than `width` columns.
std::string live_line(const ProgressView& view, int width);
std::string plain_line(const ProgressView& view);

std::string short_time(double seconds);  // 0:04, 12:30, 3:02:10, 2d 03:10:00

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // erases the live line, prints nothing

  // `extra` is shown unchanged: "loss 2.31". Cheap: draws at most ten times a second.
  void set(int64_t done, std::string_view extra = "");
  // Clears the line, so that another Progress can use it (an evaluation within a run); the next set() shows it again.
  // The time between does not count in the rate.
  void pause();
  // Draws the last state permanently. Nothing is shown after that.
  void finish();

  bool live() const { return live_; }

 private:
  void listen();
  ProgressView view(double now) const;
  void draw(double now);
  void erase();
  void write(std::string_view text) const;
  bool plain_is_due(double now);

  ProgressOptions options_;
  int terminal_ = -1;  // used for its width: options_.fd, or the launcher's terminal, which this object closes
  bool live_ = false;
  bool paused_ = false;
  bool finished_ = false;
  mutable std::mutex mutex_;  // set() may be concurrent with log lines of other threads
  std::string extra_;
  int64_t done_ = 0;
  double begin_ = 0, drawn_ = -1, said_ = 0;
  int64_t said_done_ = 0;
  double pause_ = 1;                   // before the next plain line
  double mark_time_ = 0, speed_ = -1;  // units per second, smoothed
  int64_t mark_done_ = 0;
  bool shown_ = false;
};

}  // namespace lockstep
