// Checkpoints of a run whose directory is on each machine's own disk (run.per_machine): every machine has the manifest
// and the file that its ranks wrote. Here they are found by what all folders together have, and files are brought to
// where they lack. Plain functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/base/hash.h"
#include "core/state/checkpoint.h"

namespace lockstep {

// By rank, the first rank of its machine. Collective.
std::vector<int> machine_leaders(Communicator& comm);

// What one run directory has of a checkpoint.
struct FoundParts {
  int64_t step = 0;
  Hash128 manifest;         // hash of that file
  std::vector<bool> there;  // by part
};
// Newest first; passes over what has no readable manifest, with a warning.
std::vector<FoundParts> find_parts(const std::string& run_dir);

// A checkpoint that several directories together have whole.
struct SpreadCheckpoint {
  int64_t step = 0;
  Hash128 manifest;
  std::vector<size_t> holder;  // by part: the first directory that has it
};
// Newest first, up to step `at_most`. `found`: by directory.
std::vector<SpreadCheckpoint> whole_together(const std::vector<std::vector<FoundParts>>& found, int64_t at_most);
bool has_manifest(const std::vector<FoundParts>& found, const SpreadCheckpoint& c);
bool has_part(const std::vector<FoundParts>& found, const SpreadCheckpoint& c, size_t part);

// The newest checkpoint up to that step that is whole, whose files then lie on every machine. Throws as newest_whole
// does (open_whole.h), kStorage where a machine cannot write what it lacks. Collective.
std::optional<Checkpoint> newest_of_machines(Communicator& comm, const std::string& run_dir, int64_t at_most);
// `run_dir` gets what it lacks of the checkpoints that it and the others together have whole, and the records of the
// run (configuration, metrics, log) from the directory that has the most of them. Parts are compared with their hashes:
// one that is damaged counts as absent and is replaced, and so does a link, whose target may be anything. What its run
// retires meanwhile is passed over. Throws kBadData where there is none, naming what the newest lacks.
void collect_checkpoints(const std::string& run_dir, const std::vector<std::string>& others);
// Rank 0's machine gets what it lacks of all checkpoints that are whole. Collective.
void collect_checkpoints(Communicator& comm, const std::string& run_dir);

}  // namespace lockstep
