// Imports in processes that are killed. Plain functions.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <set>

#include "data/import/import.h"
#include "tests/support/files.h"

namespace lockstep::test {

using Import = std::function<void(const ImportOptions& options)>;

// Runs it in a process that is killed at the `call`-th report of progress; false where it was complete before.
inline bool import_until_killed(const Import& import, int call) {
  const pid_t child = ::fork();
  if (child == 0) {
    int calls = 0;
    ImportOptions options;
    options.threads = 2;
    options.save_every = 0;
    options.progress = options.writing = [&](int64_t, int64_t) {
      if (++calls == call) ::raise(SIGKILL);
    };
    try {
      import(options);
    } catch (const std::exception& e) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return true;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return false;
}

// Kills it again and again, each time a little later, until it is complete. After each kill `output` is not there, and
// nothing in its folder that was not there before but OUTPUT.partial. Returns how often it was killed.
inline int kill_until_complete(const std::string& output, const Import& import) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(output).parent_path();
  std::set<fs::path> there{output + ".partial"};
  for (const auto& entry : fs::directory_iterator(folder)) there.insert(entry.path());
  int kills = 0;
  while (kills < 200 && import_until_killed(import, 3 + kills)) {
    ++kills;
    for (const auto& entry : fs::directory_iterator(folder)) EXPECT_TRUE(there.count(entry.path())) << entry.path();
  }
  EXPECT_FALSE(fs::exists(output + ".partial"));
  return kills;
}

}  // namespace lockstep::test
