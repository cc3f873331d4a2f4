#include "core/base/error.h"
#include "launch/cluster/agent.h"
#include "launch/cluster/keeper.h"
#include "launch/commands/commands.h"
#include "launch/recovery/memory_holder.h"

namespace lockstep {

int agent_command(const App&, const std::vector<std::string>& given) {
  if (given.size() >= 2 && given[0] == "--shield") return run_shielded({given.begin() + 1, given.end()});
  if (given.size() >= 2 && given[0] == "--reach") return run_reach({given.begin() + 1, given.end()});
  if (!given.empty() && given[0] == "--keep") return run_keeper(keeper_options({given.begin() + 1, given.end()}));
  if (given.size() == 1 && given[0] == "--hold") return run_memory_holder(false);
  if (given == std::vector<std::string>{"--hold", "--stay"}) return run_memory_holder(true);
  require(given.size() >= 2 && given[0] == "--", ExitCode::kUsage,
          "`lockstep agent` is started by `lockstep launch` only");
  return run_agent({given.begin() + 1, given.end()});
}

}  // namespace lockstep
