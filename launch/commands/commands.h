// The commands of the lockstep program, one function each, and their table, from which launch/run.cpp chooses.
// Plain functions: arguments without the command's own name; they return the exit code.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/app.h"

namespace lockstep {

int train_command(const App& app, const std::vector<std::string>& arguments);
int eval_command(const App& app, const std::vector<std::string>& arguments);
int generate_command(const App& app, const std::vector<std::string>& arguments);
int data_command(const App& app, const std::vector<std::string>& arguments);
int config_command(const App& app, const std::vector<std::string>& arguments);
int checkpoint_command(const App& app, const std::vector<std::string>& arguments);
int devices_command(const App& app, const std::vector<std::string>& arguments);
int plan_command(const App& app, const std::vector<std::string>& arguments);
int prove_command(const App& app, const std::vector<std::string>& arguments);
int bench_command(const App& app, const std::vector<std::string>& arguments);

// What `lockstep COMMAND` runs and `lockstep --help` prints, in this order.
struct CommandEntry {
  const char* name;
  int (*run)(const App&, const std::vector<std::string>&);
  std::vector<std::pair<const char*, const char*>> help;  // its forms, without the name, and what each does
};
inline const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all{
      {"train", train_command, {{"FILE.yaml [key.path=value ...] [--ranks N] [--resume]", "train a model"}}},
      {"eval", eval_command, {{"RUN [key.path=value ...]", "validation loss of a run or checkpoint"}}},
      {"generate", generate_command, {{"RUN [--prompt TEXT] [--tokens N]", "continue a text"}}},
      {"data",
       data_command,
       {{"import FORMAT INPUT... OUTPUT.h5", "make a dataset from files (text, idx)"},
        {"inspect FILE.h5", "check a dataset and describe it"}}},
      {"config", config_command, {{"show FILE.yaml | keys", "the resolved configuration; every key there is"}}},
      {"checkpoint",
       checkpoint_command,
       {{"inspect|digest|verify DIR", "what a checkpoint holds; one value for its state; is it whole"},
        {"diff A B | export DIR OUT.h5", "what differs; the parameters as one file"}}},
      {"plan",
       plan_command,
       {{"FILE.yaml [key.path=value ...] --ranks N", "memory and traffic of a run, without its machine"}}},
      {"prove",
       prove_command,
       {{"FILE.yaml [key.path=value ...] [--ranks 1,2,4]", "the same bits at every layout of ranks?"}}},
      {"bench", bench_command, {{"FILE.yaml [key.path=value ...]", "time training steps"}}},
      {"devices", devices_command, {{"", "CPU and GPUs of this machine; why no GPU can be used"}}}};
  return all;
}

// Text that a command prints as its result: standard output of the first process alone. It may quote what a file holds:
// control characters but newlines and tabs come escaped (core/base/escape.h), unless the text itself was asked for.
// Throws ExitCode::kStorage where it cannot be written.
enum class Shown { kEscaped, kAsItIs };
void print(const std::string& text, Shown shown = Shown::kEscaped);

}  // namespace lockstep
