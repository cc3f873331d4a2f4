#include "comm/nccl/nccl_api.h"

#include "core/device/library.h"

namespace lockstep {
namespace {

OpenedOnce<NcclApi> api;

NcclApi* open_api(std::string& why) {
  std::string said;
  if (void* make = library_symbol("liblockstep_nccl.so", "lockstep_nccl_api", &said))
    return reinterpret_cast<MakeNcclApi*>(make)();
  why = str("this lockstep cannot use NCCL: ", said,
            "; build it where NCCL is installed, and keep liblockstep_nccl.so next to the program");
  return nullptr;
}

}  // namespace

NcclApi* find_nccl_api(std::string* why) { return api.find(open_api, why); }
NcclApi& nccl_api() { return api.get(open_api); }
void set_nccl_api(NcclApi* a) { api.set(a); }

}  // namespace lockstep
