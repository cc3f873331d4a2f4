// A forward pass that computes nothing, to find shapes that do not fit before a run begins, and to count its
// operations. A plain function.
#pragma once

#include <map>
#include <string>

#include "data/samples/dataset.h"
#include "launch/config/settings.h"

namespace lockstep {

// What such a pass costs.
struct TrialPass {
  std::map<std::string, double> flops;  // floating-point operations of a sample's forward pass, by module
};

// Builds the model of `settings` on a meta device, which has no bytes, and runs each phase's forward pass and loss on a
// micro-batch of `data`'s shapes, of so many samples. Throws what that throws: ExitCode::kConfig where the model does
// not fit the data.
TrialPass try_pass(const Settings& settings, const DataSpec& data, int64_t samples);

// Tries a micro-batch of one sample where the run will have one, at the end of a step or of an epoch: batch norm may
// have no variance there. Throws ExitCode::kConfig with sizes that leave none.
void try_smallest_micro_batch(const Settings& settings, const Dataset& train);

}  // namespace lockstep
