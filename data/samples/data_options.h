// The options of section `data`: which dataset, how it is split into samples, how it is loaded. A plain struct.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/field.h"
#include "data/images/augment.h"
#include "data/images/image_layout.h"

namespace lockstep {

struct LikeData;

// The part of the data on which a model is evaluated.
enum class DataPart : uint8_t { kValidation, kTrain, kAll };

// How samples are made of text.
enum class Packing : uint8_t { kWindows, kPack, kPad, kPairs };

// One of several dataset files.
struct DataSourceFile {
  std::string path;
  double weight = 0;  // share of the training samples; 0: as many as it has
};
std::vector<Field> fields(DataSourceFile& options);

struct DataOptions {
  std::string name = "hdf5";  // data.name, a choice
  std::string path = {};
  std::vector<DataSourceFile> sources = {};
  std::vector<std::string> folders = {};
  int64_t context = 0;
  double validation = 0.1;
  struct Fold {
    int64_t of = 0;  // 0: none
    int64_t index = 0;
  } fold = {};
  std::string validation_path = {};
  bool shuffle = true;
  std::vector<int64_t> ignore_tokens = {};
  double mask = 0;
  Packing packing = Packing::kWindows;
  int64_t buckets = 1, bucket_pool = 1;
  int64_t threads = 1;
  int64_t prefetch = 2;
  int64_t memory = 1024;  // MiB
  struct Hdf5 {
    std::string samples = {}, labels = {};  // datasets of a file of another program; empty: the file is one of ours
    ImageLayout layout = ImageLayout::kByShape;
    std::string other_folder = {};  // not a key; set by a run, to its directory (open_foreign_file)
  } hdf5 = {};
  struct Synthetic {
    int64_t tokens = 1 << 20;
    int64_t vocabulary = 256;
    int64_t images = 10000;
    int64_t height = 28, width = 28, channels = 1;
    int64_t classes = 10;
  } synthetic = {};
  struct Image {
    int64_t height = 0, width = 0;            // 0: as stored
    std::vector<double> mean = {}, std = {};  // of values in [0, 1], one for each channel; empty: as stored
  } image = {};
  AugmentOptions augment = {};
  // Not a key; set by commands that only evaluate. Both datasets are then this part, complete and in order, even if it
  // is shorter than a batch.
  std::optional<DataPart> measured = {};
  // Not a key; of the checkpoint that a run goes on from: the identity of its training data, 32 hex digits, and how
  // many samples the file had. Where the file has grown since, its first samples are used if they are the same.
  struct Resumed {
    std::string identity;
    int64_t samples = 0;  // 0: nothing is known
  } resumed = {};
  // Not a key; what the run, or the one that it begins with, was trained on: files are fitted to it by name
  // (data/samples/schema.h). Null: the data is what it is.
  std::shared_ptr<const LikeData> like = {};
};

// The options that every source of data has, except `name`; a source adds its own (DataSource::options).
std::vector<Field> fields(DataOptions& options);
// Those of every source of text, and those of dataset files.
std::vector<Field> text_fields(DataOptions& options);
std::vector<Field> file_fields(DataOptions& options);

}  // namespace lockstep
