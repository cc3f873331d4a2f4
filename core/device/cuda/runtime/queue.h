// CudaQueue: a CUDA stream as the device's queue: order, events, copies, and what kernels need of it: scratch memory,
// a place to report bad indices, and the handles of libraries. Owned by streams (core/device/stream.h).
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device/backend.h"
#include "core/device/cuda/runtime/check.h"

namespace lockstep {

// The first bad index that a kernel of the queue met, in pinned memory that host and GPU both reach. A kernel that
// finds `set` 0 fills the rest, and `set` last; the host takes it when it looks at an event (core/kernels/index_check.h
// has its words).
struct IndexTrap {
  int32_t set = 0;
  int32_t use = 0;  // IndexCheckArgs::Use
  int64_t value = 0, position = 0, end = 0;
};

// That of a queue, and of those that it waited for: what they spoiled may be in its work too.
using IndexTraps = std::vector<std::shared_ptr<IndexTrap>>;

// Used CUDA events of one GPU, for the next points to record: making one takes longer than recording it.
class CudaEventPool {
 public:
  explicit CudaEventPool(int gpu) : gpu_(gpu) {}
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  int gpu() const { return gpu_; }
  cudaEvent_t take();
  void give(cudaEvent_t event) noexcept;

 private:
  int gpu_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

// Two events of the current GPU, between which work of a stream is timed.
class CudaTimer {
 public:
  CudaTimer() {
    for (cudaEvent_t* event : {&begin_, &end_}) check_cuda(cudaEventCreate(event), "making an event to time by");
  }
  ~CudaTimer() {
    for (cudaEvent_t event : {begin_, end_})
      if (event) (void)cudaEventDestroy(event);
  }
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  void begin(cudaStream_t stream) { check_cuda(cudaEventRecord(begin_, stream), "recording an event"); }
  void end(cudaStream_t stream) { check_cuda(cudaEventRecord(end_, stream), "recording an event"); }
  // Of the work between the two. Blocks the host until it is done.
  float milliseconds() const {
    float ms = 0;
    check_cuda(cudaEventSynchronize(end_), "timing work");
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "timing work");
    return ms;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// An event of the current GPU that notes its time.
class CudaTime final : public DeviceTime {
 public:
  explicit CudaTime(cudaStream_t stream);
  ~CudaTime() override { (void)cudaEventDestroy(event_); }
  CudaTime(const CudaTime&) = delete;
  CudaTime& operator=(const CudaTime&) = delete;

  bool done() override;
  void wait() override { check_cuda(cudaEventSynchronize(event_), "timing work"); }
  double seconds_since(const DeviceTime& earlier) override {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, static_cast<const CudaTime&>(earlier).event_, event_), "timing work");
    return static_cast<double>(ms) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// One recording of work for a graph, as queues and events that take part in it know it.
struct CudaRecording {
  std::atomic<bool> ended = false;
};

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { (void)cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t graph() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

class CudaEvent final : public DeviceEvent {
 public:
  // `recording`: the one that `stream` takes part in now; null where its work runs.
  CudaEvent(std::shared_ptr<CudaEventPool> pool, std::shared_ptr<const IndexTraps> traps,
            std::shared_ptr<CudaRecording> recording, cudaStream_t stream);
  ~CudaEvent() override { pool_->give(event_); }
  // Both throw what stopped the work before: Error(kDevice), or Error(kBadData) for an index outside its table.
  bool done() override;
  void wait() override;
  cudaEvent_t event() const { return event_; }
  const IndexTraps& traps() const { return *traps_; }
  const std::shared_ptr<CudaRecording>& recording() const { return recording_; }

 private:
  void finish();
  std::shared_ptr<CudaEventPool> pool_;
  std::shared_ptr<const IndexTraps> traps_;
  std::shared_ptr<CudaRecording> recording_;
  cudaEvent_t event_;
  std::atomic<bool> finished_ = false;
};

class CudaQueue final : public DeviceQueue {
 public:
  static constexpr int kScratchSlots = 6;

  // `table`: of this GPU; outlives the queue.
  CudaQueue(std::shared_ptr<CudaEventPool> events, const KernelTable& table, const ScratchSource& source,
            int processors, bool high_priority);
  ~CudaQueue() override;  // waits for the GPU
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  const KernelTable& kernels() const override { return table_; }
  void copy(void* to, const void* from, int64_t bytes) override;
  std::shared_ptr<DeviceEvent> record() override;
  void wait(DeviceEvent& event) override;
  void* native() override { return stream_; }
  void begin_recording() override;
  std::shared_ptr<DeviceGraph> end_recording() override;
  void launch(DeviceGraph& graph) override;
  double seconds_of(const std::function<void()>& work) override;
  std::shared_ptr<DeviceTime> note_time() override;
  void begin_profiler_range(const char* name) override;
  void end_profiler_range() override;

  // Also makes this queue's GPU current on the calling thread: who asks for the stream is about to use it.
  cudaStream_t stream() const {
    make_current(index());
    return stream_;
  }
  int index() const { return events_->gpu(); }
  int processors() const { return processors_; }  // multiprocessors
  // Device memory of this queue, 256-byte aligned, kept between calls and used in the queue's order; contents
  // undefined. Throws what the source throws where there is none. Slots 0 to 3 are for plain kernels, 4 for cuBLASLt, 5
  // for cuDNN.
  void* scratch_memory(int slot, int64_t bytes);
  IndexTrap* trap() { return traps_->front().get(); }  // one address for host and GPU
  // A library's handle for this queue, taken by who first needs it: 0 is cuBLASLt's, 1 cuDNN's. With the queue's end
  // it is idle (core/device/cuda/runtime/idle_handles.h).
  std::shared_ptr<void>& library(int which) { return libraries_.at(static_cast<size_t>(which)); }

 private:
  // The recording that this queue takes part in now, or null.
  std::shared_ptr<CudaRecording> recording() const { return recording_ && !recording_->ended ? recording_ : nullptr; }

  Device device() const { return {DeviceType::kCuda, index()}; }

  struct Scratch {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  std::shared_ptr<CudaEventPool> events_;
  const KernelTable& table_;
  const ScratchSource source_;
  int processors_;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<const IndexTraps> traps_;   // its own first
  std::shared_ptr<CudaRecording> recording_;  // the latest
  std::array<Scratch, kScratchSlots> scratch_;
  std::vector<void*> outgrown_;  // scratch that graphs use
  std::array<std::shared_ptr<void>, 2> libraries_;
};

// What kernels of the table get is their own backend's queue.
inline CudaQueue& cuda_queue(Parallel& parallel) { return static_cast<CudaQueue&>(parallel); }

}  // namespace lockstep
