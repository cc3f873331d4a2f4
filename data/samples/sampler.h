// Sampler: the order of samples. It maps each position of an epoch to a sample by a keyed permutation of [0, n). A
// plain value; a pure function of (n, seed, epoch, position) in constant memory.
//
// A Feistel network on Z_a x Z_b with a * b barely above n, walked until it lands below n: "generalized Feistel" with
// "cycle walking" of J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002. The round
// function is XXH3-64 of (key, half).
#pragma once

#include <cstdint>

namespace lockstep {

class Sampler {
 public:
  // Without shuffle the order is 0, 1, 2, ...
  Sampler(int64_t n, uint64_t seed, int64_t epoch, bool shuffle);
  int64_t operator()(int64_t position) const;

 private:
  uint64_t permute(uint64_t value) const;
  uint64_t n_, a_ = 1, b_ = 1, key_;
  bool shuffle_;
};

// A pseudorandom value in [0, n), a function of (purpose, seed, epoch).
int64_t random_below(int64_t n, uint64_t purpose, uint64_t seed, int64_t epoch);

}  // namespace lockstep
