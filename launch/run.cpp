#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <sstream>

#include "core/base/caught.h"
#include "core/base/flight_recorder.h"
#include "core/base/log.h"
#include "core/base/text_table.h"
#include "launch/cluster/agent.h"
#include "launch/cluster/stack_dump.h"
#include "launch/commands/commands.h"
#include "launch/config/did_you_mean.h"
#include "launch/terminal/output.h"
#include "launch/world/world.h"

namespace lockstep {

const char* const kVersion = LOCKSTEP_VERSION;

namespace {

// `lockstep NAME` and of its arguments the first ones that are not optional, then what the command does, in lines of 80
// columns.
std::string help_line(const std::string& name, const std::string& form, const std::string& what) {
  constexpr size_t kText = 40, kColumns = 80;
  std::string out = "  lockstep " + name, word;
  std::istringstream words(form);
  while (words >> word && word[0] != '[' && word != "|" && out.size() + 1 + word.size() + 2 <= kText) out += " " + word;
  out.resize(std::max(out.size() + 2, kText), ' ');
  return wrapped(what, kColumns, out, std::string(kText, ' '));
}

std::string help() {
  std::string out = "lockstep: data-parallel training, the same bits at every number of ranks\n\n";
  for (const CommandEntry& c : commands())
    for (const auto& [form, what] : c.help) out += help_line(c.name, form, what);
  return out +
         "\nThe same commands run under mpirun -n N. `lockstep COMMAND --help` says more.\n"
         "Exit codes are listed in docs/command-line.md.\n";
}

// A file that a closed descriptor's number fell to would get what is meant for the terminal.
void open_standard_descriptors() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", O_RDWR);
}

std::terminate_handler default_terminate = nullptr;

// An exception that nobody could catch, such as one in a thread of a library. Where memory has run out, that is no bug.
[[noreturn]] void on_terminate() {
  const auto end = [](std::string_view message) {
    (void)!::write(STDERR_FILENO, message.data(), message.size());
    _exit(static_cast<int>(ExitCode::kDevice));
  };
  if (const auto exception = std::current_exception()) {
    try {
      const Error error = as_error(exception);
      if (error.code() == ExitCode::kDevice) end(str("error: ", error.what(), "\n"));
    } catch (...) {
      end("error: out of memory\n");  // not even enough to say more
    }
  }
  default_terminate();
  std::abort();
}

// Each of glibc's arenas reserves 64 MiB of address space for its threads: where that is limited, two are enough.
void save_address_space() {
#if defined(M_ARENA_MAX)
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 2);
#endif
}

void prepare_process() {
  save_address_space();
  open_standard_descriptors();
  install_stack_dump();
  if (const char* path = std::getenv(kFlightFile)) {
    try {
      start_flight_recorder(path);
    } catch (const Error& e) {
      log_warning(str(e.what(), "; the launcher will not see what this rank does"));
    }
    ::unsetenv(kFlightFile);  // of this process, not of those that it starts
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file that reaches its limit (ulimit -f) then is an error of that write
  const auto before = std::set_terminate(on_terminate);
  if (before != on_terminate) default_terminate = before;
}

}  // namespace

int run_program(int argc, char** argv, const App& app) {
  try {
    prepare_process();
    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
      print_out(help());
      return arguments.empty() ? static_cast<int>(ExitCode::kUsage) : 0;
    }
    if (arguments[0] == "--version") {
      print_out(str("lockstep ", kVersion, "\n"));
      return 0;
    }
    const std::string name = arguments[0];
    arguments.erase(arguments.begin());
    std::vector<std::string> names;
    for (const CommandEntry& e : commands()) {
      if (name == e.name) return e.run(app, arguments);
      names.push_back(e.name);
    }
    throw Error(ExitCode::kUsage,
                str("there is no command '", name, "'", did_you_mean(name, names), "; `lockstep --help` lists them"));
  } catch (...) {
    const Error e = as_error(std::current_exception());
    // What input or command line are to blame for is mostly the same on all ranks; `lockstep launch` shows one of them.
    if (e.code() == ExitCode::kInternal || e.code() == ExitCode::kDevice || is_first_process() || flight_recording())
      log_error(e.what());
    return static_cast<int>(e.code());
  }
}

}  // namespace lockstep
