#include "data/open_dataset.h"

#include <glob.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/partition.h"
#include "data/image_dataset.h"
#include "data/labelled_text.h"
#include "data/mixture.h"
#include "data/packed_dataset.h"
#include "data/synthetic.h"
#include "data/table_dataset.h"
#include "data/token_dataset.h"
#include "data/vocabulary.h"

namespace lockstep {
namespace {

// The first validation row; the validation part is at the end of the data.
int64_t validation_begin(int64_t rows, double fraction) {
  return static_cast<int64_t>(static_cast<double>(rows) * (1.0 - fraction));
}

// The range of a part's rows, if the validation part begins at row `middle`.
Range rows_of(DataPart part, int64_t middle, int64_t rows) {
  return {part == DataPart::kValidation ? middle : 0, part == DataPart::kTrain ? middle : rows};
}

// `part` makes the dataset of a range of rows. An empty range gives no dataset.
template <class Part>
Datasets measured(const DataOptions& o, int64_t middle, int64_t rows, Part part) {
  const Range range = rows_of(*o.measured, middle, rows);
  Datasets out;
  out.measured = *o.measured;
  if (!range.empty()) out.train = out.validation = part(range);
  return out;
}

// Records as samples: the validation part is the last of the records.
Datasets records(const std::shared_ptr<const TokenSource>& source, const DataOptions& o, uint64_t seed) {
  const int64_t count = source->records(), middle = validation_begin(count, o.validation);
  require(
      count > 0, ExitCode::kConfig,
      "data.packing is set, but the data has no records: import it as records (lockstep data import json), or leave "
      "data.packing out");
  require(o.mask == 0, ExitCode::kConfig, "data.mask is set: it takes data.packing: windows");
  const PackingOptions in_order{o.context, o.ignore_tokens, o.packing == Packing::kPad};
  if (o.measured)
    return measured(o, middle, count, [&](Range r) { return std::make_shared<PackedDataset>(source, r, in_order); });
  require(middle > 0, ExitCode::kConfig, "data.validation is ", o.validation, ", which leaves none of ", count,
          " records for training");
  PackingOptions training = in_order;
  training.exchange = o.shuffle;
  training.seed = seed;
  Datasets out;
  out.train = std::make_shared<PackedDataset>(source, Range{0, middle}, training);
  if (o.validation > 0) out.validation = std::make_shared<PackedDataset>(source, Range{middle, count}, in_order);
  return out;
}

Datasets text(std::shared_ptr<const TokenSource> source, const DataOptions& o, uint64_t seed) {
  require(o.context > 0, ExitCode::kConfig,
          "data.context is not set, but the data is text: give the length of a sample");
  for (int64_t id : o.ignore_tokens)
    require(id >= 0 && id < source->vocabulary_size(), ExitCode::kConfig, "data.ignore_tokens has ", id,
            ", but the vocabulary has ", source->vocabulary_size(), " tokens");
  if (o.packing != Packing::kWindows) return records(source, o, seed);
  int64_t tokens = source->size(), middle = validation_begin(tokens, o.validation);
  const WindowOptions in_order{o.context, o.ignore_tokens, false, 0, o.mask};
  if (o.measured)
    return measured(o, middle, tokens, [&](Range r) { return std::make_shared<TokenDataset>(source, r, in_order); });
  Datasets out;
  out.train = std::make_shared<TokenDataset>(source, Range{0, middle},
                                             WindowOptions{o.context, o.ignore_tokens, true, seed, o.mask});
  if (o.validation > 0) out.validation = std::make_shared<TokenDataset>(source, Range{middle, tokens}, in_order);
  return out;
}

// `part` makes the dataset of a range of images, for training or not.
template <class Part>
Datasets images(int64_t count, const DataOptions& o, Part part) {
  require(o.context == 0, ExitCode::kConfig, "data.context is ", o.context, ", but the data is no text: leave it out");
  require(o.ignore_tokens.empty(), ExitCode::kConfig,
          "data.ignore_tokens is set, but the data is no text: leave it out");
  require(o.mask == 0, ExitCode::kConfig, "data.mask is set, but the data is no text: leave it out");
  require(o.packing == Packing::kWindows, ExitCode::kConfig,
          "data.packing is set, but the data is no text: leave it out");
  int64_t middle = validation_begin(count, o.validation);
  if (o.measured) return measured(o, middle, count, [&](Range r) { return part(r, false); });
  require(middle > 0, ExitCode::kConfig, "data.validation is ", o.validation, ", which leaves none of ", count,
          " samples for training");
  Datasets out;
  out.train = part(Range{0, middle}, true);
  if (o.validation > 0) out.validation = part(Range{middle, count}, false);
  return out;
}

// Records with a label each: the validation part is the last of the records.
Datasets labelled_text(const std::shared_ptr<const DatasetFile>& file, const DataOptions& o) {
  const int64_t count = file->header.records.count, middle = validation_begin(count, o.validation);
  require(o.context > 0, ExitCode::kConfig,
          "data.context is not set, but the data is text: give the length of a sample");
  require(o.packing != Packing::kPack, ExitCode::kConfig, "data.packing: pack joins records, but ", file->path,
          " has a label for each: leave it out");
  require(o.ignore_tokens.empty(), ExitCode::kConfig,
          "data.ignore_tokens is set, but the targets are labels, not tokens: leave it out");
  const auto part = [&](Range r) { return std::make_shared<LabelledText>(file, r, o.context); };
  if (o.measured) return measured(o, middle, count, part);
  require(middle > 0, ExitCode::kConfig, "data.validation is ", o.validation, ", which leaves none of ", count,
          " records for training");
  Datasets out;
  out.train = part({0, middle});
  if (o.validation > 0) out.validation = part({middle, count});
  return out;
}

Datasets file_part(const std::string& path, const DataOptions& o, uint64_t seed) {
  auto file = open_dataset_file(path, o.memory << 20);
  if (file->header.records.labelled && o.mask == 0) return labelled_text(file, o);
  if (file->header.kind == DataKind::kTokens) return text(std::make_shared<FileTokens>(file), o, seed);
  if (file->header.kind == DataKind::kTable)
    return images(file->header.images[0], o,
                  [&](Range part, bool) { return std::make_shared<TableDataset>(file, part); });
  return images(file->header.images[0], o, [&](Range part, bool train) {
    return std::make_shared<ImageDataset>(file, part, o.image, train ? Augmentation(o.augment, seed) : Augmentation());
  });
}

// Does the validation file hold what the training file does?
void require_alike(const std::string& path, const Dataset& there, const Dataset& here) {
  const DataSpec &a = there.spec(), &b = here.spec();
  const Vocabulary *theirs = there.vocabulary(), *ours = here.vocabulary();
  std::string why;
  if (a.input().name != b.input().name || a.input().shape != b.input().shape)
    why = cat("samples are ", a.input().name, " ", a.input().shape, " there and ", b.input().name, " ", b.input().shape,
              " in the others");
  else if (a.vocabulary != b.vocabulary)
    why = cat("tokens are below ", a.vocabulary, " there and below ", b.vocabulary, " in the others");
  else if (a.classes != b.classes)
    why = cat("labels are below ", a.classes, " there and below ", b.classes, " in the others");
  else if (theirs && ours) why = first_difference(*theirs, *ours);
  require(why.empty(), ExitCode::kBadData, path, ": does not fit the other data: ", why);
}

// The files that a pattern names, sorted; a path without one is itself.
std::vector<std::string> matching(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == pattern.npos || std::filesystem::exists(pattern)) return {pattern};
  glob_t found{};
  const int code = ::glob(pattern.c_str(), 0, nullptr, &found);
  const std::vector<std::string> out(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  require(code == 0 && !out.empty(), ExitCode::kMissingInput, pattern, ": no file has such a name");
  return out;
}

// Several as one. `weights` are those of the training parts; empty: each sample is once in an epoch.
Datasets joined(const std::vector<Datasets>& parts, const std::vector<std::string>& names, const DataOptions& o,
                uint64_t seed, std::vector<double> weights) {
  if (parts.size() == 1) return parts[0];
  Datasets out;
  out.measured = parts[0].measured;
  const auto all = [&](auto member, MixtureOptions options) -> std::shared_ptr<const Dataset> {
    std::vector<std::shared_ptr<const Dataset>> list;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!(parts[i].*member)) continue;
      list.push_back(parts[i].*member);
      require_alike(names[i], *list.back(), *list.front());
    }
    if (list.empty()) return nullptr;
    return std::make_shared<Mixture>(std::move(list), std::move(options));
  };
  out.validation = all(&Datasets::validation, {});
  out.train = o.measured ? out.validation : all(&Datasets::train, {std::move(weights), o.shuffle, seed});
  return out;
}

Datasets files_part(const std::string& pattern, const DataOptions& o, uint64_t seed) {
  const std::vector<std::string> paths = matching(pattern);
  DataOptions each = o;
  each.memory = std::max<int64_t>(1, o.memory / static_cast<int64_t>(paths.size()));
  std::vector<Datasets> parts;
  for (const std::string& path : paths) parts.push_back(file_part(path, each, seed));
  return joined(parts, paths, o, seed, {});
}

// data.path, or all of data.sources.
Datasets all_files(const DataOptions& o, uint64_t seed) {
  if (o.sources.empty()) {
    require(!o.path.empty(), ExitCode::kConfig, "data.path is not set: give the dataset's HDF5 file");
    return files_part(o.path, o, seed);
  }
  require(o.path.empty(), ExitCode::kConfig, "data.path and data.sources exclude each other");
  std::vector<Datasets> parts;
  std::vector<std::string> names;
  std::vector<double> weights;
  DataOptions each = o;
  each.memory = std::max<int64_t>(1, o.memory / static_cast<int64_t>(o.sources.size()));
  for (const DataSourceFile& source : o.sources) {
    require(!source.path.empty(), ExitCode::kConfig, "data.sources: source ", names.size(), " has no path");
    parts.push_back(files_part(source.path, each, seed));
    names.push_back(source.path);
    if (source.weight > 0) weights.push_back(source.weight);
  }
  require(weights.empty() || weights.size() == parts.size(), ExitCode::kConfig,
          "data.sources: give all sources a weight, or none");
  return joined(parts, names, o, seed, weights);
}

Datasets file_data(const DataOptions& o, uint64_t seed) {
  if (o.validation_path.empty()) return all_files(o, seed);
  // So that the training part, which shapes results, is told by the one key.
  require(o.validation == 0, ExitCode::kConfig,
          "data.validation_path is set: set data.validation to 0, so that all of data.path is for training");
  if (o.measured && *o.measured != DataPart::kValidation) return all_files(o, seed);
  DataOptions whole = o;
  whole.measured = DataPart::kAll;
  Datasets out = files_part(o.validation_path, whole, seed);
  out.measured = DataPart::kValidation;
  if (o.measured) return out;
  out.train = all_files(o, seed).train;
  require_alike(o.validation_path, *out.validation, *out.train);
  return out;
}

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
  return enum_field("packing", o.packing,
                    {{"windows", Packing::kWindows}, {"pack", Packing::kPack}, {"pad", Packing::kPad}},
                    "how samples are made of text: windows of all of it; pack: each filled with whole records, none of "
                    "which sees another; pad: one record each")
      .without_effect_at_default();
}

Field side_field(const std::string& side, int64_t& value) {
  return field("image." + side, value,
               cat(side, " to which images are cropped and resized; 0: as stored; needed for images of mixed sizes"))
      .with_unit("pixels")
      .with_range(0, 1 << 14)
      .without_effect_at_default();
}

class Hdf5Source final : public DataSource {
 public:
  std::vector<Field> options(DataOptions& o) override {
    std::vector<Field> out = {
        // The path does not affect results; the identity hash of the content does.
        field("path", o.path, "the dataset's HDF5 file, or a pattern such as shards/*.h5 of several")
            .without_effect_on_math(),
        list_field("sources", o.sources, "several dataset files in the place of data.path").without_effect_at_default(),
        field("validation_path", o.validation_path,
              "a dataset file that is the validation part; data.validation must then be 0")
            .without_effect_on_math(),
        context_field(o),
        ignore_field(o),
        mask_field(o),
        packing_field(o),
        field("memory", o.memory, "limit of data held in memory; a larger file is read in chunks")
            .with_unit("MiB")
            .with_range(1, 1 << 30)
            .without_effect_on_math(),
        side_field("height", o.image.height),
        side_field("width", o.image.width)};
    for (Field& f : fields(o.augment)) out.push_back(std::move(f));
    return out;
  }
  Datasets open(const DataOptions& o, uint64_t seed) const override { return file_data(o, seed); }
};

class SyntheticTokensSource final : public DataSource {
 public:
  std::vector<Field> options(DataOptions& o) override {
    return {
        context_field(o), ignore_field(o), mask_field(o),
        field("synthetic.tokens", o.synthetic.tokens, "length of the generated text").with_unit("tokens").at_least(2),
        field("synthetic.vocabulary", o.synthetic.vocabulary, "number of different tokens of the generated text")
            .with_range(2, 1 << 30)};
  }
  Datasets open(const DataOptions& o, uint64_t seed) const override {
    return text(std::make_shared<SyntheticTokens>(o.synthetic), o, seed);
  }
};

class SyntheticImagesSource final : public DataSource {
 public:
  std::vector<Field> options(DataOptions& o) override {
    return {field("synthetic.images", o.synthetic.images, "number of generated images").with_unit("images").at_least(1),
            field("synthetic.height", o.synthetic.height, "height of generated images")
                .with_unit("pixels")
                .with_range(1, 1 << 14),
            field("synthetic.width", o.synthetic.width, "width of generated images")
                .with_unit("pixels")
                .with_range(1, 1 << 14),
            field("synthetic.channels", o.synthetic.channels, "channels of generated images").with_range(1, 1 << 10),
            field("synthetic.classes", o.synthetic.classes, "number of different labels of generated images")
                .with_range(1, 1 << 30)};
  }
  Datasets open(const DataOptions& o, uint64_t) const override {
    return images(o.synthetic.images, o,
                  [&](Range part, bool) { return std::make_shared<SyntheticImages>(o.synthetic, part); });
  }
};

class SyntheticShapesSource final : public DataSource {
 public:
  std::vector<Field> options(DataOptions& o) override {
    return {field("synthetic.images", o.synthetic.images, "number of generated images").with_unit("images").at_least(1),
            field("synthetic.height", o.synthetic.height, "height of generated images")
                .with_unit("pixels")
                .with_range(1, 1 << 14),
            field("synthetic.width", o.synthetic.width, "width of generated images")
                .with_unit("pixels")
                .with_range(1, 1 << 14)};
  }
  Datasets open(const DataOptions& o, uint64_t) const override {
    return images(o.synthetic.images, o,
                  [&](Range part, bool) { return std::make_shared<SyntheticShapes>(o.synthetic, part); });
  }
};

}  // namespace

std::vector<Choice<DataSource>> builtin_data() {
  return {choice<DataSource, Hdf5Source>("hdf5"), choice<DataSource, SyntheticTokensSource>("synthetic_tokens"),
          choice<DataSource, SyntheticImagesSource>("synthetic_images"),
          choice<DataSource, SyntheticShapesSource>("synthetic_shapes")};
}

Datasets open_datasets(const DataOptions& o, uint64_t seed) {
  return make_choice(builtin_data(), o.name)->open(o, seed);
}

}  // namespace lockstep
