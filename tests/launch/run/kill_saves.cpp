// Kills a training process that saves after every step, at random moments of its saves, and looks at what is left.
// Usage: kill_saves KILLS DIGEST RUN [MPIRUN] -- COMMAND...: COMMAND trains into the run directory RUN and resumes what
// is there; DIGEST is that of the uninterrupted run. With MPIRUN every eighth start has two processes, one of which is
// killed.
// Prints counts; exits with 1, saying why, at the first wrong thing.
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "core/state/checkpoint.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Micros = std::chrono::duration<double, std::micro>;

constexpr const char* kLevels[] = {"none", "optimizer", "gradients", "parameters"};

[[noreturn]] void fail(const std::string& what) {
  std::ifstream log("kill_saves.log");
  std::ostringstream text;
  text << log.rdbuf();
  std::printf("FAILED: %s\nThe last process reported:\n%s\n", what.c_str(), text.str().c_str());
  std::exit(1);
}

pid_t launch(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const int log = ::open("kill_saves.log", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(log, 1);
  ::dup2(log, 2);
  ::execvp(words[0], words.data());
  ::_exit(127);
}

std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream in(str("/proc/", pid, "/task/", pid, "/children"));
  std::vector<pid_t> out;
  for (pid_t child; in >> child;) out.push_back(child);
  return out;
}

// Saves that begin and end, as the directory shows them.
class Watcher {
 public:
  explicit Watcher(const std::string& checkpoints) : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    if (fd_ < 0 || ::inotify_add_watch(fd_, checkpoints.c_str(), IN_CREATE | IN_MOVED_TO) < 0)
      fail("cannot watch " + checkpoints);
  }
  ~Watcher() { ::close(fd_); }
  // Waits a little; returns how many saves began.
  int64_t begun() {
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, 20) <= 0) return 0;
    alignas(inotify_event) char buffer[64 * (sizeof(inotify_event) + NAME_MAX + 1)];
    const ssize_t n = ::read(fd_, buffer, sizeof buffer);
    int64_t begun = 0;
    for (ssize_t at = 0; at < n;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      if (event->len == 0) continue;
      if ((event->mask & IN_CREATE) && std::strncmp(event->name, ".pending-step-", 14) == 0) {
        ++begun;
        began_ = Clock::now();
      } else if ((event->mask & IN_MOVED_TO) && std::strncmp(event->name, "step-", 5) == 0 &&
                 began_ != Clock::time_point()) {
        save_us = 0.8 * save_us + 0.2 * Micros(Clock::now() - began_).count();
      }
    }
    return begun;
  }
  static double save_us;  // from beginning to end, smoothed

 private:
  int fd_;
  Clock::time_point began_;
};
double Watcher::save_us = 10000;

int run_program(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc), command;
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes - arguments.begin() < 3 || dashes == arguments.end())
    return std::printf("usage: kill_saves KILLS DIGEST RUN [MPIRUN] -- COMMAND...\n"), 64;
  command.assign(dashes + 1, arguments.end());
  const int64_t wanted_kills = std::atoll(arguments[0].c_str());
  const std::string wanted = arguments[1], dir = arguments[2], checkpoints = dir + "/checkpoints";
  const std::string mpirun = dashes - arguments.begin() > 3 ? arguments[3] : "";

  const char* given = std::getenv("LOCKSTEP_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::mt19937_64 random(seed);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };

  int64_t kills = 0, within = 0, with_manifest = 0, aside = 0, ends = 0, by_mpi = 0, newest = 0;
  for (int64_t start = 0;; ++start) {
    // A machine that is busy with something else shifts the moments: more kills, until enough have met a save.
    const bool last = kills >= wanted_kills && (within * 3 >= kills || kills >= 10 * wanted_kills);
    const bool mpi = !mpirun.empty() && start % 8 == 7;
    fs::create_directories(checkpoints);
    Watcher watcher(checkpoints);
    std::vector<std::string> words = command;
    if (mpi) words.insert(words.begin(), {mpirun, "-n", "2"});
    else words.insert(words.end(), {"--ranks", std::to_string(start % 4 + 1)});
    words.push_back(std::string("sharding.level=") + kLevels[start / 4 % 4]);  // state in other slices each time
    const pid_t pid = launch(words);
    int status = 0;
    bool ended = false;
    // The third save at most, at any moment of it, and a little beyond.
    for (int64_t left = 1 + below(3); left > 0 && !ended;) {
      if (!last) left -= watcher.begun();
      else std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ended = ::waitpid(pid, &status, WNOHANG) == pid;
      if (last) left = 1;
    }
    if (!ended) {
      const double pause = 1.3 * Watcher::save_us * static_cast<double>(below(1000)) / 1000;
      const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(Micros(pause));
      while (Clock::now() < until) std::this_thread::yield();
      const std::vector<pid_t> ranks = mpi ? children_of(pid) : std::vector<pid_t>{pid};
      if (!ranks.empty()) ::kill(ranks[static_cast<size_t>(below(static_cast<int64_t>(ranks.size())))], SIGKILL);
      if (::waitpid(pid, &status, 0) != pid) fail("waitpid");
    }
    std::ifstream log("kill_saves.log");
    for (std::string line; std::getline(log, line);)
      if (line.find("passing over") != line.npos) fail("a checkpoint was passed over: " + line);

    // Whatever has a checkpoint's name is whole, and none that was is lost.
    int64_t found = 0;
    bool pending = false, manifest = false, removed = false;
    for (const auto& entry : fs::directory_iterator(checkpoints)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind(".pending-removed-", 0) == 0) removed = true;
      else if (name.rfind(".pending-", 0) == 0) {
        pending = true;
        manifest = fs::exists(entry.path() / "manifest.json");
      } else {
        try {
          const Checkpoint c = open_checkpoint(entry.path().string());
          verify_checkpoint(c);
          found = std::max(found, c.info.step);
        } catch (const Error& e) {
          fail(str("after ", kills, " kills: ", e.what()));
        }
      }
    }
    if (found < newest) fail(str("step ", newest, " was saved, and ", found, " is the newest now"));
    newest = found;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {  // perhaps just before it was to be killed
      ++ends;
      const std::string digest = to_hex(digest_of(open_newest(dir)));
      if (digest != wanted) fail(str("after ", kills, " kills the run ended with ", digest, ", not ", wanted));
      fs::remove_all(dir);
      newest = 0;
      if (last) break;
      fs::remove_all("mirror");  // else the next run would begin at its end
      continue;
    }
    const bool killed = mpi ? status != 0 : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (ended || !killed) fail(str("a run that was killed ", kills, " times does not go on: wait status ", status));
    ++kills;
    by_mpi += mpi;
    within += pending;
    with_manifest += manifest;
    aside += removed;
  }
  std::printf(
      "%lld kills (%lld of one of two processes): %lld within a save, %lld of them after its manifest was there; %lld "
      "within a removal; %lld runs to the end, every digest %s\n",
      static_cast<long long>(kills), static_cast<long long>(by_mpi), static_cast<long long>(within),
      static_cast<long long>(with_manifest), static_cast<long long>(aside), static_cast<long long>(ends),
      wanted.c_str());
  return within * 3 >= kills ? 0 : (std::printf("FAILED: too few kills met a save\n"), 1);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::run_program(argc, argv); }
