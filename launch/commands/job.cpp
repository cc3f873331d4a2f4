#include "launch/commands/job.h"

#include <algorithm>

#include "launch/training/guards/memory_advice.h"
#include "launch/world/open_files.h"

namespace lockstep {

std::unique_ptr<Settings> settings_of_file(const App& app, const Arguments& a, bool trains) {
  ConfigTree tree = ConfigTree::load(a.positional[0], a.rest());
  const int ranks = world_size(a.ranks(), deadline_of(tree));
  const bool resume = trains && (a.has("resume") || resumes(tree));
  return load_settings(app, std::move(tree), ranks, resume);
}

Job::Job(Settings& settings, int asked_ranks) : settings_(settings), data_(settings) {
  world_.ranks = asked_ranks;
  // Too few are else noticed in the middle of a run, when a checkpoint or a connection cannot be opened.
  const int ranks = std::max(1, world_size(asked_ranks, settings.deadline));
  require_open_files(64 + 2 * ranks, str("with ", ranks, ranks == 1 ? " rank" : " ranks"));  // files; connections
  world_.threads = settings.compute.threads;
  world_.device = settings.device;
  world_.deadline_s = settings.deadline;
}

int Job::run(std::string_view name, const std::function<void(Communicator&, const Datasets&)>& body) {
  return run_unopened(name, [&](Communicator& comm, SharedData& data) { body(comm, data.open(comm)); });
}

int Job::run_unopened(std::string_view name, const std::function<void(Communicator&, SharedData&)>& body) {
  return run_world(world_, [&](Communicator& comm) {
    with_memory_advice(settings_, comm.size(), [&] { body(comm, data_); });
    comm.barrier(str("end of ", name));
  });
}

}  // namespace lockstep
