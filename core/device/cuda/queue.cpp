#include "core/device/cuda/queue.h"

#include <algorithm>
#include <utility>

#include "core/base/partition.h"
#include "core/kernels/range.h"

namespace lockstep {
namespace {

std::shared_ptr<RangeTrap> make_trap() {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, sizeof(RangeTrap), cudaHostAllocPortable | cudaHostAllocMapped),
             "making a queue's report of bad indices");
  return {new (memory) RangeTrap, [](RangeTrap* trap) { (void)cudaFreeHost(trap); }};
}

// Neither of the GPU nor pinned: a copy from or to it is not in the hands of the stream alone.
bool is_plain(const void* data) {
  cudaPointerAttributes attributes;
  check_cuda(cudaPointerGetAttributes(&attributes, data), "asking whose memory is to be copied");
  return attributes.type == cudaMemoryTypeUnregistered;
}

}  // namespace

CudaEventPool::~CudaEventPool() {
  for (cudaEvent_t event : free_) (void)cudaEventDestroy(event);
}

cudaEvent_t CudaEventPool::take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  make_current(gpu_);
  cudaEvent_t event = nullptr;
  // Whoever waits sleeps: its core belongs to the loader and to other ranks.
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "making an event");
  return event;
}

void CudaEventPool::give(cudaEvent_t event) noexcept {
  std::lock_guard lock(mutex_);
  free_.push_back(event);
}

CudaEvent::CudaEvent(std::shared_ptr<CudaEventPool> pool, std::shared_ptr<const RangeTraps> traps, cudaStream_t stream)
    : pool_(std::move(pool)), traps_(std::move(traps)), event_(pool_->take()) {
  if (cudaError_t error = cudaEventRecord(event_, stream); error != cudaSuccess) {
    pool_->give(event_);
    throw_cuda_error(error, "recording an event");
  }
}

bool CudaEvent::done() {
  if (finished_) return true;
  make_current(pool_->gpu());
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();  // it is remembered like an error, and would be taken for a later call's
    return false;
  }
  check_cuda(error, "asking whether the GPU has come so far");
  finish();
  return true;
}

void CudaEvent::wait() {
  if (finished_) return;
  make_current(pool_->gpu());
  check_cuda(cudaEventSynchronize(event_), "waiting for the GPU");
  finish();
}

void CudaEvent::finish() {
  for (const std::shared_ptr<RangeTrap>& trap : *traps_)
    if (std::atomic_ref(trap->set).load(std::memory_order_acquire))
      throw Error(ExitCode::kBadData,
                  range_error_text(static_cast<RangeArgs::Use>(trap->use), trap->value, trap->position, trap->end));
  finished_ = true;
}

CudaQueue::CudaQueue(std::shared_ptr<CudaEventPool> events, const KernelTable& table, int processors,
                     bool high_priority)
    : events_(std::move(events)), table_(table), processors_(processors) {
  make_current(index());
  traps_ = std::make_shared<RangeTraps>(1, make_trap());
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for the priorities of streams");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, high_priority ? highest : lowest),
             "making a stream");
}

CudaQueue::~CudaQueue() {
  // After a fault each of these fails, and there is nobody left to tell.
  (void)cudaSetDevice(index());
  (void)cudaStreamSynchronize(stream_);
  for (std::shared_ptr<void>& library : libraries_) library.reset();
  for (Scratch& scratch : scratch_)
    if (scratch.data) (void)cudaFreeAsync(scratch.data, stream_);
  (void)cudaStreamDestroy(stream_);
}

void CudaQueue::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream()), "copying");
  if (is_plain(to) || is_plain(from)) record()->wait();
}

std::shared_ptr<DeviceEvent> CudaQueue::record() { return std::make_shared<CudaEvent>(events_, traps_, stream()); }

void CudaQueue::wait(DeviceEvent& event) {
  const auto& other = static_cast<CudaEvent&>(event);
  check_cuda(cudaStreamWaitEvent(stream(), other.event(), 0), "waiting for another stream");
  for (const std::shared_ptr<RangeTrap>& trap : other.traps()) {
    if (std::find(traps_->begin(), traps_->end(), trap) != traps_->end()) continue;
    auto more = std::make_shared<RangeTraps>(*traps_);  // events hold what was there
    more->push_back(trap);
    traps_ = std::move(more);
  }
}

void* CudaQueue::scratch_memory(int slot, int64_t bytes) {
  Scratch& scratch = scratch_.at(static_cast<size_t>(slot));
  if (bytes <= scratch.bytes) return scratch.data;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream(), &capturing), "asking whether a graph is captured");
  check(capturing == cudaStreamCaptureStatusNone, "a queue's scratch memory must grow to ", bytes,
        " bytes while a graph is captured: the step must have run once before");
  constexpr int64_t kPiece = int64_t(2) << 20;  // what the driver hands out
  const int64_t size = round_up(bytes, kPiece);
  if (scratch.data) {
    check_cuda(cudaFreeAsync(std::exchange(scratch.data, nullptr), stream_), "giving scratch memory back");
    scratch.bytes = 0;
  }
  const cudaError_t error = cudaMallocAsync(&scratch.data, static_cast<size_t>(size), stream_);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    scratch.data = nullptr;
    throw Error(ExitCode::kDevice, cat("GPU ", index(), ": out of memory: ", size,
                                       " bytes of scratch for its kernels; lower the batch, or shard more"));
  }
  check_cuda(error, "taking scratch memory");
  scratch.bytes = size;
  return scratch.data;
}

}  // namespace lockstep
