#include "launch/world/together.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>

#include "launch/world/fail_together.h"

namespace lockstep {

// In few collectives, since each waits for the busiest rank.
std::vector<std::string> together(Communicator& comm, const std::function<std::string()>& mine,
                                  const std::function<void()>& give_up, std::string_view label) {
  constexpr std::chrono::milliseconds kPollInterval{200};
  enum : int64_t { kWorking, kFailed, kDone, kDoneWithText };
  std::string text;
  std::exception_ptr failed;
  const auto done = std::async(std::launch::async, [&] {
    try {
      text = mine();
    } catch (...) {
      failed = std::current_exception();
    }
  });
  std::vector<int64_t> states;
  try {
    do {
      const bool ready = done.wait_for(kPollInterval) == std::future_status::ready;
      const int64_t state = !ready ? kWorking : failed ? kFailed : text.empty() ? kDone : kDoneWithText;
      states = all_gather_values(comm, state, label);
    } while (std::find(states.begin(), states.end(), kWorking) != states.end());
  } catch (...) {
    give_up();  // so that the future's destructor does not wait long
    throw;
  }
  const auto any = [&](int64_t state) { return std::find(states.begin(), states.end(), state) != states.end(); };
  const auto rethrow = [&] {
    if (failed) std::rethrow_exception(failed);
  };
  if (any(kFailed)) fail_together(comm, rethrow, std::string(label));
  return any(kDoneWithText) ? all_gather_text(comm, text, label) : std::vector<std::string>(states.size());
}

}  // namespace lockstep
