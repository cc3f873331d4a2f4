#include "launch/cluster/agent.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "comm/mpi/mpi_launch.h"
#include "core/base/error.h"
#include "core/base/flight_recorder.h"
#include "core/base/host.h"
#include "core/base/median.h"
#include "launch/app.h"
#include "launch/cluster/mpirun.h"
#include "launch/cluster/process_view.h"
#include "launch/cluster/stack_dump.h"
#include "launch/process/child_process.h"
#include "launch/process/control.h"
#include "launch/recovery/memory_holder.h"
#include "launch/world/control_group.h"
#include "launch/world/temp_dir.h"

namespace lockstep {
namespace {

constexpr double kReach = 10;        // seconds to reach the launcher
constexpr double kEndAfter = 0.7;    // seconds from mpirun's SIGTERM to the end: it sends SIGKILL after one
constexpr double kHolderGone = 0.1;  // seconds until another memory holder is started
constexpr double kPoll = 0.05;       // seconds between looks at the rank
constexpr size_t kMedianOf = 31;     // durations of each kind of phase that are remembered
constexpr size_t kKinds = 256;

volatile std::sig_atomic_t asked_to_end = 0;

// "all_gather #12 of blocks.3" and "all_gather #13 of blocks.4" are of one kind.
std::string kind_of(std::string_view what) {
  std::string out;
  for (char c : what)
    if (c < '0' || c > '9') out += c;
  return out;
}

class Medians {
 public:
  void add(const FlightEvent& e) {
    if (durations_.size() >= kKinds && !durations_.count(kind_of(e.what))) return;
    auto& all = durations_[kind_of(e.what)];
    all.push_back(1e-9 * static_cast<double>(e.end_ns - e.begin_ns));
    if (all.size() > kMedianOf) all.pop_front();
  }
  double of(std::string_view what) const {  // seconds; 0: not known
    const auto found = durations_.find(kind_of(what));
    if (found == durations_.end()) return 0;
    return median({found->second.begin(), found->second.end()});
  }

 private:
  std::map<std::string, std::deque<double>> durations_;
};

// One of the rank's two outputs, cut into lines.
struct Output {
  Descriptor pipe;
  int stream = 1;
  std::string rest;
};

class Agent {
 public:
  // `connect` says hello to the launcher; an agent that was not met yet, and whose connection ends, tries again.
  Agent(const std::vector<std::string>& command, std::function<Connection()> connect)
      : command_(command), connect_(std::move(connect)), launcher_(connect_()) {}

  int run() {
    const double limit = 60, begun = steady_now();
    while (!child_ && !refused_ && (away_ || steady_now() - heard_ < limit) && !over_ && !asked_to_end) {
      step();
      if (refused_ || !launcher_.closed()) continue;
      if (met_ || steady_now() - begun > kReach) break;
      ::usleep(200'000);
      launcher_ = connect_();
    }
    if (!child_ && !refused_) return static_cast<int>(ExitCode::kRankLost);
    while (!over_) step();
    return leave();
  }

 private:
  void step() {
    std::vector<pollfd> all{{launcher_.number(), static_cast<short>(POLLIN | (launcher_.pending() ? POLLOUT : 0)), 0}};
    for (const Output& o : outputs_)
      if (o.pipe) all.push_back({o.pipe.number(), POLLIN, 0});
    if (holder_ && !holder_->lost()) all.push_back({holder_->number(), POLLIN, 0});
    ::poll(all.data(), all.size(), static_cast<int>(1e3 * kPoll));
    launcher_.flush();
    listen();
    hold();
    for (Output& o : outputs_) hand_on(o);
    if (!child_ && !refused_) return;
    if (child_) look();
    if (asked_to_end && shielded_) {  // mpirun does not end, so this comes from the scheduler, and the rank saves
      asked_to_end = 0;
      launcher_.send({{"type", "asked"}});
    }
    if (asked_to_end && ending_ < 0) ending_ = steady_now() + kEndAfter;
    if (ending_ >= 0 && steady_now() >= ending_) over_ = true;
    if (launcher_.closed() && !exited_ && !refused_) {
      say_locally("the launcher is gone; its ranks end");
      fails_ = true;
      over_ = true;
    } else if (!away_ && steady_now() - heard_ > silence_) {
      fails_ = true;
      say_locally(str("nothing heard of the launcher for ", static_cast<int64_t>(silence_), " s; its ranks end"));
      over_ = true;
    }
  }

  void listen() {
    std::vector<JsonObject> messages;
    launcher_.receive(messages);
    for (const JsonObject& m : messages) {
      heard_ = steady_now();
      met_ = true;
      away_ = text_of(m, "type") == "away";  // it will not be heard of, and reads nothing, until it says more
      const std::string type = text_of(m, "type");
      if (type == "go" && !child_) {
        silence_ = number_of(m, "silence", 10);
        every_ = number_of(m, "every", 0.25);
        shielded_ = integer_of(m, "shielded") != 0;
        try {
          enter(text_of(m, "folder"));
          require_temporary_folder();
          holder_ = memory_holder_of_machine();
          start();
        } catch (const Error& e) {
          refuse(e);
        }
      } else if (type == "signal" && child_ && !exited_) {
        ::kill(child_, static_cast<int>(integer_of(m, "number", SIGTERM)));
      } else if (type == "stack" && child_ && !exited_) {
        ask_for_stack(child_, integer_of(m, "thread", child_));
      } else if (type == "report" && reader_ && !exited_) {
        report(process_state(child_));
      } else if (type == "stop") {
        fails_ = integer_of(m, "failed") != 0;
        over_ = true;
      }
    }
  }

  // Another memory holder in the place of one that ended: the rank hands its memory to it.
  void hold() {
    if (!child_ || exited_ || launcher_.closed()) return;
    const double now = steady_now();
    if (holder_ && !holder_->lost()) lost_at_ = -1;
    else if (lost_at_ < 0) lost_at_ = now;
    // Not at once: where the launcher has ended, that is known in a moment.
    if (lost_at_ < 0 || now - lost_at_ < kHolderGone) return;
    lost_at_ = now + 1;  // the next attempt
    try {
      holder_ = memory_holder_of_machine();
    } catch (const Error& e) {
      holder_.reset();
      line(2, str("rank ", launched_rank(), " on ", host_name(), ": ", e.what()));
    }
  }

  // This machine is not fit for the rank: the launcher hears why, as if the rank had said so.
  void refuse(const Error& e) {
    refused_ = true;
    code_ = static_cast<int>(e.code());
    line(2, str("error: rank ", launched_rank(), " on ", host_name(), ": ", e.what()));
    launcher_.send({{"type", "exit"}, {"code", int64_t{code_}}});
  }

  // Where there is no such folder Open MPI goes on in another one, in which the rank would find nothing.
  static void enter(const std::string& folder) {
    if (folder.empty() || ::chdir(folder.c_str()) == 0) return;
    const char* why = std::strerror(errno);
    throw Error(ExitCode::kMissingInput, str("the folder that the job runs in, ", folder, ", cannot be entered: ", why,
                                             "; it must be there on every machine"));
  }

  void start() {
    flight_ = make_flight_memory();
    ::setenv(kFlightFile, str("/proc/", int64_t{::getpid()}, "/fd/", flight_.number()).c_str(), 1);
    ::unsetenv(kControlSecret);
    // For users' programs that read what torchrun sets.
    for (const auto& [ours, theirs] : {std::pair{"OMPI_COMM_WORLD_RANK", "RANK"},
                                       {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"},
                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"}})
      if (const char* value = std::getenv(ours)) ::setenv(theirs, value, 1);
    std::array<std::pair<Descriptor, Descriptor>, 2> pipes{make_pipe(), make_pipe()};
    child_ = start_child({.command = command_,
                          .output = pipes[0].second.number(),
                          .errors = pipes[1].second.number(),
                          .end_with_parent = SIGKILL});  // the rank never outlives its agent
    for (size_t i = 0; i < 2; ++i) {
      outputs_[i].pipe = std::move(pipes[i].first);
      outputs_[i].stream = static_cast<int>(i) + 1;
    }
    reader_.emplace(flight_);
    JsonObject started{{"type", "started"}};
    started.emplace_back("process", static_cast<int64_t>(child_));
    launcher_.send(started);
  }

  void hand_on(Output& o) {
    std::array<char, 1 << 14> buffer;
    while (o.pipe) {
      const ssize_t n = ::read(o.pipe.number(), buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) o.pipe = Descriptor();
      else o.rest.append(buffer.data(), static_cast<size_t>(n));
      if (o.rest.size() > (1 << 15)) break;
    }
    size_t begin = 0;
    for (size_t end; (end = o.rest.find('\n', begin)) != std::string::npos; begin = end + 1)
      line(o.stream, o.rest.substr(begin, std::min<size_t>(end - begin, 1 << 14)));
    o.rest.erase(0, begin);
    if (!o.rest.empty() && (!o.pipe || o.rest.size() > (1 << 14))) {
      line(o.stream, o.rest.substr(0, 1 << 14));
      o.rest.clear();
    }
  }

  void line(int stream, const std::string& text) {
    if (stream == 2 && stack_lines_.take(text)) {
      if (stack_lines_.complete()) launcher_.send({{"type", "stack"}, {"text", stack_lines_.text()}});
      return;
    }
    launcher_.send({{"type", "out"}, {"stream", static_cast<int64_t>(stream)}, {"text", text}});
  }

  // Reads the flight recorder and the state of the process, and reports both.
  void look() {
    int status = 0;
    if (!exited_ && ::waitpid(child_, &status, WNOHANG) == child_) {
      exited_ = true;
      if (WIFSIGNALED(status)) code_ = 128 + WTERMSIG(status);
      else code_ = WEXITSTATUS(status);
    }
    const double now = steady_now();
    const char state = exited_ ? 'X' : process_state(child_);
    if (away_ && !exited_) return;
    // Said at once: that it ended, stopped or goes on. That it runs or sleeps changes all the time.
    const char kind = exited_ || state == 'T' || state == 't' ? state : 'R';
    if (kind == said_kind_ && now - said_ < every_) return;
    said_ = now;
    said_kind_ = kind;
    if (!exited_)
      // A process that is ending has left its group.
      if (const std::string group = memory_group(child_);
          group != group_ && (group_.empty() || !group.ends_with('/'))) {
        group_ = group;
        kills_before_ = memory_kills(group);
      }
    report(state);
    if (!exited_ || told_) return;
    // What it printed last comes before the news that it ended.
    for (Output& o : outputs_) hand_on(o);
    told_ = true;
    JsonObject end{{"type", "exit"}, {"code", static_cast<int64_t>(code_)}};
    if (code_ > 128 && memory_kills(group_) > kills_before_) end.emplace_back("memory_limit", memory_limit(group_));
    launcher_.send(end);
    // The launcher decides what that means for the others: until it says so, mpirun must not see this rank's end.
  }

  void report(char state) {
    JsonObject m{{"type", "state"}, {"state", std::string(1, state ? state : '?')}};
    if (const auto flight = reader_->read()) {
      for (const FlightEvent& e : flight->events) medians_.add(e);
      const FlightStep& s = flight->step;
      m.emplace_back("step", s.step);
      m.emplace_back("total", s.total);
      m.emplace_back("loss", s.loss);
      m.emplace_back("items_per_s", s.items_per_s);
      m.emplace_back("step_ms", s.step_ms);
      m.emplace_back("waited_ms", s.waited_ms);
      m.emplace_back("slow_from", s.slow_from);
      m.emplace_back("slow_mb_s", s.slow_mb_s);
      const double now = steady_now();
      // Its exchange, if it is in one, and the phase of the thread that trains: the process's first one.
      const FlightLane *call = nullptr, *phase = nullptr;
      for (const FlightLane& l : flight->lanes) {
        if (l.call && (!call || l.since_ns < call->since_ns)) call = &l;
        if (!l.call && (!phase || l.thread == flight->process)) phase = &l;
      }
      for (const auto& [lane, name] : {std::pair{call, "call"}, std::pair{phase, "phase"}}) {
        if (!lane) continue;
        const std::string key = name;
        m.emplace_back(key, lane->doing);
        m.emplace_back(key + "_s", now - 1e-9 * static_cast<double>(lane->since_ns));
        m.emplace_back(key + "_median_s", medians_.of(lane->doing));
        m.emplace_back(key + "_thread", lane->thread);
        if (lane->call) m.emplace_back("call_number", lane->number);
        if (const std::string wait = waits_in(child_, lane->thread); !wait.empty()) m.emplace_back(key + "_in", wait);
      }
    }
    m.emplace_back("cpu_s", cpu_seconds(child_));
    launcher_.send(m);
  }

  // Ends the rank and everything that it started.
  int leave() {
    if (child_) {
      ::kill(-child_, SIGKILL);
      ::kill(child_, SIGKILL);
      if (!exited_) {
        int status = 0;
        while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
        }
        code_ = WIFSIGNALED(status) ? static_cast<int>(ExitCode::kRankLost) : WEXITSTATUS(status);
      }
      for (Output& o : outputs_) hand_on(o);
    }
    const double end = steady_now() + 0.2;
    while (launcher_.pending() && !launcher_.closed() && steady_now() < end) {
      launcher_.flush();
      ::usleep(1000);
    }
    if (fails_) end_daemon();
    return code_;
  }

  // Open MPI's daemon on a remote machine can take long to see that mpirun is gone.
  static void end_daemon() {
    const pid_t parent = ::getppid();
    std::string name;
    std::ifstream(str("/proc/", int64_t{parent}, "/comm")) >> name;
    if (name != "orted" && name != "prted") return;
    ::kill(parent, SIGTERM);
    for (int i = 0; i < 30 && ::getppid() == parent; ++i) ::usleep(10'000);
    if (::getppid() == parent) ::kill(parent, SIGKILL);
  }

  void say_locally(const std::string& text) const {
    const std::string line = str("rank ", launched_rank(), " on ", host_name(), ": ", text, "\n");
    (void)!::write(STDERR_FILENO, line.data(), line.size());
  }

  const std::vector<std::string>& command_;
  const std::function<Connection()> connect_;
  Connection launcher_;
  std::array<Output, 2> outputs_;
  Descriptor flight_;  // the recorder's memory, which the rank opens through this process
  std::string group_;
  std::optional<FlightReader> reader_;
  std::optional<HeldMemory> holder_;  // where the job has one: this agent sees it end
  Medians medians_;
  StackLines stack_lines_;
  pid_t child_ = 0;
  int code_ = 0;
  int64_t kills_before_ = 0;
  bool shielded_ = false;  // mpirun does not get SIGTERM
  bool met_ = false, away_ = false, refused_ = false, exited_ = false, told_ = false, over_ = false;
  bool fails_ = false;  // the job ends early
  char said_kind_ = 0;
  double heard_ = steady_now(), silence_ = 60, every_ = 0.25, said_ = -1, ending_ = -1;
  double lost_at_ = -1;  // since when the holder is
};

}  // namespace

namespace {

int replace_by(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const char* why = std::strerror(errno);
  throw Error(ExitCode::kMissingInput, str("cannot start ", command[0], ": ", why));
}

}  // namespace

int run_reach(const std::vector<std::string>& given) {
  const char* table = std::getenv(kReachTable);
  require(table && !given.empty(), ExitCode::kUsage, "`lockstep agent` is started by `lockstep launch` only");
  std::istringstream lines(table);
  std::string line, word;
  std::getline(lines, line);
  std::vector<std::string> command;
  for (std::istringstream words(line); words >> word;) command.push_back(word);
  std::string target = given[0];
  while (std::getline(lines, line))
    if (line.starts_with(given[0] + "=")) target = line.substr(given[0].size() + 1);
  command.push_back(target);
  command.insert(command.end(), given.begin() + 1, given.end());
  return replace_by(command);
}

int run_shielded(const std::vector<std::string>& command) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
  return replace_by(command);
}

int run_agent(const std::vector<std::string>& command) {
  const char *address = std::getenv(kControlAddress), *secret = std::getenv(kControlSecret);
  require(address && secret && launched_rank() >= 0, ExitCode::kUsage,
          "`lockstep agent` is started by `lockstep launch` only");
  for (int s : {SIGTERM, SIGINT, SIGHUP}) std::signal(s, [](int) { asked_to_end = 1; });
  for (int s : {SIGUSR1, SIGUSR2, SIGCONT}) std::signal(s, SIG_IGN);  // mpirun sends them to ranks; the launcher does
  // What started this process: where it is gone, nobody waits for the rank.
  const pid_t parent = ::getppid();
  const auto connect = [&] {
    Connection launcher(connect_to(address, kReach, [&] { return asked_to_end || ::getppid() != parent; }));
    launcher.send({{"type", "hello"},
                   {"secret", std::string(secret)},
                   {"rank", static_cast<int64_t>(launched_rank())},
                   {"size", static_cast<int64_t>(launched_size())},
                   {"host", host_name()},
                   {"agent", static_cast<int64_t>(::getpid())},
                   {"version", std::string(kVersion)}});
    return launcher;
  };
  return Agent(command, connect).run();
}

}  // namespace lockstep
