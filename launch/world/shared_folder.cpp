#include "launch/world/shared_folder.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "core/base/host.h"
#include "core/base/plain_file.h"
#include "core/io/files.h"
#include "launch/world/fail_together.h"

namespace lockstep {

std::string why_not_shared(Communicator& comm, const std::string& dir) {
  namespace fs = std::filesystem;
  constexpr int kTries = 50;  // a tenth of a second each: network file systems remember for a while what was absent
  if (comm.size() == 1) return {};
  std::string name, why;
  fail_together(comm, [&] {
    if (comm.rank() != 0) return;
    name = temporary_name(dir + "/shared", "probe");
    if (!create_new(name)) fail_write(dir, errno);
  });
  const std::string first =
      broadcast_text(comm, str(host_name(), "\n", fs::path(name).filename().string()), 0, "setup");
  const std::string host = first.substr(0, first.find('\n')), token = first.substr(host.size() + 1);
  std::error_code ignored;
  const auto seen = [&] { return fs::exists(fs::path(dir) / token, ignored); };
  if (comm.rank() != 0) {
    for (int i = 0; i < kTries && !seen(); ++i) ::usleep(100'000);
    if (!seen())
      why = str(host_name(), " does not see the folder ", fs::absolute(dir, ignored).lexically_normal().string(),
                " of ", host, ": there is ", fs::exists(dir, ignored) ? "another one" : "none",
                " by this path; all machines must share it");
  }
  all_gather_text(comm, why.empty() ? "" : "-", "setup");  // all have looked
  if (comm.rank() == 0) ::unlink(name.c_str());
  return why;
}

}  // namespace lockstep
