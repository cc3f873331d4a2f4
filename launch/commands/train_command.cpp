#include <atomic>
#include <csignal>

#include "core/base/log.h"
#include "launch/commands/commands.h"
#include "launch/commands/job.h"
#include "launch/training/loop/run.h"
#include "launch/training/loop/run_progress.h"
#include "launch/training/loop/stop_request.h"

namespace lockstep {

std::vector<Command> train_forms() {
  return {
      {"train",
       "train FILE.yaml [key.path=value ...] [--ranks N] [--resume [--at-most STEP]] [--until STEP]",
       "Trains the model that FILE.yaml describes; key.path=value overrides one of its keys (`lockstep config keys`\n"
       "lists all keys).\n"
       "Under mpirun each process is a rank; without it, --ranks N runs N ranks as threads of this process.\n"
       "SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2: finish the steps in progress, save, exit with 75; --resume\n"
       "continues from there.",
       {{"ranks", "ranks in this process", "N", "0"},
        {"resume", "continue from the newest valid checkpoint of run.dir, or start if there is none"},
        {"at-most", "with --resume: of those up to this step; later ones are renamed to damaged-...", "STEP", "any"},
        {"until", "end after this step with 75: saved and measured there, a part of the run of all steps", "STEP",
         "end"}},
       1}};
}

int train_command(const App& app, const std::vector<std::string>& given) {
  const Arguments arguments = parse_arguments(train_forms(), given);
  if (arguments.help) return 0;
  std::signal(SIGPIPE, SIG_IGN);  // who reads the log may go, such as `head` or, at Ctrl-C, `tee`
  const bool limited = arguments.text("at-most") != "any";
  const auto settings = settings_of_file(app, arguments, true);
  RunStart options;
  options.resume = arguments.has("resume") || settings->run.resume;
  if (limited) options.at_most = arguments.integer("at-most", 0);
  require(options.resume || !limited, ExitCode::kUsage, "--at-most ", options.at_most,
          ": has an effect only with --resume");
  if (arguments.text("until") != "end") options.until = arguments.integer("until", 1);
  options.attempt = settings->chaos.enabled ? attempt_of_job() : 1;
  options.observers.push_back(progress_observer);
  settings->data.hdf5.other_folder = settings->run.dir;
  catch_stop_requests();

  Job job(*settings, arguments.ranks());
  job.world().on_failure = [&](const Error& e, int rank) {
    const Run::Reached reached = Run::reached();
    if (RunDir::holds_a_run(settings->run.dir) && e.code() != ExitCode::kOutputLocked)
      write_failure(settings->run.dir,
                    {e.code(), rank, reached.step, e.what(), reached.equal_step, reached.miscomputes});
  };
  std::atomic<int> code{0};
  const int failed = job.run("training", [&](Communicator& comm, const Datasets& data) {
    Run run(*settings, data, comm, options);
    const int result = run.go();
    if (comm.rank() == 0) code = result;
  });
  close_log_file();
  return failed ? failed : code.load();
}

}  // namespace lockstep
