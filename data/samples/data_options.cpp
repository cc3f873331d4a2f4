#include "data/samples/data_options.h"

namespace lockstep {
namespace {

Field context_field(DataOptions& o) {
  return field("context", o.context, "length of a sample of text; required for tokens, not allowed for images")
      .with_unit("tokens")
      .with_range(0, 1 << 24);
}
Field ignore_field(DataOptions& o) {
  return field("ignore_tokens", o.ignore_tokens, "token ids that are not trained on: no loss where they are the target")
      .at_least(0);
}

Field mask_field(DataOptions& o) {
  return field(
             "mask", o.mask,
             "probability with which a token is hidden and trained on, as masked language models are; 0: each token's "
             "target is the one that follows")
      .with_range(0, 0.9)
      .without_effect_at_default();
}

Field packing_field(DataOptions& o) {
  return enum_field(
             "packing", o.packing,
             {{"windows", Packing::kWindows},
              {"pack", Packing::kPack},
              {"pad", Packing::kPad},
              {"pairs", Packing::kPairs}},
             "how samples are made of text: windows of all of it; pack: each filled with whole records, none of "
             "which sees another; pad: one record each; pairs: the chosen and the rejected answer of a pair, for "
             "tuning by preferences")
      .without_effect_at_default();
}

Field buckets_field(DataOptions& o) {
  return field("buckets", o.buckets,
               "number of lengths, evenly spaced up to data.context, to which samples of one record each are padded: a "
               "micro-batch has records of like length, and is padded to its longest; 1: all to data.context")
      .with_range(1, 1024)
      .without_effect_at_default();
}

Field bucket_pool_field(DataOptions& o) {
  return field("bucket_pool", o.bucket_pool,
               "with data.buckets, how many steps have their records sorted by length together; 1: each step has the "
               "records that it has without buckets; more: the records of a step are of like length, too, so that "
               "ranks do not wait for one with longer ones")
      .with_unit("steps")
      .with_range(1, 1 << 16)
      .without_effect_at_default();
}

Field side_field(const std::string& side, int64_t& value) {
  return field("image." + side, value,
               str(side, " to which images are cropped and resized; 0: as stored; needed for images of mixed sizes"))
      .with_unit("pixels")
      .with_range(0, 1 << 14)
      .without_effect_at_default();
}

Field statistics_field(const std::string& key, std::vector<double>& values) {
  return field("image." + key, values,
               str(key,
                   " by which images are normalised, of values from 0 to 1: one number for each channel, or one "
                   "for all; such as those that a pretrained model was trained with; []: of the imported images"))
      .without_effect_at_default();
}

}  // namespace

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

std::vector<Field> text_fields(DataOptions& o) { return {context_field(o), ignore_field(o), mask_field(o)}; }

std::vector<Field> file_fields(DataOptions& o) {
  std::vector<Field> out = {
      // The path does not affect results; the identity hash of the content does.
      field("path", o.path, "the dataset's HDF5 file, or a pattern such as shards/*.h5 of several")
          .without_effect_on_math(),
      list_field("sources", o.sources, "several dataset files in the place of data.path").without_effect_at_default(),
      field("validation_path", o.validation_path,
            "a dataset file that is the validation part; data.validation must then be 0")
          .without_effect_on_math(),
      field(
          "folders", o.folders,
          "where a machine does not find a file of data.path, data.sources or data.validation_path, it looks for it in "
          "these, by the same path below them or by its name; what it finds must be the same data as on the others")
          .without_effect_on_math(),
      context_field(o),
      ignore_field(o),
      mask_field(o),
      packing_field(o),
      buckets_field(o),
      bucket_pool_field(o),
      field("hdf5.samples", o.hdf5.samples,
            "an HDF5 file of another program is read in place: its dataset of images, uint8 [n, height, width], [n, "
            "height, width, channels] or [n, channels, height, width], or of features, numbers [n, features]")
          .without_effect_on_math(),
      enum_field(
          "hdf5.layout", o.hdf5.layout,
          {{"by_shape", ImageLayout::kByShape},
           {"nhwc", ImageLayout::kChannelsLast},
           {"nchw", ImageLayout::kChannelsFirst}},
          "order of the axes of data.hdf5.samples with 4 dimensions: nhwc (channels last), nchw (channels first) or "
          "by_shape (as the shape tells)")
          .without_effect_on_math(),
      field("hdf5.labels", o.hdf5.labels, "its dataset of labels, integers [n] from 0").without_effect_on_math(),
      field("memory", o.memory, "limit of data held in memory; a larger file is read in chunks")
          .with_unit("MiB")
          .with_range(1, 1 << 30)
          .without_effect_on_math(),
      side_field("height", o.image.height),
      side_field("width", o.image.width),
      statistics_field("mean", o.image.mean),
      statistics_field("std", o.image.std)};
  for (Field& f : fields(o.augment)) out.push_back(std::move(f));
  return out;
}

}  // namespace lockstep
