#include "launch/training/loop/stop_request.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "core/base/error.h"

namespace lockstep {
namespace {

std::atomic<int> stop_signal{0};        // read by every rank that is a thread
std::atomic<int64_t> stop_asked_ms{0};  // when it came
std::atomic<bool> at_steps{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_stop_signal(int number) {
  if (!at_steps) {
    constexpr char kText[] = "stopped on request before the first step. Start it again with --resume\n";
    (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
    _exit(static_cast<int>(ExitCode::kSaved));
  }
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t ms = 1000 * static_cast<int64_t>(now.tv_sec) + now.tv_nsec / 1'000'000;
  if (stop_signal == number && ms - stop_asked_ms > 1000) {
    std::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  if (stop_signal != number) stop_asked_ms = ms;
  stop_signal = number;
}

}  // namespace

void catch_stop_requests() {
  for (int s : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP})
    if (std::signal(s, on_stop_signal) == SIG_IGN && s == SIGHUP)
      std::signal(s, SIG_IGN);  // ignored before, as under nohup: keep it so
}

void stop_at_steps() { at_steps = true; }
bool stop_is_requested() { return stop_signal != 0; }

}  // namespace lockstep
