#include "data/synthetic.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/image_dataset.h"

namespace lockstep {
namespace {

constexpr int64_t kRun = 32;

uint64_t draw(uint64_t what, int64_t index) { return hash64(&index, sizeof index, what); }

}  // namespace

Hash128 SyntheticTokens::identity() const {
  return hash128(cat("synthetic tokens ", options_.tokens, " vocabulary ", options_.vocabulary));
}

void SyntheticTokens::read(Range tokens, int32_t* out) const {
  for (int64_t i = tokens.begin; i < tokens.end;) {
    uint64_t random = draw(1, i / kRun), vocabulary = static_cast<uint64_t>(options_.vocabulary);
    uint64_t start = (random >> 2) % vocabulary, step = 1 + random % 4;
    for (int64_t end = std::min(tokens.end, (i / kRun + 1) * kRun); i < end; ++i)
      *out++ = static_cast<int32_t>((start + step * static_cast<uint64_t>(i % kRun)) % vocabulary);
  }
}

SyntheticImages::SyntheticImages(const DataOptions::Synthetic& o, Range part) : part_(part), images_(o.images) {
  check(part.begin >= 0 && part.end <= images_ && !part.empty(), "images [", part.begin, ", ", part.end, ") of ",
        images_);
  spec_ = image_spec({o.height, o.width, o.channels}, o.classes);
}

Hash128 SyntheticImages::identity() const {
  return hash128(cat("synthetic images ", images_, " of ", spec_.input().shape, " classes ", spec_.classes));
}

void SyntheticImages::read(int64_t, int64_t index, SampleMemory sample) const {
  check(index >= 0 && index < part_.size(), "sample ", index, " of ", part_.size());
  index += part_.begin;
  int64_t label = static_cast<int64_t>(draw(2, index) % static_cast<uint64_t>(spec_.classes));
  float* out = static_cast<float*>(sample[0]);
  int64_t values = spec_.input().shape.numel();
  uint64_t state = draw(3, index);
  for (int64_t i = 0; i < values; i += 4) {
    // Four 16-bit values from one step of SplitMix64 (Steele, Lea, Flood 2014).
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    for (int64_t j = i; j < std::min(i + 4, values); ++j, z >>= 16) {
      float stripe = j % spec_.classes == label ? 1.5f : 0.0f;
      out[j] = static_cast<float>(z & 0xFFFF) / 32768.0f - 1.0f + stripe;
    }
  }
  *static_cast<int32_t*>(sample[1]) = static_cast<int32_t>(label);
}

}  // namespace lockstep
