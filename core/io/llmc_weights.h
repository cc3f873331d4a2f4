// Weights of GPT-2 as llm.c and its train_gpt2.py write them: 256 int32 (magic 20240326, version, sizes), then each
// kind of tensor for all layers, linear layers as [out, in], in fp32 (version 3) or bf16 (version 5). The rows of the
// embedding are padded with zeros to a multiple of 128. Plain values and functions; the reader of elements is
// WeightFiles (core/io/safetensors.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/io/safetensors.h"

namespace lockstep {

struct LlmcHeader {
  int64_t positions = 0, vocabulary = 0, layers = 0, heads = 0, width = 0;
  bool bf16 = false;

  int64_t padded_vocabulary() const { return (vocabulary + 127) / 128 * 128; }
};

// A tensor of the file: its name in transformers' GPT-2 ("h.0.ln_1.weight"), and its shape without padded rows.
struct LlmcTensor {
  std::string name;
  Shape shape;
};
std::vector<LlmcTensor> llmc_tensors(const LlmcHeader& header);  // in the file's order

bool has_llmc_magic(const std::string& path);  // a regular file that begins with it

// Throws ExitCode::kMissingInput, or kBadData where the file is none, is of another version, or has not the size that
// follows from its header.
LlmcHeader read_llmc_header(const std::string& path);
std::vector<StoredWeight> llmc_weights(const std::string& path);

// Writes the file; it appears when it is complete. `read` gives elements [range) of a tensor. Throws the errors of
// PendingFile.
void write_llmc_weights(const std::string& path, const LlmcHeader& header,
                        const std::function<void(const LlmcTensor& tensor, IndexRange range, float* out)>& read);

}  // namespace lockstep
