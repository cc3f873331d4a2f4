// What the libraries chose, a line for each shape that this process met: for the log of a run, and to compare two runs
// whose bits differ. One list per process, safe from any thread. Knows nothing of the libraries.
#pragma once

#include <string>

namespace lockstep::cuda {

// The latest for a shape stays.
// Algorithms may be chosen by timing, split sums, and give other bits from run to run: for `reduce: fast`.
void set_tuning(bool on);
bool tuning();

void record_choice(const std::string& shape, const std::string& choice);
// "SHAPE: CHOICE" lines, sorted.
std::string algorithm_choices();

}  // namespace lockstep::cuda
