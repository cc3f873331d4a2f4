#include "tests/support/nccl_calls.h"

#include <nccl.h>

#include "tests/support/fake_cuda_runtime.h"

namespace lockstep::testing {

std::map<std::string, int>& nccl_calls() {
  static std::map<std::string, int> calls;
  return calls;
}

}  // namespace lockstep::testing

namespace {

struct FakeComm {
  int gpu;
};
ncclResult_t noted(const char* call) {
  lockstep::testing::nccl_calls()[call] = lockstep::testing::fake_cuda().current;
  return ncclSuccess;
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
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) { return ncclSuccess; }
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return ncclSuccess; }
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return ncclSuccess; }
}
