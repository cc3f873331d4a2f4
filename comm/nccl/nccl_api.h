// NcclApi: an interface to the parts of NCCL that lockstep uses. Its implementation, comm/nccl, is a separate shared
// object, opened when GPUs first exchange data, and the only file that includes NCCL's header. Tests provide an
// implementation that runs on the CPU. One per process, never closed.
#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/device/backend.h"

namespace lockstep {

// Operations on NCCL communicators. They run in the order of the queue that is passed in, and return before they are
// done. Pointers are to memory that the GPU can access, counts are in elements, ranks are those of the communicator. As
// in NCCL, an operation is in place if this rank's part points to its position in the whole. All throw
// ExitCode::kRankLost if a peer or the network failed, kDevice if the GPU failed, kInternal if the call was wrong.
class NcclApi {
 public:
  using Handle = void*;

  virtual ~NcclApi() = default;
  virtual std::string version() const = 0;  // of the library in use: "2.28.9"

  virtual std::string new_id() = 0;  // bytes that one rank creates and every rank passes to connect()
  // Creates a communicator for GPU `gpu` of this process. Blocks until every rank has called it.
  virtual Handle connect(const std::string& id, int rank, int size, int gpu) = 0;
  // Cuts a communicator into one for each `color`, whose ranks are in the order of `key` and share its resources: the
  // proxy threads, and buffers where NCCL can. Every rank of it calls; null for a color below 0. From NCCL 2.18 on.
  virtual Handle split(Handle comm, int color, int key) = 0;
  // Frees the communicator after all operations are done. Every rank calls it.
  virtual void close(Handle comm) = 0;
  // Ends operations that hang, and frees the communicator. May be called from any thread. May itself hang.
  virtual void abort(Handle comm) = 0;
  virtual std::string async_error(
      Handle comm) = 0;  // an error that occurred after an operation returned; empty if none

  // Memory of GPU `gpu` that can be registered as a window; null if there is not enough memory, or if the library has
  // no windows.
  virtual void* allocate(int gpu, int64_t bytes) = 0;
  // Frees memory that is no longer a window. Waits for all work of the GPU.
  virtual void free(int gpu, void* data) = 0;
  // Registers a window: memory of the same size on every rank. Every rank calls it, in the same order; blocks until all
  // have. From then on GPUs access each other's memory directly in operations whose buffers are at equal offsets of the
  // window on all ranks (apart from each rank's own part). Null if the ranks' GPUs do not support it. If it throws on
  // one rank, the other ranks may still be waiting for that rank.
  using Window = void*;
  virtual Window add_window(Handle comm, void* data, int64_t bytes) = 0;
  virtual void remove_window(Handle comm, Window window) = 0;

  // The calls of this thread between group_start() and group_end() run as one operation.
  virtual void group_start() = 0;
  virtual void group_end() = 0;

  virtual void all_reduce(Handle comm, const void* in, void* out, int64_t n, DType dtype, ReduceOp op,
                          DeviceQueue& queue) = 0;
  virtual void reduce(Handle comm, const void* in, void* out, int64_t n, DType dtype, ReduceOp op, int root,
                      DeviceQueue& queue) = 0;  // `out` is written on the root only, and may be null elsewhere
  virtual void reduce_scatter(Handle comm, const void* in, void* out, int64_t n, DType dtype, ReduceOp op,
                              DeviceQueue& queue) = 0;  // n: the size of each rank's part
  virtual void all_gather(Handle comm, const void* in, void* out, int64_t n, DType dtype, DeviceQueue& queue) = 0;
  virtual void broadcast(Handle comm, const void* in, void* out, int64_t n, DType dtype, int root,
                         DeviceQueue& queue) = 0;  // `in` is read on the root only
  // A send and the matching receive wait for each other: a rank that sends and receives at the same time puts both in
  // one group.
  virtual void send(Handle comm, const void* in, int64_t n, DType dtype, int to, DeviceQueue& queue) = 0;
  virtual void receive(Handle comm, void* out, int64_t n, DType dtype, int from, DeviceQueue& queue) = 0;
};

inline std::string nccl_version_text(int code) { return str(code / 10000, ".", code / 100 % 100, ".", code % 100); }
// The oldest NCCL that has what is called where lockstep was compiled with `compiled`, as NCCL counts (22809
// is 2.28.9): windows, or without them communicators that are split. Structures carry their size and version, so a
// library takes those of a newer header.
constexpr int oldest_nccl(int compiled) { return compiled >= 22700 ? 22703 : 21800; }
// Throws ExitCode::kDevice unless a library of version `found` has it, and is of the same major version. Versions
// before 2.27.3 that have windows are refused: memory may be overwritten where communicators that are split share
// resources, and operations that a graph holds may race with others.
inline void check_nccl_version(int found, int compiled) {
  require(found < 22700 || found > 22702, ExitCode::kDevice, "NCCL ", nccl_version_text(found),
          " was found, which may overwrite memory (2.27.0 to 2.27.2): put 2.27.3 or a later one first in "
          "LD_LIBRARY_PATH");
  require(found / 10000 == compiled / 10000 && found >= oldest_nccl(compiled), ExitCode::kDevice, "NCCL ",
          nccl_version_text(found), " was found, but this lockstep needs ", nccl_version_text(oldest_nccl(compiled)),
          " or a later ", compiled / 10000, ".x (it was compiled with ", nccl_version_text(compiled),
          "): put one first in LD_LIBRARY_PATH, or build again with the one that is there");
}

// The library in use. If there is none, throws ExitCode::kDevice with what is missing and what to do.
NcclApi& nccl_api();
// The same, but if there is none, returns null and sets `why` to the reason.
NcclApi* find_nccl_api(std::string* why = nullptr);
// For tests; must be called before the first use of nccl_api() or find_nccl_api().
void set_nccl_api(NcclApi* api);

// The function that the shared object exports as lockstep_nccl_api. Throws Error if the NCCL library found at run time
// does not match the version that it was compiled with.
using MakeNcclApi = NcclApi*();

}  // namespace lockstep
