// What stands out in the metrics of a run, as sentences for people. Plain functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/report/curve.h"

namespace lockstep {

using NamedCurves = std::vector<std::pair<std::string, const Curve*>>;

// Memory that grows all the time, losses and gradients that jump, layers whose activations are all zero: each with its
// step and its size.
std::vector<std::string> findings(const NamedCurves& curves);

}  // namespace lockstep
