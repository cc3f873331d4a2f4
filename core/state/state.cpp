#include "core/state/state.h"

#include <algorithm>

#include "core/base/partition.h"
#include "core/base/philox.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {
constexpr int64_t kStretch = 1 << 20;  // a multiple of kStateChunk
}  // namespace

StateEntry StateEntry::part(int64_t begin, int64_t end) const {
  StateEntry out{name, region, offset + begin, data.slice(0, begin, end)};
  if (!scales) return out;
  check(begin % kStateChunk == 0 && (end % kStateChunk == 0 || end == data.numel()), name, ": elements [", begin, ", ",
        end, ") of the slice are no whole blocks of codes");
  out.scales = scales.slice(0, begin / kStateChunk, ceil_div(end, kStateChunk));
  return out;
}

bool StateEntry::begins_tensor() const { return offset == 0 && data.numel() > 0 && region.element(0) == 0; }

Tensor StateEntry::values(int64_t begin, int64_t end) const {
  const StateEntry from = part(begin, end);
  if (!scales) return raw::cast(from.data, DType::kFloat32);
  const Tensor out = Tensor::empty({end - begin});
  raw::decode_blocks(out, from.data, from.scales);
  return out;
}

void StateEntry::set_values(int64_t begin, const Tensor& from) const {
  const StateEntry to = part(begin, begin + from.numel());
  if (!scales) raw::copy(to.data, from);
  else raw::encode_blocks(to.data, to.scales, raw::to_device(from, data.device()));
}

std::vector<StateEntry> cut_for_rank(const std::vector<StateEntry>& entries, int rank, int size) {
  std::vector<StateEntry> out;
  for (const StateEntry& e : entries) {
    const IndexRange chunks = split_evenly(ceil_div(e.data.numel(), kStateChunk), size, rank);
    const IndexRange r{chunks.begin * kStateChunk, std::min(chunks.end * kStateChunk, e.data.numel())};
    if (r.empty()) continue;
    out.push_back(e.part(r.begin, r.end));
  }
  return out;
}

void for_each_stretch(const StateEntry& entry, int64_t most, const VisitStretch& visit) {
  check(entry.data.device().has_bytes(), "values of ", entry.name, " on ", entry.data.device());
  if (!entry.scales) return for_each_stretch(entry.data, most, visit);
  const auto values_of = [&](int64_t begin, int64_t end) { return entry.values(begin, end); };
  for_each_stretch(entry.data.numel(), most, entry.data.device(), values_of, visit);
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
  for (const StateEntry& e : entries) {
    check(e.region.is_aligned(kStateChunk), "digest: ", e.name, " ", to_text(e.region), " of ", e.region.shape,
          " cuts chunks of ", kStateChunk, " elements, of which this rank has a part alone");
    for_each_stretch(e, kStretch, [&](int64_t at, const float* values, int64_t n) {
      for_each_run(e.region, {e.offset + at, e.offset + at + n}, [&](int64_t from, int64_t element, int64_t m) {
        sum += digest_of(e.name, element, values + (from - e.offset - at), m);
      });
    });
  }
  return sum;
}

std::string name_of_region(const std::string& name, const Region& region) {
  return region.is_whole() ? name : str(name, to_text(region));
}

}  // namespace lockstep
