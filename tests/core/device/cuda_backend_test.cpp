// The CUDA backend on a runtime that is pretended: faults in words, memory, events, order, and which GPU is current.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "core/device/allocator.h"
#include "core/device/context.h"
#include "core/device/cuda/kernels/kernels.h"
#include "core/device/cuda/runtime/architectures.h"
#include "core/device/cuda/runtime/mask_proof.h"
#include "core/device/cuda/runtime/queue.h"
#include "tests/support/cuda_scratch.h"
#include "tests/support/fake_cuda_runtime.h"

extern "C" lockstep::DeviceBackend* lockstep_cuda_backend(const lockstep::ScratchSource&);

namespace lockstep {

const KernelTable& cuda_kernels() {
  static const KernelTable none{};
  return none;
}
std::string cuda::doubt_of_masks(CudaQueue&, const MaskedAttention&) { return "there is no cuDNN here"; }

}  // namespace lockstep

namespace lockstep::cuda_backend_test {
namespace {

using ::lockstep::testing::fake_cuda;
using ::lockstep::testing::kCudaScratch;
using ::testing::Test;

// What lockstep_cuda_backend() says where it refuses.
std::string refusal() {
  try {
    delete lockstep_cuda_backend(kCudaScratch);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDevice);
    return error.what();
  }
  return "";
}

template <class F>
std::string error_of(ExitCode code, F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing was thrown";
}

bool says(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (text.find(part) == std::string::npos) {
      ADD_FAILURE() << "'" << part << "' is not in: " << text;
      return false;
    }
  return text.find('\n') == std::string::npos;
}

class CudaBackendTest : public Test {
 protected:
  CudaBackendTest() {
    unsetenv("CUDA_VISIBLE_DEVICES");
    testing::reset_fake_cuda();
    backend.reset(lockstep_cuda_backend(kCudaScratch));
  }
  ~CudaBackendTest() override {
    EXPECT_TRUE(fake_cuda().misuse.empty()) << fake_cuda().misuse.front() << " with another GPU current";
    backend.reset();
    EXPECT_EQ(fake_cuda().events, 0);
    EXPECT_EQ(fake_cuda().graphs, 0);
    EXPECT_TRUE(fake_cuda().streams.empty());
    EXPECT_TRUE(fake_cuda().device_memory.empty());
  }
  CudaQueue& cuda(const std::shared_ptr<DeviceQueue>& queue) { return cuda_queue(*queue); }

  std::unique_ptr<DeviceBackend> backend;
};

class CudaFaults : public Test {
 protected:
  CudaFaults() {
    unsetenv("CUDA_VISIBLE_DEVICES");
    testing::reset_fake_cuda();
  }
};

TEST_F(CudaFaults, NoDriver) {
  fake_cuda().fails["cudaGetDeviceCount"] = cudaErrorInsufficientDriver;
  fake_cuda().driver = 0;
  EXPECT_TRUE(says(refusal(), {"no driver", "install one"}));
}

TEST_F(CudaFaults, DriverTooOld) {
  fake_cuda().fails["cudaGetDeviceCount"] = cudaErrorInsufficientDriver;
  fake_cuda().driver = 11080;
  const std::string built = str(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10);
  EXPECT_TRUE(says(refusal(), {"driver too old", "CUDA up to 11.8", built.c_str(), "install a newer driver"}));
}

TEST_F(CudaFaults, NoGpuVisible) {
  fake_cuda().fails["cudaGetDeviceCount"] = cudaErrorNoDevice;
  EXPECT_TRUE(says(refusal(), {"no GPU visible", "CUDA_VISIBLE_DEVICES is not set"}));
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_TRUE(says(refusal(), {"no GPU visible", "CUDA_VISIBLE_DEVICES is ''"}));
  fake_cuda().fails.clear();
  fake_cuda().gpus.clear();
  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  EXPECT_TRUE(says(refusal(), {"no GPU visible", "CUDA_VISIBLE_DEVICES is '7'"}));
}

TEST_F(CudaFaults, MachineNotReady) {
  fake_cuda().fails["cudaGetDeviceCount"] = cudaErrorSystemNotReady;
  EXPECT_TRUE(says(refusal(), {"not ready", "cudaErrorSystemNotReady", "fabricmanager"}));
}

TEST_F(CudaFaults, ArchitectureThatTheBuildDoesNotServe) {
  fake_cuda().gpus[1] = {7, 5};
  EXPECT_TRUE(says(refusal(), {"GPU 1 (Pretended 1)", "sm_75", LOCKSTEP_CUDA_ARCHITECTURES, "CUDA_VISIBLE_DEVICES"}));
}

TEST(Architectures, WhatABuildServes) {
  const char* usual = "80-real|90-real|100";
  EXPECT_FALSE(serves_architecture(usual, 7, 5));
  EXPECT_TRUE(serves_architecture(usual, 8, 0));
  EXPECT_TRUE(serves_architecture(usual, 8, 9)) << "machine code serves later ones of its major version";
  EXPECT_TRUE(serves_architecture(usual, 9, 0));
  EXPECT_TRUE(serves_architecture(usual, 10, 3));
  EXPECT_TRUE(serves_architecture(usual, 12, 0)) << "translated from the last";
  EXPECT_FALSE(serves_architecture("80-real|90-real", 10, 0));
  EXPECT_FALSE(serves_architecture("89-real", 8, 6));
  EXPECT_TRUE(serves_architecture("80-virtual", 9, 0));
  EXPECT_TRUE(serves_architecture("90a", 9, 0));
  EXPECT_FALSE(serves_architecture("90a-real", 10, 0));
  EXPECT_TRUE(serves_architecture("native", 7, 5));
}

TEST_F(CudaBackendTest, Properties) {
  EXPECT_EQ(backend->name(), "cuda");
  ASSERT_EQ(backend->count(), 2);
  const DeviceProperties p = backend->properties(1);
  EXPECT_EQ(p.name, "Pretended 1");
  EXPECT_EQ(p.architecture, "sm_90");
  EXPECT_EQ(p.bus, "0000:11:00.0");
  EXPECT_EQ(p.id, "GPU-e1e2e3e4-e5e6-e7e8-e9ea-ebecedeeeff0");
  EXPECT_EQ(p.processors, 101);
  EXPECT_EQ(p.memory_bytes, int64_t(1) << 30);
  EXPECT_TRUE(says(backend->versions(), {"CUDA ", "cuBLASLt 13.1.0", "cuDNN 9.13.0"}));
  EXPECT_TRUE(says(backend->driver(), {"driver", "for CUDA up to "}));
  EXPECT_STREQ(backend->make_queue(1, false)->kernels().isa, "sm_90");
  EXPECT_TRUE(says(error_of(ExitCode::kDevice, [&] { backend->properties(2); }), {"there is no GPU 2", "sees 2"}));
}

TEST_F(CudaBackendTest, MemoryIsOfTheGpuAskedForAndRunsOut) {
  void* a = backend->allocate(1, 1000);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(fake_cuda().device_memory[a].first, 1);
  EXPECT_EQ(backend->free_memory(1), (int64_t(1) << 30) - 1000);
  EXPECT_EQ(backend->free_memory(0), int64_t(1) << 30);
  EXPECT_EQ(backend->allocate(1, int64_t(1) << 30), nullptr)
      << "no fault yet: the allocator gives back and tries again";
  void* pinned = backend->allocate_pinned(1, 64);
  EXPECT_EQ(fake_cuda().device_memory[pinned].first, -1);
  backend->release_pinned(1, pinned);
  fake_cuda().busy = true;
  backend->release(1, a);
  EXPECT_EQ(fake_cuda().misuse, std::vector<std::string>()) << "its work is waited for first";
  EXPECT_EQ(backend->free_memory(1), int64_t(1) << 30);
  fake_cuda().fails["cudaMalloc"] = cudaErrorIllegalAddress;
  EXPECT_TRUE(says(error_of(ExitCode::kDevice, [&] { backend->allocate(1, 8); }), {"GPU 1: a kernel reached outside"}));
}

TEST_F(CudaBackendTest, QueuesOfTwoGpusAndPriorities) {
  auto low = backend->make_queue(0, false), high = backend->make_queue(1, true);
  EXPECT_EQ(fake_cuda().streams[cuda(low).stream()], std::make_pair(0, 0));
  EXPECT_EQ(fake_cuda().streams[cuda(high).stream()], std::make_pair(1, -5));
  EXPECT_EQ(low->native(), cuda(low).stream());
  EXPECT_EQ(cuda(high).processors(), 101);
  // Each call finds its own GPU current, whoever went before; the fixture looks.
  for (int turn = 0; turn < 2; ++turn) {
    auto event = low->record();
    high->wait(*event);
    EXPECT_EQ(fake_cuda().waited.back().first, high->native());
    fake_cuda().busy = true;
    EXPECT_FALSE(event->done());
    fake_cuda().busy = false;
    EXPECT_TRUE(event->done());
    high->record()->wait();
  }
  EXPECT_EQ(fake_cuda().events, 2) << "used again";
}

TEST_F(CudaBackendTest, TheHostWaitsWhereOneSideOfACopyIsPlain) {
  auto queue = backend->make_queue(0, false);
  void* device = backend->allocate(0, 16);
  void* pinned = backend->allocate_pinned(0, 16);
  char plain[16] = "fifteen letters";
  queue->copy(pinned, plain, 16);
  EXPECT_EQ(fake_cuda().waits, 1);
  queue->copy(device, pinned, 16);
  EXPECT_EQ(fake_cuda().waits, 1);
  std::memset(plain, 0, sizeof plain);
  queue->copy(plain, device, 16);
  EXPECT_EQ(fake_cuda().waits, 2);
  EXPECT_STREQ(plain, "fifteen letters");
  queue->copy(nullptr, nullptr, 0);
  EXPECT_TRUE(backend->pin(0, plain, sizeof plain));
  queue->copy(plain, device, 16);
  EXPECT_EQ(fake_cuda().waits, 2) << "pinned since";
  backend->unpin(0, plain);
  queue->copy(plain, device, 16);
  EXPECT_EQ(fake_cuda().waits, 3);
  fake_cuda().fails["cudaHostRegister"] = cudaErrorNotSupported;
  EXPECT_FALSE(backend->pin(0, plain, sizeof plain));
  backend->release(0, device);
  backend->release_pinned(0, pinned);
}

TEST_F(CudaBackendTest, ScratchIsKeptAndGrows) {
  auto queue = backend->make_queue(1, false);
  void* a = cuda(queue).scratch_memory(3, 100);
  EXPECT_EQ(fake_cuda().device_memory[a].first, 1);
  EXPECT_EQ(cuda(queue).scratch_memory(3, 1000), a);
  const int64_t more = fake_cuda().device_memory[a].second + 1;
  EXPECT_NE(cuda(queue).scratch_memory(4, 10), a);
  ASSERT_NE(cuda(queue).scratch_memory(3, more), nullptr);
  EXPECT_EQ(fake_cuda().device_memory.size(), 3u) << "two slots and the trap: the old one is gone";
  EXPECT_TRUE(says(error_of(ExitCode::kDevice, [&] { cuda(queue).scratch_memory(3, int64_t(1) << 40); }),
                   {"out of memory", "scratch"}));
  EXPECT_NE(cuda(queue).scratch_memory(3, 100), nullptr) << "after it failed, a smaller one is had";
}

TEST_F(CudaBackendTest, AGraphRecordsItsQueueAndThoseThatWaitForIt) {
  auto queue = backend->make_queue(0, false), side = backend->make_queue(0, false),
       other = backend->make_queue(0, false);
  void* early = cuda(queue).scratch_memory(0, 100);
  auto before = other->record();
  queue->begin_recording();
  EXPECT_TRUE(says(error_of(ExitCode::kInternal, [&] { queue->begin_recording(); }), {"two graphs at once"}));
  auto inside = queue->record();
  EXPECT_FALSE(inside->done());
  EXPECT_TRUE(says(error_of(ExitCode::kInternal, [&] { inside->wait(); }), {"being recorded"}));
  queue->wait(*before);  // done, so nothing is to be recorded
  fake_cuda().busy = true;
  auto running = other->record();
  EXPECT_TRUE(says(error_of(ExitCode::kInternal, [&] { queue->wait(*running); }), {"waits for work that is not"}));
  fake_cuda().busy = false;
  side->wait(*inside);
  EXPECT_EQ(fake_cuda().capturing.count(static_cast<cudaStream_t>(side->native())), 1u);
  queue->wait(*side->record());
  char plain[4] = {};
  void* pinned = backend->allocate_pinned(0, 4);
  EXPECT_TRUE(says(error_of(ExitCode::kInternal, [&] { side->copy(pinned, plain, 4); }), {"plain host memory"}));
  void* grown = cuda(queue).scratch_memory(0, int64_t(8) << 20);  // of what the graph uses, nothing goes
  EXPECT_EQ(fake_cuda().device_memory.count(early), 1u);
  auto graph = queue->end_recording();
  EXPECT_TRUE(inside->done());
  inside->wait();
  cuda(queue).scratch_memory(0, int64_t(80) << 20);
  EXPECT_EQ(fake_cuda().device_memory.count(grown), 1u);
  // Both run again, and what was recorded is waited for by nobody.
  other->wait(*inside);
  side->wait(*queue->record());
  side->copy(pinned, plain, 4);
  queue->launch(*graph);
  queue->launch(*graph);
  EXPECT_EQ(fake_cuda().launches, 2);
  EXPECT_TRUE(says(error_of(ExitCode::kInternal, [&] { queue->end_recording(); }), {"did not begin"}));
  backend->release_pinned(0, pinned);
}

TEST_F(CudaBackendTest, ARecordingThatIsBrokenOffEndsWithItsQueue) {
  auto queue = backend->make_queue(0, false);
  queue->begin_recording();
  auto inside = queue->record();
  queue.reset();
  EXPECT_TRUE(fake_cuda().capturing.empty());
  EXPECT_TRUE(inside->done());
  queue = backend->make_queue(0, false);
  queue->begin_recording();
  fake_cuda().fails["cudaGraphInstantiate"] = cudaErrorMemoryAllocation;
  EXPECT_TRUE(says(error_of(ExitCode::kDevice, [&] { queue->end_recording(); }), {"out of memory", "graph"}));
}

TEST_F(CudaBackendTest, ABadIndexIsToldByEventsOfItsQueueAndOfThoseThatWaitedForIt) {
  auto queue = backend->make_queue(0, false), later = backend->make_queue(0, false),
       other = backend->make_queue(0, false);
  auto before = queue->record();
  EXPECT_TRUE(before->done());
  *cuda(queue).trap() = {1, static_cast<int32_t>(IndexCheckArgs::Use::kEmbedding), 70, 3, 65};
  auto after = queue->record();
  const char* where = "index 70 at position 3 is outside the table's 65 rows";
  EXPECT_TRUE(says(error_of(ExitCode::kBadData, [&] { after->wait(); }), {where}));
  EXPECT_TRUE(says(error_of(ExitCode::kBadData, [&] { after->done(); }), {where})) << "whoever asks";
  EXPECT_TRUE(before->done()) << "what was done before is good";
  EXPECT_TRUE(later->record()->done());
  later->wait(*after);
  later->wait(*after);
  EXPECT_TRUE(says(error_of(ExitCode::kBadData, [&] { later->record()->wait(); }), {where}));
  EXPECT_TRUE(other->record()->done());
}

TEST_F(CudaBackendTest, AFaultOfAKernelIsToldWithItsGpu) {
  auto queue = backend->make_queue(1, false);
  auto event = queue->record();
  fake_cuda().current = 0;
  fake_cuda().fails["cudaEventSynchronize"] = cudaErrorIllegalAddress;
  EXPECT_TRUE(
      says(error_of(ExitCode::kDevice, [&] { event->wait(); }),
           {"GPU 1: a kernel reached outside its memory", "cudaErrorIllegalAddress", "CUDA_LAUNCH_BLOCKING=1"}));
  fake_cuda().fails["cudaEventQuery"] = cudaErrorECCUncorrectable;
  EXPECT_TRUE(says(error_of(ExitCode::kDevice, [&] { event->done(); }), {"GPU 1", "ECC", "nvidia-smi"}));
  fake_cuda().fails["cudaEventQuery"] = cudaErrorUnknown;
  EXPECT_TRUE(says(error_of(ExitCode::kDevice, [&] { event->done(); }), {"an error in the runtime's words"}));
}

TEST_F(CudaBackendTest, AStreamThatCannotBeMadeLeavesNothingBehind) {
  fake_cuda().fails["cudaStreamCreateWithPriority"] = cudaErrorMemoryAllocation;
  EXPECT_TRUE(says(error_of(ExitCode::kDevice, [&] { backend->make_queue(0, false); }), {"out of memory"}));
}

TEST_F(CudaBackendTest, WorkIsTimedByTheDevicesOwnClock) {
  const auto queue = backend->make_queue(1, false);
  const int before = fake_cuda().events;
  EXPECT_DOUBLE_EQ(queue->seconds_of([] { fake_cuda().clock_ms += 250; }), 0.25);
  EXPECT_DOUBLE_EQ(queue->seconds_of([] {}), 0);
  EXPECT_LE(fake_cuda().events, before + 1) << "only the event by which the host waits is kept";
  queue->begin_recording();
  EXPECT_THROW(queue->seconds_of([] {}), Error);
}

TEST_F(CudaBackendTest, NotesItsOwnTimeBetweenTasks) {
  const auto queue = backend->make_queue(1, false);
  const int before = fake_cuda().events;
  {
    const auto first = queue->note_time();
    fake_cuda().clock_ms += 250;
    const auto second = queue->note_time();
    EXPECT_DOUBLE_EQ(second->seconds_since(*first), 0.25);
    fake_cuda().busy = true;
    EXPECT_FALSE(second->done());
    fake_cuda().busy = false;
    EXPECT_TRUE(second->done());
    fake_cuda().fails["cudaEventQuery"] = cudaErrorIllegalAddress;
    EXPECT_THROW(second->done(), Error);
    fake_cuda().fails.clear();
  }
  EXPECT_EQ(fake_cuda().events, before);
  queue->begin_recording();
  EXPECT_EQ(queue->note_time(), nullptr) << "recorded work runs later, and again";
}

TEST_F(CudaBackendTest, LibrariesGoWithTheirQueue) {
  auto queue = backend->make_queue(0, false);
  bool alive = true, stream_was_there = false;
  cuda(queue).library(1) = std::shared_ptr<void>(nullptr, [&](void*) {
    alive = false;
    stream_was_there = !fake_cuda().streams.empty();
  });
  queue.reset();
  EXPECT_FALSE(alive);
  EXPECT_TRUE(stream_was_there) << "a handle is destroyed before its stream";
}

// The allocator keeps its backend for the life of the process, and so does this test.
TEST(CudaScratch, IsCountedHasRoomMadeForItAndSaysForWhomItWas) {
  testing::reset_fake_cuda();
  fake_cuda().gpus[1].free_bytes = int64_t(200) << 20;
  set_device_backend(lockstep_cuda_backend({allocate_scratch, free_bytes}));
  const Device gpu{DeviceType::kCuda, 1};
  {
    Stream stream(gpu, Stream::Mode::kInline);
    WithStream with(stream);
    WithMemoryFor named("conv.1");
    free_bytes(allocate_bytes(int64_t(120) << 20, gpu), gpu);  // kept by the allocator
    CudaQueue& queue = cuda_queue(*stream.device_queue());
    constexpr int64_t kBytes = int64_t(150) << 20;
    EXPECT_NE(queue.scratch_memory(0, kBytes), nullptr);
    EXPECT_EQ(allocator_stats(gpu).in_use(MemoryUse::kScratch), kBytes);
    EXPECT_TRUE(says(error_of(ExitCode::kDevice, [&] { queue.scratch_memory(1, int64_t(100) << 20); }),
                     {"out of memory on cuda:1: 104857600 bytes asked for (scratch of conv.1), 157286400 in use",
                      "(scratch 157286400)"}));
  }
  EXPECT_EQ(allocator_stats(gpu).bytes_in_use, 0) << "it goes with its queue";
}

// After the test above, whose backend stays.
TEST(CudaMemory, AsksForEventsOnlyWhereAStreamHasNoBlockOfItsOwn) {
  const Device gpu{DeviceType::kCuda, 0};
  constexpr int64_t kBytes = int64_t(1) << 20;
  set_device_backend(lockstep_cuda_backend({allocate_scratch, free_bytes}));
  Stream stream(gpu, Stream::Mode::kInline), other(gpu, Stream::Mode::kInline);
  const auto allocate = [&](int64_t bytes) {
    WithStream with(stream);
    return allocate_bytes(bytes, gpu);
  };
  void* const first = allocate(kBytes);
  {
    WithStream with(other);
    free_bytes(first, gpu);  // `other` may still use it
  }
  fake_cuda().queries = 0;
  void* const second = allocate(kBytes);
  EXPECT_EQ(fake_cuda().queries, 0);
  void* const third = allocate(int64_t(300) << 20);
  EXPECT_GT(fake_cuda().queries, 0);
  WithStream with(stream);
  for (void* data : {second, third}) free_bytes(data, gpu);
}

}  // namespace
}  // namespace lockstep::cuda_backend_test
