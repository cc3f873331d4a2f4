#include "launch/cluster/absent_machines.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "core/base/error.h"
#include "launch/cluster/mpirun.h"
#include "launch/process/child_process.h"

namespace lockstep {
namespace {

constexpr double kAskEvery_s = 5;

}  // namespace

AbsentMachines::~AbsentMachines() {
  if (question_ <= 0) return;
  ::kill(-question_, SIGKILL);
  ::waitpid(question_, nullptr, 0);
}

const Host& AbsentMachines::host(const std::string& name) const {
  const auto at = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& h) { return h.name == name; });
  check(at != hosts_.end(), name, " is no machine of the job");
  return *at;
}

std::string AbsentMachines::ask(double now) {
  if (question_ > 0) {
    int status = 0;
    if (::waitpid(question_, &status, WNOHANG) != question_) return "";
    question_ = -1;
    return status == 0 ? asked_ : "";
  }
  if (names_.empty() || now - asked_at_ < kAskEvery_s) return "";
  asked_at_ = now;
  const auto next = names_.upper_bound(asked_);
  asked_ = next == names_.end() ? *names_.begin() : *next;
  question_ =
      start_child({.command = {"sh", "-c", question_to(host(asked_), remote_shell_)}, .end_with_parent = SIGKILL});
  return "";
}

void AbsentMachines::remove_answering() {
  std::erase_if(names_, [&](const std::string& name) { return answers(host(name), remote_shell_); });
}

}  // namespace lockstep
