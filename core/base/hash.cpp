#include "core/base/hash.h"

#include <xxhash.h>

#include <boost/crc.hpp>
#include <new>

namespace lockstep {

Hash128 hash128(const void* bytes, size_t size, uint64_t seed) {
  XXH128_hash_t h = XXH3_128bits_withSeed(bytes, size, seed);
  return {h.high64, h.low64};
}

uint64_t hash64(const void* bytes, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(bytes, size, seed); }

std::string to_hex(const Hash128& h) {
  static const char* digits = "0123456789abcdef";
  std::string out(32, '0');
  for (int i = 0; i < 16; ++i) {
    out[15 - i] = digits[(h.high >> (4 * i)) & 15];
    out[31 - i] = digits[(h.low >> (4 * i)) & 15];
  }
  return out;
}

Hasher128::Hasher128() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}
Hasher128::~Hasher128() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Hasher128::update(const void* bytes, size_t size) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes, size);
}
Hash128 Hasher128::digest() const {
  XXH128_hash_t h = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return {h.high64, h.low64};
}

uint32_t crc32c(const void* bytes, size_t size) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes, size);
  return crc.checksum();
}

}  // namespace lockstep
