#include <cstddef>
#include <cstdio>
// jpeglib.h needs what these declare.
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstring>

#include "data/images/codecs/codecs.h"

namespace lockstep::codecs {
namespace {

constexpr int kMostScans = 500;  // of a progressive file: each takes the time of a whole image

class JpegDecoder final : public Decoder {
 public:
  ~JpegDecoder() override { jpeg_destroy_decompress(&jpeg_); }

  bool open(std::string_view file) override {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = fail;
    errors_.emit_message = emit;
    if (setjmp(back_)) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_.client_data = this;
    progress_.progress_monitor = count_scans;
    jpeg_.progress = &progress_;
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_save_markers(&jpeg_, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&jpeg_, TRUE);
    if (jpeg_.num_components != 1 && jpeg_.num_components != 3) {
      supported = false;
      std::snprintf(failure, sizeof failure, "has %d colours%s; grey and RGB images are read: convert it",
                    jpeg_.num_components, jpeg_.num_components == 4 ? " (CMYK)" : "");
      return false;
    }
    stored = {jpeg_.image_height, jpeg_.image_width, jpeg_.num_components};
    for (jpeg_saved_marker_ptr m = jpeg_.marker_list; m && orientation == 1; m = m->next)
      orientation = exif_orientation({reinterpret_cast<const char*>(m->data), m->data_length});
    return true;
  }

  bool decode(uint8_t* pixels) override {
    if (setjmp(back_)) return false;
    jpeg_.out_color_space = jpeg_.num_components == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_start_decompress(&jpeg_);
    const size_t row = static_cast<size_t>(stored.width * stored.channels);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW to = pixels + jpeg_.output_scanline * row;
      jpeg_read_scanlines(&jpeg_, &to, 1);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

 private:
  static JpegDecoder& self_of(j_common_ptr jpeg) { return *static_cast<JpegDecoder*>(jpeg->client_data); }
  [[noreturn]] static void fail(j_common_ptr jpeg) {
    JpegDecoder& self = self_of(jpeg);
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    std::snprintf(self.failure, sizeof self.failure, "%s", text);
    std::longjmp(self.back_, 1);
  }
  // The library goes on after damage, with grey where pixels are missing; here a warning is an error, but for those
  // that no pixel depends on.
  static void emit(j_common_ptr jpeg, int level) {
    const int code = jpeg->err->msg_code;
    if (level >= 0 || code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM) return;
    fail(jpeg);
  }
  static void count_scans(j_common_ptr jpeg) {
    if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMostScans) return;
    JpegDecoder& self = self_of(jpeg);
    std::snprintf(self.failure, sizeof self.failure, "it has more than %d scans", kMostScans);
    std::longjmp(self.back_, 1);
  }
  jpeg_decompress_struct jpeg_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf back_;
};

}  // namespace

std::unique_ptr<Decoder> jpeg_decoder() { return std::make_unique<JpegDecoder>(); }

}  // namespace lockstep::codecs
