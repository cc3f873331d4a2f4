// What the libraries chose, a line for each shape that this process met: for the log of a run, and to compare two runs
// whose bits differ. One list per process, safe from any thread.
#pragma once

#include <string>

namespace lockstep::cuda {

// A later choice for a shape replaces the earlier one.
void record_choice(const std::string& shape, const std::string& choice);
// "SHAPE: CHOICE" lines, sorted.
std::string algorithm_choices();

}  // namespace lockstep::cuda
