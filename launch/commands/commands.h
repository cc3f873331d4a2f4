// The commands of the lockstep program: for each a function that runs it and one that says what it takes, and the table
// from which launch/run.cpp selects one. `arguments` do not include the command's name; the functions that run a
// command return the exit code.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/app.h"
#include "launch/arguments/command_line.h"

namespace lockstep {

int train_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> train_forms();
int eval_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> eval_forms();
int predict_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> predict_forms();
int generate_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> generate_forms();
int chat_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> chat_forms();
int serve_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> serve_forms();
int data_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> data_forms();
int tokenizer_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> tokenizer_forms();
int config_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> config_forms();
int checkpoint_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> checkpoint_forms();
int devices_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> devices_forms();
int doctor_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> doctor_forms();
int check_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> check_forms();
int plan_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> plan_forms();
int prove_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> prove_forms();
int bench_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> bench_forms();
int completion_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> completion_forms();
int man_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> man_forms();
int sweep_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> sweep_forms();
int launch_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> launch_forms();
int submit_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> submit_forms();
int status_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> status_forms();
int logs_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> logs_forms();
int cancel_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> cancel_forms();
int top_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> top_forms();
int report_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> report_forms();
int profile_command(const App& app, const std::vector<std::string>& arguments);
std::vector<Command> profile_forms();
int agent_command(const App& app, const std::vector<std::string>& arguments);  // not listed: `lockstep launch` runs it

// The entry of a command, in the order in which `lockstep --help` lists them. A command that only another one starts
// has neither forms nor help, and is not listed.
struct CommandEntry {
  const char* name;
  int (*run)(const App&, const std::vector<std::string>&);
  std::vector<Command> (*forms)();                        // at least one
  std::vector<std::pair<const char*, const char*>> help;  // {arguments, description} of each form

  bool is_listed() const { return !help.empty(); }
};
inline const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all{
      {"train",
       train_command,
       train_forms,
       {{"FILE.yaml [key.path=value ...] [--ranks N] [--resume [--at-most STEP]]", "train a model"}}},
      {"launch",
       launch_command,
       launch_forms,
       {{"[-n N] [--hosts a:8,b:8] [--restarts K] -- train ...", "start ranks by mpirun, watch them, restart them"}}},
      {"sweep",
       sweep_command,
       sweep_forms,
       {{"FILE.yaml key=a,b key2='range(1,4)' [--jobs J]", "train with every combination of values"}}},
      {"agent", agent_command, nullptr, {}},
      {"submit",
       submit_command,
       submit_forms,
       {{"FILE.yaml [key.path=value ...] --nodes N --time T", "train as a batch job of Slurm or PBS"}}},
      {"status", status_command, status_forms, {{"RUN...", "say how runs are doing"}}},
      {"logs", logs_command, logs_forms, {{"RUN [-f]", "print the log of a run"}}},
      {"top", top_command, top_forms, {{"RUN", "show a run and its ranks live"}}},
      {"report", report_command, report_forms, {{"RUN... [-o FILE.html]", "write a page of curves, times and memory"}}},
      {"profile",
       profile_command,
       profile_forms,
       {{"record RUN [--steps N]", "write the timeline of a run's next steps"},
        {"summary RUN|FILE.json", "say where a timeline's time went, and what to change"}}},
      {"cancel", cancel_command, cancel_forms, {{"RUN", "let a run save and end"}}},
      {"eval",
       eval_command,
       eval_forms,
       {{"RUN [key.path=value ...]", "measure the validation loss of a run or checkpoint"}}},
      {"predict",
       predict_command,
       predict_forms,
       {{"RUN INPUT... [-o FILE]", "say what a run predicts for files without targets"}}},
      {"generate", generate_command, generate_forms, {{"RUN [--prompt TEXT] [--tokens N]", "continue a text"}}},
      {"chat", chat_command, chat_forms, {{"RUN [--system TEXT]", "talk with a model of conversations"}}},
      {"serve", serve_command, serve_forms, {{"RUN [--listen PORT]", "answer OpenAI's clients, and a web page"}}},
      {"data",
       data_command,
       data_forms,
       {{"import FORMAT INPUT... OUTPUT.h5", "make a dataset from text, tables, images, arrays, ..."},
        {"inspect FILE.h5", "check a dataset and describe it"},
        {"verify FILE.h5...", "check datasets, and name what is damaged"},
        {"split FILE.h5 --into A.h5:0.9,B.h5:0.1 | merge A.h5 B.h5... OUT.h5", "make datasets of others"}}},
      {"tokenizer",
       tokenizer_command,
       tokenizer_forms,
       {{"train INPUT... OUTPUT.json --vocab-size N", "make a byte-pair tokenizer"},
        {"encode|decode FROM FILE", "turn text into token ids, and back"},
        {"inspect FROM", "describe a tokenizer"}}},
      {"config",
       config_command,
       config_forms,
       {{"show FILE.yaml | keys | schema", "print the resolved configuration; all keys; a schema for editors"}}},
      {"checkpoint",
       checkpoint_command,
       checkpoint_forms,
       {{"inspect|digest|verify DIR", "describe a checkpoint; print the digest of its state; check it"},
        {"diff A B | export DIR OUT.h5", "compare two states; write the parameters to one file"}}},
      {"check",
       check_command,
       check_forms,
       {{"FILE.yaml [key.path=value ...] [--ranks N]", "look for what would stop a run, before it starts"}}},
      {"plan",
       plan_command,
       plan_forms,
       {{"FILE.yaml [key.path=value ...] --ranks N", "compute memory and traffic of a run, on any machine"}}},
      {"prove",
       prove_command,
       prove_forms,
       {{"FILE.yaml [key.path=value ...] [--ranks 1,2,4]", "check that every layout of ranks gives the same bits"}}},
      {"bench", bench_command, bench_forms, {{"FILE.yaml [key.path=value ...]", "time training steps"}}},
      {"doctor",
       doctor_command,
       doctor_forms,
       {{"[--ranks N] [--dir DIR]", "measure ranks, links, disk and clocks; name the odd one"}}},
      {"devices", devices_command, devices_forms, {{"", "list CPU and GPUs; why no GPU can be used"}}},
      {"completion", completion_command, completion_forms, {{"bash|zsh|fish", "print a script for the shell"}}},
      {"man", man_command, man_forms, {{"[COMMAND]", "print the manual page"}}}};
  return all;
}

}  // namespace lockstep
