#include "core/interop/llmc.h"

#include "core/base/error.h"
#include "core/io/llmc_weights.h"

namespace lockstep {
namespace {

constexpr const char* kFamily = "gpt2";  // model_type of all that files of llm.c hold

}  // namespace

HfModel read_llmc_model(const std::string& path) {
  const LlmcHeader h = read_llmc_header(path);
  HfModel out = hf_model_of_config(json_line({{"model_type", std::string(kFamily)},
                                              {"n_layer", h.layers},
                                              {"n_head", h.heads},
                                              {"n_embd", h.width},
                                              {"vocab_size", h.vocabulary},
                                              {"n_positions", h.positions}}),
                                   path);
  for (HfTensor& t : out.tensors) t.layout = HfTensor::Layout::kSame;
  out.folder = path;
  return out;
}

void write_llmc_file(const std::string& path, const HfExport& what, const NamedTensors& tensors,
                     const LlmcOptions& options) {
  require(what.model.family == kFamily, ExitCode::kBadData, options.place, ": is a ", what.model.family,
          " model; files of llm.c hold GPT-2");
  const auto number = [&](std::string_view key) { return json_int(what.config, key, options.place); };
  const LlmcHeader header{number("n_positions"), number("vocab_size"), number("n_layer"),
                          number("n_head"),      number("n_embd"),     options.bf16};
  write_llmc_weights(path, header, [&](const LlmcTensor& t, IndexRange range, float* to) {
    for (const HfTensor& own : what.model.tensors)
      if (own.from[0] == what.model.prefix + t.name) return tensors.read(own.name, range, to);
    check(false, "no tensor of ours is ", t.name);
  });
}

}  // namespace lockstep
