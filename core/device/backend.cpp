#include "core/device/backend.h"

#include <dlfcn.h>

#include "core/base/log.h"
#include "core/device/allocator.h"
#include "core/device/library.h"

namespace lockstep {
namespace {

OpenedOnce<DeviceBackend> backend;

DeviceBackend* open_backend(std::string& why) {
  if (!has_gpu_driver()) {
    why = "no NVIDIA driver: libcuda.so.1, which is part of it, cannot be opened";
    return nullptr;
  }
  std::string said;
  if (void* make = library_symbol("liblockstep_cuda.so", "lockstep_cuda_backend", &said)) {
    // The library has no log of its own.
    if (void* warn_by = library_symbol("liblockstep_cuda.so", "lockstep_cuda_warn_by", &said))
      reinterpret_cast<void (*)(void (*)(const std::string&))>(warn_by)(
          [](const std::string& line) { log_warning(line); });
    return reinterpret_cast<MakeDeviceBackend*>(make)({allocate_scratch, free_bytes});
  }
  // The loader names what it did not find: ours, or a library of CUDA that ours needs.
  const bool built = said.find("liblockstep_cuda.so: cannot open") == std::string::npos;
  why = str("this lockstep cannot use GPUs: ", said,
            built ? "; install that library, or put its folder on LD_LIBRARY_PATH"
                  : "; build it with the preset cuda-release, and keep liblockstep_cuda.so in ../lib of the program");
  return nullptr;
}

}  // namespace

bool has_gpu_driver() {
  static const bool found = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  return found;
}

DeviceBackend* find_device_backend(std::string* why) { return backend.find(open_backend, why); }
DeviceBackend& device_backend() { return backend.get(open_backend); }
void set_device_backend(DeviceBackend* b) { backend.set(b); }

}  // namespace lockstep
