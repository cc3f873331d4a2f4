#include "launch/cluster/attempt.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <map>

#include "core/base/hash.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/text_table.h"
#include "launch/app.h"
#include "launch/cluster/agent.h"
#include "launch/cluster/mpirun_process.h"
#include "launch/cluster/process_view.h"
#include "launch/cluster/stack_dump.h"
#include "launch/cluster/step_times.h"
#include "launch/cluster/strangers.h"
#include "launch/process/child_process.h"
#include "launch/process/control.h"
#include "launch/world/open_files.h"

namespace lockstep {
namespace {

constexpr double kPing = 0.5;         // seconds between signs of life of the launcher
constexpr double kSettle = 0.15;      // from the first rank's end to the diagnosis, so that others' reasons are known
constexpr double kUnexplained = 0.5;  // the same where the rank gave no reason: mpirun's end may be one
constexpr double kKeeperEnd = 2;      // from the end of mpirun's output until its keeper says how it ended
constexpr double kAgentsEnd = 1.5;    // that agents get to end their ranks
constexpr double kMpirunEnd = 1;      // that mpirun gets after that
constexpr double kOneRequest = 1;     // within which signals are one request to stop
constexpr double kRepeat = 30;        // until a warning is repeated
constexpr int kStrangers = 64;        // peers that have not said yet who they are, beside the ranks that are due
constexpr int kOwnFiles = 32;         // that the launcher itself has open
constexpr char kProgress[] = "LOCKSTEP_PROGRESS";

// The environment variables that ranks on other machines get too.
std::vector<std::string> exported_variables(const AttemptOptions& options) {
  std::vector<std::string> out{kControlAddress, kControlSecret, "LOCKSTEP_ATTEMPT", kProgress};
  for (const std::string& name : options.exported)
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  for (char** v = environ; *v; ++v) {
    const std::string_view variable = *v;
    const std::string name(variable.substr(0, variable.find('=')));
    for (const char* start : {"LOCKSTEP_", "OMP_", "NCCL_", "CUDA_", "HDF5_", "OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_",
                              "LD_LIBRARY_PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"})
      if (name.starts_with(start) && name != kFlightFile && std::find(out.begin(), out.end(), name) == out.end())
        out.push_back(name);
  }
  return out;
}

// mpirun with an agent for each rank, which starts the rank.
MpirunOptions with_agents(const AttemptOptions& options) {
  MpirunOptions o = options.mpirun;
  if (!o.hosts.empty()) o.exported = exported_variables(options);
  o.command = {options.agent, "agent", "--"};
  o.command.insert(o.command.end(), options.mpirun.command.begin(), options.mpirun.command.end());
  return o;
}

class Attempt {
 public:
  explicit Attempt(const AttemptOptions& options)
      : options_(options), size_(options.mpirun.ranks), strangers_(strangers_of(size_)) {
    for (int r = 0; r < size_; ++r) ranks_.push_back({.rank = r});
    agents_.resize(static_cast<size_t>(size_));
  }
  Attempt(const Attempt&) = delete;

  AttemptResult run() {
    secret_ = random_secret();
    address_ = listen_on(own_address(), listener_);
    start_mpirun();
    begun_ = steady_now();
    while (!over_) step();
    for (const RankView& r : ranks_) result_.last_step = std::max(result_.last_step, r.step.step);
    if (result_.diagnosis && options_.decided) options_.decided(*result_.diagnosis, result_.last_step);
    end_all();
    if (options_.verbose) say_control();
    return result_;
  }

 private:
  void say_control() const {
    int64_t bytes = 0;
    for (const auto& a : agents_) bytes += a ? a->received() : 0;
    log_info(str("the control plane: ", messages_, " messages and ", bytes, " bytes came from the agents of ", size_,
                 size_ == 1 ? " rank" : " ranks", " in ", fixed(steady_now() - begun_, 1), " s, ",
                 started_ ? str(fixed(started_at_ - begun_, 1), " s until all were there") : "not all came"));
  }

  // How many there may be at a time. Throws where not even the ranks have room.
  static size_t strangers_of(int ranks) {
    const int64_t needed = ranks + kOwnFiles;
    const std::string what = str("for ", ranks, ranks == 1 ? " rank" : " ranks");
    const int64_t free = require_open_files(needed + kStrangers / 8, what) - needed;
    return static_cast<size_t>(std::min<int64_t>(free, kStrangers + ranks));
  }

  // Where ranks reach this launcher: a socket of this machine, unless a host is another one.
  std::string own_address() {
    if (const std::string other = other_machine(options_.mpirun.hosts); !other.empty())
      return str("tcp:", local_address_towards(other));
    return str("unix:@lockstep-", random_secret());  // no file: it works whatever TMPDIR is, and nothing is left of it
  }

  // The machine of a rank by the name that the user gave it, which may differ from its own; mpirun fills slots in
  // order.
  std::string listed_host(int rank) const {
    for (const Host& h : options_.mpirun.hosts) {
      if (rank < h.slots) return h.name;
      rank -= h.slots;
    }
    return {};
  }

  void start_mpirun() {
    ::setenv(kControlAddress, address_.c_str(), 1);
    ::setenv(kControlSecret, secret_.c_str(), 1);
    ::setenv("LOCKSTEP_ATTEMPT", std::to_string(options_.number).c_str(), 1);
    const char* given = std::getenv(kProgress);
    const std::string progress = options_.plain ? (given ? given : "") : "off";
    auto environment = options_.environment;
    environment.emplace_back(kProgress, progress);
    if (const std::string table = reach_table(options_.mpirun); !table.empty())
      environment.emplace_back(kReachTable, table);
    mpirun_.emplace(with_agents(options_), std::move(environment), options_.verbose);
    ::unsetenv(kControlSecret);
  }

  void step() {
    wait_for_news(0.05);
    const double now = steady_now();
    if (const int number = options_.next_signal ? options_.next_signal() : 0) hand_on_signal(number);
    if (now - pinged_ >= kPing) {
      pinged_ = now;
      send_all({{"type", "ping"}});
    }
    if (!started_) {
      check_start(now);
      return;
    }
    if (options_.view && now - viewed_ >= 1) {
      viewed_ = now;
      options_.view(ranks_);
    }
    if (const bool all = std::all_of(ranks_.begin(), ranks_.end(), [](const RankView& r) { return r.ended; }); all) {
      settle(now, true);
      return;
    }
    settle(now, false);
    if (!over_) speak(now);
    if (!over_ && mpirun_->ended() && now - *mpirun_->ended() > 0.5) fail_by_mpirun();
  }

  // Ends the attempt if there is a reason, a moment after its first sign.
  void settle(double now, bool all_ended) {
    const auto diagnosis = diagnosis_of(ranks_, options_.patience, now);
    if (!diagnosis) {
      sign_ = -1;
      if (!all_ended) return;
      over_ = true;
      for (const RankView& r : ranks_) result_.code = std::max(result_.code, r.code);
      return;
    }
    if (sign_ < 0) {
      sign_ = now;
      send_all({{"type", "report"}});  // where the others stand now
    }
    if (!all_ended && now - sign_ < kSettle) return;
    if (!diagnosis->explained) {  // as where Open MPI in a rank ends that, since mpirun is gone
      if (mpirun_->ended()) return fail_by_mpirun();
      if (now - sign_ < (mpirun_->ending() ? kKeeperEnd : kUnexplained)) return;
    }
    over_ = true;
    result_.diagnosis = diagnosis;
    result_.code = static_cast<int>(diagnosis->code);
    result_.decided_s = now - sign_;
  }

  void check_start(double now) {
    if (std::all_of(agents_.begin(), agents_.end(), [](auto& a) { return a != nullptr; })) {
      started_ = true;
      started_at_ = steady_now();
      // At most some hundred messages a second in all.
      const double every = std::max(0.25, size_ / 800.0);
      std::error_code ignored;
      send_all({{"type", "go"},
                {"silence", options_.patience.silence},
                {"every", every},
                {"shielded", int64_t{!options_.mpirun.shield.empty()}},
                {"folder", std::filesystem::current_path(ignored).string()}});
      return;
    }
    if (mpirun_->ended()) return fail_by_mpirun();
    if (signalled_) {
      over_ = true;
      result_.code = static_cast<int>(ExitCode::kSaved);
      log_info("stopped on request before the first step. Start it again with --resume");
      return;
    }
    if (now - begun_ < options_.start_within) return;
    std::vector<int> missing;
    for (int r = 0; r < size_; ++r)
      if (!agents_[static_cast<size_t>(r)]) missing.push_back(r);
    std::string complaint = complaint_and_silence();
    if (complaint.empty() && options_.mpirun.hosts.size() > 1)  // a daemon that ends is not noticed by mpirun
      complaint =
          "Open MPI's daemon of a host has not answered; two addresses of one machine are a cause: name each machine "
          "once";
    fail({.text = str(ranks_and(missing), missing.size() == 1 ? " was" : " were", " not started within ",
                      static_cast<int64_t>(options_.start_within), " s", complaint.empty() ? "" : ": ", complaint)});
  }

  // Why mpirun does not start ranks: it starts none before it has reached every machine.
  std::string complaint_and_silence() const {
    const std::string complaint = mpirun_complaint(mpirun_->text());
    std::string silent;
    size_t asked = 0;
    for (const Host& h : options_.mpirun.hosts)
      if (++asked <= 8 && !is_this_machine(h.name) && !answers(h, options_.mpirun.remote_shell))
        silent += str(silent.empty() ? "no answer from " : ", ", h.name);
    return complaint.empty() || silent.empty() ? complaint + silent : str(silent, "; ", complaint);
  }

  void fail_by_mpirun() {
    const std::string& said = mpirun_->text();
    const std::string complaint = started_ ? mpirun_complaint(said) : complaint_and_silence();
    if (!options_.verbose && !said.empty()) log_info(str("mpirun said: ", last_lines(said)));
    const bool trains = std::any_of(ranks_.begin(), ranks_.end(), [](auto& r) { return r.step.total > 0; });
    fail({.text = str("mpirun ", mpirun_->end(),
                      trains     ? " while ranks were training"
                      : started_ ? " while ranks were starting"
                                 : " before all ranks were started",
                      complaint.empty() ? "" : ": ", complaint)});
  }

  void fail(Diagnosis v) {
    over_ = true;
    result_.code = static_cast<int>(v.code);
    result_.diagnosis = std::move(v);
  }

  static std::string last_lines(const std::string& text) {
    constexpr size_t kMost = 2000;
    return text.size() > kMost ? text.substr(text.size() - kMost) : text;
  }

  void wait_for_news(double seconds) {
    std::vector<pollfd> all;
    if (listener_) all.push_back({listener_.number(), POLLIN, 0});
    if (mpirun_->output() >= 0) all.push_back({mpirun_->output(), POLLIN, 0});
    const size_t first = all.size();
    std::vector<int> asked;  // ranks, in the order of `all` from `first` on
    for (int r = 0; r < size_; ++r)
      if (const auto& a = agents_[static_cast<size_t>(r)]; a && !a->closed()) {
        all.push_back({a->number(), static_cast<short>(POLLIN | (a->pending() ? POLLOUT : 0)), 0});
        asked.push_back(r);
      }
    strangers_.add_to(all);
    ::poll(all.data(), all.size(), static_cast<int>(1e3 * seconds));
    mpirun_->look();
    strangers_.look(
        listener_, [this](Connection& peer, const JsonObject& hello) { return meet(peer, hello); }, steady_now());
    for (size_t i = 0; i < asked.size(); ++i)
      if (all[first + i].revents != 0) read_agent(asked[i]);
  }

  // Why this peer is no agent of the job; empty: it is one, and is heard from now on.
  std::string meet(Connection& peer, const JsonObject& m) {
    if (text_of(m, "type") != "hello") return "it sent what is no message";
    if (text_of(m, "secret") != secret_) return "it does not know this job's secret";
    const int64_t rank = integer_of(m, "rank", -1), size = integer_of(m, "size", -1);
    const auto r = static_cast<size_t>(rank);
    std::string problem;
    if (rank < 0 || rank >= size_ || size != size_) {
      problem = str("it is rank ", rank, " of ", size, ", in a job of ", size_);
    } else if (agents_[r]) {
      problem = str("rank ", rank, " is connected already");
    } else if (const std::string version = text_of(m, "version"); version != kVersion) {
      fail({.code = ExitCode::kRanksDisagree,
            .rank = static_cast<int>(rank),
            .text = str("rank ", rank, " on ", text_of(m, "host"), " runs lockstep ", version, ", and the launcher on ",
                        host_name(), " ", kVersion, ": install the same version on every machine")});
      problem = "it runs another version";
    }
    if (!problem.empty()) {
      peer.send({{"type", "stop"}});  // it need not try again
      return problem;
    }
    agents_[r] = std::make_unique<Connection>(std::move(peer));
    agents_[r]->set_limit(1 << 16);
    ranks_[r].connected = true;
    ranks_[r].heard = steady_now();
    ranks_[r].host = listed_host(static_cast<int>(r));
    if (ranks_[r].host.empty()) ranks_[r].host = text_of(m, "host");
    send_to(static_cast<int>(r), {{"type", started_ ? "stop" : "ping"}});  // it is known here now
    return {};
  }

  void read_agent(int rank) {
    auto& agent = agents_[static_cast<size_t>(rank)];
    RankView& r = ranks_[static_cast<size_t>(rank)];
    if (!agent) return;
    agent->flush();
    std::vector<JsonObject> messages;
    const bool open = agent->receive(messages);
    messages_ += static_cast<int64_t>(messages.size());
    for (const JsonObject& m : messages) take(r, m);
    if (!open) r.connected = false;
  }

  void take(RankView& r, const JsonObject& m) {
    r.heard = steady_now();
    const std::string type = text_of(m, "type");
    if (type == "out") {
      print_out(r, integer_of(m, "stream", 2), text_of(m, "text"));
    } else if (type == "started") {
      r.process = integer_of(m, "process");
    } else if (type == "state") {
      const std::string state = text_of(m, "state");
      const bool stopped = state == "T" || state == "t";
      if (!stopped) r.stopped_since = -1;
      else if (r.stopped_since < 0) r.stopped_since = r.heard;
      r.state = state.empty() ? '\0' : state[0];
      const int64_t before = r.step.step;
      r.step = {integer_of(m, "step"),          integer_of(m, "total"),   number_of(m, "loss"),
                number_of(m, "items_per_s"),    number_of(m, "step_ms"),  number_of(m, "waited_ms"),
                integer_of(m, "slow_from", -1), number_of(m, "slow_mb_s")};
      r.phase = activity(m, "phase");
      r.call = activity(m, "call");
      r.cpu_s = number_of(m, "cpu_s");
      if (r.step.step != before && r.first_error.empty()) r.stack.clear();  // that of a crash stays
      if (r.rank == 0 && r.step.step != before && options_.progress) options_.progress(r.step);
    } else if (type == "stack") {
      r.stack = text_of(m, "text");
    } else if (type == "asked") {
      if (!signalled_) hand_on_signal(SIGTERM);
    } else if (type == "exit") {
      r.ended = true;
      r.ended_at = r.heard;
      r.code = static_cast<int>(integer_of(m, "code"));
      r.memory_limit = integer_of(m, "memory_limit", -1);
    }
  }

  static Activity activity(const JsonObject& m, const std::string& name) {
    return {text_of(m, name), number_of(m, name + "_s"), number_of(m, name + "_median_s"),
            integer_of(m, name + "_thread"), text_of(m, name + "_in")};
  }

  // Errors are kept: at the end one of them explains the run.
  void print_out(RankView& r, int64_t stream, const std::string& text) const {
    if (stream == 1) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fputc('\n', stdout);
      std::fflush(stdout);
      return;
    }
    constexpr std::string_view kError = "error: ";
    if (text.starts_with(kError)) {
      const std::string error = text.substr(kError.size());
      const bool crash = error.starts_with(kCrashWords);
      if (r.first_error.empty()) r.first_error = error, r.crashed = crash;
      if (!crash) return;
    }
    const bool named = size_ == 1 || text.starts_with("rank ") || text.empty();
    log_info(named ? text : str("rank ", r.rank, ": ", text));
  }

  void speak(double now) {
    if (const auto line = step_times_.update(ranks_, now)) log_warning(*line);
    std::map<std::string, Said> still;
    for (const Notice& n : notices_on(ranks_, options_.patience, now)) {
      const auto known = said_.find(n.key);
      if (known == said_.end() && n.stack_of != 0 && !asked_.count(n.key)) {
        asked_[n.key] = now;
        send_to(n.rank, {{"type", "stack"}, {"thread", n.stack_of}});
      }
      const auto asked = asked_.find(n.key);
      const bool waits = asked != asked_.end() && now - asked->second < 0.3;  // for the stack
      if (!waits && (known == said_.end() || now - known->second.at > kRepeat)) {
        log_warning(n.text);
        still[n.key] = {now, n.rank};
      } else if (known != said_.end()) {
        still[n.key] = known->second;
      }
    }
    for (auto& [key, said] : said_)
      if (!still.count(key)) log_info(said.rank < 0 ? "the exchanges go on" : str("rank ", said.rank, " goes on"));
    said_ = std::move(still);
  }

  // Ctrl-Z: this process stops, and the ranks, which do not hear of it meanwhile, go on.
  void stop_for_a_while() {
    log_info("the launcher is stopped, and its ranks go on without it: `fg` or `bg` lets it watch them again");
    send_all({{"type", "away"}});
    const double begun = steady_now();
    ::kill(::getpid(), SIGSTOP);
    const double now = steady_now();
    begun_ += now - begun;
    for (RankView& r : ranks_) r.heard = now;
    send_all({{"type", "ping"}});
  }

  void hand_on_signal(int number) {
    if (number == SIGTSTP) return stop_for_a_while();
    const double now = steady_now();
    // A scheduler sends one to all processes of the job, and its batch script hands it on: that is one request.
    if (signalled_ && now - signalled_at_ < kOneRequest) return;
    if (!signalled_) signalled_at_ = now;
    result_.asked_to_stop = true;
    if (signalled_ && number != SIGUSR1 && number != SIGUSR2) {
      log_warning("asked again to stop: ending all ranks now");
      fail({.code = ExitCode::kRankLost,
            .text = "ended on request, before the ranks had saved; go on from the last checkpoint with --resume"});
      return;
    }
    signalled_ = true;
    send_all({{"type", "signal"}, {"number", static_cast<int64_t>(number)}});
  }

  void send_to(int rank, const JsonObject& message) {
    if (auto& agent = agents_[static_cast<size_t>(rank)]) agent->send(message);
  }
  void send_all(const JsonObject& message) {
    for (int r = 0; r < size_; ++r) send_to(r, message);
  }

  // Nothing is left running on any machine that can be reached.
  void end_all() {
    const double begun = steady_now();
    send_all({{"type", "stop"}, {"failed", int64_t{result_.diagnosis.has_value()}}});
    const auto open = [&] {
      for (int r = 0; r < size_; ++r) {
        const auto& a = agents_[static_cast<size_t>(r)];
        const bool lost = result_.diagnosis && result_.diagnosis->lost_hosts.count(ranks_[static_cast<size_t>(r)].host);
        if (a && !a->closed() && !lost) return true;
      }
      return false;
    };
    while (open() && steady_now() - begun < kAgentsEnd) wait_for_news(0.02);
    listener_ = Descriptor();
    const double asked = steady_now();
    const bool hurry = result_.diagnosis.has_value();
    if (hurry) mpirun_->ask_to_end();
    while (mpirun_->runs() && steady_now() - asked < (hurry ? kMpirunEnd : 10)) wait_for_news(0.02);
    mpirun_->kill();
    result_.ended_s = result_.decided_s + steady_now() - begun;
  }

  const AttemptOptions& options_;
  const int size_;
  Descriptor listener_;
  std::string address_, secret_;
  std::optional<MpirunProcess> mpirun_;
  std::vector<RankView> ranks_;
  std::vector<std::unique_ptr<Connection>> agents_;
  Strangers strangers_;
  StepTimes step_times_;
  struct Said {
    double at = 0;  // when
    int rank = -1;  // of whom; -1: of all
  };
  std::map<std::string, Said> said_;     // warnings in force, by Notice::key
  std::map<std::string, double> asked_;  // stacks that were asked for, and when
  AttemptResult result_;
  int64_t messages_ = 0;  // from agents
  double signalled_at_ = 0, begun_ = 0, started_at_ = 0, pinged_ = -1, viewed_ = -1, sign_ = -1;
  bool started_ = false, signalled_ = false, over_ = false;
};

}  // namespace

AttemptResult run_attempt(const AttemptOptions& options) { return Attempt(options).run(); }

std::string attempt_line(const AttemptOptions& options) { return shell_line(mpirun_arguments(with_agents(options))); }

}  // namespace lockstep
