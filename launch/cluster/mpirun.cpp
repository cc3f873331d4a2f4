#include "launch/cluster/mpirun.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "core/base/error.h"
#include "launch/process/child_process.h"

namespace lockstep {

std::vector<std::string> mpirun_arguments(const MpirunOptions& o) {
  std::vector<std::string> out{o.program, "-n", str(o.ranks)};
  const bool five = o.version >= 5;
  const auto add = [&](std::initializer_list<std::string> words) { out.insert(out.end(), words); };
  const auto runtime = [&](const char* four_name, const char* five_name, const std::string& value) {
    if (five) add({"--prtemca", five_name, value});
    else add({"--mca", four_name, value});
  };
  if (::geteuid() == 0) add({"--allow-run-as-root"});
  const bool reached = !reach_table(o).empty();
  std::string names;
  for (const Host& h : o.hosts) names += str(names.empty() ? "" : ",", mpi_name(h), ":", h.slots);
  if (!o.hosts.empty()) add({"--host", names, "--map-by", o.crowded ? "slot:OVERSUBSCRIBE" : "slot"});
  else if (o.crowded) add({"--map-by", five ? ":OVERSUBSCRIBE" : "slot:OVERSUBSCRIBE"});
  add({"--bind-to", o.binding});
  // Ranks that share a core must not wait in a busy loop: 15 ms for a 4-byte all-reduce, with this 5 us.
  if (o.crowded) add({"--mca", "mpi_yield_when_idle", "1"});
  if (!o.hosts.empty()) {
    // mpirun itself notices a machine that is gone after 5 s; by default it takes 5 minutes.
    if (!five)
      add({"--mca", "oob_tcp_keepalive_time", "2", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca",
           "oob_tcp_keepalive_probes", "3"});
    if (o.hosts.size() <= 64 || reached) runtime("plm_rsh_no_tree_spawn", "plm_ssh_no_tree_spawn", "1");
    if (!o.interface.empty()) {
      runtime("oob_tcp_if_include", "prte_if_include", o.interface);
      add({"--mca", "btl_tcp_if_include", o.interface});
    }
    const bool shielded = !o.shield.empty() && !five;
    if (shielded) add({"--mca", "orte_launch_agent", o.shield + " orted"});
    const std::string shell = reached ? o.own + " agent --reach" : o.remote_shell;
    if (!shell.empty()) {
      if (!five) add({"--mca", "plm", "rsh"});
      runtime("plm_rsh_agent", "plm_ssh_agent", shielded ? str(o.shield, " ", shell) : shell);
    }
  }
  for (const std::string& name : o.exported) add({"-x", name});
  out.insert(out.end(), o.command.begin(), o.command.end());
  return out;
}

int mpirun_version(const std::string& program) {
  int code = 0;
  const std::string text = run_and_capture({program, "--version"}, code);
  require(code != 126 && code != 127, ExitCode::kMissingInput, "cannot run ", program,
          ": install Open MPI (openmpi-bin), or name it with --mpirun");
  size_t at = text.find("(Open MPI) ");
  if (at == std::string::npos) at = text.find("(OpenRTE) ");  // what mpiexec of Open MPI 4 says
  require(at != std::string::npos, ExitCode::kUsage, program, " is not Open MPI's: it says '",
          text.substr(0, text.find('\n')), "'");
  return std::atoi(text.c_str() + text.find(' ', at + 6) + 1);
}

std::string reach_table(const MpirunOptions& o) {
  std::string out = o.remote_shell.empty() ? "ssh" : o.remote_shell;
  bool needed = false;
  for (const Host& h : o.hosts) {
    needed = needed || h.target() != mpi_name(h);
    out += str("\n", mpi_name(h), "=", h.target());
  }
  return needed ? out : "";
}

std::string question_to(const Host& host, const std::string& remote_shell) {
  const std::string shell =
      remote_shell.empty() ? "ssh -o BatchMode=yes -o ConnectTimeout=3" : shell_line({remote_shell});
  return str("timeout 5 ", shell, " ", shell_line({host.target()}), " true >/dev/null 2>&1 </dev/null");
}

bool answers(const Host& host, const std::string& remote_shell) {
  return std::system(question_to(host, remote_shell).c_str()) == 0;
}

namespace {

// The first line that contains all of these texts.
std::string line_with(const std::string& output, std::initializer_list<const char*> texts) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (std::all_of(texts.begin(), texts.end(), [&](const char* t) { return line.find(t) != std::string::npos; }))
      return line.substr(0, 300);
  return {};
}

// The first paragraph of Open MPI's that is no decoration, in one line.
std::string first_words(const std::string& output) {
  constexpr size_t kMost = 400;
  std::istringstream lines(output);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t\r-");
    const bool logged = line.starts_with("[") && line.find("ERROR_LOG") != std::string::npos;
    if (begin == std::string::npos || logged) {
      if (!out.empty() && out.back() != ':') break;
      continue;
    }
    out += str(out.empty() ? "" : " ", line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin));
    if (out.size() > kMost) return out.substr(0, kMost) + " ...";
  }
  return out;
}

}  // namespace

std::string mpirun_complaint(const std::string& output) {
  const auto says = [&](const char* text) { return output.find(text) != std::string::npos; };
  // These name the host.
  for (const auto& line : {line_with(output, {"ssh: ", "host"}), line_with(output, {": Permission denied ("})})
    if (!line.empty()) return line;
  if (says("Could not resolve hostname") || says("Name or service not known") || says("could not be resolved"))
    return "a host's name is unknown";
  if (says("Host key verification failed"))
    return "ssh does not accept a host's key: log in once by hand, and check the key (known_hosts)";
  if (says("Permission denied (")) return "a host refuses the login: ssh must work without a password";
  if (says("not enough slots")) return "the hosts have fewer slots than there are ranks";
  if (says("could not access") || says("unable to find the specified executable") ||
      says("unable to launch the specified") || says("unable to find the requested executable"))
    return "a host does not have this program at the same path";
  if (says("orted: command not found") || says("prted: command not found") ||
      says("ORTE was unable to reliably start") || says("unable to reliably start one or more daemons"))
    return "Open MPI could not be started on a host: it must be reachable by ssh, and have Open MPI of the same "
           "version "
           "in the PATH of non-interactive shells";
  if (says("lost communication with") || says("lost connection")) {
    const std::string line = line_with(output, {"Remote daemon:", "on node "});
    return str("the connection to ", line.empty() ? "a host" : line.substr(line.find("on node ") + 8), " was lost");
  }
  if (says("None of the TCP networks specified"))
    return str("a host has no such network interface as --interface names: ", first_words(output));
  const std::string words = first_words(output);
  return words.empty() ? words : str("mpirun says: ", words);
}

}  // namespace lockstep
