// Where a launched job is to run, as the options of `lockstep launch`, an allocation of a batch system or this machine
// give it. Plain values and functions.
#pragma once

#include <string>
#include <vector>

#include "launch/arguments/command_line.h"
#include "launch/cluster/attempt.h"
#include "launch/cluster/hosts.h"

namespace lockstep {

struct JobPlace {
  std::vector<Host> hosts;  // empty: this machine alone
  int ranks = 1;
  bool crowded = false;
};

// Throws ExitCode::kUsage where options exclude each other or ask for more ranks than there are slots.
JobPlace place_of(const Arguments& a);
// Throws ExitCode::kUsage where --interface names none of this machine's; networks such as 10.0.0.0/8 are Open MPI's to
// judge.
void require_interface(const std::string& text);
// `lines`: the values of --env. Throws ExitCode::kUsage for what is neither NAME nor NAME=VALUE.
void add_environment(const std::string& lines, AttemptOptions& o);

}  // namespace lockstep
