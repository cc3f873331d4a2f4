// A job of MPI ranks that goes wrong in the way named by its argument. ctest looks at its exit code and words.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "comm/mpi/mpi_comm.h"

using namespace lockstep;

namespace {

void sleep_for(double seconds) { std::this_thread::sleep_for(Seconds(seconds)); }

// Of each wait. Where a rank does not come it is to end, and is still long enough for one that is slow.
Seconds deadline_of(const std::string& how) {
  const bool ends = how == "missing" || how == "missing-in-split" || how == "unsent";
  return Seconds(ends ? 5 : 60);
}
constexpr double kLong = 300;  // seconds: longer than the test waits

void fail(Communicator& comm, const std::string& how) {
  const Tensor t = Tensor::zeros({8});
  comm.broadcast(t, 0, "params.1").wait();
  if (how == "missing") {  // rank 1 does not arrive
    if (comm.rank() == 1) sleep_for(kLong);
    comm.all_reduce(t, ReduceOp::kSum, "grads.3").wait();
  } else if (how == "missing-in-split") {
    auto sub = comm.split(0, comm.rank(), "sub");
    if (comm.rank() == 1) sleep_for(kLong);
    sub->barrier("end of step");
  } else if (how == "mismatch") {
    if (comm.rank() == 1) comm.broadcast(t, 0, "w").wait();
    else comm.all_reduce(t, ReduceOp::kSum, "w").wait();
  } else if (how == "counts") {
    const std::vector<int64_t> sent = {4, 4}, received = {4, comm.rank() == 1 ? 3 : 4}, places = {0, 4};
    comm.all_to_all(Tensor::zeros({8}), received, places, t, sent, places, "parts").wait();
  } else if (how == "unsent") {
    if (comm.rank() == 0) comm.receive(t, 1, "activations").wait();
    sleep_for(kLong);
  } else if (how == "message") {
    if (comm.rank() == 1) comm.send(Tensor::zeros({3}), 0, "activations").wait();
    if (comm.rank() == 0) comm.receive(t, 1, "activations").wait();
    sleep_for(kLong);
  } else if (how == "exception") {
    if (comm.rank() == 1) throw Error(ExitCode::kNumeric, "loss is NaN");
    comm.all_reduce(t, ReduceOp::kSum, "grads.3").wait();
  } else if (how == "abort") {  // reaches a rank that waits for one that sleeps
    if (comm.rank() == 1) {
      comm.abort(Error(ExitCode::kRankLost, "the disk of rank 1 is full"));
      sleep_for(kLong);
    }
    comm.all_reduce(t, ReduceOp::kSum, "grads.3").wait();
  } else if (how == "exit") {  // without a word to MPI
    if (comm.rank() == 1) std::exit(7);
    comm.all_reduce(t, ReduceOp::kSum, "grads.3").wait();
  } else if (how == "return") {  // an error that every rank reports by its own return value
    throw 75;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  int rank = 0;
  try {
    auto comm = make_mpi_communicator({.deadline = deadline_of(how)});
    rank = comm->rank();
    fail(*comm, how);
  } catch (const Error& e) {
    std::fprintf(stderr, "rank %d, exit %d: %s\n", rank, static_cast<int>(e.code()), e.what());
    mpi_abort(static_cast<int>(e.code()));
  } catch (int code) {
    return code;
  }
  return 0;
}
