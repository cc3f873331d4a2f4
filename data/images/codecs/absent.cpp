// In place of the codecs where libpng or libjpeg was absent when building.
#include "core/base/error.h"
#include "data/images/codecs/image_codec.h"

namespace lockstep {
namespace {

[[noreturn]] void fail(const std::string& name) {
  throw Error(ExitCode::kDevice, str(name,
                                     ": this build reads no PNG or JPEG; install libpng and libjpeg-turbo's "
                                     "development packages (scripts/install_packages), and build again"));
}

}  // namespace

ImageInfo image_info(std::string_view, const std::string& name) { fail(name); }
ByteImage decode_image(std::string_view, int64_t, const std::string& name, WideValues*) { fail(name); }
ByteImage decode_mask(std::string_view, const std::string& name) { fail(name); }
std::string encode_png(const ByteImage&) { fail("PNG"); }
std::string encode_png(const ByteImage&, const std::vector<std::array<uint8_t, 3>>&) { fail("PNG"); }

}  // namespace lockstep
