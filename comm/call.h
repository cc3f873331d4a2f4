// Call: one operation of a communicator as its backend sees it: what is asked, where the bytes are, and what to call it
// in errors. A plain value; the tensors behind its pointers are held by the queue (comm/queued_comm).
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
  kSplit
};

const char* name_of(CallKind kind);  // "all_reduce"

struct Call {
  CallKind kind = CallKind::kBarrier;
  int64_t number = 0;  // counts the collectives of a communicator from 1; sends and receives by pair and direction
  std::string label;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  int peer = -1;      // root, receiver or sender
  int64_t numel = 0;  // of all_reduce, broadcast, send, receive
  const void* in = nullptr;
  void* out = nullptr;
  Device in_device, out_device;  // where `in` and `out` lie
  // In elements, one a rank. all_gather and reduce_scatter: counts, and the offsets that follow from them.
  std::vector<int64_t> counts, offsets;            // all_to_all: of what is received
  std::vector<int64_t> send_counts, send_offsets;  // all_to_all
  int color = 0, key = 0;                          // split

  const char* in_at(int64_t element) const { return static_cast<const char*>(in) + element * size_of(dtype); }
  char* out_at(int64_t element) const { return static_cast<char*>(out) + element * size_of(dtype); }
};

std::string to_text(const Call& call);     // "all_reduce #17 of grads.3"
std::string details_of(const Call& call);  // "all_reduce #17 of grads.3 (sum, fp32, 1024 elements)"

// Payload that rank `rank` of `size` sends to other ranks, in bytes; copies within a rank and a backend's own messages
// do not count:
//   all_gather      its part, to each other rank
//   all_to_all      what goes to others
//   reduce_scatter  each other rank's part
//   all_reduce      reduce_scatter and all_gather of even parts: 2 (size - 1) / size of the tensor
//   broadcast       the root: the tensor, to each other rank
//   send            the tensor, unless to itself
int64_t wire_bytes(const Call& call, int rank, int size);

// Must be equal on all ranks: everything but pointers, and the counts of an all_to_all.
uint64_t fingerprint(const Call& call);
bool calls_match(const Call& a, const Call& b);
// What all ranks' all_to_all send less what they expect: the sum over ranks is 0 where they agree.
uint64_t exchange_balance(const Call& call, int rank);

// "rank 2", "ranks 0, 1 and 3"
std::string ranks_text(const std::vector<int>& ranks);
// Which ranks make which call; `details` holds one text a rank, empty where that is not known.
std::string disagreement_text(const std::vector<std::string>& details);

}  // namespace lockstep
