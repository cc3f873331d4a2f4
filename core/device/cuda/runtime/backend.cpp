// The CUDA backend: GPUs that this process sees, their memory, and queues on them.
#include "core/device/backend.h"

#include <cublasLt.h>
#include <cudnn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "core/device/cuda/kernels/kernels.h"
#include "core/device/cuda/runtime/architectures.h"
#include "core/device/cuda/runtime/choices.h"
#include "core/device/cuda/runtime/mask_proof.h"
#include "core/device/cuda/runtime/queue.h"
#include "core/device/cuda/runtime/switches.h"
#include "core/device/cuda/runtime/version.h"
#include "core/kernels/kernels.h"

namespace lockstep {
namespace {

// 13000 is "13.0".
std::string cuda_version_text(int version) { return str(version / 1000, ".", version % 1000 / 10); }

// The driver's own number ("580.82.07"), which is not CUDA's; empty where the system does not tell.
std::string driver_release() {
  std::string release;
  std::ifstream("/sys/module/nvidia/version") >> release;
  return release;
}

// The newest CUDA that the installed driver serves, in CUDA's form; 0 where there is no driver.
int driver_cuda_version() {
  int version = 0;
  check_cuda(cudaDriverGetVersion(&version), "asking for the driver's version");
  return version;
}

std::string visible_devices_text() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value ? str("CUDA_VISIBLE_DEVICES is '", value, "'") : "CUDA_VISIBLE_DEVICES is not set";
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ExitCode::kDevice, message); }

// How many GPUs this process sees: at least one.
int visible_gpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) (void)cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) {
    const int driver = driver_cuda_version();
    if (driver == 0)
      refuse(
          "no driver: this machine has no NVIDIA driver (libcuda.so.1), or this process does not see it; install "
          "one, or in a container make the GPUs visible (docker run --gpus all)");
    const std::string release = driver_release();
    refuse(str("driver too old: it", release.empty() ? "" : str(" (", release, ")"), " serves CUDA up to ",
               cuda_version_text(driver), ", and this lockstep is built for CUDA ", cuda_version_text(CUDART_VERSION),
               "; install a newer driver, or build lockstep with an older toolkit"));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    refuse(str("no GPU visible: there is a driver, but this process sees no GPU of it (", visible_devices_text(),
               "; nvidia-smi -L lists all)"));
  if (error != cudaSuccess) refuse(cuda_error_text(error, 0, "counting the GPUs"));
  return count;
}

// As nvidia-smi writes it.
std::string id_text(const cudaUUID_t& id) {
  std::string out = "GPU";
  for (size_t i = 0; i < sizeof id.bytes; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(id.bytes[i]));
    out += str(i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", digits);
  }
  return out;
}

class CudaBackend final : public DeviceBackend {
 public:
  explicit CudaBackend(const ScratchSource& scratch) : scratch_(scratch) {
    (void)cuda::switches();  // refuses words that it does not know
    const int count = visible_gpus();
    for (int i = 0; i < count; ++i) gpus_.push_back(std::make_unique<Gpu>(i));
  }

  std::string name() const override { return "cuda"; }
  std::string versions() const override {
    int runtime = 0;
    check_cuda(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
    const std::string tried = cuda::to_text(cuda::switches());
    return str("CUDA ", cuda_version_text(runtime), ", cuBLASLt ", library_version_text(cublasLtGetVersion()),
               ", cuDNN ", library_version_text(cudnnGetVersion()),
               tried.empty() ? "" : str(", LOCKSTEP_CUDA_TRY=", tried));
  }
  bool tries(const std::string& word) const override { return cuda::is_on(cuda::switches(), word); }
  std::string driver() const override {
    const std::string release = driver_release();
    return str("driver ", release.empty() ? "" : str(release, " "), "for CUDA up to ",
               cuda_version_text(driver_cuda_version()));
  }
  std::string choices() const override { return cuda::algorithm_choices(); }
  int count() const override { return static_cast<int>(gpus_.size()); }
  DeviceProperties properties(int index) const override { return gpu(index).properties; }
  int64_t free_memory(int index) const override {
    make_current(gpu(index).index());
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for its free memory");
    return static_cast<int64_t>(free);
  }

  void* allocate(int index, int64_t bytes) override {
    make_current(gpu(index).index());
    void* data = nullptr;
    return granted(cudaMalloc(&data, static_cast<size_t>(bytes)), "allocating its memory") ? data : nullptr;
  }
  // cudaFree() waits for the GPU within the driver, where another rank of this process could then launch nothing: also
  // not the exchange that this GPU waits for.
  void release(int index, void* data) noexcept override {
    free_on(index, data, [](void* memory) {
      const cudaError_t idle = cudaDeviceSynchronize();
      return idle == cudaSuccess ? cudaFree(memory) : idle;
    });
  }
  void* allocate_pinned(int index, int64_t bytes) override {
    make_current(gpu(index).index());
    void* data = nullptr;
    const cudaError_t error =
        cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped);
    return granted(error, "pinning host memory") ? data : nullptr;
  }
  void release_pinned(int index, void* data) noexcept override { free_on(index, data, &cudaFreeHost); }
  bool pin(int index, void* data, int64_t bytes) override {
    make_current(gpu(index).index());
    if (cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable) == cudaSuccess) return true;
    (void)cudaGetLastError();
    return false;
  }
  void unpin(int index, void* data) noexcept override { free_on(index, data, &cudaHostUnregister); }

  std::shared_ptr<DeviceQueue> make_queue(int index, bool high_priority) override {
    const Gpu& on = gpu(index);
    return std::make_shared<CudaQueue>(on.events, on.table, scratch_, on.properties.processors, high_priority);
  }
  std::string doubt_of_masks(DeviceQueue& queue, const MaskedAttention& kind) override {
    return cuda::doubt_of_masks(static_cast<CudaQueue&>(queue), kind);
  }

 private:
  struct Gpu {
    explicit Gpu(int index) : table(cuda_kernels()), events(std::make_shared<CudaEventPool>(index)) {
      cudaDeviceProp found;
      check_cuda(cudaGetDeviceProperties(&found, index), "asking for a GPU's properties");
      properties = {found.name,
                    str("sm_", found.major, found.minor),
                    std::string(16, '\0'),
                    id_text(found.uuid),
                    found.multiProcessorCount,
                    static_cast<int64_t>(found.totalGlobalMem)};
      check_cuda(cudaDeviceGetPCIBusId(properties.bus.data(), static_cast<int>(properties.bus.size()), index),
                 "asking for a GPU's PCI address");
      properties.bus.resize(std::min(properties.bus.find('\0'), properties.bus.size()));
      if (!serves_architecture(LOCKSTEP_CUDA_ARCHITECTURES, found.major, found.minor))
        refuse(str("GPU ", index, " (", properties.name, ") is of architecture ", properties.architecture,
                   ", and this lockstep holds code for " LOCKSTEP_CUDA_ARCHITECTURES
                   " alone; build it with -DCMAKE_CUDA_ARCHITECTURES naming that one too, or leave the GPU out by "
                   "CUDA_VISIBLE_DEVICES"));
      table.isa = properties.architecture.c_str();
    }
    Gpu(const Gpu&) = delete;
    int index() const { return events->gpu(); }

    DeviceProperties properties;
    KernelTable table;  // of all GPUs, under this one's name
    std::shared_ptr<CudaEventPool> events;
  };

  const Gpu& gpu(int index) const {
    require(index >= 0 && index < count(), ExitCode::kDevice, "there is no GPU ", index, ": this process sees ",
            count(), " (", visible_devices_text(), ")");
    return *gpus_[static_cast<size_t>(index)];
  }

  // False where there is no memory left, which is no fault yet.
  static bool granted(cudaError_t error, const char* tried) {
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return false;
    }
    check_cuda(error, tried);
    return true;
  }

  // After a fault of the GPU, or while the process ends, this fails, and there is nothing to be done about it.
  void free_on(int index, void* data, cudaError_t (*free)(void*)) const noexcept {
    if (cudaSetDevice(index) != cudaSuccess || free(data) != cudaSuccess) (void)cudaGetLastError();
  }

  const ScratchSource scratch_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

}  // namespace
}  // namespace lockstep

extern "C" [[gnu::visibility("default")]] lockstep::DeviceBackend* lockstep_cuda_backend(
    const lockstep::ScratchSource& scratch) {
  return new lockstep::CudaBackend(scratch);
}

// Where warnings of a slower way go: the program's log.
extern "C" [[gnu::visibility("default")]] void lockstep_cuda_warn_by(void (*warn)(const std::string& line)) {
  lockstep::cuda::set_choice_warning(warn);
}
