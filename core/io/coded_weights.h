// Weights that bitsandbytes keeps in codes, as a folder of transformers holds them: nf4 with the scales of its blocks
// in fp32 or in 8 bits, and int8 with a scale for each row (the formats: docs/weights.md). Their elements are read in
// fp32.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/partition.h"
#include "core/io/stored_weight.h"

namespace lockstep {

using ReadBytes = std::function<void(const StoredWeight& weight, int64_t offset, void* to, int64_t bytes)>;

// One such weight: its codes, and tensors beside it that have the scales.
class CodedWeight {
 public:
  // `weight`: the codes, with the type and the shape of the values. `group`: elements that share a scale.
  CodedWeight(StoredWeight weight, int64_t group, std::function<std::vector<float>(const ReadBytes&)> read_scales)
      : weight_(std::move(weight)), group_(group), read_scales_(std::move(read_scales)) {}
  const StoredWeight& weight() const { return weight_; }  // type "NF4" or "INT8"
  void read(IndexRange elements, const ReadBytes& bytes, float* out) const;
  // Gives back the memory of the scales, which stay from one read() to the next.
  void forget() const { scales_ = {}; }

 private:
  StoredWeight weight_;
  int64_t group_;
  std::function<std::vector<float>(const ReadBytes&)> read_scales_;
  mutable std::vector<float> scales_;  // once they were read
};

// Finds the weights in codes among the tensors of files, and takes the tensors of which they are made out of `weights`,
// where they stand in their place. `where`: of a tensor, for messages. Throws ExitCode::kBadData naming the tensor for
// parts that are missing or of another type or size, and for fp4.
std::map<std::string, CodedWeight, std::less<>> join_codes(
    std::vector<StoredWeight>& weights, const ReadBytes& bytes,
    const std::function<std::string(const StoredWeight&)>& where);

}  // namespace lockstep
