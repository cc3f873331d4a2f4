// Hashes: 128-bit digests of bytes (XXH3) and CRC-32C. The door to xxHash and Boost.CRC.
// Plain functions and values.
// core/state/state.h says what a run's digest covers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// An unsigned 128-bit value; + wraps, so that a sum of hashes does not depend on the order of its terms.
struct Hash128 {
  uint64_t high = 0, low = 0;
  Hash128& operator+=(const Hash128& o) {
    low += o.low;
    high += o.high + (low < o.low ? 1 : 0);
    return *this;
  }
  friend Hash128 operator+(Hash128 a, const Hash128& b) { return a += b; }
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

Hash128 hash128(const void* bytes, size_t size, uint64_t seed = 0);
inline Hash128 hash128(std::string_view text, uint64_t seed = 0) { return hash128(text.data(), text.size(), seed); }
uint64_t hash64(const void* bytes, size_t size, uint64_t seed = 0);
inline uint64_t hash64(std::string_view text, uint64_t seed = 0) { return hash64(text.data(), text.size(), seed); }

std::string to_hex(const Hash128& h);  // 32 lower-case digits
inline std::string to_text(const Hash128& h) { return to_hex(h); }

// Hashes a stream piece by piece; equal to hash128 of the whole.
class Hasher128 {
 public:
  Hasher128();
  ~Hasher128();
  Hasher128(Hasher128&&) = delete;
  void update(const void* bytes, size_t size);
  Hash128 digest() const;

 private:
  void* state_;
};

uint32_t crc32c(const void* bytes, size_t size);  // Castagnoli, as TensorBoard's record format wants

}  // namespace lockstep
