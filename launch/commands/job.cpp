#include "launch/commands/job.h"

#include <sys/resource.h>

#include <algorithm>

#include "launch/training/memory_advice.h"

namespace lockstep {

std::unique_ptr<Settings> settings_of_file(const App& app, const Arguments& a, bool trains) {
  ConfigTree tree = ConfigTree::load(a.positional[0], a.rest());
  const int ranks = world_size(a.ranks(), deadline_of(tree));
  const bool resume = trains && (a.has("resume") || resumes(tree));
  return load_settings(app, std::move(tree), ranks, resume);
}

Job::Job(const Settings& settings, int asked_ranks) : settings_(settings), data_(settings) {
  world_.ranks = asked_ranks;
  require_open_files(std::max(1, world_size(asked_ranks, settings.deadline)));
  world_.threads = settings.compute.threads;
  world_.device = settings.device;
  world_.deadline_s = settings.deadline;
}

// Too few are else noticed in the middle of a run, when a checkpoint or a connection cannot be opened.
void Job::require_open_files(int ranks) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t needed = 64 + 2 * static_cast<rlim_t>(ranks);  // files of the run; connections to the other ranks
  require(limit.rlim_cur >= needed, ExitCode::kDevice, "a process may have only ", limit.rlim_cur,
          " open files here, and with ", ranks, ranks == 1 ? " rank " : " ranks ", needed,
          " are needed: raise `ulimit -n`");
}

int Job::run(std::string_view name, const std::function<void(Communicator&, const Datasets&)>& body) {
  return run_world(world_, [&](Communicator& comm) {
    with_memory_advice(settings_, comm.size(), [&] { body(comm, data_.open(comm)); });
    comm.barrier(cat("end of ", name));
  });
}

}  // namespace lockstep
