#include "tests/support/nccl_calls.h"

#include <nccl.h>

#include <stdexcept>

#include "tests/support/fake_cuda_runtime.h"

namespace lockstep::testing {

std::map<std::string, int>& nccl_calls() {
  static std::map<std::string, int> calls;
  return calls;
}
std::vector<NcclExchange>& nccl_exchanges() {
  static std::vector<NcclExchange> exchanges;
  return exchanges;
}

namespace {
#define LOCKSTEP_NAMED(value) \
  { value, #value }
const std::map<ncclDataType_t, std::string> kTypes{
    LOCKSTEP_NAMED(ncclFloat32), LOCKSTEP_NAMED(ncclFloat64), LOCKSTEP_NAMED(ncclBfloat16), LOCKSTEP_NAMED(ncclFloat16),
    LOCKSTEP_NAMED(ncclInt64),   LOCKSTEP_NAMED(ncclInt32),   LOCKSTEP_NAMED(ncclUint8)};
const std::map<ncclRedOp_t, std::string> kOps{LOCKSTEP_NAMED(ncclSum), LOCKSTEP_NAMED(ncclMax),
                                              LOCKSTEP_NAMED(ncclMin)};
const std::map<ncclResult_t, std::string> kResults{
    LOCKSTEP_NAMED(ncclSuccess),      LOCKSTEP_NAMED(ncclRemoteError),     LOCKSTEP_NAMED(ncclSystemError),
    LOCKSTEP_NAMED(ncclInvalidUsage), LOCKSTEP_NAMED(ncclInvalidArgument), LOCKSTEP_NAMED(ncclUnhandledCudaError)};
#undef LOCKSTEP_NAMED
ncclResult_t result_of_exchanges = ncclSuccess;
}  // namespace

void set_nccl_result(const std::string& name) {
  for (const auto& [result, text] : kResults)
    if (text == name) return void(result_of_exchanges = result);
  throw std::out_of_range("no result of NCCL: " + name);
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
ncclResult_t noted(const lockstep::testing::NcclExchange& exchange) {
  lockstep::testing::nccl_exchanges().push_back(exchange);
  return lockstep::testing::result_of_exchanges;
}
std::string text_of(ncclDataType_t type) { return lockstep::testing::kTypes.at(type); }
std::string text_of(ncclRedOp_t op) { return lockstep::testing::kOps.at(op); }
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
  return noted({"all_reduce", in, out, n, text_of(type), text_of(op), -1, comm, stream});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return noted({"reduce", in, out, n, text_of(type), text_of(op), root, comm, stream});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return noted({"reduce_scatter", in, out, n, text_of(type), text_of(op), -1, comm, stream});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t n, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return noted({"all_gather", in, out, n, text_of(type), "", -1, comm, stream});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return noted({"broadcast", in, out, n, text_of(type), "", root, comm, stream});
}
ncclResult_t ncclSend(const void* in, size_t n, ncclDataType_t type, int to, ncclComm_t comm, cudaStream_t stream) {
  return noted({"send", in, nullptr, n, text_of(type), "", to, comm, stream});
}
ncclResult_t ncclRecv(void* out, size_t n, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream) {
  return noted({"receive", nullptr, out, n, text_of(type), "", from, comm, stream});
}
}
