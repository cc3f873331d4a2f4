#include "core/io/state.h"

#include "core/base/partition.h"
#include "core/base/philox.h"

namespace lockstep {
std::vector<StateEntry> cut_for_rank(const std::vector<StateEntry>& entries, int rank, int size) {
  std::vector<StateEntry> out;
  for (const StateEntry& e : entries) {
    const Range chunks = split_evenly(ceil_div(e.data.numel(), kStateChunk), size, rank);
    const Range r{chunks.begin * kStateChunk, std::min(chunks.end * kStateChunk, e.data.numel())};
    if (r.empty()) continue;
    out.push_back({e.name, e.shape, e.offset + r.begin, e.data.slice(0, r.begin, r.end)});
  }
  return out;
}

Hash128 digest_of(std::string_view name, int64_t offset, const float* values, int64_t n) {
  check(offset % kStateChunk == 0, "digest: slice of ", name, " begins inside a chunk, at ", offset);
  const uint64_t key = hash64(name);
  Hash128 sum;
  for (int64_t i = 0; i < n; i += kStateChunk) {
    const int64_t count = std::min(kStateChunk, n - i);
    sum += hash128(values + i, static_cast<size_t>(count) * sizeof(float),
                   mix(key, static_cast<uint64_t>((offset + i) / kStateChunk)));
  }
  return sum;
}

Hash128 digest_of(const std::vector<StateEntry>& entries) {
  Hash128 sum;
  for (const StateEntry& e : entries) sum += digest_of(e.name, e.offset, e.data.values<float>(), e.data.numel());
  return sum;
}

}  // namespace lockstep
