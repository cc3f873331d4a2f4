#include <unistd.h>

#include <algorithm>

#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/config/did_you_mean.h"
#include "launch/config/other_names.h"
#include "launch/config/settings.h"
#include "launch/terminal/output.h"
#include "launch/terminal/terminal.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

// Those that begin with `prefix`. Throws ExitCode::kUsage where there is none.
std::vector<ConfigKey> keys_below(const std::vector<ConfigKey>& keys, const std::string& prefix) {
  std::vector<ConfigKey> out;
  std::vector<std::string> names;
  for (const ConfigKey& k : keys) {
    names.push_back(k.key);
    if (const size_t dot = k.key.find('.'); dot != k.key.npos) names.push_back(k.key.substr(0, dot));
    if (k.key.starts_with(prefix)) out.push_back(k);
  }
  require(!out.empty(), ExitCode::kUsage, "lockstep config keys: no key begins with '", prefix, "'",
          did_you_mean(prefix, names));
  return out;
}

// "max_steps", "train.steps" and a note, in lines.
std::string names_table(const std::string& word) {
  std::vector<std::vector<std::string>> rows{{"there", "here"}};
  for (const OtherName& other : other_names()) {
    if (!word.empty() && other.name.find(word) == other.name.npos) continue;
    const std::string between = other.ours.empty() || other.note.empty() ? "" : ": ";
    rows.push_back({std::string(other.name), std::string(other.ours) + between + std::string(other.note)});
  }
  require(rows.size() > 1, ExitCode::kUsage, "lockstep config names: no name holds '", word, "'");
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row[0].size());
  std::string out;
  for (const auto& row : rows) out += row[0] + std::string(width + 2 - row[0].size(), ' ') + row[1] + "\n";
  return out;
}

}  // namespace

std::vector<Command> config_forms() {
  return {
      {"config show",
       "config show FILE.yaml [key.path=value ...] [--ranks N] [--json]",
       "Prints the resolved configuration, each value with its origin; the output is a valid FILE.yaml.",
       {{"ranks", "as for train; batch.micro: 0 depends on it", "N", "1"},
        {"json", "print one JSON object with value and origin of each key"}},
       1},
      {"config keys",
       "config keys [PREFIX] [--json]",
       "Lists every key, or those that begin with PREFIX, such as optim or optim.lr, with type, default, unit, range\n"
       "and meaning: on a terminal in lines of its width, else one line a key.",
       {{"json", "print one JSON list"}},
       0,
       1},
      {"config names",
       "config names [WORD]",
       "Lists what other programs call our keys and commands, one a line, or those that hold WORD.",
       {},
       0,
       1},
      {"config schema",
       "config schema",
       "Prints a JSON Schema (draft-07) of FILE.yaml, with which editors complete and check its keys.",
       {},
       0,
       0}};
}

int config_command(const App& app, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(config_forms(), given);
  if (a.help) return 0;
  if (a.form == "keys") {
    const auto keys = a.positional.empty() ? all_keys(app) : keys_below(all_keys(app), a.positional[0]);
    const bool terminal = ::isatty(STDOUT_FILENO) == 1;
    print_out(a.has("json") ? keys_json(keys)
              : terminal    ? keys_paragraphs(keys, terminal_columns(STDOUT_FILENO))
                            : keys_table(keys));
    return 0;
  }
  if (a.form == "names") {
    print_out(names_table(a.positional.empty() ? "" : a.positional[0]));
    return 0;
  }
  if (a.form == "schema") {
    print_out(config_schema(all_keys(app)));
    return 0;
  }
  auto settings = load_settings(app, ConfigTree::load(a.positional[0], a.rest()), a.ranks(1));
  print_out(a.has("json") ? settings->config.json() : settings->config.dump_yaml());
  return 0;
}

}  // namespace lockstep
