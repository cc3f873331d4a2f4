// Initial values: counter-based random numbers, uniform or normal, 256 elements at a time.
#include "core/kernels/initial.h"

#include "core/kernels/parallel.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kGroups = 64;  // draws of four elements in one block
constexpr int64_t kValues = 4 * kGroups;

// philox() of core/base/philox.h for kGroups counters at once, in lanes that a compiler makes vectors of.
void draw(uint64_t key, uint64_t counter, uint64_t site, uint32_t bits[4][kGroups]) {
  uint64_t c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    const uint64_t c = counter + static_cast<uint64_t>(g);
    c0[g] = c & 0xFFFFFFFFu, c1[g] = c >> 32, c2[g] = site & 0xFFFFFFFFu, c3[g] = site >> 32;
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int g = 0; g < kGroups; ++g) {
      const uint64_t p0 = 0xD2511F53u * c0[g], p1 = 0xCD9E8D57u * c2[g];
      c0[g] = (p1 >> 32) ^ c1[g] ^ k0;
      c2[g] = (p0 >> 32) ^ c3[g] ^ k1;
      c1[g] = p1 & 0xFFFFFFFFu;
      c3[g] = p0 & 0xFFFFFFFFu;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int g = 0; g < kGroups; ++g) {
    bits[0][g] = static_cast<uint32_t>(c0[g]), bits[1][g] = static_cast<uint32_t>(c1[g]);
    bits[2][g] = static_cast<uint32_t>(c2[g]), bits[3][g] = static_cast<uint32_t>(c3[g]);
  }
}

void block(const InitialArgs& a, int64_t index, float* values) {
  uint32_t bits[4][kGroups];
  draw(a.seed, static_cast<uint64_t>(index * kGroups), a.site, bits);
  float lane[4][kGroups];  // one draw's values lie side by side in the result; here they are apart, as vectors want
  const float scale = a.scale;
  for (int j = 0; j < 4; ++j) {
    for (int g = 0; g < kGroups; ++g) lane[j][g] = symmetric_of(bits[j][g]);
    if (a.normal)
      for (int g = 0; g < kGroups; ++g) lane[j][g] = normal_of(lane[j][g]);
  }
  for (int g = 0; g < kGroups; ++g)
    for (int j = 0; j < 4; ++j) values[4 * g + j] = scale * lane[j][g];
}

// Each run of the box takes what it needs of the parameter's blocks; a block that several runs meet is made once.
void initial_of_box(Parallel& parallel, const InitialArgs& a) {
  constexpr int64_t kPiece = 1 << 12;  // elements of the box
  const int64_t run = a.extent[a.dims - 1];
  auto body = [&](int64_t begin, int64_t end) {
    alignas(64) float values[kValues];
    int64_t made = -1;
    const int64_t last = a.begin + end * kPiece < a.end ? a.begin + end * kPiece : a.end;
    for (int64_t at = a.begin + begin * kPiece; at < last;) {
      const int64_t element = element_of(a, at), index = element / kValues, row_end = (at / run + 1) * run;
      int64_t n = (index + 1) * kValues - element;
      if (n > row_end - at) n = row_end - at;
      if (n > last - at) n = last - at;
      if (index != made) block(a, index, values);
      made = index;
      for (int64_t i = 0; i < n; ++i) a.out[at + i - a.begin] = values[element - index * kValues + i];
      at += n;
    }
  };
  parallel.run((a.end - a.begin + kPiece - 1) / kPiece, 1, body);
}

}  // namespace

void initial(Parallel& parallel, const InitialArgs& a) {
  if (a.dims > 0) return initial_of_box(parallel, a);
  const int64_t first = a.begin / kValues, last = (a.end + kValues - 1) / kValues;
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t b = first + begin; b < first + end; ++b) {
      alignas(64) float values[kValues];
      block(a, b, values);
      const int64_t from = b * kValues < a.begin ? a.begin : b * kValues,
                    to = (b + 1) * kValues > a.end ? a.end : (b + 1) * kValues;
      for (int64_t i = from; i < to; ++i) a.out[i - a.begin] = values[i - b * kValues];
    }
  };
  parallel.run(last - first, 16, body);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
