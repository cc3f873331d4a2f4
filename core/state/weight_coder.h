// WeightCoder: makes the codes of one frozen weight (core/kernels/codes/weight_codes.h) of its values, on the host.
// Scales are those of the whole tensor, so a rank that holds a slice sees all of it, a piece at a time. Owned by who
// loads weights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/base/partition.h"
#include "core/state/state.h"

namespace lockstep {

class WeightCoder {
 public:
  // `coding`: kNf4 or kInt8; of kInt8 the last extent of `shape` is a multiple of kCodedBlock.
  WeightCoder(DType coding, const Shape& shape);
  // Values of the flattened tensor from `begin` on, of kNf4 a multiple of kCodedBlock: all of them once, in any order;
  // then finish().
  void see(int64_t begin, const float* values, int64_t n);
  // nf4: the blocks' scales are themselves stored in 8 bits, by groups of 256 that have a scale in fp32, beside their
  // mean (double quantisation); from here on they are what that decodes to. A tensor that is in nf4 already, to the
  // bit, keeps its scales.
  void finish();

  // The blocks of values from `begin` on, a multiple of kCodedBlock. A last block is filled with zeros.
  void encode(int64_t begin, const float* values, int64_t n, uint8_t* blocks) const;
  // Makes of each value what its code decodes to.
  void round(int64_t begin, float* values, int64_t n) const;

 private:
  struct Code {
    DType coding;
    float inverse;
    uint8_t operator()(float value) const;
  };
  Code code_of(size_t group) const;
  template <class Visit>
  void for_groups(int64_t begin, int64_t n, const Visit& visit) const;

  DType coding_;
  int64_t group_;               // elements that share a scale
  std::vector<float> largest_;  // magnitudes of each group
  std::vector<float> scales_;   // what a code's level is multiplied by
  bool is_coded_ = true;        // all values so far are a level times the largest of their group
};

// Elements [range) of the whole tensor.
using ReadValues = std::function<void(IndexRange range, float* out)>;
// A coder that has seen all of a tensor of this shape.
WeightCoder coder_of(DType coding, const Shape& shape, const ReadValues& read);
// Fills a slice whose data is in codes; returns digest_of the values that were read for it.
Hash128 fill_coded(const StateEntry& entry, const ReadValues& read);

}  // namespace lockstep
