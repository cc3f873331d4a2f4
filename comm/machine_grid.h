// MachineGrid: the ranks of a communicator as machines x ranks of a machine, where consecutive ranks are on one machine
// and every machine has as many. A plain value.
#pragma once

#include <map>
#include <vector>

namespace lockstep {

struct MachineGrid {
  int machines = 1, ranks = 1;  // of a machine

  // What tells the machines of ranks apart, as numbers in the order of their first ranks: Communicator::machines().
  static std::vector<int> numbered(std::vector<int> machines) {
    std::map<int, int> numbers;
    for (int& machine : machines)
      machine = numbers.try_emplace(machine, static_cast<int>(numbers.size())).first->second;
    return machines;
  }
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
  // How many machines exchange with each other in each step; the product of these extents is `machines`. A few all at
  // once, which keeps links busiest. Many in steps: first each with its sibling, then pairs with the pair beside them,
  // and so on, as long as their number is even, and what is left at once. So the rounds of an exchange grow with
  // log2(machines), and each adds up nodes that are siblings in the tree of sums (recursive halving, nearest partner
  // first).
  std::vector<int> steps() const {
    constexpr int kAtOnce = 16;
    std::vector<int> out;
    int left = machines;
    for (; machines > kAtOnce && left % 2 == 0; left /= 2) out.push_back(2);
    if (left > 1) out.push_back(left);
    return out;
  }
};

}  // namespace lockstep
