#include "core/device/cuda/runtime/queue.h"

#include <algorithm>
#include <utility>

#include "core/base/partition.h"
#include "core/kernels/index_check.h"

namespace lockstep {
namespace {

std::shared_ptr<IndexTrap> make_trap() {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, sizeof(IndexTrap), cudaHostAllocPortable | cudaHostAllocMapped),
             "making a queue's report of bad indices");
  return {new (memory) IndexTrap, [](IndexTrap* trap) { (void)cudaFreeHost(trap); }};
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

CudaEvent::CudaEvent(std::shared_ptr<CudaEventPool> pool, std::shared_ptr<const IndexTraps> traps,
                     std::shared_ptr<CudaRecording> recording, cudaStream_t stream)
    : pool_(std::move(pool)), traps_(std::move(traps)), recording_(std::move(recording)), event_(pool_->take()) {
  if (cudaError_t error = cudaEventRecord(event_, stream); error != cudaSuccess) {
    pool_->give(event_);
    throw_cuda_error(error, "recording an event");
  }
}

bool CudaEvent::done() {
  if (recording_) return recording_->ended;
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
  check(!recording_ || recording_->ended, "the host waits for work that is being recorded");
  if (recording_ || finished_) return;
  make_current(pool_->gpu());
  check_cuda(cudaEventSynchronize(event_), "waiting for the GPU");
  finish();
}

void CudaEvent::finish() {
  for (const std::shared_ptr<IndexTrap>& trap : *traps_)
    if (std::atomic_ref(trap->set).load(std::memory_order_acquire))
      throw Error(ExitCode::kBadData, index_error_text(static_cast<IndexCheckArgs::Use>(trap->use), trap->value,
                                                       trap->position, trap->end));
  finished_ = true;
}

CudaQueue::CudaQueue(std::shared_ptr<CudaEventPool> events, const KernelTable& table, const ScratchSource& source,
                     int processors, bool high_priority)
    : events_(std::move(events)), table_(table), source_(source), processors_(processors) {
  make_current(index());
  traps_ = std::make_shared<IndexTraps>(1, make_trap());
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for the priorities of streams");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, high_priority ? highest : lowest),
             "making a stream");
}

CudaQueue::~CudaQueue() {
  // After a fault each of these fails, and there is nobody left to tell.
  (void)cudaSetDevice(index());
  if (recording()) {
    cudaGraph_t broken_off = nullptr;
    if (cudaStreamEndCapture(stream_, &broken_off) == cudaSuccess) (void)cudaGraphDestroy(broken_off);
    recording_->ended = true;
  }
  (void)cudaStreamSynchronize(stream_);
  for (std::shared_ptr<void>& library : libraries_) library.reset();
  for (const Scratch& scratch : scratch_)
    if (scratch.data) source_.give_back(scratch.data, device());
  for (void* data : outgrown_) source_.give_back(data, device());
  (void)cudaStreamDestroy(stream_);
  (void)cudaGetLastError();
}

void CudaQueue::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  const bool plain = is_plain(to) || is_plain(from);
  check(!plain || !recording(), "a copy of plain host memory in recorded work");
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream()), "copying");
  if (plain) record()->wait();
}

std::shared_ptr<DeviceEvent> CudaQueue::record() {
  return std::make_shared<CudaEvent>(events_, traps_, recording(), stream());
}

void CudaQueue::wait(DeviceEvent& event) {
  const auto& other = static_cast<CudaEvent&>(event);
  const bool recorded = other.recording() && !other.recording()->ended;
  if (recorded) recording_ = other.recording();  // whoever waits for recorded work is recorded too
  if (recorded || (!other.recording() && !recording())) {
    check_cuda(cudaStreamWaitEvent(stream(), other.event(), 0), "waiting for another stream");
  } else {
    // What a graph does is ordered by its launches, and those come after.
    check(event.done(), "recorded work waits for work that is not");
  }
  for (const std::shared_ptr<IndexTrap>& trap : other.traps()) {
    if (std::find(traps_->begin(), traps_->end(), trap) != traps_->end()) continue;
    auto more = std::make_shared<IndexTraps>(*traps_);  // events hold what was there
    more->push_back(trap);
    traps_ = std::move(more);
  }
}

void CudaQueue::begin_recording() {
  check(!recording(), "a queue records two graphs at once");
  // Relaxed: the allocator may have to take a segment meanwhile, and other threads go on with their own work.
  check_cuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "beginning to record a graph");
  recording_ = std::make_shared<CudaRecording>();
}

std::shared_ptr<DeviceGraph> CudaQueue::end_recording() {
  check(recording() != nullptr, "a queue ends a recording that it did not begin");
  recording_->ended = true;
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream(), &graph), "recording a graph");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check_cuda(error, "making a graph ready");
  return std::make_shared<CudaGraph>(executable);
}

void CudaQueue::launch(DeviceGraph& graph) {
  check_cuda(cudaGraphLaunch(static_cast<CudaGraph&>(graph).graph(), stream()), "launching a graph");
}

double CudaQueue::seconds_of(const std::function<void()>& work) {
  check(!recording(), "work is timed while it is being recorded");
  make_current(index());
  CudaTimer timer;
  timer.begin(stream());
  work();
  timer.end(stream());
  record()->wait();  // throws the work's own errors
  return static_cast<double>(timer.milliseconds()) * 1e-3;
}

std::shared_ptr<DeviceTime> CudaQueue::note_time() {
  if (recording()) return nullptr;
  return std::make_shared<CudaTime>(stream());
}

CudaTime::CudaTime(cudaStream_t stream) {
  check_cuda(cudaEventCreate(&event_), "making an event to time by");
  if (const cudaError_t error = cudaEventRecord(event_, stream); error != cudaSuccess) {
    (void)cudaEventDestroy(event_);
    throw_cuda_error(error, "recording an event");
  }
}

bool CudaTime::done() {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();  // as in CudaEvent::done
    return false;
  }
  check_cuda(state, "timing work");
  return true;
}

void* CudaQueue::scratch_memory(int slot, int64_t bytes) {
  Scratch& scratch = scratch_.at(static_cast<size_t>(slot));
  if (bytes <= scratch.bytes) return scratch.data;
  make_current(index());
  if (void* old = std::exchange(scratch.data, nullptr)) {
    scratch.bytes = 0;
    if (recording_) {
      outgrown_.push_back(old);
    } else {
      // The source may hand it on at once, in the order of whatever stream is current: not this queue's, it may be.
      check_cuda(cudaStreamSynchronize(stream_), "waiting for the GPU");
      source_.give_back(old, device());
    }
  }
  constexpr int64_t kPiece = int64_t(1) << 20;  // so that what grows slowly grows seldom
  const int64_t size = round_up(bytes, kPiece);
  scratch = {source_.take(size, *this, device()), size};
  return scratch.data;
}

}  // namespace lockstep
