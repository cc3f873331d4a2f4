// Speed of the collectives: GB/s of payload (bytes of the whole tensor / time), and the time of the smallest call.
//   comm_bench            2 ranks as threads
//   mpirun -n 2 comm_bench
// Best of several; every rank writes its input before each call, as a backward pass does.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include "comm/mpi/mpi_comm.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/run_ranks.h"

using namespace lockstep;

namespace {

double best_seconds(Communicator& comm, int64_t bytes, const std::function<void()>& before,
                    const std::function<Work()>& call) {
  const int repeats = bytes > (64 << 20) ? 5 : bytes > (1 << 20) ? 15 : 200;
  double best = 1e9;
  for (int k = 0; k < repeats; ++k) {
    before();
    comm.barrier("bench");
    const auto start = std::chrono::steady_clock::now();
    call().wait();
    best = std::min(best, Seconds(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void measure(Communicator& comm) {
  if (comm.rank() == 0)
    std::printf("%d ranks, %s\n%10s %12s %14s %12s %12s %12s   GB/s\n", comm.size(),
                std::string(comm.backend()).c_str(), "MB", "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                "broadcast");
  const int64_t n = comm.size();
  for (int64_t bytes : {4 << 10, 1 << 20, 4 << 20, 64 << 20, 498 << 20}) {
    const int64_t part = bytes / 4 / n, numel = part * n;
    const Tensor whole = Tensor::zeros({numel}), other = Tensor::zeros({numel}), mine = Tensor::zeros({part});
    std::vector<int64_t> counts(static_cast<size_t>(n), part), places;
    for (int64_t r = 0; r < n; ++r) places.push_back(r * part);
    auto fill_whole = [&] { raw::fill(whole, 1); };
    auto fill_part = [&] { raw::fill(mine, 1); };
    const double seconds[] = {
        best_seconds(comm, bytes, fill_whole, [&] { return comm.all_reduce(whole, ReduceOp::kSum, "x"); }),
        best_seconds(comm, bytes, fill_whole,
                     [&] { return comm.reduce_scatter(mine, whole, counts, ReduceOp::kSum, "x"); }),
        best_seconds(comm, bytes, fill_part, [&] { return comm.all_gather(whole, mine, counts, "x"); }),
        best_seconds(comm, bytes, fill_whole,
                     [&] { return comm.all_to_all(other, counts, places, whole, counts, places, "x"); }),
        best_seconds(comm, bytes, fill_whole, [&] { return comm.broadcast(whole, 0, "x"); }),
    };
    if (comm.rank() != 0) continue;
    std::printf("%10.3f", static_cast<double>(bytes) / (1 << 20));
    for (double s : seconds) std::printf(" %12.2f", static_cast<double>(bytes) / s * 1e-9);
    std::printf("   (all_reduce: %.0f us)\n", seconds[0] * 1e6);
    std::fflush(stdout);
  }
}

}  // namespace

int main() {
  if (mpi_launched()) measure(*make_mpi_communicator());
  else lockstep::testing::run_ranks(2, measure);
}
