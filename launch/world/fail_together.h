// Turns an error on one rank into an error on all ranks, reported once.
#pragma once

#include <functional>
#include <string_view>

#include "comm/communicator.h"

namespace lockstep {

// Runs `mine` on every rank. If it throws on any rank, all ranks throw: the first such rank its own error, the others
// an Error with the same exit code and an empty message, which is not reported. Collective.
void fail_together(Communicator& comm, const std::function<void()>& mine, std::string_view label = "setup");

}  // namespace lockstep
