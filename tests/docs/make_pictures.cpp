// Pictures for the tutorials: discs and squares of random places, sizes and colours on noise, as PNG files; always the
// same. Usage: make_pictures FOLDER COUNT [SEED] writes FOLDER/disc/000.png, FOLDER/square/001.png, ...;
// make_pictures --masks FOLDER MASKS COUNT [SEED] writes FOLDER/000.png and MASKS/000.png: 0 background, 1 disc, 2
// square.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "data/images/codecs/image_codec.h"

namespace {

using namespace lockstep;

constexpr int64_t kSize = 32;

// Draws one shape into both, and returns its class.
uint8_t draw(std::mt19937& random, uint8_t shape, ByteImage& picture, ByteImage& mask) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  const int radius = 4 + below(5), x = radius + below(kSize - 2 * radius), y = radius + below(kSize - 2 * radius);
  uint8_t colour[3];
  for (uint8_t& c : colour) c = static_cast<uint8_t>(128 + below(128));
  for (int row = 0; row < kSize; ++row)
    for (int col = 0; col < kSize; ++col) {
      const int dx = col - x, dy = row - y;
      const bool within =
          shape == 1 ? dx * dx + dy * dy <= radius * radius : std::abs(dx) < radius && std::abs(dy) < radius;
      const auto at = static_cast<size_t>(row * kSize + col);
      if (within) mask.bytes[at] = shape;
      for (size_t c = 0; c < 3; ++c) {
        const int noise = below(48);
        picture.bytes[at * 3 + c] = static_cast<uint8_t>(within ? std::min(255, colour[c] + noise / 2) : noise);
      }
    }
  return shape;
}

void write(const std::filesystem::path& path, const ByteImage& image) {
  std::filesystem::create_directories(path.parent_path());
  const std::string png = encode_png(image);
  std::ofstream file(path, std::ios::binary);
  file.write(png.data(), static_cast<std::streamsize>(png.size()));
  require(file.good(), ExitCode::kStorage, path.string(), ": cannot be written");
}

int make(std::vector<std::string> words) {
  const bool masks = !words.empty() && words[0] == "--masks";
  if (masks) words.erase(words.begin());
  const size_t folders = masks ? 2 : 1;
  if (words.size() < folders + 1) return static_cast<int>(ExitCode::kUsage);
  std::mt19937 random(words.size() > folders + 1 ? static_cast<uint32_t>(std::stoul(words[folders + 1])) : 1);
  for (int i = 0, count = std::stoi(words[folders]); i < count; ++i) {
    ByteImage picture{kSize, kSize, 3, std::vector<uint8_t>(kSize * kSize * 3)};
    ByteImage mask{kSize, kSize, 1, std::vector<uint8_t>(kSize * kSize)};
    const uint8_t shape = draw(random, static_cast<uint8_t>(1 + random() % 2), picture, mask);
    const std::string name = str(i < 10 ? "00" : i < 100 ? "0" : "", i, ".png");
    const std::filesystem::path folder = words[0];
    write(masks ? folder / name : folder / (shape == 1 ? "disc" : "square") / name, picture);
    if (masks) write(std::filesystem::path(words[1]) / name, mask);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return make({words + 1, words + count});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
