// SharedData: the datasets of a run, opened once a process: ranks that are its threads share them. Owned by the
// command; borrows settings, of which the data tells train.steps where other keys stand for it.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "comm/communicator.h"
#include "launch/config/settings.h"

namespace lockstep {

class SharedData {
 public:
  explicit SharedData(Settings& settings) : settings_(settings) {}
  // Collective. Throws ExitCode::kOutputLocked on all ranks where a machine does not see the data of rank 0. Where
  // settings.data.measured is set, refuses data that has no such part. Throws what resolve_steps() does.
  const Datasets& open(Communicator& comm);

 private:
  std::string relative_to() const;
  void require_same(Communicator& comm) const;

  Settings& settings_;
  std::mutex mutex_;
  std::unique_ptr<Datasets> data_;
};

}  // namespace lockstep
