// Rows of a table: gathered, and summed into it in row order. An index outside the table is passed over, and a row
// gathered for it is 0: check_indices has it reported when the host next waits, and until then nothing may fault.
#include <bit>

#include "core/base/partition.h"
#include "core/device/cuda/kernels/chunk.h"
#include "core/device/cuda/kernels/launch.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int64_t warp_id() { return (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; }
__device__ inline int64_t warp_count() { return int64_t(gridDim.x) * blockDim.x / 32; }

// A warp a row, as patterns of `unit` bytes.
template <class Unit>
__global__ void __launch_bounds__(kThreads) gather_units(const __grid_constant__ GatherArgs a, int64_t units) {
  for (int64_t r = warp_id(); r < a.rows; r += warp_count()) {
    const int64_t row = a.index[r];
    const bool inside = row >= 0 && row < a.table_rows;
    const Unit* const from = static_cast<const Unit*>(a.table) + (inside ? row : 0) * units;
    Unit* const to = static_cast<Unit*>(a.rows_data) + r * units;
    for (int64_t u = lane_id(); u < units; u += 32) to[u] = inside ? from[u] : Unit{};
  }
}

// With conversion.
__global__ void __launch_bounds__(kThreads) gather_chunks(const __grid_constant__ GatherArgs a) {
  for (int64_t r = warp_id(); r < a.rows; r += warp_count()) {
    const int64_t row = a.index[r];
    const bool inside = row >= 0 && row < a.table_rows;
    for (int64_t c = lane_id() * kChunk; c < a.cols; c += 32 * kChunk) {
      const int left = a.cols - c < kChunk ? static_cast<int>(a.cols - c) : kChunk;
      Chunk<float> chunk{};
      if (inside) chunk = value_of<float>(load<float>(a.table, a.table_dtype, row * a.cols + c, left), a.table_dtype);
      store_chunk(a.rows_data, a.rows_dtype, r * a.cols + c, left, chunk);
    }
  }
}

// Stable radix sort of (index, position) by the index, 8 bits at a time: count each tile's digits, sum the counts over
// digits and tiles, place. A tile is one warp's, which goes through it 32 entries at a time, in order.
constexpr int kDigits = 256, kTileWarps = 4;

struct Entries {
  const int32_t* key = nullptr;  // of a first pass the caller's indices, whose positions are 0, 1, 2, ...
  const int32_t* position = nullptr;
};

struct SortPass {
  int64_t count = 0, tiles = 0, tile = 0;  // entries; tiles, and the entries of one
  int shift = 0;
  int32_t outside = 0;        // stands for every index that is not in [0, outside)
  int32_t* counts = nullptr;  // [kDigits, tiles]
};

__device__ inline int32_t key_at(const Entries& from, const SortPass& p, int64_t i) {
  const int32_t key = from.key[i];
  return key < 0 || key > p.outside ? p.outside : key;
}

// Where lane's entry stands among those of the warp's 32 that have its digit.
struct Peers {
  int rank, count;
};
__device__ inline Peers peers_of(int digit) {
  const unsigned same = __match_any_sync(kAllLanes, digit);
  return {__popc(same & ((1u << lane_id()) - 1)), __popc(same)};
}

__device__ inline int digit_of(int32_t key, const SortPass& p) { return (key >> p.shift) & (kDigits - 1); }

__global__ void __launch_bounds__(32 * kTileWarps)
    count_digits(const __grid_constant__ Entries from, const __grid_constant__ SortPass p) {
  __shared__ int32_t all[kTileWarps][kDigits];
  int32_t* const count = all[threadIdx.x / 32];
  const int64_t tile = warp_id();
  if (tile >= p.tiles) return;
  for (int d = lane_id(); d < kDigits; d += 32) count[d] = 0;
  const int64_t begin = tile * p.tile, end = begin + p.tile < p.count ? begin + p.tile : p.count;
  for (int64_t i0 = begin; i0 < end; i0 += 32) {
    const int64_t i = i0 + lane_id();
    const int digit = i < end ? digit_of(key_at(from, p, i), p) : -1;
    const Peers peers = peers_of(digit);
    __syncwarp();
    if (i < end && peers.rank == 0) count[digit] += peers.count;
  }
  __syncwarp();
  for (int d = lane_id(); d < kDigits; d += 32) p.counts[d * p.tiles + tile] = count[d];
}

// counts[i] becomes the sum of those before it. One block.
constexpr int kScanThreads = 1024;
__global__ void __launch_bounds__(kScanThreads) sum_counts(int32_t* counts, int64_t n) {
  __shared__ int32_t of_warp[32];
  const int64_t each = (n + kScanThreads - 1) / kScanThreads;
  const int64_t begin = threadIdx.x * each < n ? threadIdx.x * each : n, end = begin + each < n ? begin + each : n;
  int32_t mine = 0;
  for (int64_t i = begin; i < end; ++i) mine += counts[i];
  int32_t upto = mine;  // of the warp's lanes up to this one
  for (int step = 1; step < 32; step *= 2) {
    const int32_t below = __shfl_up_sync(kAllLanes, upto, static_cast<unsigned>(step));
    if (lane_id() >= step) upto += below;
  }
  if (lane_id() == 31) of_warp[threadIdx.x / 32] = upto;
  __syncthreads();
  int32_t before = upto - mine;
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) before += of_warp[w];
  for (int64_t i = begin; i < end; ++i) {
    const int32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

__global__ void __launch_bounds__(32 * kTileWarps)
    place_entries(const __grid_constant__ Entries from, const __grid_constant__ SortPass p, int32_t* key,
                  int32_t* position) {
  __shared__ int32_t all[kTileWarps][kDigits];
  int32_t* const next = all[threadIdx.x / 32];
  const int64_t tile = warp_id();
  if (tile >= p.tiles) return;
  for (int d = lane_id(); d < kDigits; d += 32) next[d] = p.counts[d * p.tiles + tile];
  __syncwarp();
  const int64_t begin = tile * p.tile, end = begin + p.tile < p.count ? begin + p.tile : p.count;
  for (int64_t i0 = begin; i0 < end; i0 += 32) {
    const int64_t i = i0 + lane_id();
    const bool there = i < end;
    const int32_t mine = there ? key_at(from, p, i) : 0;
    const int digit = there ? digit_of(mine, p) : -1;
    const Peers peers = peers_of(digit);
    const int32_t to = there ? next[digit] + peers.rank : 0;
    __syncwarp();
    if (there) {
      key[to] = mine;
      position[to] = from.position ? from.position[i] : static_cast<int32_t>(i);
      if (peers.rank == peers.count - 1) next[digit] = to + 1;
    }
    __syncwarp();
  }
}

Entries sorted(CudaQueue& queue, const GatherArgs& a) {
  SortPass p;
  p.count = a.rows;
  p.tile = round_up(ceil_div(a.rows, 1024), 32);  // few tiles: their counts are summed by one block
  if (p.tile < 512) p.tile = 512;
  p.tiles = ceil_div(a.rows, p.tile);
  p.outside = narrow<int32_t>(a.table_rows);
  int32_t* const memory = static_cast<int32_t*>(
      queue.scratch_memory(1, (4 * a.rows + kDigits * p.tiles) * static_cast<int64_t>(sizeof(int32_t))));
  p.counts = memory + 4 * a.rows;
  const int64_t blocks = ceil_div(p.tiles, kTileWarps);
  Entries from{a.index, nullptr};
  int32_t* to = memory;
  const int bits = std::bit_width(static_cast<uint32_t>(p.outside));
  for (p.shift = 0; p.shift < bits; p.shift += 8) {
    launch(count_digits, queue, blocks, 32 * kTileWarps, from, p);
    launch(sum_counts, queue, 1, kScanThreads, p.counts, kDigits * p.tiles);
    launch(place_entries, queue, blocks, 32 * kTileWarps, from, p, to, to + a.rows);
    from = {to, to + a.rows};
    to = to == memory ? memory + 2 * a.rows : memory;
  }
  return from;
}

// A warp adds 256 columns of all rows that have one index, in row order; those whose entry is not the first of its
// index have nothing to do.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_rows(const __grid_constant__ GatherArgs a, const __grid_constant__ Entries entries, int64_t tiles) {
  for (int64_t item = warp_id(); item < a.rows * tiles; item += warp_count()) {
    const int64_t first = item / tiles, c = (item % tiles * 32 + lane_id()) * kChunk;
    const int32_t row = entries.key[first];
    if (row >= a.table_rows || (first > 0 && entries.key[first - 1] == row)) continue;
    const int left = a.cols - c < kChunk ? static_cast<int>(a.cols - c) : kChunk;
    const int64_t at = row * a.cols + c;
    Chunk<T> total{};
    if (left > 0) total = value_of<T>(load<T>(a.table, a.table_dtype, at, left), a.table_dtype);
    int there = 32;
    for (int64_t i0 = first; there == 32; i0 += 32) {
      const int64_t i = i0 + lane_id();
      const bool same = i < a.rows && entries.key[i] == row;
      const int32_t position = same ? entries.position[i] : 0;
      there = __popc(__ballot_sync(kAllLanes, same));  // sorted: they stand first
      constexpr int kAtOnce = 8;                       // loads under way
      for (int k0 = 0; k0 < there; k0 += kAtOnce) {
        Loaded<T> loaded[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const int64_t r = __shfl_sync(kAllLanes, position, k0 + k);
          if (k0 + k < there && left > 0) loaded[k] = load<T>(a.rows_data, a.rows_dtype, r * a.cols + c, left);
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          if (k0 + k >= there || left <= 0) continue;
          const Chunk<T> x = value_of<T>(loaded[k], a.rows_dtype);
#pragma unroll
          for (int l = 0; l < kChunk; ++l) total.v[l] += x.v[l];
        }
      }
    }
    if (left > 0) store_chunk(a.table, a.table_dtype, at, left, total);
  }
}

}  // namespace

void gather(Parallel& where, const GatherArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  const int64_t blocks = blocks_for(queue, a.rows * 32, kThreads), bytes = a.cols * size_of(a.table_dtype);
  if (a.table_dtype != a.rows_dtype) launch(gather_chunks, queue, blocks, kThreads, a);
  else if (bytes % 16 == 0 && is_aligned(a.table) && is_aligned(a.rows_data))
    launch(gather_units<uint4>, queue, blocks, kThreads, a, bytes / 16);
  else if (size_of(a.table_dtype) == 8) launch(gather_units<uint64_t>, queue, blocks, kThreads, a, a.cols);
  else if (size_of(a.table_dtype) == 4) launch(gather_units<uint32_t>, queue, blocks, kThreads, a, a.cols);
  else if (size_of(a.table_dtype) == 2) launch(gather_units<uint16_t>, queue, blocks, kThreads, a, a.cols);
  else launch(gather_units<uint8_t>, queue, blocks, kThreads, a, a.cols);
}

void scatter_add(Parallel& where, const GatherArgs& a) {
  if (a.rows == 0 || a.cols == 0) return;
  CudaQueue& queue = cuda_queue(where);
  const Entries entries = sorted(queue, a);
  const int64_t tiles = ceil_div(a.cols, 32 * kChunk), blocks = blocks_for(queue, a.rows * tiles * 32, kThreads);
  if (a.table_dtype == DType::kFloat64) launch(add_rows<double>, queue, blocks, kThreads, a, entries, tiles);
  else launch(add_rows<float>, queue, blocks, kThreads, a, entries, tiles);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
