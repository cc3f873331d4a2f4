#include "launch/cluster/mpi_folders.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "comm/mpi/mpi_launch.h"
#include "core/base/host.h"
#include "core/base/system_call.h"
#include "launch/world/temp_dir.h"

namespace lockstep {
namespace {

// The names of Open MPI 4 and of Open MPI 5.
constexpr std::array kSession{"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"};
constexpr std::array kShared{&kSharedFolder[0], "OMPI_MCA_btl_sm_backing_directory"};

}  // namespace

MpiFolders::MpiFolders() {
  const std::string place = std::filesystem::absolute(temporary_place()).lexically_normal();
  if (const int error = add(place, kSession))
    throw Error(is_storage_error(error) ? ExitCode::kStorage : ExitCode::kOutputLocked,
                str(place, ": cannot make a folder for Open MPI's files: ", std::strerror(error)));
  add("/dev/shm", kShared);  // where that cannot be, Open MPI finds another place
}

int MpiFolders::add(const std::string& place, const Variables& variables) {
  if (std::any_of(variables.begin(), variables.end(), [](const char* name) { return std::getenv(name); })) return 0;
  // The host name is part of the folder's name, since locks work within one machine only.
  Temporary folder = make_temporary_folder(str(place, "/lockstep-mpi-", host_name(), "-"), 0700);
  if (!folder.lock) return errno;
  for (const char* name : variables) environment_.emplace_back(name, folder.path);
  folders_.push_back(std::move(folder));
  return 0;
}

MpiFolders::~MpiFolders() {
  for (const Temporary& f : folders_) remove_tree(f.path);
}

std::vector<std::string> MpiFolders::paths() const {
  std::vector<std::string> out;
  for (const Temporary& f : folders_) out.push_back(f.path);
  return out;
}

std::vector<int> MpiFolders::locks() const {
  std::vector<int> out;
  for (const Temporary& f : folders_) out.push_back(f.lock.number());
  return out;
}

}  // namespace lockstep
