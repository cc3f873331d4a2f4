// WritePace: how fast somebody writes to a disk beside training, and whether to go on at all. Used by one writer;
// give_up() and hurry() may be called by another thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>

#include "core/base/error.h"

namespace lockstep {

class WritePace {
 public:
  // 0: as fast as the disk takes it.
  explicit WritePace(double bytes_per_s = 0) : bytes_per_s_(bytes_per_s) {}

  void begin() { begun_ = Clock::now(), written_ = 0; }
  // Before the next `bytes`: waits until they are due. Throws ExitCode::kStorage, where `path` begins the message, once
  // the writer is to give up.
  void wait(int64_t bytes, std::string_view path) {
    constexpr std::chrono::milliseconds kLook{50};
    const auto due = [&] { return begun_ + std::chrono::duration<double>(written_ / bytes_per_s_); };
    do {
      require(!gives_up_, ExitCode::kStorage, path, ": given up");
      if (bytes_per_s_ <= 0 || hurries_ || due() <= Clock::now()) break;
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(kLook, due() - Clock::now()));
    } while (true);
    written_ += static_cast<double>(bytes);
  }
  void give_up() { gives_up_ = true; }
  void hurry() { hurries_ = true; }  // as fast as the disk takes it, from now on

 private:
  using Clock = std::chrono::steady_clock;

  const double bytes_per_s_;
  Clock::time_point begun_ = Clock::now();
  double written_ = 0;
  std::atomic<bool> gives_up_{false}, hurries_{false};
};

}  // namespace lockstep
