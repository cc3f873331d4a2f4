#include "core/device/backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <mutex>

namespace lockstep {
namespace {

std::mutex mutex;
DeviceBackend* backend = nullptr;
bool searched = false;
std::string missing;

// Beside the program; in ../lib, where builds and installations put it; and where the system's loader looks.
std::string program_folder() {
  std::string path(4096, '\0');
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(n > 0 ? static_cast<size_t>(n) : 0);
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

void* library_symbol(const std::string& library, const char* symbol, std::string* why) {
  const std::string folder = program_folder();
  const std::string places[] = {cat(folder, "/", library), cat(folder, "/../lib/", library), library};
  void* handle = nullptr;
  for (const std::string& place : places) {
    // One that is there but lacks something itself says more than those that are not there.
    const bool there = place == library || access(place.c_str(), F_OK) == 0;
    if (!there) continue;
    handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) break;
    const char* said = dlerror();
    if (why && (place != library || why->empty())) *why = said ? said : cat(place, " cannot be opened");
    if (place != library) return nullptr;
  }
  if (!handle) return nullptr;
  void* found = dlsym(handle, symbol);
  if (!found && why) *why = cat(library, " has no ", symbol, ": it is of another version of lockstep");
  return found;
}

bool has_gpu_driver() {
  static const bool found = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  return found;
}

DeviceBackend* find_device_backend(std::string* why) {
  std::lock_guard lock(mutex);
  if (!backend && !searched) {
    searched = true;
    std::string said;
    if (!has_gpu_driver()) {
      missing = "no NVIDIA driver: libcuda.so.1, which is part of it, cannot be opened";
    } else if (void* make = library_symbol("liblockstep_cuda.so", "lockstep_cuda_backend", &said)) {
      try {
        backend = reinterpret_cast<MakeDeviceBackend*>(make)();
      } catch (const Error& error) {
        missing = error.what();
      }
    } else {
      // The loader names what it did not find: ours, or a library of CUDA that ours needs.
      const bool built = said.find("liblockstep_cuda.so: cannot open") == std::string::npos;
      missing =
          cat("this lockstep cannot use GPUs: ", said,
              built ? "; install that library, or put its folder on LD_LIBRARY_PATH"
                    : "; build it with the preset cuda-release, and keep liblockstep_cuda.so in ../lib of the program");
    }
  }
  if (!backend && why) *why = missing;
  return backend;
}

DeviceBackend& device_backend() {
  std::string why;
  DeviceBackend* found = find_device_backend(&why);
  require(found != nullptr, ExitCode::kDevice, why);
  return *found;
}

void set_device_backend(DeviceBackend* b) {
  std::lock_guard lock(mutex);
  backend = b;
}

}  // namespace lockstep
