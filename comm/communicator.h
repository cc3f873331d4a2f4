// Communicator: asynchronous collectives among ranks, called in the same order on every rank. An interface; the
// backends are LocalComm (threads of one process), MpiComm (MPI processes), NcclComm (GPUs, together with one of the
// two) and PlanComm (no other ranks; counts bytes only). Owned by the caller of make_... or split(); used by the thread
// of one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/stream.h"
#include "core/tensor/tensor.h"

namespace lockstep {

class PeerMemory;

enum class ReduceOp { kSum, kMax, kMin };

// A handle to an operation in progress. A plain value.
class Work {
 public:
  Work() = default;  // nothing to wait for
  // Called every 0.1 s during a wait for `what`; throws to end the wait. For backends whose operations cannot enforce
  // the deadline themselves (MPI).
  using Watch = std::function<void(Seconds waited, const std::string& what)>;
  // `queued`: the event belongs to a GPU, and other GPU streams wait for it without blocking the host; the watch is
  // called once.
  Work(Event event, std::string what, std::shared_ptr<const Watch> watch = nullptr, bool queued = false)
      : event_(std::move(event)), what_(std::move(what)), watch_(std::move(watch)), queued_(queued) {}
  // Makes the current stream wait for the operation. On an inline stream, and on a GPU stream if the operation runs on
  // the host, this blocks the host, for at most the communicator's deadline, which the operation itself enforces: it
  // throws ExitCode::kRankLost naming the collective, its sequence number, the tensor and the missing ranks.
  void wait() const;
  // Blocks the host. Throws ExitCode::kRankLost when `deadline` passes first.
  void synchronize(Seconds deadline) const;
  void finish() const { synchronize(Seconds(1e9)); }  // the operation or the watch enforces the deadline
  bool done() const { return event_.done(); }

 private:
  Event event_;
  std::string what_;
  std::shared_ptr<const Watch> watch_;
  bool queued_ = false;
};

// What share() gives: every rank's tensor, to be read once `work` is done. A plain value.
struct Shared {
  Work work;
  std::shared_ptr<const std::vector<const void*>> at;  // by rank; null where the tensor has no elements
  std::shared_ptr<const PeerMemory> memory;            // of the ranks that `at` points into; null: of this process

  // `bytes` of rank `rank` from byte `first` on: where they lie, or copied into `scratch`. Throws ExitCode::kRankLost.
  const void* read(int rank, int64_t first, int64_t bytes, void* scratch) const;
  bool in_this_process(int rank) const;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;  // "local", "mpi", "nccl", "plan"

  // Tensors are contiguous. Work that was enqueued on the current stream before the call may write them; afterwards
  // they must not be accessed until the returned Work has been waited for. `label` names the tensor in errors. All
  // ranks call the same operations in the same order with matching counts and the same label; a detected mismatch is an
  // error that names both calls (ExitCode::kRanksDisagree). Counts are in elements, one per rank; every rank passes the
  // same counts to reduce_scatter and all_gather. In these two, the smaller tensor may be this rank's part of the
  // larger one (in place); any other overlap of `in` and `out` is an error.
  virtual Work all_reduce(const Tensor& tensor, ReduceOp op,
                          std::string_view label) = 0;  // sums in the backend's own order
  virtual Work reduce_scatter(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts, ReduceOp op,
                              std::string_view label) = 0;
  virtual Work all_gather(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts,
                          std::string_view label) = 0;
  // Sends send_counts[r] elements of `in` from send_offsets[r] on to rank r; receives receive_counts[r] elements from
  // rank r into `out` from receive_offsets[r] on.
  virtual Work all_to_all(const Tensor& out, const std::vector<int64_t>& receive_counts,
                          const std::vector<int64_t>& receive_offsets, const Tensor& in,
                          const std::vector<int64_t>& send_counts, const std::vector<int64_t>& send_offsets,
                          std::string_view label) = 0;
  virtual Work broadcast(const Tensor& tensor, int root, std::string_view label) = 0;
  // A send is buffered and never waits for its receiver, so in a ring every rank may send first and then receive. Label
  // and sequence number of a send or receive need not match between ranks.
  virtual Work send(const Tensor& tensor, int to, std::string_view label) = 0;
  virtual Work receive(const Tensor& tensor, int from, std::string_view label) = 0;
  virtual void barrier(std::string_view label) = 0;  // blocks the host
  // The same as an operation like the others: done when all that ranks enqueued on their current streams before their
  // calls is done.
  virtual Work fence(std::string_view label) = 0;
  // Do the ranks read each other's host memory where it lies? Then share() works, and gathers copy once. The same on
  // every rank.
  virtual bool shares_memory() const { return false; }
  // By rank, the machine that it is on: numbered in the order of their first ranks. The same on every rank.
  virtual std::vector<int> machines() const { return std::vector<int>(static_cast<size_t>(size())); }
  // Lets every rank read `tensor`, in host memory, where it lies. `counts`: elements of it that each rank is going to
  // read, for bytes_sent(). The tensor must not be freed, nor what others read of it be written, until a later fence()
  // is done, which each rank calls once it has read.
  virtual Shared share(const Tensor& tensor, const std::vector<int64_t>& counts, std::string_view label);
  // A flat tensor [elements] on the current device, contents undefined, for data that calls of this communicator
  // exchange at every step. If the backend supports it, the memory is registered on all ranks, so that GPUs read and
  // write each other's memory directly. Collective: every rank requests the same sizes in the same order; in a call,
  // either all ranks pass such memory at equal offsets, or none does. The memory is freed once both the tensor and the
  // communicator are destroyed.
  virtual Tensor registered(int64_t elements, DType dtype);
  // A new, independent communicator of the ranks that pass the same color, ordered by (key, rank); null for color < 0.
  // Collective.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string_view label) = 0;
  // A new, independent communicator of the same ranks for tensors in host memory: it takes nothing of a GPU.
  // Collective.
  virtual std::unique_ptr<Communicator> copy_for_host(std::string_view label) { return split(0, rank(), label); }
  // The same as split() for the ranks of one line of a grid, of which `rank / stride % extent` is the place; stride *
  // extent divides size(). Collective.
  virtual std::unique_ptr<Communicator> split_axis(int stride, int extent, std::string_view label);
  // Payload that this rank has sent so far through this communicator and those split from it, in bytes as wire_bytes
  // counts them (comm/call.h).
  virtual int64_t bytes_sent() const = 0;
  // Poisons the communicator: every wait of every rank that it can reach throws `why`; the first one counts. From any
  // thread.
  virtual void abort(const Error& why) = 0;
  // What poisoned it. From any thread.
  virtual std::optional<Error> failure() const = 0;

 protected:
  int color_of_line(int stride, int extent) const;  // of split_axis()
};

// Small exchanges of host values, built on the operations above; they work with any current device and block the host.
// On a device without bytes nothing is exchanged, and every rank is taken to pass the same value.
std::vector<std::string> all_gather_text(Communicator& comm, std::string_view mine, std::string_view label);
std::vector<int64_t> all_gather_values(Communicator& comm, int64_t mine, std::string_view label);
std::string broadcast_text(Communicator& comm, std::string_view text, int root, std::string_view label);

// What a rank aborts its communicators with when it leaves them while an exception is under way: a secondary error, as
// that rank reports the exception itself. ExitCode::kRankLost.
Error rank_is_ending(int rank);

// For tests: as if so many consecutive ranks of the job were on each machine (LOCKSTEP_TEST_MACHINE_RANKS); 0: as it
// is.
int planted_machine_ranks();

struct CommOptions {
  Seconds deadline{60};     // of each wait
  bool check_calls = true;  // MPI: compare the calls of all ranks before each collective (one small all-reduce, 3 to 20
                            // us); threads always do
  bool nccl_shares = false;  // communicators that are split from one of NCCL share its resources (ncclCommSplit)
};

}  // namespace lockstep
