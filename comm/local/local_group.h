// LocalGroup: the state that the ranks of a LocalComm share. For each collective, every rank's thread posts its call,
// waits for all others, does its share of the work directly on the other ranks' memory, and waits for all again. Shared
// by the channels of its ranks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/call.h"

namespace lockstep {

class LocalGroup {
 public:
  // `machines`: by rank, Communicator::machines.
  LocalGroup(std::vector<int> machines, const CommOptions& options);

  int size() const { return static_cast<int>(machines_.size()); }
  const CommOptions& options() const { return options_; }
  const std::vector<int>& machines() const { return machines_; }

  // Posts `call`, and runs `share` once every rank has posted a matching call; `share` gets the calls of all ranks,
  // indexed by rank. Returns when every rank's share is done. Throws ExitCode::kRankLost if a rank missed the deadline,
  // left or aborted, kRanksDisagree if the calls do not match.
  using Share = std::function<void(const std::vector<const Call*>& calls)>;
  void meet(int rank, const Call& call, const Share& share);

  void send(int from, const Call& call);   // copies; does not wait
  void receive(int to, const Call& call);  // waits for the sender, for at most the deadline

  void abort(const Error& why) { poison(why); }
  std::optional<Error> failure() const;
  void leave(int rank);  // the rank makes no more calls; ranks that wait for it fail at once
  void add_child(const std::shared_ptr<LocalGroup>& child);  // poisoned together with this group

 private:
  struct alignas(64) RankState {
    std::atomic<int64_t> arrived{0};  // collectives that this rank has posted
    const Call* call = nullptr;
    std::string last;  // description of its last call; guarded by mutex_
    bool left = false;
  };
  struct Message {
    std::string label, details;
    DType dtype = DType::kUInt8;
    int64_t numel = 0;
    std::shared_ptr<void> bytes;
  };

  void arrive(int rank, const Call& call);
  bool all_arrived(int64_t number) const;
  void wait_for_arrivals(int rank, const Call& call);
  void wait_for_shares(int64_t number);
  std::string disagreement(const std::vector<const Call*>& calls) const;
  std::string missing_text(const Call& call, bool deadline_passed) const;
  std::string last_text(int rank) const;
  std::string deadline_text() const;
  void poison(const Error& why);
  [[noreturn]] void throw_poison() const;
  void wake_at_last(uint64_t count);  // of arrivals, or of shares, of all ranks so far
  void wake();

  const CommOptions options_;
  const std::vector<int> machines_;
  const int spins_;
  std::vector<RankState> rank_states_;
  // The number of arrivals of all ranks so far; the top bit means poisoned. Because both are in one word, all ranks
  // agree whether a call was complete before the poison.
  alignas(64) std::atomic<uint64_t> arrivals_{0};
  alignas(64) std::atomic<uint64_t> shares_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> why_;                                 // written once, before the poison bit
  std::map<std::pair<int, int>, std::deque<Message>> mail_;  // by (from, to)
  std::vector<std::weak_ptr<LocalGroup>> children_;
};

}  // namespace lockstep
