// The images that an import of a folder takes, and what says the target of each: a subfolder, a table, a mask, or
// boxes. Plain values and functions, for import_images.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/images/codecs/image_codec.h"
#include "data/import/import.h"
#include "data/samples/dataset_file.h"

namespace lockstep {

struct ImageSource {
  std::string name;  // within the folder
  std::string label;
  int32_t class_index = 0;
  float weight = 1;                         // of its loss
  std::vector<float> boxes;                 // [boxes, kBoxValues]
  std::pair<int64_t, int64_t> announced{};  // height and width that a file of boxes says; 0: nothing
  ImageInfo info;
  int64_t bytes = 0, mask_bytes = 0;  // of the files
  uint64_t hash = 0;                  // of the image's file, as it was first read
};

// Of an image's name, that of its mask.
std::string mask_name(const std::string& image);

// In an order that mixes the labels and depends on the names alone. Sets of `header` the classes and their names, but
// of masks, and the kind of target where it is boxes. Throws ExitCode::kBadData and kMissingInput naming file and line.
std::vector<ImageSource> image_sources(const std::string& folder, const ImageOptions& how, DatasetHeader& header);

}  // namespace lockstep
