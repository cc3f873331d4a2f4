// Job: what each command that runs a model on several ranks does around it. Owned by the command; borrows settings.
#pragma once

#include <functional>
#include <memory>

#include "launch/commands/command_line.h"
#include "launch/training/shared_data.h"
#include "launch/training/trainer.h"
#include "launch/world/world.h"

namespace lockstep {

// The configuration of `FILE.yaml [key.path=value ...] [--ranks N]`, for as many ranks as there will be. Starts MPI
// under a launcher. `resume`: as load_settings().
std::unique_ptr<Settings> settings_of_file(const App& app, const Arguments& arguments, bool resume = false);

class Job {
 public:
  // `asked_ranks`: of --ranks; 0: as many as the launcher started, or one.
  Job(const Settings& settings, int asked_ranks);

  WorldOptions& world() { return world_; }  // may be changed before run()
  // Runs `body` on every rank with the data, which is opened once a process, and waits for all at its end. Where a
  // GPU's memory is not enough, the error says which keys would help. Returns the exit code of what failed, or 0.
  int run(std::string_view name, const std::function<void(Communicator&, const Datasets&)>& body);

 private:
  const Settings& settings_;
  SharedData data_;
  WorldOptions world_;
};

}  // namespace lockstep
