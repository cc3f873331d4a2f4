// NcclApi: what lockstep needs of NCCL, so that only one file includes its header: comm/nccl, a shared object of its
// own, opened when GPUs first exchange anything. Tests bring one that works on the CPU. One per process, never closed.
#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "core/base/dtype.h"
#include "core/device/backend.h"

namespace lockstep {

// A communicator of NCCL; its operations run in the order of the queue they are given, and return before they are done.
// Pointers are memory that the GPU reaches, counts are elements, ranks are those of the communicator; as in NCCL, an
// operation in place has its own part where the whole has it. All throw ExitCode::kRankLost where a peer or the network
// failed, kDevice where the GPU did, kInternal where the call was wrong.
class NcclApi {
 public:
  using Handle = void*;

  virtual ~NcclApi() = default;
  virtual std::string version() const = 0;  // of the library in use: "2.28.9"

  virtual std::string new_id() = 0;  // bytes that one rank makes and every rank connects with
  // Blocks until every rank has called it. For GPU `gpu` of this process.
  virtual Handle connect(const std::string& id, int rank, int size, int gpu) = 0;
  // Once all is done: frees the communicator. Every rank calls it.
  virtual void close(Handle comm) = 0;
  // From any thread, while operations hang: ends them, and frees the communicator. May itself hang.
  virtual void abort(Handle comm) = 0;
  virtual std::string async_error(Handle comm) = 0;  // what failed since an operation returned, in words; or nothing

  // Memory of GPU `gpu` that can be a window; null where there is no more, or the library has none such.
  virtual void* allocate(int gpu, int64_t bytes) = 0;
  // No window any more. Waits for the GPU, whatever it does.
  virtual void free(int gpu, void* data) = 0;
  // A window: memory of the same size on every rank, each of which calls it, in one order; blocks until all have. From
  // then on what operations find there at equal places on all ranks (their own parts aside) GPUs reach directly. Null
  // where the ranks' GPUs cannot. A rank on which it throws may not have met the others, who then wait for it.
  using Window = void*;
  virtual Window add_window(Handle comm, void* data, int64_t bytes) = 0;
  virtual void remove_window(Handle comm, Window window) = 0;

  // What lies between runs as one operation. Of the calling thread.
  virtual void group_start() = 0;
  virtual void group_end() = 0;

  virtual void all_reduce(Handle comm, const void* in, void* out, int64_t n, DType dtype, ReduceOp op,
                          DeviceQueue& queue) = 0;
  virtual void reduce(Handle comm, const void* in, void* out, int64_t n, DType dtype, ReduceOp op, int root,
                      DeviceQueue& queue) = 0;  // only the root's `out` is written, and may be null elsewhere
  virtual void reduce_scatter(Handle comm, const void* in, void* out, int64_t n, DType dtype, ReduceOp op,
                              DeviceQueue& queue) = 0;  // n: of each rank's part
  virtual void all_gather(Handle comm, const void* in, void* out, int64_t n, DType dtype, DeviceQueue& queue) = 0;
  virtual void broadcast(Handle comm, const void* in, void* out, int64_t n, DType dtype, int root,
                         DeviceQueue& queue) = 0;  // only the root's `in` is read
  // Wait for each other: what a rank sends and receives at once belongs in one group.
  virtual void send(Handle comm, const void* in, int64_t n, DType dtype, int to, DeviceQueue& queue) = 0;
  virtual void receive(Handle comm, void* out, int64_t n, DType dtype, int from, DeviceQueue& queue) = 0;
};

// The library in use. Where none is: throws ExitCode::kDevice, saying what is missing and what to do.
NcclApi& nccl_api();
// Null, and `why` in words, instead.
NcclApi* find_nccl_api(std::string* why = nullptr);
// For tests, before anything asks for one.
void set_nccl_api(NcclApi* api);

// What the shared object exports as lockstep_nccl_api; throws Error where the library found is another than was
// compiled with.
using MakeNcclApi = NcclApi*();

}  // namespace lockstep
