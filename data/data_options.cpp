#include "data/data_options.h"

namespace lockstep {

std::vector<Field> fields(DataOptions& o) {
  return {
      enum_field("name", o.name,
                 {{"hdf5", DataName::kHdf5},
                  {"synthetic_tokens", DataName::kSyntheticTokens},
                  {"synthetic_images", DataName::kSyntheticImages}},
                 "where samples come from: a file made by `lockstep data import`, or made up for benchmarks"),
      // Where the file lies is no part of the mathematics; its identity hash is.
      field("path", o.path, "the dataset's HDF5 file").without_effect_on_math(),
      field("context", o.context, "length of a sample of text; must be given for tokens, and not for images")
          .with_unit("tokens")
          .with_range(0, 1 << 24),
      field("validation", o.validation, "share of the data kept for validation: the last part of the text or images")
          .with_range(0, 0.9),
      field("shuffle", o.shuffle, "visit training samples in a new random order each epoch"),
      field("ignore_tokens", o.ignore_tokens, "token ids that are not trained on: no loss where they are the target")
          .at_least(0),
      field("threads", o.threads, "threads that load batches ahead; 0 loads in the training thread")
          .with_range(0, 256)
          .without_effect_on_math(),
      field("prefetch", o.prefetch, "batches loaded ahead at most")
          .with_unit("steps")
          .with_range(1, 1024)
          .without_effect_on_math(),
      field("memory", o.memory, "data held in memory at most; a larger file is read piece by piece")
          .with_unit("MiB")
          .with_range(1, 1 << 30)
          .without_effect_on_math(),
      field("synthetic.tokens", o.synthetic.tokens, "length of the made-up text").with_unit("tokens").at_least(2),
      field("synthetic.vocabulary", o.synthetic.vocabulary, "its number of different tokens").with_range(2, 1 << 30),
      field("synthetic.images", o.synthetic.images, "number of made-up images").with_unit("images").at_least(1),
      field("synthetic.height", o.synthetic.height, "their height").with_unit("pixels").with_range(1, 1 << 14),
      field("synthetic.width", o.synthetic.width, "their width").with_unit("pixels").with_range(1, 1 << 14),
      field("synthetic.channels", o.synthetic.channels, "their channels").with_range(1, 1 << 10),
      field("synthetic.classes", o.synthetic.classes, "number of different labels").with_range(1, 1 << 30),
  };
}

bool has_effect(const DataOptions& o, const std::string& key) {
  if (key == "path" || key == "memory") return o.name == DataName::kHdf5;
  if (key == "context" || key == "ignore_tokens") return o.name != DataName::kSyntheticImages;
  if (key == "synthetic.tokens" || key == "synthetic.vocabulary") return o.name == DataName::kSyntheticTokens;
  if (key.rfind("synthetic.", 0) == 0) return o.name == DataName::kSyntheticImages;
  return true;
}

}  // namespace lockstep
