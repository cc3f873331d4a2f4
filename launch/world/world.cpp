#include "launch/world/world.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "comm/local/local_comm.h"
#include "comm/mpi/mpi_comm.h"
#include "comm/mpi/mpi_launch.h"
#include "comm/nccl/nccl_comm.h"
#include "core/base/caught.h"
#include "core/base/flight_recorder.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "launch/world/near_cpus.h"

namespace lockstep {
namespace {

void report(const WorldOptions& options, const Error& error, int rank, int size) {
  log_error(size > 1 ? str("rank ", rank, " on ", host_name(), ": ", error.what()) : std::string(error.what()));
  if (options.on_failure) options.on_failure(error, rank);
}

int threads_for(const WorldOptions& options, int local_ranks) {
  if (options.threads > 0) return static_cast<int>(options.threads);
  return std::max(1, available_cores() / std::max(1, local_ranks));
}

void run_rank(Communicator& host, int local_rank, int threads, const WorldOptions& options,
              const std::function<void(Communicator&)>& body) {
  trace_owner.rank = host.rank();
  const Device device = place_ranks(host, local_rank, options.device);
  const WithCpusNear near(device);
  Stream stream(device, Stream::Mode::kInline, threads);
  WithStream with(stream);
  apply(options.device, stream);
  // Destroyed before the stream, whose work may wait for ranks that have failed.
  std::unique_ptr<Communicator> by_nccl;
  if (device.type == DeviceType::kCuda && host.size() > 1) {
    std::string why;
    by_nccl = make_nccl_communicator(
        host, device, {.deadline = Seconds(options.deadline_s), .nccl_shares = device_backend().tries("nccl_split")},
        &why);
    if (!by_nccl && host.rank() == 0) log_info(str("ranks exchange through host memory: ", why));
  }
  body(by_nccl ? *by_nccl : host);
}

// What the CUDA driver and NCCL read before the first look for a GPU; what the user has set stands. Operations of
// several communicators run in the order in which the host launched them, so that no two ranks wait for each other in
// another order (NCCL_LAUNCH_ORDER_IMPLICIT, NCCL 2.26); streams of work, copies and exchanges have hardware queues of
// their own (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default).
void order_launches(const WorldOptions& options) {
  if (options.device.choice == DeviceChoice::kCpu) return;
  (void)setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
}

// Loading a kernel at its first use may wait for all work of the process's GPUs: also for a peer's exchange, which
// waits for this rank. So ranks that are threads, and exchange by NCCL as each may have a GPU, load all kernels with
// the driver, unless the user says otherwise.
void load_kernels_early(const WorldOptions& options, int ranks) {
  if (options.device.choice != DeviceChoice::kCpu && ranks <= most_visible_gpus())
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

// With more ranks, waits would exceed comm.deadline.
constexpr int kRanksPerCore = 256;

int run_threads(const WorldOptions& options, int size, const std::function<void(Communicator&)>& body) {
  auto comms = make_local_communicators(size, {.deadline = Seconds(options.deadline_s)});
  if (size == 1) {
    try {
      run_rank(*comms[0], 0, threads_for(options, 1), options, body);
      return 0;
    } catch (...) {
      const Error error = as_error(std::current_exception());
      report(options, error, 0, 1);
      return static_cast<int>(error.code());
    }
  }
  load_kernels_early(options, size);  // before the first look for a GPU
  std::mutex mutex;
  std::condition_variable changed;
  int left = size, code = 0;
  std::vector<std::thread> ranks;
  const auto fail = [&](const Error& error, int r) {
    std::lock_guard lock(mutex);
    if (code != 0 || error.is_secondary()) return;  // the others fail because of one: they stay silent
    code = static_cast<int>(error.code());
    set_log_prefix({});
    report(options, error, r, size);
    comms[static_cast<size_t>(r)]->abort(Error(ExitCode::kRankLost, str("rank ", r, " failed: ", error.what())));
  };
  const auto end = [&](int count) {
    {
      std::lock_guard lock(mutex);
      left -= count;
    }
    changed.notify_all();
  };
  ranks.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size && static_cast<int>(ranks.size()) == r; ++r) {
    try {
      ranks.emplace_back([&, r] {
        set_log_prefix(str("rank ", r));
        try {
          run_rank(*comms[static_cast<size_t>(r)], r, threads_for(options, size), options, body);
        } catch (...) {
          fail(as_error(std::current_exception()), r);
        }
        end(1);
      });
    } catch (const std::system_error& e) {
      fail(thread_refused(str("the thread of rank ", r, " of ", size), e), r);
      end(size - r);
    }
  }
  {
    // A failed job ends within 2 seconds, even if a rank is in the middle of a long computation.
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left == 0 || code != 0; });
    if (left > 0 && !changed.wait_for(lock, std::chrono::milliseconds(1500), [&] { return left == 0; })) {
      close_log_file();
      _exit(code);
    }
  }
  for (auto& t : ranks) t.join();
  return code;
}

int run_mpi(const WorldOptions& options, const std::function<void(Communicator&)>& body) {
  const MpiPlace place = mpi_place();
  if (place.size > 1) set_log_prefix(str("rank ", place.rank));
  // Must outlive an error of `body`: its destruction would reach the other ranks, which would report it as their own
  // error before the job ends.
  std::unique_ptr<Communicator> comm;
  try {
    {
      FlightPhase phase("start MPI");
      comm = make_mpi_communicator({.deadline = Seconds(options.deadline_s)});
    }
    run_rank(*comm, place.local_rank, threads_for(options, place.local_size), options, body);
    return 0;
  } catch (...) {
    const Error error = as_error(std::current_exception());
    set_log_prefix({});
    if (!error.is_secondary()) report(options, error, place.rank, place.size);
    else  // another rank says why, and ends the job
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    close_log_file();
    // The agent that watches this rank ends the others, after they have said what they saw.
    if (flight_recording()) _exit(static_cast<int>(error.code()));
    if (place.size > 1) mpi_abort(static_cast<int>(error.code()));
    return static_cast<int>(error.code());
  }
}

}  // namespace

int world_size(int asked, double deadline_s) {
  const std::string foreign = foreign_launcher();
  require(foreign.empty(), ExitCode::kUsage, foreign);
  if (!mpi_launched()) {
    const int cores = available_cores();
    require(asked <= kRanksPerCore * cores, ExitCode::kUsage, "--ranks ", asked, ": ", cores,
            cores == 1 ? " core is" : " cores are", " available here, and at most ", kRanksPerCore,
            " ranks per core can run as threads; use fewer ranks, or processes on several machines (mpirun -n)");
    return asked > 0 ? asked : 1;
  }
  require(mpi_built(), ExitCode::kUsage,
          "started by an MPI launcher, but this lockstep was built without MPI; start it with --ranks N");
  mpi_start_within(deadline_s);
  const int size = mpi_place().size;
  require(size > 1 || launched_size() <= 1, ExitCode::kUsage, "the launcher started ", launched_size(),
          " processes, but MPI sees this one alone: lockstep is built with ", mpi_version(),
          ", and the launcher is another MPI's; use the mpirun or mpiexec of ", mpi_version());
  require(asked == 0 || asked == size, ExitCode::kUsage, "--ranks ", asked, ", but the launcher started ", size,
          " processes; leave --ranks out under mpirun");
  return size;
}

bool is_first_process() { return !mpi_launched() || !mpi_built() || mpi_place().rank == 0; }

int run_world(const WorldOptions& options, const std::function<void(Communicator&)>& body) {
  const int size = world_size(options.ranks, options.deadline_s);
  order_launches(options);
  return mpi_launched() ? run_mpi(options, body) : run_threads(options, size, body);
}

}  // namespace lockstep
