// What a dataset file holds, as its reader counts it. Plain values and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/base/shape.h"
#include "data/samples/dataset_file.h"

namespace lockstep {

struct DatasetReport {
  DataKind kind = DataKind::kTokens;
  std::string level;       // "byte", "char", "ids"; empty for images
  int64_t count = 0;       // tokens or images
  int64_t vocabulary = 0;  // size
  int64_t classes = 0;     // number of labels; 0: none
  int64_t used = 0;        // of the vocabulary
  // Of tokens with records; lengths in tokens.
  int64_t records = 0, shortest = 0, median = 0, longest = 0;
  int64_t pairs = 0, median_chosen = 0, median_rejected = 0;  // 0 pairs: records are none
  // Records, pairs, images (as pixels or as files) or rows (features alone) that are equal to an earlier one; -1 where
  // there are too many to compare. The first few, each with the first that it equals, are told of images and rows, and
  // how many have another label or number than that one.
  int64_t duplicates = 0, contradictions = 0;
  std::vector<std::pair<int64_t, int64_t>> repeats;
  int64_t targets = 0;  // tokens on which the loss is
  Shape image_shape;    // [height, width, channels]; height and width are 0 where images have mixed sizes
  std::vector<std::string> class_names;  // may be empty
  std::string columns;                   // of a table, as JSON
  std::vector<double> mean, stddev;
  TargetKind target = TargetKind::kLabels;
  std::vector<int64_t> per_class;  // rows, images or records of each label, pixels of each class of masks, or boxes
  int64_t with_boxes = 0;          // images that have any
  double target_mean = 0, target_std = 0, target_least = 0, target_most = 0;  // of numbers
  bool weighted = false;                                                      // samples have weights
  double weight_least = 0, weight_most = 0, weight_mean = 0;
  int64_t ignored = 0;     // pixels of masks that are no targets
  std::string characters;  // the vocabulary at character level, in UTF-8
  std::string chat;        // the name of the chat template; empty: there is none
  int64_t chunks = 0;      // all were read and their hashes match
  int64_t file_bytes = 0;
  Hash128 identity;
};

// How far an inspection is; unit: what is counted, "tokens" of text, else the kind's samples: "images", "rows".
using InspectProgress = std::function<void(int64_t done, int64_t total, const std::string& unit)>;

// Reads and checks the whole file; throws the errors of open_dataset_file.
DatasetReport inspect_dataset(const std::string& path, const InspectProgress& progress = {});
std::string to_text(const DatasetReport& report);  // several lines
std::string to_json(const DatasetReport& report);  // one JSON object, on one line

}  // namespace lockstep
