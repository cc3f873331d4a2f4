#include "launch/arguments/job_place.h"

#include <net/if.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/device/backend.h"
#include "core/device/thread_pool.h"
#include "launch/cluster/batch.h"

namespace lockstep {
namespace {

int gpus_or_one() {
  const DeviceBackend* gpus = find_device_backend();
  return gpus ? std::max(1, gpus->count()) : 1;
}

}  // namespace

JobPlace place_of(const Arguments& a) {
  JobPlace p;
  const bool named = !a.text("hosts").empty(), listed = !a.text("hostfile").empty();
  require(!named || !listed, ExitCode::kUsage, "launch: --hosts and --hostfile say the same: give one");
  const Allocation allocation = current_allocation();
  if (named) p.hosts = parse_hosts(a.text("hosts"));
  else if (listed) p.hosts = read_hostfile(a.text("hostfile"));
  else p.hosts = allocation.hosts;
  const auto asked = static_cast<int>(a.integer("ranks", 0, kMostRanks));
  const int slots = total_slots(p.hosts);
  const bool several =
      std::any_of(p.hosts.begin(), p.hosts.end(), [](const Host& h) { return !is_this_machine(h.name); });
  if (p.hosts.empty()) {
    p.ranks = asked > 0 ? asked : gpus_or_one();
    p.crowded = p.ranks > available_cores();
    if (p.crowded)
      log_warning(
          str(p.ranks, " ranks on ", cores_text(available_cores()), ": more than one rank on a core, which is slow"));
    return p;
  }
  p.ranks = asked > 0 ? asked : slots;
  require(p.ranks <= slots, ExitCode::kUsage, "launch: ", p.ranks, " ranks, but ", hosts_text(p.hosts), " have ", slots,
          slots == 1 ? " slot" : " slots",
          allocation.scheduler.empty() || named || listed
              ? "; give fewer ranks (-n), or more hosts or slots (HOST:N)"
              : str(" (job ", allocation.job, " of ", allocation.scheduler, ")"));
  p.crowded = !several && p.ranks > available_cores();
  return p;
}

void require_interface(const std::string& text) {
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');)
    if (name.find('/') != std::string::npos || ::if_nametoindex(name.c_str()) != 0) return;
  std::string all;
  if (struct if_nameindex* list = ::if_nameindex()) {
    for (const auto* i = list; i->if_name; ++i) all += str(all.empty() ? "" : ", ", i->if_name);
    ::if_freenameindex(list);
  }
  throw Error(ExitCode::kUsage,
              str("--interface ", text, ": ", host_name(), " has no such network interface; it has ", all));
}

void add_environment(const std::string& lines, AttemptOptions& o) {
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    const size_t equal = line.find('=');
    const std::string name = line.substr(0, equal);
    const bool plain =
        !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
        std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    require(plain, ExitCode::kUsage, "--env ", line, ": is neither NAME nor NAME=VALUE");
    require(equal != std::string::npos || std::getenv(name.c_str()), ExitCode::kUsage, "--env ", name,
            ": there is no such variable here; give it a value: --env ", name, "=VALUE");
    o.exported.push_back(name);
    if (equal != std::string::npos) o.environment.emplace_back(name, line.substr(equal + 1));
  }
}

}  // namespace lockstep
