// Files of boxes, COCO's and YOLO's: boxes lie within their image, or the file is refused.
#include "data/import/images/box_files.h"

#include <cmath>

#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

void expect_whole(const Boxes& boxes) {
  fuzz::expect(boxes.rows.size() % kBoxValues == 0, "half a box");
  for (size_t at = 0; at < boxes.rows.size(); at += kBoxValues)
    for (size_t i = 1; i < kBoxValues; ++i) {
      const float value = boxes.rows[at + i];
      fuzz::expect(value >= 0 && value <= 1, "a box beyond its image");
    }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"\"images\":",
                                                      "\"annotations\":",
                                                      "\"categories\":",
                                                      "\"bbox\":[",
                                                      "\"image_id\":",
                                                      "\"category_id\":",
                                                      "\"id\":",
                                                      "1e308",
                                                      "-1",
                                                      "nan",
                                                      "0.5 ",
                                                      "\n",
                                                      "[",
                                                      "]",
                                                      "{",
                                                      "}",
                                                      "9223372036854775807"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = fuzz::scratch("boxes");
  fuzz::write_file(path, fuzz::text_of(data, size));
  fuzz::is_accepted({ExitCode::kBadData}, [&] { expect_whole(read_yolo_boxes(path)); });
  fuzz::is_accepted({ExitCode::kBadData}, [&] {
    for (const CocoImage& image : read_coco_boxes(path).images) expect_whole(image.boxes);
  });
  return 0;
}
