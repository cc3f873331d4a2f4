// Blocks of values to 8-bit codes and back, on a CPU.
#include "core/kernels/codes/block_codes.h"

#include "core/base/state_chunk.h"
#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int64_t kGrain = 256;  // blocks

template <class Body>
void each_block(Parallel& parallel, const BlockCodesArgs& a, const Body& body) {
  auto blocks = [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t at = b * kStateChunk, left = a.count - at;
      body(b, at, left < kStateChunk ? left : kStateChunk);
    }
  };
  parallel.run((a.count + kStateChunk - 1) / kStateChunk, kGrain, blocks);
}

}  // namespace

void encode_blocks(Parallel& parallel, const BlockCodesArgs& a) {
  each_block(parallel, a, [&a](int64_t block, int64_t at, int64_t n) {
    const float* x = a.values + at;
    uint8_t* codes = a.codes + at;
    BlockExtent extent;
    for (int64_t i = 0; i < n; ++i) extent.add(x[i]);
    const float scale = a.scales[block] = extent.scale();
    if (scale < 0)
      for (int64_t i = 0; i < n; ++i) codes[i] = encode_signed(x[i], -scale);
    else if (scale == 0)
      for (int64_t i = 0; i < n; ++i) codes[i] = 0;
    else
      for (int64_t i = 0; i < n; ++i) codes[i] = encode_positive(x[i], scale);
  });
}

void decode_blocks(Parallel& parallel, const BlockCodesArgs& a) {
  each_block(parallel, a, [&a](int64_t block, int64_t at, int64_t n) {
    float* x = a.values + at;
    const uint8_t* codes = a.codes + at;
    const float scale = a.scales[block];
    if (scale < 0)
      for (int64_t i = 0; i < n; ++i) x[i] = decode_signed(codes[i], -scale);
    else
      for (int64_t i = 0; i < n; ++i) x[i] = decode_positive(codes[i], scale);
  });
}

}  // namespace lockstep::inline LOCKSTEP_ISA
