// The command line of one command: its options and positional arguments. Only command_line.cpp includes
// Boost.Program_options.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct Option {
  std::string name;  // "ranks", or "ranks,n" with a short form; values are found under "ranks"
  std::string help;
  std::string value = {};     // placeholder of its value in the help text, "N"; empty for a flag
  std::string standard = {};  // default
  bool repeats = false;       // may be given several times: then its values are the lines of one text

  std::string long_name() const { return name.substr(0, name.find(',')); }
  // How it is written: "--ranks", and "-n" where it has a short form.
  std::vector<std::string> words() const {
    std::vector<std::string> out{"--" + long_name()};
    if (name.size() > long_name().size()) out.push_back("-" + name.substr(long_name().size() + 1));
    return out;
  }
};

// What one form of a command takes. Its help text, the completion of shells and its manual page follow from this.
struct Command {
  std::string name;  // "train", or "data import" where the command has several forms
  // "train FILE.yaml [key.path=value ...] [--ranks N]". Completion offers YAML files where this has FILE.yaml, and keys
  // of the configuration where it has key.path=value.
  std::string usage;
  std::string help;                     // one or more lines
  std::vector<Option> options;          // without --help
  int at_least = 0, at_most = 1 << 20;  // number of positional arguments
  std::vector<std::string> words = {};  // if not empty, the first positional argument is one of these
  // If not empty, the form as each of `words` has it, in their order: its usage, help and options, for `--help`.
  std::vector<Command> of_words = {};

  // "import" of "data import"; empty for the only form of a command.
  std::string form() const { return name.find(' ') == name.npos ? "" : name.substr(name.find(' ') + 1); }
};

constexpr int kMostRanks = 4096;  // in a run

struct Arguments {
  bool help = false;  // --help was given and the help text was printed
  std::string form;   // Command::form() of the one that was given
  std::vector<std::string> positional;
  std::map<std::string, std::string> values;  // by option name; "true" for a flag that was given
  bool has(const std::string& flag) const { return values.count(flag) && values.at(flag) == "true"; }
  const std::string& text(const std::string& name) const { return values.at(name); }
  // The positional arguments after the first one, such as key.path=value after FILE.yaml.
  std::vector<std::string> rest() const { return {positional.begin() + 1, positional.end()}; }
  // These throw ExitCode::kUsage if the value is not such a number or list, or not in [least, most].
  int64_t integer(const std::string& name, int64_t least, int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::vector<std::string> list(const std::string& name) const;  // with commas between; none of them empty
  int ranks(int least = 0) const;                                // the value of --ranks, in [least, kMostRanks]
  double number(const std::string& name, double least, double most = std::numeric_limits<double>::infinity()) const;
};

// Reads the arguments of a command with these forms, at least one; of several, the first argument names one. Throws
// ExitCode::kUsage naming the invalid argument. Prints the help if --help is given.
Arguments parse_arguments(const std::vector<Command>& forms, const std::vector<std::string>& arguments);

}  // namespace lockstep
