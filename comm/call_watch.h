// CallWatch: which call of a rank is under way, since when it has not got on, and whether the communicator is poisoned.
// It keeps the deadline for operations that cannot keep it themselves. Owned by a channel; its stream thread writes,
// whoever waits looks.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/call.h"
#include "comm/progress_board.h"

namespace lockstep {

class CallWatch {
 public:
  // What poisons the parent poisons this one too.
  CallWatch(int rank, int size, Seconds deadline, std::shared_ptr<const CallWatch> parent);
  // `places`: of each rank on the board; -1 for ranks of other hosts. The board may be null.
  void set_board(std::unique_ptr<ProgressBoard> board, std::vector<int> places);

  void begin(const Call& call) {  // throws where poisoned
    post(call);
    follow(call);
  }
  // Where calls are set in motion and end later: `post` tells the board that this rank came to the call, `follow` says
  // which of the posted ones is now the oldest under way.
  void post(const Call& call);
  void follow(const Call& call);
  // Posts what `call`, a collective, is and compares it with what the other ranks of this host posted for that number:
  // whoever comes last sees a difference. Throws ExitCode::kRanksDisagree.
  void compare(const Call& call) const;
  void advance() { since_ = Clock::now().time_since_epoch().count(); }
  void end() { since_ = 0; }
  bool idle() const { return since_ == 0; }
  void leave();  // makes no more calls

  // Throws where the communicator is poisoned, or the call under way has not got on for the deadline.
  void look() const;
  void poison(
      const Error& error) const;  // the first error counts; ranks of this host see it within a tenth of a second
  bool poisoned() const;
  std::optional<Error> failure() const;  // after another look

 private:
  using Clock = std::chrono::steady_clock;
  int place_of(int rank) const { return places_[static_cast<size_t>(rank)]; }
  bool known(int rank) const { return board_ && place_of(rank) >= 0; }
  std::string last_of(int rank) const;
  Error missing() const;

  const int rank_, size_;
  const Seconds deadline_;
  const std::shared_ptr<const CallWatch> parent_;
  std::unique_ptr<ProgressBoard> board_;
  std::vector<int> places_;
  std::atomic<Clock::rep> since_{0};  // when the call under way began, or last got on; 0: none
  mutable std::mutex mutex_;
  std::pair<CallKind, int> current_kind_{CallKind::kBarrier, -1};  // and peer; this and the next ones are guarded
  int64_t current_number_ = 0;
  std::string current_;
  mutable std::optional<Error> error_;
};

}  // namespace lockstep
