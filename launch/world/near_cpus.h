// The CPUs that are near a GPU, in the same NUMA node: threads that feed it should run there. Plain functions.
#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"

namespace lockstep {

// Those that the system names for the device at a PCI address ("0000:3B:00.0"), ascending; none where it names none.
// `system`: where sysfs is mounted.
std::vector<int> cpus_near(const std::string& bus, const std::string& system = "/sys");

// While it lives, the calling thread, and threads that it starts meanwhile, run on those of `cpus` that it may run on.
// Does nothing where it may not run on every CPU of the machine, as a launcher or taskset has bound it already, nor
// where none is left. Destroyed by the same thread.
class WithCpusNear {
 public:
  explicit WithCpusNear(const std::vector<int>& cpus);
  explicit WithCpusNear(const Device& device);  // those near a GPU; of others none
  WithCpusNear(const WithCpusNear&) = delete;
  ~WithCpusNear();

 private:
  std::optional<cpu_set_t> before_;
};

}  // namespace lockstep
