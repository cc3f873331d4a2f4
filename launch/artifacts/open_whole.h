// A checkpoint that all ranks have verified together: each reads a share of it, and all agree on what is whole.
// Plain functions.
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"
#include "core/io/checkpoint.h"

namespace lockstep {

// The newest checkpoint of run directory `dir` that is whole, or `dir` itself where it is a checkpoint; nothing where
// there is none at all. Rank 0 warns of each that is passed over. Throws, on all ranks and with one message, ExitCode::
// kBadData where none is whole, kMissingInput where there is no such directory, or where rank 0 sees a checkpoint and
// another rank does not. Collective.
std::optional<Checkpoint> newest_whole(Communicator& comm, const std::string& dir);

// The same; throws ExitCode::kMissingInput where there is none. Collective.
Checkpoint open_whole(Communicator& comm, const std::string& dir);

}  // namespace lockstep
