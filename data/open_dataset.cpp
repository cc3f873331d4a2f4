#include "data/open_dataset.h"

#include "core/base/error.h"
#include "core/base/partition.h"
#include "data/image_dataset.h"
#include "data/synthetic.h"
#include "data/table_dataset.h"
#include "data/token_dataset.h"

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

Datasets text(std::shared_ptr<const TokenSource> source, const DataOptions& o, uint64_t seed) {
  require(o.context > 0, ExitCode::kConfig,
          "data.context is not set, but the data is text: give the length of a sample");
  for (int64_t id : o.ignore_tokens)
    require(id >= 0 && id < source->vocabulary_size(), ExitCode::kConfig, "data.ignore_tokens has ", id,
            ", but the vocabulary has ", source->vocabulary_size(), " tokens");
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
  int64_t middle = validation_begin(count, o.validation);
  if (o.measured) return measured(o, middle, count, [&](Range r) { return part(r, false); });
  require(middle > 0, ExitCode::kConfig, "data.validation is ", o.validation, ", which leaves none of ", count,
          " samples for training");
  Datasets out;
  out.train = part(Range{0, middle}, true);
  if (o.validation > 0) out.validation = part(Range{middle, count}, false);
  return out;
}

Datasets file_data(const DataOptions& o, uint64_t seed) {
  require(!o.path.empty(), ExitCode::kConfig, "data.path is not set: give the dataset's HDF5 file");
  auto file = open_dataset_file(o.path, o.memory << 20);
  if (file->header.kind == DataKind::kTokens) return text(std::make_shared<FileTokens>(file), o, seed);
  if (file->header.kind == DataKind::kTable)
    return images(file->header.images[0], o,
                  [&](Range part, bool) { return std::make_shared<TableDataset>(file, part); });
  return images(file->header.images[0], o, [&](Range part, bool train) {
    return std::make_shared<ImageDataset>(file, part, o.image, train ? Augmentation(o.augment, seed) : Augmentation());
  });
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
    std::vector<Field> out = {// The path does not affect results; the identity hash of the content does.
                              field("path", o.path, "the dataset's HDF5 file").without_effect_on_math(),
                              context_field(o),
                              ignore_field(o),
                              mask_field(o),
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
