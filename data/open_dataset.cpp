#include "data/open_dataset.h"

#include "core/base/error.h"
#include "core/base/partition.h"
#include "data/image_dataset.h"
#include "data/synthetic.h"
#include "data/token_dataset.h"

namespace lockstep {
namespace {

// The first validation row: the validation part is the last of the data.
int64_t validation_begin(int64_t rows, double fraction) {
  return static_cast<int64_t>(static_cast<double>(rows) * (1.0 - fraction));
}

// The rows of a part where the validation part begins at `middle`.
Range rows_of(DataPart part, int64_t middle, int64_t rows) {
  return {part == DataPart::kValidation ? middle : 0, part == DataPart::kTrain ? middle : rows};
}

// `part`: the dataset of a range of rows. Nothing where the part is empty.
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
  const WindowOptions in_order{o.context, o.ignore_tokens, false, 0};
  if (o.measured)
    return measured(o, middle, tokens, [&](Range r) { return std::make_shared<TokenDataset>(source, r, in_order); });
  Datasets out;
  out.train =
      std::make_shared<TokenDataset>(source, Range{0, middle}, WindowOptions{o.context, o.ignore_tokens, true, seed});
  if (o.validation > 0) out.validation = std::make_shared<TokenDataset>(source, Range{middle, tokens}, in_order);
  return out;
}

template <class Part>
Datasets images(int64_t count, const DataOptions& o, Part part) {
  require(o.context == 0, ExitCode::kConfig, "data.context is ", o.context, ", but the data is images: leave it out");
  require(o.ignore_tokens.empty(), ExitCode::kConfig,
          "data.ignore_tokens is set, but the data is images: leave it out");
  int64_t middle = validation_begin(count, o.validation);
  if (o.measured) return measured(o, middle, count, part);
  require(middle > 0, ExitCode::kConfig, "data.validation is ", o.validation, ", which leaves none of ", count,
          " images for training");
  Datasets out;
  out.train = part(Range{0, middle});
  if (o.validation > 0) out.validation = part(Range{middle, count});
  return out;
}

Datasets file_data(const DataOptions& o, uint64_t seed) {
  require(!o.path.empty(), ExitCode::kConfig, "data.path is not set: give the dataset's HDF5 file");
  auto file = open_dataset_file(o.path, o.memory << 20);
  if (file->header.kind == DataKind::kTokens) return text(std::make_shared<FileTokens>(file), o, seed);
  return images(file->header.images[0], o, [&](Range part) { return std::make_shared<ImageDataset>(file, part); });
}

}  // namespace

Datasets open_datasets(const DataOptions& o, uint64_t seed) {
  switch (o.name) {
    case DataName::kHdf5: return file_data(o, seed);
    case DataName::kSyntheticTokens: return text(std::make_shared<SyntheticTokens>(o.synthetic), o, seed);
    case DataName::kSyntheticImages:
      return images(o.synthetic.images, o,
                    [&](Range part) { return std::make_shared<SyntheticImages>(o.synthetic, part); });
  }
  check(false, "no such data.name");
  return {};
}

}  // namespace lockstep
