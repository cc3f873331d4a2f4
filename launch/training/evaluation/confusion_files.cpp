#include "launch/training/evaluation/confusion_files.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text_table.h"
#include "core/io/files.h"
#include "data/images/codecs/image_codec.h"

namespace lockstep {
namespace {

using Colour = std::array<uint8_t, 3>;
constexpr Colour kFull{8, 48, 107}, kNoLabels{224, 224, 224}, kLine{160, 160, 160};
constexpr int64_t kLargestSquare = 24, kSquareWithLine = 8, kLargestPicture = 1200;  // pixels

int64_t labels_of(const Confusion& confusion) { return static_cast<int64_t>(by_class(confusion).size()); }

int64_t count_at(const Confusion& confusion, int64_t label, int64_t predicted) {
  const auto found = confusion.counts.find({label, predicted});
  return found == confusion.counts.end() ? 0 : found->second;
}

Colour colour_of_share(double share) {
  Colour out;
  for (size_t i = 0; i < 3; ++i) out[i] = static_cast<uint8_t>(std::lround(255 + share * (kFull[i] - 255.0)));
  return out;
}

std::string csv_of(const Confusion& confusion, const std::vector<std::string>& names) {
  const auto name = [&](int64_t c) { return c < std::ssize(names) ? csv_cell(names[static_cast<size_t>(c)]) : str(c); };
  std::string text = "label";
  for (int64_t c = 0; c < confusion.classes; ++c) text += str(",", name(c));
  for (int64_t label = 0; label < labels_of(confusion); ++label) {
    text += str("\n", name(label));
    for (int64_t c = 0; c < confusion.classes; ++c) text += str(",", count_at(confusion, label, c));
  }
  return text + "\n";
}

}  // namespace

bool is_confusion_picture(const std::string& path) {
  if (!path.ends_with(".png")) return false;
  encode_png({1, 1, 1, {0}});
  return true;
}

ByteImage confusion_picture(const Confusion& confusion) {
  const int64_t rows = labels_of(confusion), columns = confusion.classes, most = std::max(rows, columns);
  require(most <= kMostPictured, ExitCode::kConfig, "--confusion: ", most, " classes are more than the ", kMostPictured,
          " that a picture shows; name a file that ends in .csv");
  const int64_t side = std::clamp<int64_t>(kLargestPicture / most, 1, kLargestSquare);
  const int64_t line = side >= kSquareWithLine ? 1 : 0, step = side + line;
  ByteImage out{rows * step + line, columns * step + line, 3, {}};
  for (int64_t i = 0; i < out.height * out.width; ++i) out.bytes.insert(out.bytes.end(), kLine.begin(), kLine.end());
  for (int64_t label = 0; label < rows; ++label) {
    int64_t total = 0;
    for (int64_t c = 0; c < columns; ++c) total += count_at(confusion, label, c);
    for (int64_t c = 0; c < columns; ++c) {
      const double share =
          static_cast<double>(count_at(confusion, label, c)) / static_cast<double>(std::max<int64_t>(1, total));
      const Colour colour = total == 0 ? kNoLabels : colour_of_share(share);
      for (int64_t y = label * step + line; y < (label + 1) * step; ++y)
        for (int64_t x = c * step + line; x < (c + 1) * step; ++x)
          std::copy(colour.begin(), colour.end(), out.bytes.begin() + 3 * (y * out.width + x));
    }
  }
  return out;
}

std::string confusion_legend(const Confusion& confusion, const std::vector<std::string>& class_names) {
  const int64_t rows = labels_of(confusion);
  std::string out = str("rows are labels, 0 to ", rows - 1, " from the top; columns are predicted classes, 0 to ",
                        confusion.classes - 1, " from the left; the darker, the larger the share of the row");
  constexpr size_t kMostNamed = 100;
  if (class_names.empty() || class_names.size() > kMostNamed) return out;
  for (size_t i = 0; i < class_names.size(); ++i) out += str(i ? ", " : "; ", i, ": ", class_names[i]);
  return out;
}

void write_confusion(const std::string& path, const Confusion& confusion, const std::vector<std::string>& class_names,
                     bool replace) {
  require(!confusion.counts.empty(), ExitCode::kConfig, "--confusion: no label of this data was predicted as a class");
  write_output(path,
               is_confusion_picture(path) ? encode_png(confusion_picture(confusion)) : csv_of(confusion, class_names),
               replace);
}

}  // namespace lockstep
