#include "data/samples/show.h"

#include "core/base/error.h"
#include "data/images/codecs/image_codec.h"
#include "data/samples/sample_kind.h"
#include "data/samples/sample_target.h"
#include "data/samples/text/text_report.h"

namespace lockstep {

ShownText show_text(const std::string& path, int64_t index) {
  const auto file = open_dataset_file(path, 16 << 20);
  require(file->header.kind == DataKind::kTokens, ExitCode::kBadData, path, ": holds no text");
  return show_text(file, index);
}

std::optional<ShownImage> show_image(const std::string& path, int64_t index) {
  const auto file = open_dataset_file(path, 16 << 20);
  if (!sample_kind(file->header.kind).has_pixels()) return {};
  return show_image(*file, index);
}

ShownImage show_image(const DatasetFile& file, int64_t index) {
  const DatasetHeader& h = file.header;
  require(index >= 0 && index < h.images[0], ExitCode::kUsage, file.path, ": has no image ", index, "; it has ",
          h.images[0], ", counted from 0");
  ByteImage image;
  image.channels = h.images[3];
  file.visit_image(index, [&](const uint8_t* pixels, int64_t height, int64_t width) {
    image.height = height, image.width = width;
    image.bytes.assign(pixels, pixels + height * width * image.channels);
  });
  ShownImage out;
  out.height = image.height, out.width = image.width, out.channels = image.channels;
  out.target = h.target;
  sample_target(h.target).show(file, index, image, out);
  out.png = encode_png(image);
  return out;
}

}  // namespace lockstep
