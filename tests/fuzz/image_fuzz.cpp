// PNG and JPEG files: the header and the pixels that it promises agree, or the file is refused; also as a mask.
#include "data/images/codecs/image_codec.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  using namespace std::string_view_literals;
  static const std::vector<std::string_view> words = {
      "\x89PNG\r\n\x1a\n"sv, "IHDR"sv,     "PLTE"sv,          "tRNS"sv,          "IDAT"sv,     "IEND"sv,
      "\xff\xd8\xff"sv,      "\xff\xc0"sv, "\xff\xc2"sv,      "\xff\xc4"sv,      "\xff\xda"sv, "\xff\xdb"sv,
      "\xff\xdd"sv,          "\xff\xd9"sv, "Exif\0\0MM\0*"sv, "Exif\0\0II*\0"sv, "\1\x12"sv};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file = fuzz::text_of(data, size);
  ImageInfo info;
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { info = image_info(file, "image"); })) return 0;
  if (info.bytes() > 1 << 22) return 0;  // correct, but slow
  ByteImage mask;
  if (fuzz::is_accepted({ExitCode::kBadData}, [&] { mask = decode_mask(file, "mask"); }))
    fuzz::expect(mask.height == info.height && mask.width == info.width && mask.channels == 1 &&
                     static_cast<int64_t>(mask.bytes.size()) == info.height * info.width,
                 "a mask's pixels and header differ");
  for (int64_t channels : {info.channels, int64_t{3}}) {
    ByteImage image;
    if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { image = decode_image(file, channels, "image"); })) return 0;
    fuzz::expect(image.height == info.height && image.width == info.width && image.channels == channels &&
                     static_cast<int64_t>(image.bytes.size()) == info.height * info.width * channels,
                 "pixels and header differ");
  }
  return 0;
}
