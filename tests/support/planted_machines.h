// PlantedMachines: while one lives, so many consecutive ranks of the communicators that are made count as a machine.
// Owned by a test.
#pragma once

#include <cstdlib>
#include <string>

namespace lockstep::testing {

class PlantedMachines {
 public:
  explicit PlantedMachines(int ranks) { ::setenv(kName, std::to_string(ranks).c_str(), 1); }
  ~PlantedMachines() { ::unsetenv(kName); }
  PlantedMachines(const PlantedMachines&) = delete;
  PlantedMachines& operator=(const PlantedMachines&) = delete;

 private:
  static constexpr const char* kName = "LOCKSTEP_TEST_MACHINE_RANKS";
};

}  // namespace lockstep::testing
