// Call: the description of one communicator operation that is passed to a backend: kind, memory, element counts, and
// the label for error messages. A plain value; the queue (comm/queued_comm) keeps the tensors behind its pointers
// alive.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/dtype.h"

namespace lockstep {

enum class CallKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kSend,
  kReceive,
  kBarrier,
  kSplit,
  kShare
};

const char* name_of(CallKind kind);  // "all_reduce"

struct Call {
  CallKind kind = CallKind::kBarrier;
  int64_t number =
      0;  // from 1; collectives are counted per communicator, sends and receives per pair of ranks and direction
  std::string label;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  int peer = -1;      // root, receiver or sender
  int64_t numel = 0;  // of all_reduce, broadcast, send, receive
  const void* in = nullptr;
  void* out = nullptr;
  Device in_device, out_device;  // the devices that hold `in` and `out`
  // In elements, one entry per rank. all_gather and reduce_scatter: the part of each rank, and its offset in the whole.
  // share: what each rank reads of this rank's, in `send_counts`.
  std::vector<int64_t> counts, offsets;            // all_to_all: of the received parts
  std::vector<int64_t> send_counts, send_offsets;  // all_to_all
  int color = 0, key = 0;                          // split
  int stride = 0, extent = 0;                      // split_axis: of the axis
  std::vector<const void*>* shared = nullptr;      // share: filled with where each rank's memory lies

  const char* in_at(int64_t element) const { return static_cast<const char*>(in) + element * size_of(dtype); }
  char* out_at(int64_t element) const { return static_cast<char*>(out) + element * size_of(dtype); }
};

std::string to_text(const Call& call);     // "all_reduce #17 of grads.3"
std::string details_of(const Call& call);  // "all_reduce #17 of grads.3 (sum, fp32, 1024 elements)"

// Payload that rank `rank` of `size` sends to other ranks, in bytes. Copies within a rank and the backend's own
// protocol messages are not counted:
//   all_gather      its part, to each other rank
//   all_to_all      the parts for other ranks
//   reduce_scatter  each other rank's part
//   all_reduce      reduce_scatter and all_gather of even parts: 2 (size - 1) / size of the tensor
//   broadcast       the root: the tensor, to each other rank
//   send            the tensor, unless to itself
//   share           what each other rank reads
int64_t wire_bytes(const Call& call, int rank, int size);

// Messages that a rank sends at a time in an exchange, and as many that it receives.
constexpr int kMessagesUnderWay = 8;
// A gather of which latency is all that matters: the same on every rank.
bool is_small(const Call& gather);

// A hash of everything that must be equal on all ranks: all fields except the pointers and the counts of an all_to_all
// or a share.
uint64_t fingerprint(const Call& call);
bool calls_match(const Call& a, const Call& b);
// For an all_to_all: hashes of (sender, receiver, count) of what `rank` sends, minus the same of what it expects to
// receive. Modulo 2^64, the sum over all ranks is 0 if their counts agree.
uint64_t exchange_balance(const Call& call, int rank);

// "rank 2", "ranks 0, 1 and 3"
std::string ranks_text(const std::vector<int>& ranks);
// A sentence that says which ranks make which call. `details` holds one text per rank, empty if that rank's call is not
// known.
std::string disagreement_text(const std::vector<std::string>& details);

}  // namespace lockstep
