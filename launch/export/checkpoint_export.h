// `lockstep checkpoint export` and `convert`: parameters and buffers of a checkpoint, or of another program's model, as
// files of another format.
#pragma once

#include <string>
#include <vector>

#include "core/state/checkpoint.h"
#include "launch/app.h"

namespace lockstep {

struct ExportRequest {
  std::string output;
  // "h5", "safetensors", "npz", "hf", "hf-bf16", "llmc", "llmc-bf16" or "peft"; empty: by the end of the output's name.
  std::string format;
  bool averages = false;                    // of the parameters, in their place
  bool json = false;                        // what it prints
  std::vector<std::string> overrides = {};  // of the checkpoint's configuration: "key.path=value"
};

// Throws ExitCode::kUsage for an unknown format, and for none where the output's name ends in no known way,
// kOutputLocked where the output is there already, kBadData where the model has no counterpart in the format.
void export_checkpoint(const App& app, const Checkpoint& checkpoint, const ExportRequest& request);

// The same of what is_pretrained(). Throws also what reading it throws.
void convert_weights(const App& app, const std::string& path, const ExportRequest& request);

}  // namespace lockstep
