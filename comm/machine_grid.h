// MachineGrid: the ranks of a communicator as machines x ranks of a machine, where consecutive ranks are on one machine
// and every machine has as many. A plain value.
#pragma once

#include <vector>

namespace lockstep {

struct MachineGrid {
  int machines = 1, ranks = 1;  // of a machine

  // Of `machines`, as Communicator::machines() gives them; one machine of one rank where they are no such grid.
  static MachineGrid of(const std::vector<int>& machines) {
    MachineGrid grid;
    const size_t size = machines.size();
    size_t first = 0;  // ranks of the first machine
    while (first < size && machines[first] == 0) ++first;
    if (first == 0 || size % first != 0) return grid;
    for (size_t r = 0; r < size; ++r)
      if (machines[r] != static_cast<int>(r / first)) return grid;
    grid.machines = static_cast<int>(size / first);
    grid.ranks = static_cast<int>(first);
    return grid;
  }
  // Is there something to gain by going through it in stages?
  bool has_stages() const { return machines > 1 && ranks > 1; }
};

}  // namespace lockstep
