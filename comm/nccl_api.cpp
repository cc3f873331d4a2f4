#include "comm/nccl_api.h"

#include <mutex>

namespace lockstep {
namespace {

std::mutex mutex;
NcclApi* api = nullptr;
bool searched = false;
std::string missing;

}  // namespace

NcclApi* find_nccl_api(std::string* why) {
  std::lock_guard lock(mutex);
  if (!api && !searched) {
    searched = true;
    std::string said;
    if (void* make = library_symbol("liblockstep_nccl.so", "lockstep_nccl_api", &said)) {
      try {
        api = reinterpret_cast<MakeNcclApi*>(make)();
      } catch (const Error& error) {
        missing = error.what();
      }
    } else {
      missing = cat("this lockstep cannot use NCCL: ", said,
                    "; build it where NCCL is installed, and keep liblockstep_nccl.so beside the program");
    }
  }
  if (!api && why) *why = missing;
  return api;
}

NcclApi& nccl_api() {
  std::string why;
  NcclApi* found = find_nccl_api(&why);
  require(found != nullptr, ExitCode::kDevice, why);
  return *found;
}

void set_nccl_api(NcclApi* a) {
  std::lock_guard lock(mutex);
  api = a;
}

}  // namespace lockstep
