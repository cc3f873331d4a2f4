#include "tests/support/fake_cuda_runtime.h"

#include <cublasLt.h>
#include <cudnn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lockstep::testing {
namespace {

FakeCudaRuntime state;

bool fails(const char* call, cudaError_t* error) {
  auto it = state.fails.find(call);
  if (it == state.fails.end()) return false;
  *error = it->second;
  return true;
}

struct FakeEvent {
  int gpu;
  bool captured = false, timing = false;
  double at_ms = 0;  // when it was recorded
};
FakeEvent& event_of(cudaEvent_t event) { return *reinterpret_cast<FakeEvent*>(event); }

void on(int gpu, const char* call) {
  if (gpu != state.current) state.misuse.push_back(call);
}

cudaError_t give_memory(void** data, size_t bytes, int gpu, const char* call) {
  cudaError_t error;
  if (fails(call, &error)) return error;
  if (gpu >= 0) {
    int64_t& free = state.gpus[static_cast<size_t>(gpu)].free_bytes;
    if (static_cast<int64_t>(bytes) > free) return cudaErrorMemoryAllocation;
    free -= static_cast<int64_t>(bytes);
  }
  *data = std::malloc(bytes);
  state.device_memory[*data] = {gpu, static_cast<int64_t>(bytes)};
  return cudaSuccess;
}

cudaError_t take_memory(void* data) {
  auto it = state.device_memory.find(data);
  if (it == state.device_memory.end()) return cudaErrorInvalidValue;
  if (it->second.first >= 0) state.gpus[static_cast<size_t>(it->second.first)].free_bytes += it->second.second;
  state.device_memory.erase(it);
  std::free(data);
  return cudaSuccess;
}

}  // namespace

FakeCudaRuntime& fake_cuda() { return state; }
void reset_fake_cuda() { state = {}; }

}  // namespace lockstep::testing

using namespace lockstep::testing;

// The call `name` fails where a test asked for it.
#define FAILS_IF_ASKED(name)               \
  do {                                     \
    cudaError_t asked;                     \
    if (fails(name, &asked)) return asked; \
  } while (false)

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorECCUncorrectable: return "cudaErrorECCUncorrectable";
    case cudaErrorSystemNotReady: return "cudaErrorSystemNotReady";
    default: return "cudaErrorOfSomeName";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "an error in the runtime's words"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  FAILS_IF_ASKED("cudaGetDeviceCount");
  *count = static_cast<int>(state.gpus.size());
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = state.driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* gpu) {
  *gpu = state.current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int gpu) {
  state.current = gpu;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int gpu) {
  *found = {};
  std::snprintf(found->name, sizeof found->name, "Pretended %d", gpu);
  found->major = state.gpus[static_cast<size_t>(gpu)].major;
  found->minor = state.gpus[static_cast<size_t>(gpu)].minor;
  found->multiProcessorCount = 100 + gpu;
  found->totalGlobalMem = size_t(1) << 30;
  for (size_t i = 0; i < sizeof found->uuid.bytes; ++i) found->uuid.bytes[i] = static_cast<char>(0xe0 + i + gpu);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int gpu) {
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", 16 + gpu);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = static_cast<size_t>(state.gpus[static_cast<size_t>(state.current)].free_bytes);
  *total = size_t(1) << 30;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) { return give_memory(data, bytes, state.current, "cudaMalloc"); }
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags) {
  if (flags != (cudaHostAllocPortable | cudaHostAllocMapped)) return cudaErrorInvalidValue;
  return give_memory(data, bytes, -1, "cudaHostAlloc");
}
cudaError_t cudaFree(void* data) {
  if (state.busy) state.misuse.push_back("cudaFree of a GPU that is busy");
  return take_memory(data);
}
cudaError_t cudaFreeHost(void* data) { return take_memory(data); }
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned flags) {
  FAILS_IF_ASKED("cudaHostRegister");
  if (flags != cudaHostRegisterPortable) return cudaErrorInvalidValue;
  state.device_memory[data] = {-1, static_cast<int64_t>(bytes)};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* data) {
  return state.device_memory.erase(data) == 1 ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  for (const auto& [begin, is] : state.device_memory)
    if (data >= begin && data < static_cast<char*>(begin) + is.second)
      attributes->type = is.first < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  on(state.streams.at(stream).first, "cudaMemcpyAsync");
  FAILS_IF_ASKED("cudaMemcpyAsync");
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  FAILS_IF_ASKED("cudaStreamCreateWithPriority");
  if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
  *stream = reinterpret_cast<cudaStream_t>(new int);
  state.streams[*stream] = {state.current, priority};
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  state.streams.erase(stream);
  delete reinterpret_cast<int*>(stream);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  state.busy = false;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return state.capturing.count(stream) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (mode != cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
  on(state.streams.at(stream).first, "cudaStreamBeginCapture");
  state.capturing.insert(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!state.capturing.erase(stream)) return cudaErrorIllegalState;
  state.capturing.clear();
  *graph = reinterpret_cast<cudaGraph_t>(new int);
  ++state.graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<int*>(graph);
  --state.graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
  FAILS_IF_ASKED("cudaGraphInstantiate");
  *executable = reinterpret_cast<cudaGraphExec_t>(new int);
  ++state.graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<int*>(executable);
  --state.graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t stream) {
  on(state.streams.at(stream).first, "cudaGraphLaunch");
  if (state.capturing.count(stream)) return cudaErrorStreamCaptureUnsupported;
  ++state.launches;
  return cudaSuccess;
}
// As the runtime has it: a stream that waits for captured work is captured; captured work waits for no other.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  on(state.streams.at(stream).first, "cudaStreamWaitEvent");
  if (event_of(event).captured) {
    if (state.capturing.empty()) return cudaErrorCapturedEvent;
    state.capturing.insert(stream);
  } else if (state.capturing.count(stream)) {
    return cudaErrorStreamCaptureIsolation;
  }
  state.waited.emplace_back(stream, event);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (flags != (cudaEventDisableTiming | cudaEventBlockingSync)) return cudaErrorInvalidValue;
  *event = reinterpret_cast<cudaEvent_t>(new FakeEvent{state.current});
  ++state.events;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(new FakeEvent{state.current, false, true});
  ++state.events;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (!event_of(begin).timing || !event_of(end).timing) return cudaErrorInvalidResourceHandle;
  *ms = static_cast<float>(event_of(end).at_ms - event_of(begin).at_ms);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  --state.events;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  on(state.streams.at(stream).first, "cudaEventRecord");
  on(event_of(event).gpu, "cudaEventRecord");
  event_of(event).captured = state.capturing.count(stream) > 0;
  event_of(event).at_ms = state.clock_ms;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  on(event_of(event).gpu, "cudaEventQuery");
  ++state.queries;
  FAILS_IF_ASKED("cudaEventQuery");
  if (event_of(event).captured) return cudaErrorCapturedEvent;
  return state.busy ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  on(event_of(event).gpu, "cudaEventSynchronize");
  FAILS_IF_ASKED("cudaEventSynchronize");
  if (event_of(event).captured) return cudaErrorCapturedEvent;
  ++state.waits;
  return cudaSuccess;
}

size_t cublasLtGetVersion() { return 130100; }
size_t cudnnGetVersion() { return 91300; }

}  // extern "C"
