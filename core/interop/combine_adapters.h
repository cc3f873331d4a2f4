// One adapter of peft in the place of several for the same model. Plain functions.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct WeightedAdapter {
  std::string folder;
  double weight = 1;
};

// Writes a folder whose adapter changes each weight by the sum of what the others change it by, each times its weight:
// the factors A one below the other, and those of B side by side, times weight and scale. So ranks add up. Throws
// ExitCode::kBadData naming file and tensor for an adapter that does not add up (dora, modules_to_save) or does not fit
// the first one; kMissingInput, and where `out` is there already, what PendingFolder throws.
void combine_adapters(const std::vector<WeightedAdapter>& adapters, const std::string& out);

}  // namespace lockstep
