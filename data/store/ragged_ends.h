// RaggedEnds: where each sample's part of a dataset ends, of a tensor of which every sample has a length of its own,
// such as the bytes of an encoded image or its boxes. A file may hold several such datasets. A plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/partition.h"

namespace lockstep {

struct RaggedEnds {
  std::vector<int64_t> ends;     // of each sample's part, in rows of the dataset; empty where every sample has one row
  std::vector<uint64_t> hashes;  // XXH3-64 of each chunk of the dataset that holds the ends

  IndexRange of(int64_t sample) const {
    const auto i = static_cast<size_t>(sample);
    return {i == 0 ? 0 : ends[i - 1], ends[i]};
  }
  // The rows of some samples, which lie one behind the other.
  IndexRange of(IndexRange samples) const {
    if (ends.empty() || samples.empty()) return samples;
    return {of(samples.begin).begin, of(samples.end - 1).end};
  }
  // The next sample has so many rows.
  void add(int64_t rows) { ends.push_back((ends.empty() ? 0 : ends.back()) + rows); }
};

}  // namespace lockstep
