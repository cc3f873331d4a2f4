#include "data/data_options.h"

namespace lockstep {

std::vector<Field> fields(DataSourceFile& o) {
  return {field("path", o.path, "a dataset file, or a pattern such as shards/*.h5 of several").without_effect_on_math(),
          field("weight", o.weight,
                "its share of the training samples, of the sum of all weights; 0, for all sources: each sample once an "
                "epoch")
              .at_least(0)};
}

std::vector<Field> fields(DataOptions& o) {
  return {
      field("validation", o.validation, "share of the data kept for validation: the last part of the text or images")
          .with_range(0, 0.9),
      field("fold.of", o.fold.of,
            "cross-validation: the data is cut into so many consecutive folds, of which one is the validation part and "
            "the others are for training; data.validation must then be 0")
          .with_range(0, 1000)
          .without_effect_at_default(),
      field("fold.index", o.fold.index, "which fold is the validation part, from 0")
          .with_range(0, 999)
          .without_effect_at_default(),
      field("shuffle", o.shuffle, "visit training samples in a new random order each epoch"),
      field("threads", o.threads, "threads that load batches ahead; 0 loads in the training thread")
          .with_range(0, 256)
          .without_effect_on_math(),
      field("prefetch", o.prefetch, "limit of batches loaded ahead")
          .with_unit("steps")
          .with_range(1, 1024)
          .without_effect_on_math(),
  };
}

}  // namespace lockstep
