// A stand-in for CUDA's headers, found first by tests of CUDA's own sources: g++ compiles the kernels' very text, and a
// launch runs it at once, on the calling thread: block after block, a block's threads as fibers that change where they
// meet (barriers, shuffles). A meeting that a thread misses, or that it comes to with another call than its neighbours,
// fails the launch. Memory is the host's; streams and events have nothing to wait for.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#define __host__
#define __device__
#define __global__
#define __shared__ thread_local  // of a block, as blocks run one after another
#define __grid_constant__
#define __launch_bounds__(...)

struct uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_in = 1, unsigned y_in = 1, unsigned z_in = 1) : x(x_in), y(y_in), z(z_in) {}
};

// Of the thread that runs; launches take turns.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace cuda_stand_in {

constexpr int64_t kMostShared = 128 << 10;  // of a block, where it is asked for

enum class Call { kBarrier, kSyncWarp, kShuffle, kBallot, kMatch };

// What the lanes of `mask` brought to a meeting of their warp.
struct Meeting {
  unsigned mask = 0;
  uint64_t value[32] = {};
};
// Comes back when all of `mask` that still run have called it.
const Meeting& meet(Call call, unsigned mask, uint64_t value);
void meet_block();
// Ends the launch with an error; its stacks are left as they are.
[[noreturn]] void fail(const char* what, int lane = -1);
inline unsigned lane() { return threadIdx.x % 32; }

template <class T>
T shuffle(unsigned mask, T mine, unsigned from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &mine, sizeof mine);
  const Meeting& meeting = meet(Call::kShuffle, mask, bits);
  if (!(meeting.mask >> from & 1)) fail("a shuffle from a lane that is not there: ", static_cast<int>(from));
  std::memcpy(&mine, &meeting.value[from], sizeof mine);
  return mine;
}

// What failed the last launch that failed.
const std::string& failure();
// How many kernels were launched so far.
int64_t launches();

}  // namespace cuda_stand_in

inline void __syncthreads() { cuda_stand_in::meet_block(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { cuda_stand_in::meet(cuda_stand_in::Call::kSyncWarp, mask, 0); }
template <class T>
T __shfl_sync(unsigned mask, T mine, int from) {
  return cuda_stand_in::shuffle(mask, mine, static_cast<unsigned>(from) % 32);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T mine, int apart) {
  return cuda_stand_in::shuffle(mask, mine, cuda_stand_in::lane() ^ static_cast<unsigned>(apart));
}
template <class T>
T __shfl_up_sync(unsigned mask, T mine, unsigned apart) {
  const unsigned lane = cuda_stand_in::lane();
  return cuda_stand_in::shuffle(mask, mine, lane < apart ? lane : lane - apart);
}
template <class T>
T __shfl_down_sync(unsigned mask, T mine, unsigned apart) {
  const unsigned lane = cuda_stand_in::lane();
  return cuda_stand_in::shuffle(mask, mine, lane + apart > 31 ? lane : lane + apart);
}
inline unsigned __ballot_sync(unsigned mask, bool holds) {
  const cuda_stand_in::Meeting& meeting = cuda_stand_in::meet(cuda_stand_in::Call::kBallot, mask, holds);
  unsigned out = 0;
  for (unsigned l = 0; l < 32; ++l)
    if (meeting.mask >> l & 1 && meeting.value[l]) out |= 1u << l;
  return out;
}
inline unsigned __match_any_sync(unsigned mask, int mine) {
  const uint64_t bits = static_cast<uint32_t>(mine);
  const cuda_stand_in::Meeting& meeting = cuda_stand_in::meet(cuda_stand_in::Call::kMatch, mask, bits);
  unsigned out = 0;
  for (unsigned l = 0; l < 32; ++l)
    if (meeting.mask >> l & 1 && meeting.value[l] == bits) out |= 1u << l;
  return out;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline void __threadfence() {}
inline void __threadfence_system() {}

// The runtime.

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorNotReady,
  cudaErrorIllegalAddress,
  cudaErrorMisalignedAddress,
  cudaErrorInvalidAddressSpace,
  cudaErrorInvalidPc,
  cudaErrorIllegalInstruction,
  cudaErrorHardwareStackError,
  cudaErrorAssert,
  cudaErrorLaunchFailure,
  cudaErrorLaunchTimeout,
  cudaErrorECCUncorrectable,
  cudaErrorNvlinkUncorrectable,
  cudaErrorContained,
  cudaErrorDevicesUnavailable,
  cudaErrorNoKernelImageForDevice,
  cudaErrorUnsupportedPtxVersion,
  cudaErrorSystemNotReady,
  cudaErrorSystemDriverMismatch,
  cudaErrorCompatNotSupportedOnDevice,
  cudaErrorStubLibrary,
  cudaErrorNotSupported,
  cudaErrorNoDevice,
  cudaErrorInsufficientDriver,
};
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
enum cudaMemcpyKind { cudaMemcpyDefault };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeDevice };
struct cudaPointerAttributes {
  cudaMemoryType type;
};
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };
constexpr unsigned cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaEventBlockingSync = 1,
                   cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1, cudaHostRegisterPortable = 1;

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = static_cast<int>(cuda_stand_in::kMostShared), cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int bytes);
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) { return *least = *most = 0, cudaSuccess; }

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
inline cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) { return cudaMalloc(memory, bytes); }
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
inline cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
// Never the host's alone: nobody has to wait for a copy.
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  return attributes->type = cudaMemoryTypeDevice, cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return *stream = nullptr, cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
// Graphs it does not record.
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaErrorNotSupported; }
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned) { return cudaErrorNotSupported; }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = nullptr, cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = nullptr, cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 0, cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

namespace cuda_stand_in {
// Of a block: what a kernel's `extern __shared__` array may take, 48 KiB or what was asked for it. Other arrays of the
// kernel are not seen, so that it must have none.
int64_t shared_bytes_of(const void* kernel);
cudaError_t launch(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);
}  // namespace cuda_stand_in

template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** args, size_t shared_bytes,
                             cudaStream_t) {
  if (static_cast<int64_t>(shared_bytes) > cuda_stand_in::shared_bytes_of(reinterpret_cast<const void*>(kernel)))
    return cudaErrorInvalidValue;
  return cuda_stand_in::launch(grid, block, shared_bytes, [&] {
    [&]<size_t... I>(std::index_sequence<I...>) { kernel(*static_cast<std::remove_const_t<P>*>(args[I])...); }
    (std::index_sequence_for<P...>());
  });
}
inline cudaError_t cudaFuncGetName(const char** name, const void*) { return *name = "a kernel", cudaSuccess; }
