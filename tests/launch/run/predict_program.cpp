// A program of one's own that predicts with TrainedModel (launch/training/weights/trained_model.h): a line of values a
// sample.
//   predict_program RUN rows FILE       numbers separated by commas, a row each
//   predict_program RUN texts FILE      a text a line
//   predict_program RUN images FILE...  each decoded, all of one size
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "data/images/codecs/image_codec.h"
#include "launch/training/weights/trained_model.h"

namespace lockstep {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) out.push_back(line);
  return out;
}

Tensor rows_of(const std::string& path) {
  std::vector<float> values;
  const std::vector<std::string> lines = lines_of(path);
  for (const std::string& line : lines) {
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) values.push_back(std::strtof(cell.c_str(), nullptr));
  }
  const int64_t rows = std::ssize(lines);
  return Tensor::of(values, {rows, std::ssize(values) / rows});
}

Tensor images_of(const std::vector<std::string>& paths, int64_t channels) {
  std::vector<uint8_t> bytes;
  Shape shape{std::ssize(paths), 0, 0, channels};
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    const ByteImage image = decode_image(content.str(), channels, path);
    shape = {std::ssize(paths), image.height, image.width, channels};
    bytes.insert(bytes.end(), image.bytes.begin(), image.bytes.end());
  }
  return Tensor::of(bytes, shape);
}

void predict(const std::string& run, const std::string& what, const std::vector<std::string>& files) {
  TrainedModel model(run);
  const Tensor result = what == "texts"  ? model.predict(lines_of(files[0]))
                        : what == "rows" ? model.predict(rows_of(files[0]))
                                         : model.predict(images_of(files, model.task().input[2]));
  const int64_t values = result.numel() / result.dim(0);
  for (int64_t i = 0; double value : result.to_vector()) std::printf("%.17g%c", value, ++i % values == 0 ? '\n' : ',');
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    lockstep::predict(argv[1], argv[2], {argv + 3, argv + argc});
  } catch (const lockstep::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return static_cast<int>(e.code());
  }
}
