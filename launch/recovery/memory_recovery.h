// MemoryRecovery: the state of a run's last two steps, in memory that outlives its ranks (recovery.from: memory). Each
// rank writes a share of it after every step; ranks of a machine that hold the same state divide it, so that each
// machine has all that its ranks hold. When the job starts again, its ranks load the newest state that all shares
// together have whole: from their own machine, and what that does not have from others. Owned by the run; borrows
// communicator and trainer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "launch/config/settings.h"
#include "launch/recovery/held_memory.h"
#include "launch/recovery/state_memory.h"
#include "launch/recovery/state_mirror.h"
#include "launch/training/step/trainer.h"

namespace lockstep {

class CopiesBeside;  // optim/copies_beside.h

class MemoryRecovery {
 public:
  // Collective. Throws ExitCode::kConfig where no launcher started the memory holders, kRankLost where this machine's
  // does not answer.
  MemoryRecovery(const Settings& settings, Communicator& comm, Trainer& trainer);
  MemoryRecovery(const MemoryRecovery&) = delete;
  ~MemoryRecovery();

  // The newest state up to step `at_most` that is whole, from earlier starts of the job; one after step `recorded` only
  // where no earlier one is. Nothing where there is none. It is what a checkpoint on disk would be, but for its files.
  // Collective.
  std::optional<Checkpoint> newest(int64_t at_most, int64_t recorded);
  // The trainer's state, at `info.step`, is where this run begins: memory for this rank's share of it, in place of what
  // newest() looked through. Throws ExitCode::kDevice where a machine has not so much memory. Collective.
  void begin(const CheckpointInfo& info);
  bool after(int64_t step) const { return step % every_ == 0 || mirrors_after(step); }
  // The trainer is about to change its state to that after `step`: an update on the host then writes it to memory, too.
  void before_update(int64_t step);
  // The trainer's state is now that of info.step. Waits for other ranks only where a copy of an earlier state on
  // another machine is not done yet.
  void write(const CheckpointInfo& info);
  // What this rank saves of the state after a step that was just written, from where it lies; it stays there as long as
  // `held` does. Nothing where it is not divided as a checkpoint needs it. The same on every rank.
  struct Kept {
    std::vector<StateEntry> entries;
    std::shared_ptr<const void> held;
  };
  std::optional<Kept> keep_to_save(int64_t step);

  // The most bytes that a rank's share takes, its copies on other machines included. `machine_of`: by rank.
  static int64_t bytes_of(const Settings& settings, const Trainer& trainer, const std::vector<int>& machine_of);
  // Does keep_to_save() give it, so that saving takes no memory of its own?
  static bool saves_from_memory(const Settings& settings, const Trainer& trainer, const std::vector<int>& machine_of);

 private:
  static constexpr const char* kLabel = "state in memory";  // of exchanges
  static int64_t generation_of(const std::string& name);    // of a share
  struct Share;
  struct Found;
  bool leads_machine() const;
  std::vector<Share> gather_shares(int64_t at_most);
  void compare_with_hashes(std::vector<Share>& shares, int64_t generation, int64_t step);
  static std::optional<std::vector<Found>> cover(const std::vector<Share>& shares, int64_t generation, int64_t step);
  Checkpoint opened(const std::vector<Share>& shares, int64_t step, const std::vector<Found>& found);
  using Place = std::pair<size_t, size_t>;              // a share, and one of its slices
  using Wanted = std::map<Place, std::vector<size_t>>;  // of other machines: the pieces that each is for
  std::map<Place, Tensor> fetch(const std::vector<Share>& shares, int64_t step, const Wanted& wanted);
  std::vector<StateEntry> entries() const;
  bool mirrors_after(int64_t step) const { return mirror_ && step % settings_.recovery.mirror_every == 0; }
  std::optional<StateMemory> take_earlier(const StateMemory::Content& content, int places, bool copy, int64_t step);
  std::vector<int> keepers() const;
  int64_t of_machine(int64_t bytes) const;
  bool fits(int64_t needed) const;
  void require_memory(int64_t needed) const;
  void drop_earlier(const std::vector<std::string>& names);
  void hand_over();
  void put_all();

  const Settings& settings_;
  Communicator& comm_;
  Trainer& trainer_;
  const int64_t generation_, every_;  // generation: the number of this start of the job
  std::optional<HeldMemory> holder_;
  std::vector<std::string> holder_names_;
  std::vector<int> holder_of_;                                // by rank, numbered in the order of their first ranks
  std::vector<std::pair<std::string, StateMemory>> earlier_;  // this machine's, by name
  std::set<std::pair<std::string, int64_t>> damaged_;         // names and steps whose values have changed
  std::optional<StateMemory> memory_;
  std::vector<std::pair<std::string, Descriptor>> put_;  // what the holder has of this rank
  const std::unique_ptr<CopiesBeside> copies_;
  int64_t begun_ = -1;                   // the step whose state the update writes, from this on
  std::vector<StateEntry> share_;        // this rank's share then
  std::unique_ptr<StateMirror> mirror_;  // where copies on other machines are wanted, and needed
  bool says_lost_ = false;
};

}  // namespace lockstep
