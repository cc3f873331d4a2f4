#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/config/settings.h"
#include "launch/world/world.h"

namespace lockstep {

std::vector<Command> config_forms() {
  return {{"config show",
           "config show FILE.yaml [key.path=value ...] [--ranks N] [--json]",
           "Prints the resolved configuration, each value with its origin; the output is a valid FILE.yaml.",
           {{"ranks", "as for train; batch.micro: 0 depends on it", "N", "1"},
            {"json", "print one JSON object with value and origin of each key"}},
           1},
          {"config keys",
           "config keys [--json]",
           "Lists every key with type, default, unit, range and meaning.",
           {{"json", "print one JSON list"}},
           0,
           0},
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
    print_out(a.has("json") ? keys_json(all_keys(app)) : keys_table(all_keys(app)));
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
