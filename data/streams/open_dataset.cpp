#include "data/streams/open_dataset.h"

#include <glob.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/partition.h"
#include "data/samples/dataset_file.h"
#include "data/samples/foreign_file.h"
#include "data/samples/sample_kind.h"
#include "data/samples/sample_parts.h"
#include "data/streams/mixture.h"
#include "data/streams/mixup.h"
#include "data/streams/synthetic.h"
#include "data/text/vocabulary.h"

namespace lockstep {
namespace {

// The rows of each part. Those for training are two pieces where a fold lies between them.
struct Split {
  std::vector<IndexRange> train;
  IndexRange validation;
};

Split split_of(const DataOptions& o, int64_t rows) {
  Split out;
  require(o.fold.of > 0 || o.fold.index == 0, ExitCode::kConfig,
          "data.fold.index is set, but data.fold.of is not: set it to the number of folds");
  if (o.fold.of > 0) {
    require(o.fold.of > 1, ExitCode::kConfig, "data.fold.of is 1, which leaves nothing for training");
    require(o.fold.index < o.fold.of, ExitCode::kConfig, "data.fold.index is ", o.fold.index, ", but data.fold.of is ",
            o.fold.of, ": folds are counted from 0");
    // So that the parts, which shape results, are told by one key.
    require(o.validation == 0, ExitCode::kConfig,
            "data.fold.of is set: set data.validation to 0, because the fold is the validation part");
    require(o.fold.of <= rows, ExitCode::kConfig, "data.fold.of is ", o.fold.of, ", but the data has ", rows,
            " samples");
    out.validation = split_evenly(rows, o.fold.of, o.fold.index);
  } else {
    out.validation = {static_cast<int64_t>(static_cast<double>(rows) * (1.0 - o.validation)), rows};
  }
  for (IndexRange r : {IndexRange{0, out.validation.begin}, IndexRange{out.validation.end, rows}})
    if (!r.empty()) out.train.push_back(r);
  return out;
}

Datasets parts_of(const SampleParts& samples, const DataOptions& o, uint64_t seed) {
  const auto& [rows, unit, part] = samples;
  const Split split = split_of(o, rows);
  // A fold's neighbours are joined, each with random numbers of its own.
  const auto joined = [&](const std::vector<IndexRange>& ranges, bool training) {
    std::vector<std::shared_ptr<const Dataset>> pieces;
    for (IndexRange r : ranges) pieces.push_back(part(r, training ? PartUse{true, seed + pieces.size()} : PartUse{}));
    return pieces.size() == 1 ? pieces[0]
                              : std::make_shared<Mixture>(std::move(pieces), MixtureOptions{.of_one = true});
  };
  Datasets out;
  if (o.measured) {
    out.measured = *o.measured;
    std::vector<IndexRange> ranges = split.train;
    if (out.measured == DataPart::kAll) ranges = {{0, rows}};
    if (out.measured == DataPart::kValidation) ranges = {split.validation};
    if (!ranges.empty() && !ranges[0].empty()) out.train = out.validation = joined(ranges, false);
    return out;
  }
  require(!split.train.empty(), ExitCode::kConfig, "data.validation is ", o.validation, ", which leaves none of ", rows,
          " ", unit, " for training");
  out.train = joined(split.train, true);
  if (!split.validation.empty()) out.validation = part(split.validation, PartUse{});
  return out;
}

void set_statistics(const std::vector<double>& given, const char* key, const DatasetFile& file,
                    std::vector<double>& values) {
  if (given.empty()) return;
  require(sample_kind(file.header.kind).has_pixels(), ExitCode::kConfig, "data.image.", key, " is set, but ", file.path,
          " holds no images: leave it out");
  require(given.size() == values.size() || given.size() == 1, ExitCode::kConfig, "data.image.", key, " has ",
          given.size(), " numbers, but the images of ", file.path, " have ", values.size(), " channels");
  for (size_t c = 0; c < values.size(); ++c) values[c] = given[given.size() == 1 ? 0 : c];
}

// The parts of an open file, whose samples are fitted to o.like.
Datasets parts_of_fitted(const std::shared_ptr<DatasetFile>& file, const DataOptions& o, uint64_t seed) {
  DatasetHeader& h = file->header;
  // A run that goes on refuses other data, and says so.
  const bool refused = !o.measured && !o.resumed.identity.empty() && to_hex(h.identity) != o.resumed.identity;
  if (o.like && !refused) fit_to(*file, *o.like);
  set_statistics(o.image.mean, "mean", *file, h.mean);
  set_statistics(o.image.std, "std", *file, h.stddev);
  LikeData like{file->path, schema_of(h), h.vocabulary ? std::make_shared<Vocabulary>(*h.vocabulary) : nullptr};
  if (o.mask > 0) like.schema.classes = 0, like.schema.class_names.clear();
  Datasets out = parts_of(sample_kind(h.kind).parts(file, o), o, seed);
  out.like_this = std::make_shared<LikeData>(std::move(like));
  return out;
}

Datasets file_part(const std::string& path, const DataOptions& o, uint64_t seed) {
  const DataOptions::Hdf5& named = o.hdf5;
  if (!named.samples.empty() || !named.labels.empty())
    return parts_of_fitted(
        open_foreign_file(path, named.samples, named.labels, o.memory << 20, named.other_folder, named.layout), o,
        seed);
  auto file = open_dataset_file(path, o.memory << 20);
  const int64_t count = sample_count(file->header);
  int64_t used = count;
  const DataOptions::Resumed& before = o.resumed;
  if (before.samples > 0 && before.samples < count && to_hex(file->header.identity) != before.identity) {
    auto first = open_first_samples(path, o.memory << 20, before.samples);
    // Else other data, which a resume refuses.
    if (to_hex(first->header.identity) == before.identity) file = std::move(first), used = before.samples;
  }
  Datasets out = parts_of_fitted(file, o, seed);
  out.samples = used;
  out.stored_samples = count;
  return out;
}

std::vector<TensorSpec> without_weights(const DataSpec& spec) {
  std::vector<TensorSpec> out = spec.tensors;
  std::erase_if(out, [](const TensorSpec& t) { return t.name == kSampleWeights; });
  return out;
}

// Does the validation file hold what the training file does? Only files that are `joined` must both have weights.
void require_alike(const std::string& path, const Dataset& there, const Dataset& here, bool joined) {
  const DataSpec &a = there.spec(), &b = here.spec();
  const Vocabulary *theirs = there.vocabulary(), *ours = here.vocabulary();
  std::string why;
  if (a.input().name != b.input().name || a.input().shape != b.input().shape)
    why = str("samples are ", a.input().name, " ", a.input().shape, " there and ", b.input().name, " ", b.input().shape,
              " in the others");
  else if (joined && bool(a.find(kSampleWeights)) != bool(b.find(kSampleWeights)))
    why =
        "samples have weights in some of them and none in others: join them with `lockstep data merge`, where those "
        "weigh 1";
  else if (without_weights(a) != without_weights(b))
    why = "a sample's targets there are of another shape or type than in the others";
  else if (a.vocabulary != b.vocabulary)
    why = str("tokens are below ", a.vocabulary, " there and below ", b.vocabulary, " in the others");
  else if (a.classes != b.classes)
    why = str("labels are below ", a.classes, " there and below ", b.classes, " in the others");
  else if (a.target_mean != b.target_mean || a.target_std != b.target_std)
    why = "targets have another mean or standard deviation there: import it with --like";
  else if (theirs && ours) why = first_difference(*theirs, *ours);
  require(why.empty(), ExitCode::kBadData, path, ": does not fit the other data: ", why);
}

// What several files are together: where their statistics differ, each keeps its own.
std::shared_ptr<const LikeData> like_all(const std::vector<Datasets>& parts, const DataOptions& o) {
  if (!parts[0].like_this) return nullptr;
  auto out = std::make_shared<LikeData>(*parts[0].like_this);
  DataSchema& s = out->schema;
  for (const Datasets& part : parts) {
    const DataSchema& other = part.like_this->schema;
    if (other.mean == s.mean && other.stddev == s.stddev) continue;
    if (!o.measured)
      log_warning(str(part.like_this->name, ": has another mean or standard deviation than ", out->name,
                      ", and each file is normalised by its own: join them with `lockstep data merge`, or import one "
                      "with --like ",
                      out->name));
    s.mean.clear(), s.stddev.clear();
    break;
  }
  return out;
}

// For the files after the first, which is fitted to `given` already: names mean what they mean there, statistics are
// their own where nobody gave others.
void fit_others_to(const Datasets& first, const LikeData* given, DataOptions& o) {
  if (!first.like_this) return;
  auto like = std::make_shared<LikeData>(*first.like_this);
  if (!given || given->schema.mean.empty()) like->schema.mean.clear(), like->schema.stddev.clear();
  o.like = std::move(like);
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
      require_alike(names[i], *list.back(), *list.front(), true);
    }
    if (list.empty()) return nullptr;
    return std::make_shared<Mixture>(std::move(list), std::move(options));
  };
  out.validation = all(&Datasets::validation, {});
  out.train = o.measured ? out.validation : all(&Datasets::train, {std::move(weights), o.shuffle, seed});
  out.like_this = like_all(parts, o);
  return out;
}

Datasets files_part(const std::string& pattern, const DataOptions& o, uint64_t seed) {
  const std::vector<std::string> paths = files_of(pattern, o);
  DataOptions each = o;
  each.memory = std::max<int64_t>(1, o.memory / static_cast<int64_t>(paths.size()));
  if (paths.size() > 1) each.resumed = {};  // which of several has grown is not known
  std::vector<Datasets> parts;
  for (const std::string& path : paths) {
    parts.push_back(file_part(path, each, seed));
    fit_others_to(parts[0], o.like.get(), each);
  }
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
  if (o.sources.size() > 1) each.resumed = {};
  for (const DataSourceFile& source : o.sources) {
    require(!source.path.empty(), ExitCode::kConfig, "data.sources: source ", names.size(), " has no path");
    parts.push_back(files_part(source.path, each, seed));
    fit_others_to(parts[0], o.like.get(), each);
    names.push_back(source.path);
    require(source.weight == 0 || o.packing != Packing::kPairs, ExitCode::kConfig, "data.sources: ", source.path,
            " has a weight, but with data.packing: pairs each pair is once in an epoch");
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
  require(o.fold.of == 0, ExitCode::kConfig,
          "data.validation_path and data.fold.of exclude each other: each says what the validation part is");
  if (o.measured && *o.measured != DataPart::kValidation) return all_files(o, seed);
  DataOptions whole = o;
  whole.measured = DataPart::kAll;
  whole.resumed = {};
  Datasets all;
  if (!o.measured) {
    all = all_files(o, seed);
    whole.like = all.like_this;
  }
  Datasets out = files_part(o.validation_path, whole, seed);
  out.measured = DataPart::kValidation;
  if (o.measured) return out;
  all.validation = out.validation;
  require_alike(o.validation_path, *all.validation, *all.train, false);
  return all;
}

class Hdf5Source final : public DataSource {
 public:
  std::vector<Field> options(DataOptions& o) override { return file_fields(o); }
  Datasets open(const DataOptions& o, uint64_t seed) const override {
    Datasets out = file_data(o, seed);
    if (o.augment.mixup > 0 && !o.measured) out.train = std::make_shared<Mixup>(out.train, o.augment.mixup, seed);
    return out;
  }
};

class SyntheticTokensSource final : public DataSource {
 public:
  std::vector<Field> options(DataOptions& o) override {
    std::vector<Field> out = text_fields(o);
    out.push_back(
        field("synthetic.tokens", o.synthetic.tokens, "length of the generated text").with_unit("tokens").at_least(2));
    out.push_back(
        field("synthetic.vocabulary", o.synthetic.vocabulary, "number of different tokens of the generated text")
            .with_range(2, 1 << 30));
    return out;
  }
  Datasets open(const DataOptions& o, uint64_t seed) const override {
    return parts_of(text_parts(std::make_shared<SyntheticTokens>(o.synthetic), o), o, seed);
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
  Datasets open(const DataOptions& o, uint64_t seed) const override {
    const auto make = [&](IndexRange part, PartUse) { return std::make_shared<SyntheticImages>(o.synthetic, part); };
    return parts_of(plain_parts(o.synthetic.images, o, make), o, seed);
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
  Datasets open(const DataOptions& o, uint64_t seed) const override {
    const auto make = [&](IndexRange part, PartUse) { return std::make_shared<SyntheticShapes>(o.synthetic, part); };
    return parts_of(plain_parts(o.synthetic.images, o, make), o, seed);
  }
};

}  // namespace

std::vector<std::string> files_matching(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == pattern.npos || std::filesystem::exists(pattern)) return {pattern};
  glob_t found{};
  const int code = ::glob(pattern.c_str(), 0, nullptr, &found);
  const std::vector<std::string> out(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  require(code == 0 && !out.empty(), ExitCode::kMissingInput, pattern, ": no file has such a name");
  return out;
}

std::vector<std::string> files_of(const std::string& pattern, const DataOptions& o) {
  namespace fs = std::filesystem;
  const fs::path path(pattern);
  std::vector<std::string> places{pattern};
  for (const std::string& folder : o.folders) {
    if (path.is_relative()) places.push_back((fs::path(folder) / path).string());
    if (pattern.find_first_of("*?[") == pattern.npos) places.push_back((fs::path(folder) / path.filename()).string());
  }
  for (const std::string& place : places) {
    std::error_code error;
    const bool one = place.find_first_of("*?[") == place.npos || fs::exists(place, error);
    if (one && fs::exists(place, error)) return {place};
    if (one) continue;
    try {
      return files_matching(place);
    } catch (const Error& e) {
      if (e.code() != ExitCode::kMissingInput) throw;
    }
  }
  return files_matching(pattern);
}

std::vector<Choice<DataSource>> builtin_data() {
  return {choice<DataSource, Hdf5Source>("hdf5"), choice<DataSource, SyntheticTokensSource>("synthetic_tokens"),
          choice<DataSource, SyntheticImagesSource>("synthetic_images"),
          choice<DataSource, SyntheticShapesSource>("synthetic_shapes")};
}

Datasets open_datasets(const DataOptions& o, uint64_t seed) {
  return make_choice(builtin_data(), o.name)->open(o, seed);
}

}  // namespace lockstep
