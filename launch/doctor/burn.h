// Tests processors and memory: the same computations again and again, whose results must be the same bits in every pass
// and on every rank that computes by the same rules (bits_of_isa). Plain functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

struct BurnOptions {
  double seconds = 60;
  int64_t memory = 0;                                            // bytes that each rank fills and reads back in a pass
  std::function<void(double elapsed, int64_t passes)> progress;  // after each pass of this rank
  // For tests: the seconds so far, in place of a clock.
  std::function<double()> elapsed;
  // For tests: called with what a part of a pass computed, before it is hashed.
  std::function<void(int64_t pass, const std::string& part, const Tensor& result)> disturb;
};

struct Burned {
  int64_t passes = 0;                 // of all ranks
  std::vector<std::string> findings;  // a sentence for each rank that computed other values, and what; empty: none did
};

// Which value is right is what most of the ranks that compute alike find in their first pass; where they are alone, or
// no more than half agree, a rank is compared with itself. Collective; the same result on every rank.
Burned burn(Communicator& comm, const BurnOptions& options);

}  // namespace lockstep
