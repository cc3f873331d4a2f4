// Opens a checkpoint that all ranks verify together: each reads a share of it, and all ranks agree which checkpoint is
// valid.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "core/state/checkpoint.h"

namespace lockstep {

// The newest valid ("whole") checkpoint of run directory `dir`, or `dir` itself if it is a checkpoint; nullopt if there
// is no checkpoint at all. In a run directory those of steps after `at_most` do not count. Rank 0 warns of each damaged
// checkpoint that is skipped. Throws on all ranks, with one message: ExitCode::kBadData if no checkpoint is valid,
// kMissingInput if there is no such directory, or if rank 0 sees a checkpoint that another rank does not see.
// One that its run retires while it is opened is no damage: the newest that is there then is taken, and named.
// Collective.
std::optional<Checkpoint> newest_whole(Communicator& comm, const std::string& dir,
                                       int64_t at_most = std::numeric_limits<int64_t>::max());

// The same, held (hold_checkpoint), since `dir` may be another run's; throws ExitCode::kMissingInput if there is no
// checkpoint. Collective.
Checkpoint open_whole(Communicator& comm, const std::string& dir);

}  // namespace lockstep
