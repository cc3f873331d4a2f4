// The commands of the lockstep program: one function for each, and the table from which launch/run.cpp selects one.
// `arguments` do not include the command's name; the functions return the exit code.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/app.h"
#include "launch/commands/command_line.h"

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
int launch_command(const App& app, const std::vector<std::string>& arguments);
int submit_command(const App& app, const std::vector<std::string>& arguments);
int status_command(const App& app, const std::vector<std::string>& arguments);
int logs_command(const App& app, const std::vector<std::string>& arguments);
int cancel_command(const App& app, const std::vector<std::string>& arguments);
int top_command(const App& app, const std::vector<std::string>& arguments);
int agent_command(const App& app, const std::vector<std::string>& arguments);  // not listed: `lockstep launch` runs it

// The command line of `lockstep train`, for commands that start one.
Arguments train_arguments(const std::vector<std::string>& arguments);

// The entry of a command, in the order in which `lockstep --help` lists them.
struct CommandEntry {
  const char* name;
  int (*run)(const App&, const std::vector<std::string>&);
  std::vector<std::pair<const char*, const char*>> help;  // {arguments, description} of each form
};
inline const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all{
      {"train",
       train_command,
       {{"FILE.yaml [key.path=value ...] [--ranks N] [--resume [--at-most STEP]]", "train a model"}}},
      {"launch",
       launch_command,
       {{"[-n N] [--hosts a:8,b:8] [--restarts K] -- train ...", "start ranks by mpirun, watch them, restart them"}}},
      {"agent", agent_command, {}},
      {"submit",
       submit_command,
       {{"FILE.yaml [key.path=value ...] --nodes N --time T", "train as a batch job of Slurm or PBS"}}},
      {"status", status_command, {{"RUN...", "say how runs are doing"}}},
      {"logs", logs_command, {{"RUN [-f]", "print the log of a run"}}},
      {"top", top_command, {{"RUN", "show a run and its ranks live"}}},
      {"cancel", cancel_command, {{"RUN", "let a run save and end"}}},
      {"eval", eval_command, {{"RUN [key.path=value ...]", "measure the validation loss of a run or checkpoint"}}},
      {"generate", generate_command, {{"RUN [--prompt TEXT] [--tokens N]", "continue a text"}}},
      {"data",
       data_command,
       {{"import FORMAT INPUT... OUTPUT.h5", "make a dataset from files (text, idx)"},
        {"inspect FILE.h5", "check a dataset and describe it"}}},
      {"config", config_command, {{"show FILE.yaml | keys", "print the resolved configuration; print all keys"}}},
      {"checkpoint",
       checkpoint_command,
       {{"inspect|digest|verify DIR", "describe a checkpoint; print the digest of its state; check it"},
        {"diff A B | export DIR OUT.h5", "compare two states; write the parameters to one file"}}},
      {"plan",
       plan_command,
       {{"FILE.yaml [key.path=value ...] --ranks N", "compute memory and traffic of a run, on any machine"}}},
      {"prove",
       prove_command,
       {{"FILE.yaml [key.path=value ...] [--ranks 1,2,4]", "check that every layout of ranks gives the same bits"}}},
      {"bench", bench_command, {{"FILE.yaml [key.path=value ...]", "time training steps"}}},
      {"devices", devices_command, {{"", "list CPU and GPUs; why no GPU can be used"}}}};
  return all;
}

// Prints the result of a command to standard output, on the first process only. Since the text may contain data from
// files, control characters other than newline and tab are escaped (core/base/escape.h), unless `shown` is kAsItIs.
// Throws ExitCode::kStorage if it cannot be written.
enum class Shown { kEscaped, kAsItIs };
void print(const std::string& text, Shown shown = Shown::kEscaped);

}  // namespace lockstep
