// The matrix product over threads: C is cut into blocks, one gemm_serial each.
#include "core/kernels/entries.h"
#include "core/kernels/gemm/epilogue.h"
#include "core/kernels/gemm/gemm_serial.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int64_t kRows = 24, kCols = 48;  // at most levels whole register tiles, where A is read in place

struct Block {
  int64_t rows, cols;
};

// The block of C that one gemm_serial computes: what ends first by an estimate, of all ways to cut C into whole tiles.
Block block_size(const GemmArgs& g, int64_t threads, int64_t work) {
  if (threads == 1 || g.batch >= 2 * threads || work <= 65536) return {g.m, g.n};
  const auto up = [](int64_t n, int64_t parts, int64_t unit) {
    return ((n + parts - 1) / parts + unit - 1) / unit * unit;
  };
  const int64_t most = work > (int64_t(1) << 25) ? 4 * threads : threads;
  Block best{g.m, g.n};
  double least = 0;
  for (int64_t cuts_m = 1; cuts_m <= most; ++cuts_m)
    for (int64_t cuts_n = 1; cuts_m * cuts_n <= most; ++cuts_n) {
      const Block block{up(g.m, cuts_m, kRows), up(g.n, cuts_n, kCols)};
      const int64_t count = g.batch * ((g.m + block.rows - 1) / block.rows) * ((g.n + block.cols - 1) / block.cols);
      // Rounds of blocks, and a part of one more for a slow core; packing costs as much as some rows and columns,
      // narrow blocks more. The numbers are those that served the shapes of `scripts/bench --products --threads 2`
      // best.
      const double rounds = static_cast<double>((count + threads - 1) / threads) + 0.15;
      const double time = rounds * static_cast<double>((block.rows + 32) * (block.cols + 40));
      if (least == 0 || time < least) best = block, least = time;
    }
  return best;
}

template <class T>
void gemm_in(Parallel& parallel, const GemmArgs& g) {
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  const int64_t work = g.m * g.n * (g.k > 0 ? g.k : 1);
  const Block block = block_size(g, parallel.threads(), work);
  const int64_t rows = block.rows, cols = block.cols;
  const int64_t blocks_m = (g.m + rows - 1) / rows, blocks_n = (g.n + cols - 1) / cols;
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t batch = item / (blocks_m * blocks_n), m0 = item / blocks_n % blocks_m * rows,
                    n0 = item % blocks_n * cols;
      GemmArgs part = g;
      part.m = g.m - m0 < rows ? g.m - m0 : rows;
      part.n = g.n - n0 < cols ? g.n - n0 : cols;
      part.a = block_of(g.a, m0, 0, batch);
      part.b = block_of(g.b, 0, n0, batch);
      part.c = block_of(g.c, m0, n0, batch);
      if (g.bias) part.bias = static_cast<const char*>(g.bias) + n0 * size_of(g.bias_dtype);
      gemm_serial<T>(parallel, part);
    }
  };
  const int64_t grain = work < 65536 ? 65536 / (work + 1) + 1 : 1;
  parallel.run(g.batch * blocks_m * blocks_n, grain, body);
}

}  // namespace

void gemm(Parallel& parallel, const GemmArgs& g) {
  const GemmArgs product = product_alone(g);
  if (g.a.dtype == DType::kFloat64) gemm_in<double>(parallel, product);
  else gemm_in<float>(parallel, product);
  passes_after_product(parallel, g, passes::pointwise, passes::column_sum);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
