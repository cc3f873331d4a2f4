// CallWatch: records which call of a rank is in progress, when it last made progress, and whether the communicator is
// poisoned (failed for good). It enforces the deadline for operations that cannot enforce it themselves. Owned by a
// channel; the channel's stream thread updates it, and any waiting thread may query it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
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
  // An error that poisons `parent` (may be null) poisons this one too.
  CallWatch(int rank, int size, Seconds deadline, std::shared_ptr<const CallWatch> parent);
  // `places`: the index of each rank on the board; -1 for ranks on other hosts. The board may be null.
  void set_board(std::unique_ptr<ProgressBoard> board, std::vector<int> places);

  bool has_board() const { return board_ != nullptr; }

  void begin(const Call& call);  // throws if poisoned
  // For calls that are launched asynchronously: `post` tells the board that this rank has reached the call, `follow`
  // sets which of the posted calls is now the oldest in progress.
  void post(const Call& call);
  void follow(const Call& call);
  // Posts the description of `call`, a collective, and compares it with those that the other ranks of this host have
  // posted under the same number; the last rank to arrive detects a difference. Throws ExitCode::kRanksDisagree.
  void compare(const Call& call) const;
  // Called again and again during a meeting: moves on what this rank has sent and is not done. Returns false where
  // there is nothing of the kind.
  using Progress = std::function<bool()>;
  // Among the ranks of this host, where there is a board: posts `call`, a collective, and what it lets others read
  // (null: nothing), waits until all ranks have, and compares. Returns their places, by rank. Throws
  // ExitCode::kRanksDisagree, or as look() does.
  std::vector<const void*> meet(const Call& call, const void* place, const Progress& progress);
  void meet(const Progress& progress);  // waits again
  void advance() { since_ = Clock::now().time_since_epoch().count(); }
  void end();
  bool idle() const { return since_ == 0; }
  void leave();  // announces that this rank makes no more calls

  // Throws if the communicator is poisoned, or if the call in progress has made no progress for the length of the
  // deadline.
  void look() const;
  void poison(const Error& error) const;  // the first error is kept; ranks of this host see it within 0.1 s
  bool poisoned() const;
  std::optional<Error> failure() const;  // checks the parent and the board first

 private:
  using Clock = std::chrono::steady_clock;
  int place_of(int rank) const { return places_[static_cast<size_t>(rank)]; }
  bool known(int rank) const { return board_ && place_of(rank) >= 0; }
  void post_mark(const Call& call, const void* place) const;
  std::vector<const void*> compare_marks(const Call& call) const;  // returns places
  std::string last_of(int rank) const;
  Error missing() const;

  const int rank_, size_;
  const Seconds deadline_;
  const std::shared_ptr<const CallWatch> parent_;
  std::unique_ptr<ProgressBoard> board_;
  std::vector<int> places_;
  int here_ = 0;                      // ranks of this host
  std::atomic<Clock::rep> since_{0};  // when the call in progress began or last made progress; 0: none
  mutable std::mutex mutex_;
  std::pair<CallKind, int> current_kind_{CallKind::kBarrier,
                                         -1};  // and peer; mutex_ guards this and the following members
  int64_t current_number_ = 0;
  std::string current_;
  mutable std::optional<Error> error_;
};

}  // namespace lockstep
