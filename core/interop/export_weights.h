// Writes folders that Hugging Face's transformers and peft open. Plain values and functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/interop/hf_model.h"
#include "core/interop/named_tensors.h"
#include "core/nn/lora.h"

namespace lockstep {

struct HfFolderOptions {
  // A folder of transformers that the model came from, or anything else: of such a folder of the same architecture the
  // tokenizer's files, the generation's and the numbers of special tokens go along, in place of those of the HfExport.
  std::string source = {};
  bool bf16 = false;                     // weights are rounded to that; else fp32
  int64_t bytes_a_file = 5'000'000'000;  // of weights; where they are more, several files beside an index
};

// The folder is written under a temporary name and renamed. `tensors`: all of our model. `what`: of hf_export_of().
// Holds one tensor in memory. Throws ExitCode::kOutputLocked where the folder is there already, kStorage where the disk
// is full.
void write_hf_folder(const std::string& folder, const HfExport& what, const NamedTensors& tensors,
                     const HfFolderOptions& options = {});

struct PeftExport {
  HfModel base;                  // the model that is adapted, of hf_export_of()
  LoraOptions lora;              // of the adapters; which layers and parameters, `trained` says
  std::string base_folder = {};  // where peft finds that model: base_model_name_or_path
};

// Writes a folder that peft opens. `trained`: the adapters' tensors and the parameters that were trained beside them;
// buffers among them are left out. The same errors, and those of peft_tensors().
void write_peft_folder(const std::string& folder, const PeftExport& what, const NamedTensors& trained);

}  // namespace lockstep
