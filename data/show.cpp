#include "data/show.h"

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "data/codecs/image_codec.h"
#include "data/dataset_file.h"
#include "data/token_dataset.h"
#include "data/vocabulary.h"

namespace lockstep {
namespace {

std::string decoded(const Vocabulary* vocabulary, const std::vector<int32_t>& ids) {
  if (vocabulary) return vocabulary->decode(ids);
  std::string out;
  for (int32_t id : ids) out += cat(out.empty() ? "" : " ", id);
  return out;
}

Range tokens_of(const DatasetFile& file, int64_t index) {
  const int64_t tokens = file.header.tokens, records = file.header.records.count;
  const int64_t count = records > 0 ? records : ceil_div(tokens, kShownTokens);
  require(
      index >= 0 && index<count, ExitCode::kUsage, file.path, ": has no text ", index, "; it has ", count, records> 0
          ? " records"
          : cat(" stretches of ", kShownTokens, " tokens"),
      ", counted from 0");
  if (records == 0) return {index * kShownTokens, std::min(tokens, (index + 1) * kShownTokens)};
  std::vector<int64_t> ends;  // of the record before, and its own
  file.record_ends->visit({std::max<int64_t>(0, index - 1), index + 1}, [&](Range rows, const uint8_t* bytes) {
    const auto* values = reinterpret_cast<const int64_t*>(bytes);
    ends.insert(ends.end(), values, values + rows.size());
  });
  return {index > 0 ? ends.front() : 0, ends.back()};
}

}  // namespace

ShownText show_text(const std::string& path, int64_t index) {
  const auto file = open_dataset_file(path, 16 << 20);
  require(file->header.kind == DataKind::kTokens, ExitCode::kBadData, path, ": holds no text");
  const Range tokens = tokens_of(*file, index);
  const FileTokens source(file);
  std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
  std::vector<uint8_t> marks(ids.size(), 1);
  source.read(tokens, ids.data());
  if (source.has_targets()) source.read_targets(tokens, marks.data());
  ShownText out{tokens.begin, tokens.end, std::count(marks.begin(), marks.end(), 1), ""};
  if (file->header.records.labelled) {
    out.label = file->labels[static_cast<size_t>(index)];
    const auto& names = file->header.class_names;
    if (!names.empty()) out.class_name = escaped(names[static_cast<size_t>(*out.label)], Lines::kEscape);
  }
  for (size_t begin = 0; begin < ids.size();) {
    size_t end = begin;
    while (end < ids.size() && marks[end] == marks[begin]) ++end;
    const std::string part = decoded(source.vocabulary(), {ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                                           ids.begin() + static_cast<std::ptrdiff_t>(end)});
    if (!source.vocabulary() && begin > 0) out.text += ' ';
    out.text += marks[begin] ? part : cat(kNoTargetBegin, part, kNoTargetEnd);
    begin = end;
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
  const int32_t label = file->labels[static_cast<size_t>(index)];
  return ShownImage{image.height,
                    image.width,
                    image.channels,
                    label,
                    h.class_names.empty() ? "" : h.class_names[static_cast<size_t>(label)],
                    encode_png(image)};
}

}  // namespace lockstep
