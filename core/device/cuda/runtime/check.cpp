#include "core/device/cuda/runtime/check.h"

#include "core/base/error.h"

namespace lockstep {
namespace {

struct Words {
  std::string what;
  std::string advice;
};

constexpr const char* kKernelAdvice =
    "this process can no longer use the GPU; resume from the last checkpoint, and where it happens again start with "
    "CUDA_LAUNCH_BLOCKING=1, which stops at the very kernel, and report it";
constexpr const char* kCardAdvice =
    "resume from the last checkpoint on another GPU (CUDA_VISIBLE_DEVICES leaves this one out); nvidia-smi -q says "
    "whether it needs a reset or a repair";

Words words_of(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress: return {"a kernel reached outside its memory", kKernelAdvice};
    case cudaErrorMisalignedAddress: return {"a kernel read or wrote at an address that is not aligned", kKernelAdvice};
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure: return {"a kernel failed", kKernelAdvice};
    case cudaErrorLaunchTimeout:
      return {"a kernel ran longer than the watchdog of this GPU's display allows", "use a GPU without a display"};
    case cudaErrorECCUncorrectable: return {"its memory has an error that ECC cannot mend", kCardAdvice};
    case cudaErrorNvlinkUncorrectable: return {"an NVLink of it has an error that cannot be mended", kCardAdvice};
    case cudaErrorContained: return {"the hardware stopped this process's work after an error of its own", kCardAdvice};
    case cudaErrorDevicesUnavailable:
      return {"another process holds it for itself",
              "end that process (nvidia-smi names it), or set the compute mode: nvidia-smi -c DEFAULT"};
    case cudaErrorMemoryAllocation:
      return {"it is out of memory", "nvidia-smi names the processes that hold some; lower the batch, or shard more"};
    case cudaErrorNoKernelImageForDevice:
      return {"this lockstep holds no code for it", "build it with -DCMAKE_CUDA_ARCHITECTURES naming this GPU's"};
    case cudaErrorUnsupportedPtxVersion: return {"its driver is too old for this lockstep's code", "update the driver"};
    case cudaErrorStubLibrary:
      return {"the libcuda.so found is the toolkit's, which is no driver", "take its stubs folder off LD_LIBRARY_PATH"};
    case cudaErrorSystemNotReady:
      return {"the machine's GPUs are not ready", "start its fabric manager: systemctl start nvidia-fabricmanager"};
    case cudaErrorSystemDriverMismatch:
      return {"the loaded driver and its library are of different versions", "restart the machine"};
    case cudaErrorCompatNotSupportedOnDevice:
      return {"the CUDA compatibility package does not serve this GPU", "install a newer driver instead"};
    default: return {cudaGetErrorString(error), "resume from the last checkpoint; nvidia-smi -q shows the GPU's state"};
  }
}

}  // namespace

std::string cuda_error_text(cudaError_t error, int gpu, const char* tried) {
  const Words words = words_of(error);
  return str("GPU ", gpu, ": ", words.what, " (", cudaGetErrorName(error), ", seen at: ", tried, "); ", words.advice);
}

void throw_cuda_error(cudaError_t error, const char* tried) {
  int gpu = 0;
  (void)cudaGetDevice(&gpu);
  (void)cudaGetLastError();  // one that does not stay must not be found again by the next call
  throw Error(ExitCode::kDevice, cuda_error_text(error, gpu, tried));
}

}  // namespace lockstep
