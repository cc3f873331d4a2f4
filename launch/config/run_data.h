// What a run was trained on, to which other data is fitted by name (data/schema.h). Plain functions.
#pragma once

#include <memory>
#include <string>

#include "core/io/checkpoint.h"
#include "data/schema.h"
#include "launch/app.h"

namespace lockstep {

// As the checkpoint of the run `name` says; null where it does not, as those of versions before this record.
std::shared_ptr<const LikeData> recorded_data(const CheckpointInfo& info, const std::string& name);

// The same, and of a checkpoint without this record from the data of its configuration, if that is what it was trained
// on still; warns that names are those of today. Null where nothing is known: `why` says more then.
std::shared_ptr<const LikeData> data_of_run(const App& app, const Checkpoint& checkpoint, std::string& why);

}  // namespace lockstep
