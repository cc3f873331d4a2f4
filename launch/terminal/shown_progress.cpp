#include "launch/terminal/shown_progress.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "core/base/error.h"

namespace lockstep {
namespace {

constexpr unsigned kPatience = 5;  // seconds
std::atomic<int> stop_of_writing{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Where nothing asks within kPatience, as while it waits for more of a pipe, the process ends as after kill -9: what is
// incomplete is removed, or gone on with, by the next command of the kind.
void end_without_being_asked(int) {
  constexpr char kWhy[] = "\nerror: stopped on request, before the work came to a place where it could end by itself\n";
  (void)!::write(STDERR_FILENO, kWhy, sizeof kWhy - 1);
  ::_exit(static_cast<int>(ExitCode::kSaved));
}

}  // namespace

std::function<void(int64_t, int64_t)> progress_until_stopped(ShownProgress& shown, std::string output,
                                                             std::string what) {
  std::signal(SIGALRM, end_without_being_asked);
  for (int s : {SIGTERM, SIGINT, SIGHUP}) {
    const auto before = std::signal(s, [](int number) {
      stop_of_writing = number;
      ::alarm(kPatience);
    });
    if (before == SIG_IGN) std::signal(s, SIG_IGN);  // ignored before, as under nohup: keep it so
  }
  return [&shown, output = std::move(output), what = std::move(what)](int64_t done, int64_t total) {
    if (stop_of_writing != 0) {
      ::alarm(0);
      throw Error(ExitCode::kSaved, str(output, ": ", what, " was stopped on request"));
    }
    shown(done, total);
  };
}

}  // namespace lockstep
