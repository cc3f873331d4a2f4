// The images that an import of a folder or of archives takes, and what says the target of each: a subfolder, a table, a
// mask, or boxes. Plain values and functions, for images.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/images/codecs/image_codec.h"
#include "data/import/import.h"
#include "data/samples/dataset_file.h"

namespace lockstep {

struct ImageSource {
  std::string name;  // within the folder; of one in an archive: the archive's and the member's
  std::string label;
  int32_t class_index = 0;
  float weight = 1;                         // of its loss
  std::vector<float> boxes;                 // [boxes, kBoxValues]
  std::pair<int64_t, int64_t> announced{};  // height and width that a file of boxes says; 0: nothing
  ImageInfo info;
  int64_t bytes = 0, mask_bytes = 0;  // of the files
  uint64_t hash = 0;                  // of the image's file, as it was first read
  // Of an image in an archive: the file that holds its bytes, from `begin` on. Null: it is a file of its own.
  std::shared_ptr<const std::string> archive;
  int64_t begin = 0;
  std::string bad;  // of a sample that lacks its image or its label: what is wrong
};

// Of an image's name, that of its mask.
std::string mask_name(const std::string& image);

// In an order that mixes the labels and depends on the names alone. Sets of `header` the classes and their names, but
// of masks, and the kind of target where it is boxes. Throws ExitCode::kBadData and kMissingInput naming file and line.
std::vector<ImageSource> image_sources(const std::string& folder, const ImageOptions& how, DatasetHeader& header);

class Shards;
// Those of WebDataset's shards (shard_samples.h), in their order. `where`: for messages. Sets of `header` the classes
// and their names. A sample without image or label is an error (kBadData) that names shard and sample; with skip_bad
// it is among the others, and says what is wrong.
std::vector<ImageSource> shard_images(const Shards& shards, const std::string& where, const ShardOptions& how,
                                      DatasetHeader& header);

}  // namespace lockstep
