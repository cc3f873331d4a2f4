#include "core/device/library.h"

#include <dlfcn.h>
#include <unistd.h>

#include "core/base/host.h"

namespace lockstep {
namespace {

// Beside the program; in ../lib, where builds and installations put it; and where the system's loader looks.
std::string program_folder() {
  const std::string path = program_path();
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

void* library_symbol(const std::string& library, const char* symbol, std::string* why) {
  const std::string folder = program_folder();
  const std::string places[] = {str(folder, "/", library), str(folder, "/../lib/", library), library};
  void* handle = nullptr;
  for (const std::string& place : places) {
    // One that is there but lacks something itself says more than those that are not there.
    const bool there = place == library || access(place.c_str(), F_OK) == 0;
    if (!there) continue;
    handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) break;
    const char* said = dlerror();
    if (why && (place != library || why->empty())) *why = said ? said : str(place, " cannot be opened");
    if (place != library) return nullptr;
  }
  if (!handle) return nullptr;
  void* found = dlsym(handle, symbol);
  if (!found && why) *why = str(library, " has no ", symbol, ": it is of another version of lockstep");
  return found;
}

}  // namespace lockstep
