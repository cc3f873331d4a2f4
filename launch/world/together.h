// Work of all ranks that may take long on any of them, such as writing to a disk.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

// Runs `mine` on all ranks and returns what it returned on each. Throws on all where it throws on one
// (fail_together.h). Ranks that are done wait in repeated short collectives, so that a slow rank does not count as
// lost. `give_up`: called where another rank is lost, so that this rank's `mine` ends soon. Collective.
std::vector<std::string> together(Communicator& comm, const std::function<std::string()>& mine,
                                  const std::function<void()>& give_up, std::string_view label);

}  // namespace lockstep
