// Writes a folder that Hugging Face's transformers opens. Plain functions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/interop/hf_model.h"

namespace lockstep {

// Elements [range) of one of our flattened tensors.
using ReadElements = std::function<void(const std::string& name, Range range, float* out)>;

// The folder is written under a temporary name and renamed. `shapes`: of all our tensors. `source`: a folder of
// transformers that the model came from, or anything else: of such a folder of the same architecture the tokenizer's
// files, the generation's and the numbers of special tokens go along, in place of those of `what`. Weights above 5 GB
// are several files beside an index. Holds one tensor in memory. Throws ExitCode::kOutputLocked where the folder is
// there already, kStorage where the disk is full.
void write_hf_folder(const std::string& folder, const HfExport& what, const std::string& source,
                     const std::map<std::string, Shape>& shapes, const ReadElements& read,
                     int64_t bytes_a_file = 5'000'000'000);

// Writes a folder that Hugging Face's peft opens: `config` as adapter_config.json, and `tensors` of ours, which are all
// of `shapes`. The same errors.
void write_peft_folder(const std::string& folder, const JsonObject& config, const std::vector<HfTensor>& tensors,
                       const std::map<std::string, Shape>& shapes, const ReadElements& read);

}  // namespace lockstep
