// What a run was trained on, to which other data is fitted by name (data/samples/schema.h). Plain functions.
#pragma once

#include <memory>
#include <string>

#include "core/interop/hf_model.h"
#include "core/state/checkpoint.h"
#include "data/samples/schema.h"
#include "data/text/tokenizer/bpe_tables.h"
#include "launch/app.h"

namespace lockstep {

// As the checkpoint of the run `name` says; null where it does not, as those of versions before this record.
std::shared_ptr<const LikeData> recorded_data(const CheckpointInfo& info, const std::string& name);

// The same, and of a checkpoint without this record from the data of its configuration, if that is what it was trained
// on still; warns that names are those of today. Null where nothing is known: `why` says more then.
std::shared_ptr<const LikeData> data_of_run(const App& app, const Checkpoint& checkpoint, std::string& why);

// The same; throws ExitCode::kBadData where nothing is known.
std::shared_ptr<const LikeData> known_data_of_run(const App& app, const Checkpoint& checkpoint);

// What a folder of transformers says of images and classes; null where it says nothing of them.
std::shared_ptr<const LikeData> data_of_folder(const HfModel& model);

// The special tokens that transformers puts around a text with the tokenizer that an export of a run has: that of the
// folder which the run began with, `from` (init.from, also by way of other runs), where its tokens are `vocabulary`;
// else the vocabulary's own. Where that cannot be known `why` says more.
Surround special_tokens_of_run(const std::string& from, const Vocabulary& vocabulary, std::string& why);

// The first token that means something else in a folder of transformers than in `vocabulary`, or why nobody can tell;
// empty where they are the same, and where the folder has no tokenizer of its own.
std::string tokenizer_difference(const std::string& folder, const Vocabulary& vocabulary);

}  // namespace lockstep
