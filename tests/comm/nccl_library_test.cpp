// comm/nccl, the file that calls NCCL, against a NCCL that only notes which GPU was current: every call about a
// communicator must be made with its GPU, from whatever thread.
#include <gtest/gtest.h>
#include <nccl.h>

#include <map>
#include <string>
#include <thread>

#include "comm/nccl_api.h"
#include "tests/support/fake_cuda_runtime.h"

namespace {

struct FakeComm {
  int gpu;
};
std::map<std::string, int> gpu_at;  // current at the last call of each name
int version = NCCL_VERSION_CODE;

ncclResult_t noted(const char* call) {
  gpu_at[call] = lockstep::testing::fake_cuda().current;
  return ncclSuccess;
}
FakeComm* fake(ncclComm_t comm) { return reinterpret_cast<FakeComm*>(comm); }
ncclComm_t made_on(int gpu) { return reinterpret_cast<ncclComm_t>(new FakeComm{gpu}); }

}  // namespace

extern "C" {
ncclResult_t ncclGetVersion(int* out) { return *out = version, ncclSuccess; }
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

extern "C" lockstep::NcclApi* lockstep_nccl_api();

namespace lockstep {
namespace {

TEST(NcclLibrary, UsesTheGpuOfACommunicatorInEveryCall) {
  testing::reset_fake_cuda();
  NcclApi& api = *lockstep_nccl_api();
  const std::string id = api.new_id();
  const NcclApi::Handle comm = api.connect(id, 0, 2, 1), other = api.connect(id, 1, 2, 1);
  const auto on_another_gpu = [](const std::function<void()>& call) {
    testing::fake_cuda().current = 0;  // as a new thread has it
    call();
  };
  NcclApi::Handle part = nullptr;
  on_another_gpu([&] { part = api.split(comm, 0, 0); });
  on_another_gpu([&] { api.add_window(comm, nullptr, 0); });
  on_another_gpu([&] { api.remove_window(comm, nullptr); });
  on_another_gpu([&] { api.close(part); });
  on_another_gpu([&] { api.abort(comm); });
  on_another_gpu([&] { api.abort(other); });
  for (const char* call : {"connect", "split", "register", "deregister", "finalize", "destroy", "abort"})
    EXPECT_EQ(gpu_at.at(call), 1) << call;
  EXPECT_TRUE(testing::fake_cuda().misuse.empty());
}

}  // namespace
}  // namespace lockstep
