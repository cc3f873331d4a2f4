// `lockstep man`: manual pages in roff (man(7)), made from the tables of commands and of exit codes.
#include <algorithm>

#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/terminal/output.h"

namespace lockstep {
namespace {

struct Item {
  const char *name, *meaning;
};
constexpr Item kEnvironment[] = {
    {"LOCKSTEP_ISA", "kernels of a lower instruction-set level than the CPU has: generic, avx2 or avx512"},
    {"LOCKSTEP_PEER_MEMORY", "off: processes of one machine exchange by messages alone"},
    {"CUDA_VISIBLE_DEVICES", "the GPUs that ranks use"},
    {"LOCKSTEP_CUDA_TRY",
     "ways of the GPU part that no card has decided yet, as words: split_k, fast_attention and others"},
    {"NCCL_WIN_ENABLE", "0: GPUs do not reach each other's memory directly"},
    {"LOCKSTEP_ATTEMPT", "which start of a job this is, from 1: selects faults of chaos.faults"},
    {"LOCKSTEP_MEMORY", "set by launch for its ranks, with recovery.from: memory: the process that holds the state"},
    {"LOCKSTEP_PROGRESS", "off: no progress display"},
    {"TMPDIR", "folder of temporary files (default: /tmp), of `lockstep prove --resume`, predict and Open MPI"}};
constexpr Item kFiles[] = {{"config.yaml", "the resolved configuration"},
                           {"metrics.jsonl", "one JSON object a step"},
                           {"about.json", "what the run is made of, for `lockstep report`"},
                           {"log.txt", "what was written to the terminal, and more detail"},
                           {"tensorboard/", "TensorBoard event files"},
                           {"checkpoints/", "the checkpoints that are kept"},
                           {"failure.json", "after a failure: exit code, rank, step and message"},
                           {"algorithms.txt", "on a GPU: which algorithms its libraries chose"}};

// Text that roff prints as it is: '-' is the ASCII character, and no line is a request.
std::string plain(const std::string& text) {
  std::string out;
  for (char c : text) {
    const bool begins = out.empty() || out.back() == '\n';
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if (begins && (c == '.' || c == '\'')) out += str("\\&", std::string(1, c));
    else out += c;
  }
  return out;
}
std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }
std::string item(const std::string& name, const std::string& meaning) {
  return str(".TP\n", name, "\n", plain(meaning), "\n");
}

// The help of a form, filled; a line that follows a whole sentence begins anew.
std::string description(const Command& c) {
  std::string out = plain(c.help);
  for (size_t at = 0; (at = out.find(".\n", at)) != out.npos; at += 5) out.replace(at, 2, ".\n.br\n");
  return out + "\n";
}
std::string options(const Command& c) {
  std::string out;
  for (const Option& o : c.options) {
    std::string names;
    for (const std::string& word : o.words()) names += (names.empty() ? "" : ", ") + bold(word);
    out += item(str(names, o.value.empty() ? "" : str(" \\fI", plain(o.value), "\\fR")),
                o.help + (o.standard.empty() || o.standard == "\n" ? "" : str(" (default: ", o.standard, ")")));
  }
  return out;
}
std::string usage(const Command& c) {
  return str(bold("lockstep " + c.name), plain(c.usage.substr(c.name.size())), "\n");
}

std::string exit_status() {
  std::string out = ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) out += item(bold(str(static_cast<int>(code))), std::string(meaning));
  return out;
}
std::string summary(const CommandEntry& e) {
  std::string out;
  for (const auto& [form, what] : e.help) out += str(out.empty() ? "" : "; ", what);
  return out;
}
std::string title(const std::string& name) {
  std::string upper = name;
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return str(".TH ", plain(upper), " 1 \"\" \"lockstep ", kVersion, "\" \"User Commands\"\n.SH NAME\n");
}

std::string page_of(const CommandEntry& e) {
  const std::string name = str("lockstep-", e.name);
  std::string out = str(title(name), plain(name), " \\- ", plain(summary(e)), "\n.SH SYNOPSIS\n");
  const std::vector<Command> forms = e.forms();
  for (const Command& c : forms) out += usage(c) + ".br\n";
  out += ".SH DESCRIPTION\n";
  for (const Command& c : forms)
    out += str(forms.size() > 1 ? str(".SS ", plain(c.name), "\n") : "", description(c), options(c));
  return out + exit_status() + ".SH SEE ALSO\n.BR lockstep (1)\n";
}

std::vector<Command> all_forms() {
  std::vector<Command> out;
  for (const CommandEntry& e : commands())
    if (e.is_listed())
      for (Command& c : e.forms()) out.push_back(std::move(c));
  return out;
}

std::string whole_page() {
  std::string out =
      title("lockstep") +
      "lockstep \\- distributed data\\-parallel training, the same bits at every number of ranks\n.SH SYNOPSIS\n";
  for (const Command& c : all_forms()) out += usage(c) + ".br\n";
  out +=
      ".SH DESCRIPTION\nEach rank is one process, or a thread of one. One YAML file describes a run, and HDF5 files "
      "hold its data and its checkpoints. The commands run in the same way alone, with\n.B \\-\\-ranks\nwhere they "
      "have that option, and under mpirun. With the same batch.global and batch.micro, a run has the same result, bit "
      "by bit, at every number of ranks.\n.PP\n";
  out += str(plain("A key of the YAML file is overridden by "), bold("key.path=value"), " after the file.\n",
             bold("lockstep config keys"), " lists all keys.\n.SH COMMANDS\n");
  for (const Command& c : all_forms()) out += str(".SS ", plain(c.usage), "\n", description(c), options(c));
  out += exit_status() + ".SH ENVIRONMENT\n";
  for (const Item& i : kEnvironment) out += item(bold(i.name), i.meaning);
  out += ".SH FILES\nIn the directory of a run (run.dir):\n";
  for (const Item& i : kFiles) out += item(str("\\fI", plain(i.name), "\\fR"), i.meaning);
  return out + ".SH SEE ALSO\n.BR mpirun (1)\n";
}

}  // namespace

std::vector<Command> man_forms() {
  std::vector<std::string> names;
  for (const CommandEntry& e : commands())
    if (e.is_listed()) names.push_back(e.name);
  return {{"man",
           "man [COMMAND]",
           "Prints the manual page of COMMAND, or of all commands, in roff. To read it: lockstep man | man -l -",
           {},
           0,
           1,
           names}};
}

int man_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(man_forms(), given);
  if (a.help) return 0;
  if (a.positional.empty()) {
    print_out(whole_page());
    return 0;
  }
  const auto named = [&](const CommandEntry& e) { return e.name == a.positional[0]; };
  print_out(page_of(*std::find_if(commands().begin(), commands().end(), named)));
  return 0;
}

}  // namespace lockstep
