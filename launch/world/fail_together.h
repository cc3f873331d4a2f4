// Turns an error on one rank into an error on all ranks, reported once.
#pragma once

#include <functional>
#include <string_view>

#include "comm/communicator.h"

namespace lockstep {

// Runs `mine` on every rank. Where one throws, all do: the first such rank its own error, the others a secondary one
// with the same exit code. Collective.
void fail_together(Communicator& comm, const std::function<void()>& mine, std::string_view label = "setup");

}  // namespace lockstep
