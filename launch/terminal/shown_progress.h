// ShownProgress: a progress display that callbacks (done, total) update; and a request to stop, by a signal, that such
// a callback answers. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "launch/terminal/progress.h"

namespace lockstep {

class ShownProgress {
 public:
  explicit ShownProgress(std::string title, std::string unit = "bytes")
      : title_(std::move(title)), unit_(std::move(unit)) {}
  void operator()(int64_t done, int64_t total) {
    if (!progress_) {
      ProgressOptions o;
      o.title = title_;
      o.total = total;
      if (done < total || total == 0) o.start = done;  // nobody knows how long that took
      o.unit = unit_;
      progress_ = std::make_unique<Progress>(o);
    }
    progress_->set(done);
  }
  // The same, where what is counted is known only now.
  void operator()(int64_t done, int64_t total, const std::string& unit) {
    unit_ = unit;
    (*this)(done, total);
  }
  // To be called on success; otherwise the destructor erases the display.
  void finish() {
    if (progress_) progress_->finish();
    progress_.reset();
  }

 private:
  std::string title_, unit_;
  std::unique_ptr<Progress> progress_;
};

// From now on SIGTERM, SIGINT and SIGHUP let the callback that this returns throw ExitCode::kSaved at its next call, so
// that incomplete output is removed. Where that call does not come within 5 seconds, as while the work waits for its
// input, the process ends with kSaved. `what`: "the import". It updates `shown`, which it borrows.
std::function<void(int64_t done, int64_t total)> progress_until_stopped(ShownProgress& shown, std::string output,
                                                                        std::string what);

}  // namespace lockstep
