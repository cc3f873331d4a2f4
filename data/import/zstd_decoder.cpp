#include <zstd.h>

#include "core/base/error.h"
#include "data/import/input_stream.h"

namespace lockstep {
namespace {

class ZstdDecoder final : public Decompressor {
 public:
  ZstdDecoder() : state_(::ZSTD_createDStream()) {
    require(state_ != nullptr, ExitCode::kDevice, "memory ran out for decompression");
    ::ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, 27);  // 128 MiB, the format's recommended bound
  }
  ZstdDecoder(const ZstdDecoder&) = delete;
  ZstdDecoder& operator=(const ZstdDecoder&) = delete;
  ~ZstdDecoder() override { ::ZSTD_freeDStream(state_); }
  Step run(const uint8_t* from, size_t size, uint8_t* to, size_t room) override {
    ZSTD_inBuffer in{from, size, 0};
    ZSTD_outBuffer out{to, room, 0};
    const size_t left = ::ZSTD_decompressStream(state_, &out, &in);
    require(!::ZSTD_isError(left), ExitCode::kBadData, ::ZSTD_getErrorName(left));
    return {in.pos, out.pos, left == 0};
  }

 private:
  ZSTD_DStream* state_;
};

}  // namespace

std::unique_ptr<Decompressor> zstd_decoder() { return std::make_unique<ZstdDecoder>(); }

}  // namespace lockstep
