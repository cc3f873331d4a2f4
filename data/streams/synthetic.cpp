#include "data/streams/synthetic.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kRun = 32;

uint64_t draw(uint64_t what, int64_t index) { return hash64(&index, sizeof index, what); }

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t next(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}
int64_t below(uint64_t& state, int64_t end) { return static_cast<int64_t>(next(state) % static_cast<uint64_t>(end)); }

}  // namespace

Hash128 SyntheticTokens::identity() const {
  return hash128(str("synthetic tokens ", options_.tokens, " vocabulary ", options_.vocabulary));
}

void SyntheticTokens::read(IndexRange tokens, int32_t* out) const {
  for (int64_t i = tokens.begin; i < tokens.end;) {
    uint64_t random = draw(1, i / kRun), vocabulary = static_cast<uint64_t>(options_.vocabulary);
    uint64_t start = (random >> 2) % vocabulary, step = 1 + random % 4;
    for (int64_t end = std::min(tokens.end, (i / kRun + 1) * kRun); i < end; ++i)
      *out++ = static_cast<int32_t>((start + step * static_cast<uint64_t>(i % kRun)) % vocabulary);
  }
}

SyntheticImageSet::SyntheticImageSet(int64_t images, IndexRange part, DataSpec spec)
    : images_(images), part_(part), spec_(std::move(spec)) {
  check(part.begin >= 0 && part.end <= images && !part.empty(), "images [", part.begin, ", ", part.end, ") of ",
        images);
}

void SyntheticImageSet::read(int64_t, int64_t index, SampleMemory sample) const {
  check(index >= 0 && index < part_.size(), "sample ", index, " of ", part_.size());
  draw_image(part_.begin + index, static_cast<float*>(sample[0]), static_cast<int32_t*>(sample[1]));
}

SyntheticImages::SyntheticImages(const DataOptions::Synthetic& o, IndexRange part)
    : SyntheticImageSet(
          o.images, part,
          {{{"images", DType::kFloat32, {o.height, o.width, o.channels}}, {std::string(kLabels), DType::kInt32, {}}},
           o.classes,
           "images"}) {}

Hash128 SyntheticImages::identity() const {
  return hash128(str("synthetic images ", images_, " of ", spec_.input().shape, " classes ", spec_.classes));
}

void SyntheticImages::draw_image(int64_t image, float* pixels, int32_t* labels) const {
  const auto label = static_cast<int64_t>(draw(2, image) % static_cast<uint64_t>(spec_.classes));
  int64_t values = spec_.input().shape.numel();
  uint64_t state = draw(3, image);
  for (int64_t i = 0; i < values; i += 4) {
    uint64_t z = next(state);  // four values of 16 bits
    for (int64_t j = i; j < std::min(i + 4, values); ++j, z >>= 16) {
      float stripe = j % spec_.classes == label ? 1.5f : 0.0f;
      pixels[j] = static_cast<float>(z & 0xFFFF) / 32768.0f - 1.0f + stripe;
    }
  }
  *labels = static_cast<int32_t>(label);
}

SyntheticShapes::SyntheticShapes(const DataOptions::Synthetic& o, IndexRange part)
    : SyntheticImageSet(o.images, part,
                        {{{"images", DType::kFloat32, {o.height, o.width, 1}},
                          {std::string(kLabels), DType::kInt32, {o.height, o.width}}},
                         2,
                         "images"}) {}

Hash128 SyntheticShapes::identity() const {
  return hash128(str("synthetic shapes 1, ", images_, " of ", spec_.input().shape));
}

void SyntheticShapes::draw_image(int64_t image, float* pixels, int32_t* labels) const {
  const int64_t height = spec_.input().shape[0], width = spec_.input().shape[1];
  uint64_t state = draw(4, image);
  struct Side {  // of stripes: two pixels wide, of one direction
    int64_t phase;
    float brightness;
  };
  const auto side = [&] { return Side{below(state, 4), static_cast<float>(below(state, 1024)) / 1024 - 0.5f}; };
  struct Figure {
    bool round;
    int64_t y, x, half_height, half_width;
    Side side;
    bool covers(int64_t py, int64_t px) const {
      const int64_t dy = (py - y) * half_width, dx = (px - x) * half_height, limit = half_height * half_width;
      return round ? dy * dy + dx * dx <= limit * limit
                   : std::abs(py - y) <= half_height && std::abs(px - x) <= half_width;
    }
  };
  const Side ground = side();
  std::vector<Figure> figures(static_cast<size_t>(2 + below(state, 4)));
  for (Figure& f : figures) {
    f.round = below(state, 2) == 0;
    f.y = below(state, height), f.x = below(state, width);
    f.half_height = height / 10 + 1 + below(state, height / 5 + 1);
    f.half_width = width / 10 + 1 + below(state, width / 5 + 1);
    f.side = side();
  }
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      const Figure* top = nullptr;
      for (const Figure& f : figures)
        if (f.covers(y, x)) top = &f;
      const Side& s = top ? top->side : ground;
      const int64_t across = (top ? x - y + height : x + y) + s.phase;
      const float noise = static_cast<float>(next(state) & 0xFFFF) / 32768.0f - 1.0f;
      *pixels++ = s.brightness + (across / 2 % 2 == 0 ? 0.75f : -0.75f) + noise;
      *labels++ = top ? 1 : 0;
    }
}

}  // namespace lockstep
