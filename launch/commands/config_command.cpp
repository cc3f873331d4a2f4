#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/config/settings.h"
#include "launch/world/world.h"

namespace lockstep {

int config_command(const App& app, const std::vector<std::string>& given) {
  const Command command{
      "config",
      "config show FILE.yaml [key.path=value ...] [--ranks N] [--json] | config keys [--json]",
      "show: prints the resolved configuration, each value with its origin; the output is a valid FILE.yaml.\n"
      "keys: lists every key with type, default, unit, range and meaning.",
      {{"ranks", "as for train; batch.micro: 0 depends on it", "N", "1"},
       {"json", "keys: print one JSON list; show: print one JSON object with value and origin of each key"}},
      1};
  const Arguments a = parse_arguments(command, given);
  if (a.help) return 0;
  if (a.positional[0] == "keys") {
    require(a.positional.size() == 1, ExitCode::kUsage, "config keys: unexpected argument '", a.positional[1], "'");
    print(a.has("json") ? keys_json(all_keys(app)) : keys_table(all_keys(app)));
    return 0;
  }
  require(a.positional[0] == "show" && a.positional.size() >= 2, ExitCode::kUsage, "usage: lockstep ", command.usage);
  auto settings =
      load_settings(app, ConfigTree::load(a.positional[1], {a.positional.begin() + 2, a.positional.end()}), a.ranks(1));
  print(a.has("json") ? settings->config.json() : settings->config.dump_yaml());
  return 0;
}

}  // namespace lockstep
