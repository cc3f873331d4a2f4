// The memory holder: a process on each machine of a job with recovery.from: memory, which keeps the files in memory
// that ranks hand to it (launch/world/held_memory.h) while ranks, agents and mpirun end and start again. It belongs to
// the launcher alone: it ends when that does, at once where the launcher's connection closes, and within a bounded time
// where its machine is gone; the memory is then the system's again, as no name of it exists. It is
// two processes that have the same: where one is killed the other goes on, and starts another. Run as `lockstep agent
// --hold`, by agents.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/plain_file.h"
#include "launch/world/held_memory.h"

namespace lockstep {

// On the launcher's side: what the holders of a job watch. The launcher's end closes it, whatever ends it.
struct MemoryHolders {
  // `other`: the address of another machine of the job, from where this one must be reached; empty: there is none.
  // `silence`: seconds for which a machine may not answer before it counts as lost.
  MemoryHolders(const std::string& other, double silence);
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

// The process itself: returns once it is ready, in the parent of the process that goes on.
int run_memory_holder();

}  // namespace lockstep
