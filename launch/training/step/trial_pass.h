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
// micro-batch of `data`'s shapes. Throws what that throws: ExitCode::kConfig where the model does not fit the data.
TrialPass try_pass(const Settings& settings, const DataSpec& data);

}  // namespace lockstep
