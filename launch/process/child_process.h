// Starts other programs.
#pragma once

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "core/base/plain_file.h"

namespace lockstep {

// A command as a line that a shell reads back.
std::string shell_line(const std::vector<std::string>& arguments);

struct ChildStart {
  std::vector<std::string> command;  // found by PATH
  int output = -1, errors = -1;      // descriptors that become its outputs
  int end_with_parent = SIGTERM;     // the signal that it receives when this process ends, however that ends; 0: none
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to this process's
  int blocked = 0;             // a signal that the program does not get; 0: it gets all
  int input = -1;              // a descriptor that becomes its input; -1: that is empty
  std::vector<int> kept = {};  // descriptors that stay open in it
  bool own_group = true;       // false: it belongs to the process group of this process
};

// Starts a program, in a process group of its own, so that a terminal's signals reach it through this process alone; no
// signal is blocked or ignored in it. Where the program cannot be started, the child says why on `errors` and exits
// with 66 (there is none) or 126. Throws ExitCode::kDevice if no process can be made.
pid_t start_child(const ChildStart& child);

// A pipe that closes in a program that is started: {end to read, which never blocks, end to write}.
std::pair<Descriptor, Descriptor> make_pipe();

// Runs a command and returns what it prints, on both outputs; `code` becomes its exit code, or 128 and the number of
// the signal that ended it.
std::string run_and_capture(const std::vector<std::string>& command, int& code);

}  // namespace lockstep
