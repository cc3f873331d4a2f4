// What goes wrong on one rank goes wrong on all, with one message.
// A plain function.
#pragma once

#include <functional>
#include <string_view>

#include "comm/communicator.h"

namespace lockstep {

// Runs `mine` on every rank. Where one throws, all do: the first such rank the same, the others an Error with an empty
// message, which is not reported: one message for one cause. Collective.
void fail_together(Communicator& comm, const std::function<void()>& mine, std::string_view label = "setup");

}  // namespace lockstep
