#include "core/state/weight_coder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/error.h"
#include "core/base/nf4_levels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kAtOnce = 1 << 20;    // elements, a multiple of kCodedBlock
constexpr int64_t kScalesAGroup = 256;  // whose scales share one

// The 256 values of bitsandbytes' dynamic map (Dettmers, "8-bit approximations for parallelism in deep learning",
// 2015), to the bit: seven decades, of which each has twice as many values as the one below it, the middles of equal
// parts of [0.1, 1]; 0 and 1.
std::array<float, 256> dynamic_map() {
  constexpr float kUnits[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
  std::array<float, 256> map{0, 1};
  size_t count = 2;
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << decade;
    const float step = (1.0f - 0.1f) / static_cast<float>(parts), unit = kUnits[decade];
    const auto bound = [&](int k) {  // from the nearer end, rounded once
      const double of_end = double{step} * (parts - k);
      return static_cast<float>(k < (parts + 1) / 2 ? double{0.1f} + double{step} * k : 1.0 - of_end);
    };
    for (int k = 0; k < parts; ++k) {
      const float value = unit * ((bound(k) + bound(k + 1)) / 2);
      map[count++] = value, map[count++] = -value;
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

// The index of the nearest of 2^n ascending levels; halfway, the lower.
template <size_t kCount>
class Nearest {
 public:
  explicit Nearest(const float* levels) {
    for (size_t i = 0; i + 1 < kCount; ++i) between_[i] = 0.5f * (levels[i] + levels[i + 1]);
  }
  size_t operator()(float x) const {
    size_t first = 0;
    for (size_t half = kCount / 2; half > 0; half /= 2) first += between_[first + half - 1] < x ? half : 0;
    return first;
  }

 private:
  std::array<float, kCount - 1> between_;
};

constexpr float kLevels[16] = LOCKSTEP_NF4_LEVELS;
const Nearest<16>& nearest_level() {
  static const Nearest<16> all(kLevels);
  return all;
}

// A group without a larger value is zeros: by what its values are multiplied would not be finite.
constexpr float kLeast = 0x1p-100f;

// Each scale in 8 bits, and back.
void store_in_8_bits(std::vector<float>& scales) {
  static const std::array<float, 256> map = dynamic_map();
  static const Nearest<256> nearest(map.data());
  const double sum = std::accumulate(scales.begin(), scales.end(), 0.0);
  const auto mean = static_cast<float>(sum / static_cast<double>(scales.size()));
  for (size_t begin = 0; begin < scales.size(); begin += kScalesAGroup) {
    const size_t end = std::min(scales.size(), begin + kScalesAGroup);
    float largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(scales[i] -= mean));
    const float inverse = largest >= kLeast ? 1 / largest : 0;
    for (size_t i = begin; i < end; ++i) scales[i] = map[nearest(scales[i] * inverse)] * largest + mean;
  }
}

}  // namespace

WeightCoder::WeightCoder(DType coding, const Shape& shape) : coding_(coding) {
  check(is_coded(coding) && shape.numel() > 0, "codes of ", to_text(coding), " for ", shape);
  group_ = coding == DType::kNf4 ? kCodedBlock : shape[shape.rank() - 1];
  check(group_ % kCodedBlock == 0, "codes with a scale for each row of ", shape);
  largest_.assign(static_cast<size_t>(ceil_div(shape.numel(), group_)), 0.0f);
}

// Calls visit(group, first, end) for the parts of values from `begin` on that share a scale.
template <class Visit>
void WeightCoder::for_groups(int64_t begin, int64_t n, const Visit& visit) const {
  for (int64_t i = 0; i < n;) {
    const int64_t group = (begin + i) / group_, end = std::min(n, (group + 1) * group_ - begin);
    visit(static_cast<size_t>(group), i, end);
    i = end;
  }
}

void WeightCoder::see(int64_t begin, const float* values, int64_t n) {
  check(coding_ != DType::kNf4 || begin % kCodedBlock == 0, "values from within a block, at ", begin);
  for_groups(begin, n, [&](size_t group, int64_t first, int64_t end) {
    float largest = largest_[group];
    for (int64_t i = first; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
    largest_[group] = largest;
    if (coding_ != DType::kNf4 || !is_coded_) return;
    const Code code = code_of(group);
    for (int64_t i = first; i < end && is_coded_; ++i) is_coded_ = values[i] == kLevels[code(values[i])] * largest;
  });
}

void WeightCoder::finish() {
  scales_ = largest_;
  if (coding_ == DType::kNf4) {
    if (!is_coded_) store_in_8_bits(scales_);
    return;
  }
  for (float& scale : scales_) scale /= 127;
}

// What makes a code of a value of a group.
WeightCoder::Code WeightCoder::code_of(size_t group) const {
  const float largest = largest_[group];
  return {coding_, largest < kLeast ? 0 : coding_ == DType::kInt8 ? 127 / largest : 1 / largest};
}

uint8_t WeightCoder::Code::operator()(float value) const {
  if (coding == DType::kInt8) return static_cast<uint8_t>(static_cast<int8_t>(std::nearbyintf(value * inverse)));
  return static_cast<uint8_t>(nearest_level()(value * inverse));
}

void WeightCoder::encode(int64_t begin, const float* values, int64_t n, uint8_t* blocks) const {
  check(begin % kCodedBlock == 0, "codes from within a block, at ", begin);
  const int64_t width = bytes_of_block(coding_);
  for (int64_t at = 0; at < n; at += kCodedBlock, blocks += width) {
    const auto group = static_cast<size_t>((begin + at) / group_);
    const Code code = code_of(group);
    std::array<uint8_t, kCodedBlock> codes;
    for (int64_t i = 0; i < kCodedBlock; ++i) codes[static_cast<size_t>(i)] = code(at + i < n ? values[at + i] : 0);
    if (coding_ == DType::kInt8) std::copy(codes.begin(), codes.end(), blocks);
    else
      for (size_t i = 0; i < codes.size() / 2; ++i)
        blocks[i] = static_cast<uint8_t>(codes[2 * i] << 4 | codes[2 * i + 1]);
    std::memcpy(blocks + width - sizeof(float), &scales_[group], sizeof(float));
  }
}

void WeightCoder::round(int64_t begin, float* values, int64_t n) const {
  for_groups(begin, n, [&](size_t group, int64_t first, int64_t end) {
    const Code code = code_of(group);
    const float scale = scales_[group];
    for (int64_t i = first; i < end; ++i) {
      const uint8_t c = code(values[i]);
      values[i] = (coding_ == DType::kInt8 ? static_cast<float>(static_cast<int8_t>(c)) : kLevels[c]) * scale;
    }
  });
}

WeightCoder coder_of(DType coding, const Shape& shape, const ReadValues& read) {
  WeightCoder coder(coding, shape);
  std::vector<float> values(static_cast<size_t>(std::min(kAtOnce, shape.numel())));
  for_each_piece({0, shape.numel()}, kAtOnce, [&](IndexRange r) {
    read(r, values.data());
    coder.see(r.begin, values.data(), r.size());
  });
  coder.finish();
  return coder;
}

Hash128 fill_coded(const StateEntry& e, const ReadValues& read) {
  Hash128 sum;
  if (e.data.numel() == 0) return sum;
  check(e.region.is_whole(), "codes of a box of ", e.name);
  const WeightCoder coder = coder_of(e.data.dtype(), e.region.shape, read);
  for_each_piece({e.offset, e.end()}, kAtOnce, [&](IndexRange r) {
    std::vector<float> values(static_cast<size_t>(r.size()));
    read(r, values.data());
    sum += digest_of(e.name, r.begin, values.data(), r.size());
    std::vector<uint8_t> blocks(static_cast<size_t>(bytes_of(e.data.dtype(), r.size())));
    coder.encode(r.begin, values.data(), r.size(), blocks.data());
    const auto bytes = std::ssize(blocks);
    raw::copy(e.data.slice(0, r.begin - e.offset, r.end - e.offset).as_bytes(), Tensor::of(blocks, {bytes}));
  });
  return sum;
}

}  // namespace lockstep
