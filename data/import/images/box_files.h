// Files of bounding boxes: a JSON file of COCO, or a text file of YOLO for each image. Plain values and functions.
// Boxes are rows of kBoxValues numbers (data/samples/dataset_file.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/samples/dataset_file.h"

namespace lockstep {

struct Boxes {
  std::vector<float> rows;       // [boxes, kBoxValues]
  int64_t cut = 0, outside = 0;  // boxes that reached beyond the image, and those of which nothing was left
};

struct CocoImage {
  std::string name;               // file_name
  int64_t height = 0, width = 0;  // pixels
  Boxes boxes;
};
struct CocoFile {
  std::vector<CocoImage> images;         // in the order of the file
  std::vector<std::string> class_names;  // of its categories, in the order of their ids
  int64_t crowds = 0;                    // annotations with "iscrowd", which are left out
};

// These throw ExitCode::kBadData naming the file and what of it is wrong.

// "images" (id, file_name, height, width), "categories" (id, name) and "annotations" (image_id, category_id, bbox:
// left, top, width and height in pixels) of an object. Classes are the categories in the order of their ids.
CocoFile read_coco_boxes(const std::string& path);
// A box a line: class, x and y of the middle, width, height. An empty file has none.
Boxes read_yolo_boxes(const std::string& path);

}  // namespace lockstep
