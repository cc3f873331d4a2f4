#include "data/samples/show.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "data/images/codecs/image_codec.h"
#include "data/samples/dataset_file.h"
#include "data/samples/token_dataset.h"
#include "data/text/vocabulary.h"

namespace lockstep {
namespace {

std::string decoded(const Vocabulary* vocabulary, const std::vector<int32_t>& ids) {
  if (vocabulary) return vocabulary->decode_text(ids);
  std::string out;
  for (int32_t id : ids) out += cat(out.empty() ? "" : " ", id);
  return out;
}

Range tokens_of(const DatasetFile& file, int64_t index) {
  const int64_t tokens = file.header.tokens, records = file.header.records.count;
  if (records == 0) return {index * kShownTokens, std::min(tokens, (index + 1) * kShownTokens)};
  std::vector<int64_t> ends;  // of the record before, and its own
  file.record_ends->visit({std::max<int64_t>(0, index - 1), index + 1}, [&](Range rows, const uint8_t* bytes) {
    const auto* values = reinterpret_cast<const int64_t*>(bytes);
    ends.insert(ends.end(), values, values + rows.size());
  });
  return {index > 0 ? ends.front() : 0, ends.back()};
}

void require_text(const DatasetFile& file, int64_t index) {
  const DatasetHeader& h = file.header;
  const bool records = h.records.count > 0;
  const int64_t count = records ? sample_count(h) : ceil_div(h.tokens, kShownTokens);
  const std::string unit = !records           ? cat(" stretches of ", kShownTokens, " tokens")
                           : h.records.paired ? " pairs of records"
                                              : " records";
  require(index >= 0 && index < count, ExitCode::kUsage, file.path, ": has no text ", index, "; it has ", count, unit,
          ", counted from 0");
}

// What `text` of a ShownText is, and how many targets are in it.
std::pair<std::string, int64_t> marked_text(const FileTokens& source, Range tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
  std::vector<uint8_t> marks(ids.size(), 1);
  source.read(tokens, ids.data());
  if (source.has_targets()) source.read_targets(tokens, marks.data());
  std::string text;
  for (size_t begin = 0; begin < ids.size();) {
    size_t end = begin;
    while (end < ids.size() && marks[end] == marks[begin]) ++end;
    const std::string part = decoded(source.vocabulary(), {ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                                           ids.begin() + static_cast<std::ptrdiff_t>(end)});
    if (!source.vocabulary() && begin > 0) text += ' ';
    text += marks[begin] ? part : cat(kNoTargetBegin, part, kNoTargetEnd);
    begin = end;
  }
  return {std::move(text), std::count(marks.begin(), marks.end(), 1)};
}

constexpr uint8_t kNoClass = 255;  // whose colour is light

// The colour of a class: its bits, the lowest first, are the highest of red, green, blue, red and so on, as in the
// masks of PASCAL VOC. Class 0 is black.
std::array<uint8_t, 3> colour_of(uint8_t value) {
  std::array<uint8_t, 3> out{};
  for (int bit = 0; bit < 8; ++bit)
    if (value >> bit & 1) out[static_cast<size_t>(bit % 3)] |= static_cast<uint8_t>(0x80 >> bit / 3);
  return out;
}

// An image of 1 channel with three equal ones.
ByteImage in_colour(ByteImage image) {
  if (image.channels == 3) return image;
  ByteImage out{image.height, image.width, 3, {}};
  for (uint8_t value : image.bytes) out.bytes.insert(out.bytes.end(), 3, value);
  return out;
}

// The image, in colour, with its mask to the right.
ByteImage beside(const ByteImage& image, const std::vector<uint8_t>& mask) {
  const ByteImage colour = in_colour(image);
  ByteImage out{image.height, 2 * image.width, 3, {}};
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = colour.bytes.data() + y * image.width * 3;
    out.bytes.insert(out.bytes.end(), row, row + image.width * 3);
    for (int64_t x = 0; x < image.width; ++x)
      for (uint8_t value : colour_of(mask[static_cast<size_t>(y * image.width + x)])) out.bytes.push_back(value);
  }
  return out;
}

// Draws the edges of boxes, a colour for each class, on an image in colour.
void draw(std::span<const float> boxes, ByteImage& image) {
  image = in_colour(std::move(image));
  for (size_t at = 0; at < boxes.size(); at += kBoxValues) {
    const float* b = boxes.data() + at;
    const auto place = [](double part, int64_t side) {
      return std::clamp<int64_t>(static_cast<int64_t>(part * static_cast<double>(side)), 0, side - 1);
    };
    const int64_t left = place(b[1] - b[3] / 2, image.width), right = place(b[1] + b[3] / 2, image.width);
    const int64_t top = place(b[2] - b[4] / 2, image.height), bottom = place(b[2] + b[4] / 2, image.height);
    const auto colour = colour_of(static_cast<uint8_t>(1 + static_cast<int64_t>(b[0]) % 254));
    const auto dot = [&](int64_t x, int64_t y) {
      std::copy(colour.begin(), colour.end(), image.bytes.data() + (y * image.width + x) * 3);
    };
    for (int64_t x = left; x <= right; ++x) dot(x, top), dot(x, bottom);
    for (int64_t y = top; y <= bottom; ++y) dot(left, y), dot(right, y);
  }
}

}  // namespace

ShownText show_text(const std::string& path, int64_t index) {
  const auto file = open_dataset_file(path, 16 << 20);
  require(file->header.kind == DataKind::kTokens, ExitCode::kBadData, path, ": holds no text");
  require_text(*file, index);
  const FileTokens source(file);
  const bool paired = file->header.records.paired;
  const Range tokens = tokens_of(*file, paired ? 2 * index : index);
  auto [text, targets] = marked_text(source, tokens);
  ShownText out{tokens.begin, tokens.end, targets, std::move(text)};
  if (paired) {
    auto [rejected, of_rejected] = marked_text(source, tokens_of(*file, 2 * index + 1));
    out.rejected = std::move(rejected);
    out.rejected_targets = of_rejected;
  }
  if (file->header.records.labelled) {
    out.label = file->labels[static_cast<size_t>(index)];
    const auto& names = file->header.class_names;
    if (!names.empty()) out.class_name = escaped(names[static_cast<size_t>(*out.label)], Lines::kEscape);
  }
  return out;
}

std::optional<ShownImage> show_image(const std::string& path, int64_t index) {
  const auto file = open_dataset_file(path, 16 << 20);
  const DatasetHeader& h = file->header;
  if (h.kind != DataKind::kImages) return {};
  require(index >= 0 && index < h.images[0], ExitCode::kUsage, path, ": has no image ", index, "; it has ", h.images[0],
          ", counted from 0");
  ByteImage image;
  image.channels = h.images[3];
  file->visit_image(index, [&](const uint8_t* pixels, int64_t height, int64_t width) {
    image.height = height, image.width = width;
    image.bytes.assign(pixels, pixels + height * width * image.channels);
  });
  ShownImage out;
  out.height = image.height, out.width = image.width, out.channels = image.channels;
  out.target = h.target;
  if (file->masks) {
    std::vector<uint8_t> mask = file->mask(index, image.height, image.width);
    const std::set<uint8_t> values(mask.begin(), mask.end());
    for (uint8_t value : values)
      if (value != h.ignored) out.in_mask.push_back(value);
    if (h.ignored >= 0) std::replace(mask.begin(), mask.end(), static_cast<uint8_t>(h.ignored), kNoClass);
    image = beside(image, mask);
  } else if (h.target == TargetKind::kBoxes) {
    const std::span<const float> boxes = file->boxes_of(index);
    out.boxes.assign(boxes.begin(), boxes.end());
    draw(boxes, image);
  } else if (h.target == TargetKind::kNumbers) {
    out.number = file->numbers[static_cast<size_t>(index)] + h.target_offset;
  } else {
    out.label = file->labels[static_cast<size_t>(index)];
    if (!h.class_names.empty()) out.class_name = h.class_names[static_cast<size_t>(out.label)];
  }
  out.png = encode_png(image);
  return out;
}

}  // namespace lockstep
