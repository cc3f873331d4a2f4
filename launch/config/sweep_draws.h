// The values of a random search: pure functions of seed, point and key, with the same digits on every machine.
#pragma once

#include <cstdint>
#include <string>

#include "launch/config/sweep_grammar.h"

namespace lockstep {

// Uniform in [0, 1), 53 bits: Philox with the seed as its key, of the counter (point, hash of the key's name). So
// neither another key nor a larger number of points changes what is drawn for this one.
double sweep_draw(uint64_t seed, int64_t point, std::string_view key);

// The value in the interval, or of the list, that `part` in [0, 1) of the way leads to. An interval's is the shortest
// text that reads as the same double. Logarithm and exponential are computed from IEEE additions, multiplications and
// divisions, which are rounded alike everywhere, not by a C library.
std::string value_at(const SweepKey& key, double part);

}  // namespace lockstep
