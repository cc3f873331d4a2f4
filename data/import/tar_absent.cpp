// Compiled in place of tar_members.cpp where the package libarchive-dev is not there.
#include "core/base/error.h"
#include "data/import/tar_members.h"

namespace lockstep {

void list_tar(const TarPlace& archive, const std::function<void(const TarMember&)>&) {
  throw Error(ExitCode::kDevice,
              str(archive.name,
                  ": this build reads no tar archives; install libarchive's development package "
                  "(scripts/install_packages), and build again; or unpack them into a folder for each label: "
                  "`lockstep data import images`"));
}

}  // namespace lockstep
