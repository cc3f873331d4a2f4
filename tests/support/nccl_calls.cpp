#include "tests/support/nccl_calls.h"

#include <nccl.h>

#include "tests/support/fake_cuda_runtime.h"

namespace lockstep::testing {

std::map<std::string, int>& nccl_calls() {
  static std::map<std::string, int> calls;
  return calls;
}
std::vector<NcclOperation>& nccl_operations() {
  static std::vector<NcclOperation> operations;
  return operations;
}

namespace {
ncclResult_t result_of_operations = ncclSuccess;
}
void set_nccl_result(int result) { result_of_operations = static_cast<ncclResult_t>(result); }

}  // namespace lockstep::testing

namespace {

struct FakeComm {
  int gpu;
};
ncclResult_t noted(const char* call) {
  lockstep::testing::nccl_calls()[call] = lockstep::testing::fake_cuda().current;
  return ncclSuccess;
}
ncclResult_t noted(const lockstep::testing::NcclOperation& operation) {
  lockstep::testing::nccl_operations().push_back(operation);
  return lockstep::testing::result_of_operations;
}
FakeComm* fake(ncclComm_t comm) { return reinterpret_cast<FakeComm*>(comm); }
ncclComm_t made_on(int gpu) { return reinterpret_cast<ncclComm_t>(new FakeComm{gpu}); }

}  // namespace

extern "C" {
ncclResult_t ncclGetVersion(int* out) { return *out = NCCL_VERSION_CODE, ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetUniqueId(ncclUniqueId*) { return ncclSuccess; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t*) {
  *comm = made_on(lockstep::testing::fake_cuda().current);
  return noted("connect");
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int, int, ncclComm_t* part, ncclConfig_t*) {
  *part = made_on(fake(comm)->gpu);
  return noted("split");
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* gpu) { return *gpu = fake(comm)->gpu, ncclSuccess; }
ncclResult_t ncclCommFinalize(ncclComm_t) { return noted("finalize"); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return delete fake(comm), noted("destroy"); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return delete fake(comm), noted("abort"); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) { return *state = ncclSuccess, ncclSuccess; }
ncclResult_t ncclMemAlloc(void** data, size_t) { return *data = nullptr, ncclInternalError; }
ncclResult_t ncclMemFree(void*) { return ncclSuccess; }
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t* window, int) {
  return *window = nullptr, noted("register");
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return noted("deregister"); }
ncclResult_t ncclGroupStart() { return noted({.name = "group_start"}); }
ncclResult_t ncclGroupEnd() { return noted({.name = "group_end"}); }
ncclResult_t ncclAllReduce(const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return noted({"all_reduce", in, out, n, type, op, -1, comm, stream});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return noted({"reduce", in, out, n, type, op, root, comm, stream});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return noted({"reduce_scatter", in, out, n, type, op, -1, comm, stream});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t n, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return noted({"all_gather", in, out, n, type, -1, -1, comm, stream});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return noted({"broadcast", in, out, n, type, -1, root, comm, stream});
}
ncclResult_t ncclSend(const void* in, size_t n, ncclDataType_t type, int to, ncclComm_t comm, cudaStream_t stream) {
  return noted({"send", in, nullptr, n, type, -1, to, comm, stream});
}
ncclResult_t ncclRecv(void* out, size_t n, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream) {
  return noted({"receive", nullptr, out, n, type, -1, from, comm, stream});
}
}
