// Command lines: named options and positional arguments of one command. The door to Boost.Program_options.
// Plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct Option {
  std::string name;  // "ranks"
  std::string help;
  std::string value = {};     // name of its value, "N"; empty for a flag
  std::string standard = {};  // default
};

struct Command {
  std::string name;                     // "train"
  std::string usage;                    // "train FILE.yaml [key.path=value ...] [--ranks N]"
  std::string help;                     // a line or more
  std::vector<Option> options;          // beside --help
  int at_least = 0, at_most = 1 << 20;  // positional arguments
};

constexpr int kMostRanks = 4096;  // of a run

struct Arguments {
  bool help = false;  // --help was given: text() of the command was printed
  std::vector<std::string> positional;
  std::map<std::string, std::string> values;  // by name; flags "true"
  bool has(const std::string& flag) const { return values.count(flag) && values.at(flag) == "true"; }
  const std::string& text(const std::string& name) const { return values.at(name); }
  // Throw ExitCode::kUsage for what is no number, or not from `least` to `most`.
  int64_t integer(const std::string& name, int64_t least, int64_t most = std::numeric_limits<int64_t>::max()) const;
  int ranks(int least = 0) const;  // --ranks, `least` to kMostRanks
  double number(const std::string& name) const;
};

// Throws ExitCode::kUsage naming the argument that is wrong. Prints the command's help for --help.
Arguments parse_arguments(const Command& command, const std::vector<std::string>& arguments);

}  // namespace lockstep
