#include "core/io/deflate.h"

#include <zlib.h>

#include <algorithm>

#include "core/base/error.h"

namespace lockstep {
namespace {

class ZlibDecompressor final : public Decompressor {
 public:
  explicit ZlibDecompressor(int window_bits) {
    require(::inflateInit2(&state_, window_bits) == Z_OK, ExitCode::kDevice, "memory ran out for decompression");
  }
  ZlibDecompressor(const ZlibDecompressor&) = delete;
  ZlibDecompressor& operator=(const ZlibDecompressor&) = delete;
  ~ZlibDecompressor() override { ::inflateEnd(&state_); }
  Step run(const uint8_t* from, size_t size, uint8_t* to, size_t room) override {
    state_.next_in = const_cast<uint8_t*>(from);
    state_.avail_in = narrow<uInt>(size);
    state_.next_out = to;
    state_.avail_out = narrow<uInt>(std::min<size_t>(room, 1 << 30));
    const size_t offered = state_.avail_out;
    const int code = ::inflate(&state_, Z_NO_FLUSH);
    require(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, ExitCode::kBadData,
            state_.msg            ? state_.msg
            : code == Z_NEED_DICT ? "it needs a dictionary"
                                  : "not decodable");
    const Step step{size - state_.avail_in, offered - state_.avail_out, code == Z_STREAM_END};
    if (step.ended) ::inflateReset(&state_);
    return step;
  }

 private:
  z_stream state_ = {};
};

}  // namespace

std::unique_ptr<Decompressor> gzip_decoder() { return std::make_unique<ZlibDecompressor>(15 + 16); }
std::unique_ptr<Decompressor> deflate_decoder() { return std::make_unique<ZlibDecompressor>(-15); }

uint32_t crc32(const void* bytes, size_t size, uint32_t before) {
  return static_cast<uint32_t>(::crc32_z(before, static_cast<const Bytef*>(bytes), size));
}

}  // namespace lockstep
