#include "launch/commands/shown_progress.h"

#include <atomic>
#include <csignal>

#include "core/base/error.h"

namespace lockstep {
namespace {

std::atomic<int> stop_of_writing{0};
static_assert(std::atomic<int>::is_always_lock_free);

}  // namespace

std::function<void(int64_t, int64_t)> progress_until_stopped(ShownProgress& shown, std::string output,
                                                             std::string what) {
  for (int s : {SIGTERM, SIGINT, SIGHUP}) {
    const auto before = std::signal(s, [](int number) { stop_of_writing = number; });
    if (before == SIG_IGN) std::signal(s, SIG_IGN);  // ignored before, as under nohup: keep it so
  }
  return [&shown, output = std::move(output), what = std::move(what)](int64_t done, int64_t total) {
    require(stop_of_writing == 0, ExitCode::kSaved, output, ": ", what, " was stopped on request");
    shown(done, total);
  };
}

}  // namespace lockstep
