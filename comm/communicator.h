// Communicator: collectives among ranks, asynchronous, in one order on every rank. Small and wholly pure; the backends
// are LocalComm (threads of one process), MpiComm (MPI processes), NcclComm (GPUs, beside one of the two) and PlanComm
// (no other rank: it counts). Owned by whoever made it (make_..., split); used by one rank's thread.
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

enum class ReduceOp { kSum, kMax, kMin };

// A collective under way. A plain value.
class Work {
 public:
  Work() = default;  // nothing to wait for
  // Called every tenth of a second while a wait for `what` lasts; throws to end it. For backends whose operations
  // cannot keep the deadline themselves (MPI).
  using Watch = std::function<void(Seconds waited, const std::string& what)>;
  // `queued`: the event is a GPU's, which other GPU streams wait for without the host; the watch is asked once.
  Work(Event event, std::string what, std::shared_ptr<const Watch> watch = nullptr, bool queued = false)
      : event_(std::move(event)), what_(std::move(what)), watch_(std::move(watch)), queued_(queued) {}
  // Orders the current stream after the operation. On an inline stream, and on a GPU's where the operation is the
  // host's, this blocks the host, for at most the communicator's deadline, which the operation itself keeps: it throws
  // ExitCode::kRankLost naming collective, sequence number, tensor and missing ranks.
  void wait() const;
  // Blocks the host. Throws ExitCode::kRankLost when `deadline` passes first.
  void synchronize(Seconds deadline) const;
  void finish() const { synchronize(Seconds(1e9)); }  // the operation, or the watch, keeps the deadline
  bool done() const { return event_.done(); }

 private:
  Event event_;
  std::string what_;
  std::shared_ptr<const Watch> watch_;
  bool queued_ = false;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;  // "local", "mpi", "nccl", "plan"

  // Tensors are contiguous. They may be written by work of the current stream enqueued before the call; they must not
  // be touched until the Work was waited for. `label` names the tensor in errors. All ranks call the same operations in
  // the same order with matching counts and the same label; a mismatch that can be seen is an error that names both
  // (ExitCode::kRanksDisagree). Counts are in elements, one a rank; every rank passes the same counts to reduce_scatter
  // and all_gather. There, a rank's own part of the whole may be the very memory of the part (in place); any other
  // overlap of `in` and `out` is an error.
  virtual Work all_reduce(const Tensor& tensor, ReduceOp op,
                          std::string_view label) = 0;  // the backend's own order of summation
  virtual Work reduce_scatter(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts, ReduceOp op,
                              std::string_view label) = 0;
  virtual Work all_gather(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts,
                          std::string_view label) = 0;
  // Sends in[send_offsets[r] .. + send_counts[r]) to rank r; receives rank r's part at out[receive_offsets[r] ..).
  virtual Work all_to_all(const Tensor& out, const std::vector<int64_t>& receive_counts,
                          const std::vector<int64_t>& receive_offsets, const Tensor& in,
                          const std::vector<int64_t>& send_counts, const std::vector<int64_t>& send_offsets,
                          std::string_view label) = 0;
  virtual Work broadcast(const Tensor& tensor, int root, std::string_view label) = 0;
  // A send is buffered: it never waits for its receiver, so a ring may send first and receive then. Label and number
  // are the rank's own.
  virtual Work send(const Tensor& tensor, int to, std::string_view label) = 0;
  virtual Work receive(const Tensor& tensor, int from, std::string_view label) = 0;
  virtual void barrier(std::string_view label) = 0;  // blocks the host
  // A flat tensor of the current device, contents undefined, for what calls of this communicator move at every step:
  // where the backend can, memory that it knows on all ranks, which GPUs then read and write at each other's directly.
  // Collective: every rank asks for the same, in the same order; in a call, all pass such memory at equal places, or
  // none does. It stays taken until both tensor and communicator are gone.
  virtual Tensor registered(int64_t elements, DType dtype);
  // A new, independent channel of the ranks that pass the same color, ordered by (key, rank); null for color < 0.
  // Collective.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string_view label) = 0;
  // Payload that this rank has sent so far, through this communicator and those split from it, by the convention of
  // wire_bytes (comm/call.h).
  virtual int64_t bytes_sent() const = 0;
  // Poisons the communicator: every wait of every rank that it can reach ends with an error that carries `why`. From
  // any thread.
  virtual void abort(std::string_view why) = 0;
  // What poisoned it. From any thread.
  virtual std::optional<Error> failure() const = 0;
};

// Small exchanges of host memory, whatever the current device, built on the operations above; they block the host. On
// a device without bytes nothing comes, and every rank counts as saying the same.
std::vector<std::string> all_gather_text(Communicator& comm, std::string_view mine, std::string_view label);
std::vector<int64_t> all_gather_values(Communicator& comm, int64_t mine, std::string_view label);
std::string broadcast_text(Communicator& comm, std::string_view text, int root, std::string_view label);

// What a rank gives as the reason when it leaves while an exception is under way, and whether an error is only that:
// the rank itself reports the cause.
std::string ending_text(int rank);
bool is_ending_text(std::string_view what);

struct CommOptions {
  Seconds deadline{60};  // of each wait
  bool check_calls =
      true;  // MPI: compare descriptions before each collective (one small all-gather, 3 to 20 us); threads always do
};

}  // namespace lockstep
