// liblockstep_nccl.so: the implementation of NcclApi with NCCL. The only file that includes nccl.h.
#include <nccl.h>

#include <cstring>

#include "comm/nccl/nccl_api.h"

namespace lockstep {
namespace {

ExitCode code_of(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError: return ExitCode::kDevice;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
    case ncclInternalError: return ExitCode::kInternal;
    default: return ExitCode::kRankLost;
  }
}

std::string words(ncclResult_t result, ncclComm_t comm) {
  const char* more = ncclGetLastError(comm);
  return more && *more ? str(ncclGetErrorString(result), ": ", more) : std::string(ncclGetErrorString(result));
}

void must(ncclResult_t result, std::string_view what, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess) return;
  throw Error(code_of(result),
              str("NCCL: ", what, ": ", words(result, comm), "; NCCL_DEBUG=INFO in the environment makes it say more"));
}

void must(cudaError_t result, std::string_view what) {
  require(result == cudaSuccess, ExitCode::kDevice, "CUDA: ", what, ": ", cudaGetErrorString(result));
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return ncclFloat32;
    case DType::kFloat64: return ncclFloat64;
    case DType::kBFloat16: return ncclBfloat16;
    case DType::kFloat16: return ncclFloat16;
    case DType::kInt64: return ncclInt64;
    case DType::kInt32: return ncclInt32;
    case DType::kUInt8: return ncclUint8;
    case DType::kNf4:
    case DType::kInt8: break;
  }
  throw Error(ExitCode::kInternal, "NCCL has no such element type");
}

ncclRedOp_t op_of(ReduceOp op) { return op == ReduceOp::kSum ? ncclSum : op == ReduceOp::kMax ? ncclMax : ncclMin; }

ncclComm_t comm_of(NcclApi::Handle handle) { return static_cast<ncclComm_t>(handle); }
// The current GPU of a new thread is GPU 0, and NCCL would set it back to that: every rank would then create a context
// of half a GB on GPU 0.
void use_gpu_of(ncclComm_t comm) {
  int gpu = 0;
  must(ncclCommCuDevice(comm, &gpu), "asking for a communicator's GPU", comm);
  must(cudaSetDevice(gpu), str("using GPU ", gpu));
}
cudaStream_t stream_of(DeviceQueue& queue) { return static_cast<cudaStream_t>(queue.native()); }

class NcclLibrary final : public NcclApi {
 public:
  NcclLibrary() {
    int code = 0;
    must(ncclGetVersion(&code), "asking for its version");
    version_ = nccl_version_text(code);
    check_nccl_version(code, NCCL_VERSION_CODE);
  }

  std::string version() const override { return version_; }

  std::string new_id() override {
    ncclUniqueId id;
    must(ncclGetUniqueId(&id), "making an id for the ranks");
    return {id.internal, sizeof id.internal};
  }

  // A blocking communicator: a nonblocking one creates a thread for each operation and cannot be captured in a graph.
  // The caller enforces the deadline.
  Handle connect(const std::string& bytes, int rank, int size, int gpu) override {
    ncclUniqueId id;
    check(bytes.size() == sizeof id.internal, "an NCCL id of ", static_cast<int64_t>(bytes.size()), " bytes");
    memcpy(id.internal, bytes.data(), sizeof id.internal);
    must(cudaSetDevice(gpu), str("using GPU ", gpu));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclComm_t comm = nullptr;
    must(ncclCommInitRankConfig(&comm, size, id, rank, &config), str("connecting rank ", rank, " of ", size));
    return comm;
  }

  Handle split(Handle comm, int color, int key) override {
    use_gpu_of(comm_of(comm));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.splitShare = 1;
    ncclComm_t part = nullptr;
    must(ncclCommSplit(comm_of(comm), color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &part, &config),
         "splitting a communicator", comm_of(comm));
    return part;
  }

  void close(Handle comm) override {
    use_gpu_of(comm_of(comm));
    must(ncclCommFinalize(comm_of(comm)), "finishing a communicator", comm_of(comm));
    must(ncclCommDestroy(comm_of(comm)), "freeing a communicator");
  }
  void abort(Handle comm) override {
    use_gpu_of(comm_of(comm));
    must(ncclCommAbort(comm_of(comm)), "aborting a communicator");
  }

  std::string async_error(Handle comm) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_of(comm), &state);
    if (asked != ncclSuccess) return words(asked, comm_of(comm));
    return state == ncclSuccess || state == ncclInProgress ? "" : words(state, comm_of(comm));
  }

  // Windows exist since 2.27; they need memory from ncclMemAlloc, which other processes can map.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  void* allocate(int gpu, int64_t bytes) override {
    must(cudaSetDevice(gpu), str("using GPU ", gpu));
    void* data = nullptr;
    if (ncclMemAlloc(&data, static_cast<size_t>(bytes)) == ncclSuccess) return data;
    (void)cudaGetLastError();  // the cause may be lack of memory; then the next ordinary allocation reports it
    return nullptr;
  }
  void free(int gpu, void* data) override {
    must(cudaSetDevice(gpu), str("using GPU ", gpu));
    must(cudaDeviceSynchronize(), "waiting for the GPU");  // unmapping does not wait for work in progress
    must(ncclMemFree(data), "freeing memory");
  }
  Window add_window(Handle comm, void* data, int64_t bytes) override {
    use_gpu_of(comm_of(comm));
    ncclWindow_t window = nullptr;
    must(ncclCommWindowRegister(comm_of(comm), data, static_cast<size_t>(bytes), &window, NCCL_WIN_COLL_SYMMETRIC),
         "registering memory", comm_of(comm));
    return window;
  }
  void remove_window(Handle comm, Window window) override {
    use_gpu_of(comm_of(comm));
    must(ncclCommWindowDeregister(comm_of(comm), static_cast<ncclWindow_t>(window)), "unregistering memory",
         comm_of(comm));
  }
#else
  void* allocate(int, int64_t) override { return nullptr; }
  void free(int, void*) override {}
  Window add_window(Handle, void*, int64_t) override { return nullptr; }
  void remove_window(Handle, Window) override {}
#endif

  void group_start() override { must(ncclGroupStart(), "beginning a group"); }
  void group_end() override { must(ncclGroupEnd(), "running a group"); }

  void all_reduce(Handle comm, const void* in, void* out, int64_t n, DType dtype, ReduceOp op,
                  DeviceQueue& queue) override {
    must(ncclAllReduce(in, out, static_cast<size_t>(n), type_of(dtype), op_of(op), comm_of(comm), stream_of(queue)),
         "all_reduce", comm_of(comm));
  }
  void reduce(Handle comm, const void* in, void* out, int64_t n, DType dtype, ReduceOp op, int root,
              DeviceQueue& queue) override {
    must(ncclReduce(in, out, static_cast<size_t>(n), type_of(dtype), op_of(op), root, comm_of(comm), stream_of(queue)),
         "reduce", comm_of(comm));
  }
  void reduce_scatter(Handle comm, const void* in, void* out, int64_t n, DType dtype, ReduceOp op,
                      DeviceQueue& queue) override {
    must(ncclReduceScatter(in, out, static_cast<size_t>(n), type_of(dtype), op_of(op), comm_of(comm), stream_of(queue)),
         "reduce_scatter", comm_of(comm));
  }
  void all_gather(Handle comm, const void* in, void* out, int64_t n, DType dtype, DeviceQueue& queue) override {
    must(ncclAllGather(in, out, static_cast<size_t>(n), type_of(dtype), comm_of(comm), stream_of(queue)), "all_gather",
         comm_of(comm));
  }
  void broadcast(Handle comm, const void* in, void* out, int64_t n, DType dtype, int root,
                 DeviceQueue& queue) override {
    must(ncclBroadcast(in, out, static_cast<size_t>(n), type_of(dtype), root, comm_of(comm), stream_of(queue)),
         "broadcast", comm_of(comm));
  }
  void send(Handle comm, const void* in, int64_t n, DType dtype, int to, DeviceQueue& queue) override {
    must(ncclSend(in, static_cast<size_t>(n), type_of(dtype), to, comm_of(comm), stream_of(queue)), "send",
         comm_of(comm));
  }
  void receive(Handle comm, void* out, int64_t n, DType dtype, int from, DeviceQueue& queue) override {
    must(ncclRecv(out, static_cast<size_t>(n), type_of(dtype), from, comm_of(comm), stream_of(queue)), "receive",
         comm_of(comm));
  }

 private:
  std::string version_;
};

}  // namespace
}  // namespace lockstep

extern "C" __attribute__((visibility("default"))) lockstep::NcclApi* lockstep_nccl_api() {
  static auto* library = new lockstep::NcclLibrary();
  return library;
}
