// GPT-2 in files of llm.c (core/io/llmc_weights.h): read as a model of transformers, and written from one. Plain
// functions.
#pragma once

#include <string>

#include "core/interop/hf_model.h"
#include "core/interop/named_tensors.h"

namespace lockstep {

// What the header of the file says, and where its tensors are ours. Throws what read_llmc_header() throws.
HfModel read_llmc_model(const std::string& path);

struct LlmcOptions {
  bool bf16 = false;       // in place of fp32
  std::string place = {};  // where `tensors` are stored, for messages
};

// Writes the file; it appears when it is complete. Throws ExitCode::kBadData where the model is no GPT-2, and the
// errors of PendingFile.
void write_llmc_file(const std::string& path, const HfExport& what, const NamedTensors& tensors,
                     const LlmcOptions& options);

}  // namespace lockstep
