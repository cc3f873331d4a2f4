// SharedData: the datasets of a run, opened once a process: ranks that are its threads share them. Owned by the
// command; borrows settings.
#pragma once

#include <memory>
#include <mutex>

#include "comm/communicator.h"
#include "launch/config/settings.h"

namespace lockstep {

class SharedData {
 public:
  SharedData(const App& app, const Settings& settings) : app_(app), settings_(settings) {}
  // Collective. Where settings.data.measured is set, refuses data that has no such part.
  const Datasets& open(Communicator& comm);

 private:
  const App& app_;
  const Settings& settings_;
  std::mutex mutex_;
  std::unique_ptr<Datasets> data_;
};

}  // namespace lockstep
