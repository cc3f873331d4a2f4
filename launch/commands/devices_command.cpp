#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/terminal/output.h"
#include "launch/world/devices.h"

namespace lockstep {

std::vector<Command> devices_forms() {
  return {{"devices",
           "devices [--json]",
           "Lists what ranks can compute on: the CPU and the GPUs that this process sees, with memory and "
           "the versions\n"
           "of driver and libraries; if no GPU can be used, it says why.",
           {{"json", "print one JSON object per device"}},
           0,
           0}};
}

int devices_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(devices_forms(), given);
  if (!a.help) print_out(a.has("json") ? devices_json() : devices_text());
  return 0;
}

}  // namespace lockstep
