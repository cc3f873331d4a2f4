// `lockstep checkpoint export`: parameters and buffers of a checkpoint, unsharded, for other programs.
#pragma once

#include <string>

#include "core/io/checkpoint.h"
#include "launch/app.h"

namespace lockstep {

struct ExportRequest {
  std::string output;
  std::string format;     // "h5", "safetensors" or "hf"; empty: by the name of the output
  bool averages = false;  // of the parameters, in their place
  bool json = false;      // what it prints
};

// Throws ExitCode::kUsage for an unknown format, kOutputLocked where the output is there already, kBadData where the
// model has no counterpart in the format.
void export_checkpoint(const App& app, const Checkpoint& checkpoint, const ExportRequest& request);

}  // namespace lockstep
