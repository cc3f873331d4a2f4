// AbsentMachines: the machines that a job has lost, and whether they answer again. Owned by the launch command.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/cluster/hosts.h"

namespace lockstep {

class AbsentMachines {
 public:
  // `hosts`: all machines of the job.
  AbsentMachines(std::vector<Host> hosts, std::string remote_shell)
      : hosts_(std::move(hosts)), remote_shell_(std::move(remote_shell)) {}
  ~AbsentMachines();
  AbsentMachines(const AbsentMachines&) = delete;
  AbsentMachines& operator=(const AbsentMachines&) = delete;

  void add(const std::set<std::string>& names) { names_.insert(names.begin(), names.end()); }  // as in Host::name
  const std::set<std::string>& names() const { return names_; }

  // Asks one machine after the other, every few seconds and without waiting for an answer; `now` by steady_now().
  // Returns the machine that has answered, which stays among the absent ones; empty: none yet.
  std::string ask(double now);
  // Asks all of them, and waits; those that answer are no longer absent.
  void remove_answering();

 private:
  const Host& host(const std::string& name) const;

  std::vector<Host> hosts_;
  std::string remote_shell_;
  std::set<std::string> names_;
  std::string asked_;    // the machine that was asked last
  pid_t question_ = -1;  // a program that asks it
  double asked_at_ = -1e9;
};

}  // namespace lockstep
