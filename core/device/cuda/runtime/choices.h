// What the libraries chose, a line for each shape that this process met: for the log of a run, and to compare two runs
// whose bits differ. One list per process, safe from any thread.
#pragma once

#include <string>

namespace lockstep::cuda {

// Where warnings go from now on; nowhere at first.
void set_choice_warning(void (*warn)(const std::string& line));

// A later choice for a shape replaces the earlier one.
void record_choice(const std::string& shape, const std::string& choice);
// The same, where a library has nothing for a shape that it serves elsewhere, so that slower kernels of our own step
// in: warns, once a shape.
void record_fallback(const std::string& shape, const std::string& choice);
// "SHAPE: CHOICE" lines, sorted.
std::string algorithm_choices();

}  // namespace lockstep::cuda
