// The memory holder: a process on each machine of a job with recovery.from: memory. It keeps the files in memory that
// ranks hand to it (launch/recovery/held_memory.h) while ranks, agents and mpirun end and start again. It is two
// processes that hold the same files: where one is killed, the other goes on and starts a new second one. It ends with
// the launcher: at once where the launcher's connection closes, and within a bounded time where the launcher's machine
// is gone. The files have no name, so the system then frees their memory. Run as `lockstep agent --hold`, by agents,
// or, with --stay, by srun.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/plain_file.h"
#include "launch/recovery/held_memory.h"

namespace lockstep {

// On the launcher's side: what the holders of a job watch. The launcher's end closes it, whatever ends it.
struct MemoryHolders {
  // `other`: the address of another machine of the job, from where this one must be reached; empty: there is none.
  // `silence`: seconds for which a machine may not answer before it counts as lost. `nodes`: of a job of Slurm, where
  // they are started here, as a step of their own, which outlives a failed attempt; else agents start them.
  MemoryHolders(const std::string& other, double silence, const std::vector<std::string>& nodes = {});
  const std::string& environment() const { return environment_; }  // the value of kMemoryHolder
  void look();  // takes the connections of holders that have started; now and then

 private:
  Descriptor listener_;
  std::vector<Descriptor> connected_;
  std::string environment_;
};

// For agents: a connection to this machine's holder, which is started where there is none. Nothing where the job has
// none. Throws ExitCode::kRankLost where it does not start.
std::optional<HeldMemory> memory_holder_of_machine();

// Starts the holder and returns its exit code, once it is ready or another agent has started one before. The holder
// itself, a child process, does not return.
// `stays`: returns only once the launcher has ended.
int run_memory_holder(bool stays);

}  // namespace lockstep
