#include "comm/mpi/mpi_session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "comm/mpi/mpi_launch.h"
#include "comm/mpi/mpi_start.h"
#include "comm/reduce.h"
#include "core/base/caught.h"

namespace lockstep {

void must(int result, std::string_view what) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(result, text, &length);
  int kind = 0;
  MPI_Error_class(result, &kind);
  throw Error(kind == MPI_ERR_NO_MEM ? ExitCode::kDevice : ExitCode::kRankLost,
              str(what, ": ", std::string_view(text, static_cast<size_t>(length))));
}

namespace {

// MPI_MAX and MPI_MIN may drop a NaN.
template <ReduceOp kOp>
void reduce_floats(void* in, void* sum, int* n, MPI_Datatype* type) {
  if (*type == MPI_FLOAT) reduce_into(kOp, static_cast<float*>(sum), static_cast<const float*>(in), *n);
  else reduce_into(kOp, static_cast<double*>(sum), static_cast<const double*>(in), *n);
}

void combine_summaries(void* in, void* sum, int* n, MPI_Datatype*) {
  for (int i = 0; i < *n; ++i) {
    const CallSummary& one = static_cast<const CallSummary*>(in)[i];
    CallSummary& all = static_cast<CallSummary*>(sum)[i];
    all = {std::min(all.least, one.least), std::max(all.largest, one.largest), all.balance + one.balance};
  }
}

void flush_output() {
  std::fflush(stdout);
  std::fflush(stderr);
}

// Ends the process after `limit`, in case the code that follows hangs.
void end_after(Seconds limit, int status) {
  std::thread([=] {
    std::this_thread::sleep_for(limit);
    _exit(status);
  }).detach();
}

void at_exit(int status, void*) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  if (session().broken || session().running > 0 || (status != 0 && session().open > 0)) {
    flush_output();
    _exit(status ? status : static_cast<int>(ExitCode::kRankLost));
  }
  // MPI_Finalize waits for all ranks; after an error it gets only a short time limit.
  constexpr Seconds kPatience{600}, kAfterError{2};
  end_after(status ? kAfterError : kPatience, status ? status : static_cast<int>(ExitCode::kRankLost));
  MPI_Finalize();
}

// A blocked MPI call spins; it must yield if there are not two cores for the two threads of a rank.
void set_yield_when_idle() {
  const int machine = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), mine = available_cores();
  const bool tight = mine < machine ? mine < 2 : launched_local_size() * 2 > machine;
  if (tight) setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

// By Open MPI's default a message of more than 64 KiB first asks its receiver, which costs a round trip each; where a
// slow link has a queue, that is longer than the message. Messages up to this size leave at once. They take a copy on
// either side, which is cheap beside TCP. What the environment
// has set stays.
void set_tcp_messages() {
  const auto set = [](const char* name, const char* value) {
    setenv(str("OMPI_MCA_btl_tcp_", name).c_str(), value, 0);
  };
  for (const char* name : {"eager_limit", "rndv_eager_limit", "max_send_size"}) set(name, "4194304");
  // Buffers of that size, by default 8 at the start and 32 more at a time.
  set("free_list_num", "1");
  set("free_list_inc", "2");
}

}  // namespace

// Never destroyed: a thread that hangs in MPI may still access it while the process ends.
MpiSession& session() {
  static MpiSession* one = new MpiSession();
  return *one;
}

MpiSession::MpiSession() {
  const MpiStart watch;
  int already = 0, provided = 0;
  MPI_Initialized(&already);
  if (already) {
    MPI_Query_thread(&provided);
  } else {
    // If Open MPI gets no memory while it starts, it crashes or ends the process with its own exit code.
    constexpr size_t kRoom = 128 << 20;
    require(has_address_space(kRoom), ExitCode::kDevice, "out of memory: MPI needs up to ", kRoom >> 20,
            " MiB of address space to start; ", host_memory_text());
    set_yield_when_idle();
    set_tcp_messages();
    must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    on_exit(at_exit, nullptr);
  }
  require(provided >= MPI_THREAD_MULTIPLE, ExitCode::kUsage,
          "this MPI does not provide MPI_THREAD_MULTIPLE, which lockstep needs because each communicator has its own "
          "thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &place.size);
  MPI_Comm host = MPI_COMM_NULL;
  must(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, place.rank, MPI_INFO_NULL, &host),
       "MPI_Comm_split_type");
  MPI_Comm_rank(host, &place.local_rank);
  MPI_Comm_size(host, &place.local_size);
  MPI_Comm_free(&host);
  MPI_Op_create(reduce_floats<ReduceOp::kMax>, 1, &max);
  MPI_Op_create(reduce_floats<ReduceOp::kMin>, 1, &min);
  static_assert(sizeof(CallSummary) == 3 * sizeof(uint64_t));
  MPI_Type_contiguous(3, MPI_UINT64_T, &summary_type);
  MPI_Type_commit(&summary_type);
  MPI_Op_create(combine_summaries, 1, &summary);
}

MPI_Op MpiSession::op_of(ReduceOp op, DType dtype) const {
  if (op == ReduceOp::kSum) return MPI_SUM;
  if (is_floating(dtype)) return op == ReduceOp::kMax ? max : min;
  return op == ReduceOp::kMax ? MPI_MAX : MPI_MIN;
}

bool mpi_built() { return true; }

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  must(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string all(text, static_cast<size_t>(length));
  // MPICH: "MPICH Version:\t4.0.2\n..."; Open MPI: "Open MPI v4.1.4, package: ...". The rest says who built it, and
  // when.
  if (const size_t at = all.find("Version:\t"); at != std::string::npos)
    return str("MPICH v", all.substr(at + 9, all.find('\n', at) - at - 9));
  return all.substr(0, all.find_first_of(",\n"));
}

MpiPlace mpi_place() { return session().place; }

void mpi_abort(int exit_code) {
  flush_output();
  int ready = 0, finalized = 0;
  MPI_Initialized(&ready);
  MPI_Finalized(&finalized);
  if (ready && !finalized) {
    end_after(Seconds(1), exit_code);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  _exit(exit_code);
}

}  // namespace lockstep
