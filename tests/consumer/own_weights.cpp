// Reads a model that Hugging Face's transformers saved, and writes it again.
//   own_weights FROM TO
#include <cstdio>

#include "lockstep/core/interop/export_weights.h"
#include "lockstep/core/interop/hf_model.h"
#include "lockstep/core/interop/load_weights.h"

using namespace lockstep;

namespace {

void copy_model(const std::string& folder, const std::string& output) {
  const HfModel from = read_hf_model(folder);
  const auto kind = kind_of(from);  // "gpt" with the options that config.json asks for
  const auto model = kind->build(from.task);
  place_parameters(*model, /*seed=*/1);
  const auto entries = entries_of(*model);
  load_weights(from, entries);
  write_hf_folder(output, hf_export_of(from.model, kind->options(), from.task), tensors_of(entries),
                  {.source = folder});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::printf("usage: own_weights FROM TO\n"), static_cast<int>(ExitCode::kUsage);
  try {
    copy_model(argv[1], argv[2]);
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return static_cast<int>(e.code());
  }
  return 0;
}
