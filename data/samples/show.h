// Shows a sample of a dataset as people see it. Plain functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/samples/dataset_file.h"

namespace lockstep {

// A stretch of a dataset's text: record or pair `index`, or, where there are no records, the `index`-th stretch of
// kShownTokens tokens.
struct ShownText {
  int64_t begin = 0, end = 0, targets = 0;  // tokens
  // Decoded; parts without a target stand between these marks. Ids, separated by spaces, at level "ids".
  std::string text;
  std::optional<int32_t> label = {};  // of a record that has one
  std::string class_name = {};
  std::optional<float> weight = {};  // likewise, where records have weights
  // Of a pair, whose chosen record the rest is of.
  std::optional<std::string> rejected = {};
  int64_t rejected_targets = 0;
};
inline constexpr int64_t kShownTokens = 256;
inline constexpr const char *kNoTargetBegin = "\u27E6", *kNoTargetEnd = "\u27E7";  // white square brackets

// Throws ExitCode::kUsage where there is no such text, and the errors of open_dataset_file. Images: kBadData.
ShownText show_text(const std::string& path, int64_t index);

// An image as it is stored, before it is normalised.
struct ShownImage {
  int64_t height = 0, width = 0, channels = 0;
  TargetKind target = TargetKind::kLabels;
  int64_t label = 0;
  std::string class_name;        // empty where the file has no names
  double number = 0;             // to predict
  std::vector<int64_t> in_mask;  // the classes that are there
  std::vector<float> boxes;      // [boxes, kBoxValues]
  std::string png;  // the bytes of a PNG file: the image, and to its right the mask, or on it the edges of the boxes
};
// Null where the file holds no images. Throws ExitCode::kUsage where there is no such image, kDevice in a build without
// codecs.
std::optional<ShownImage> show_image(const std::string& path, int64_t index);
ShownImage show_image(const DatasetFile& file, int64_t index);  // of a file that holds images

}  // namespace lockstep
