#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <ctime>
#include <functional>
#include <limits>

#include "core/base/log.h"
#include "launch/artifacts/metrics.h"
#include "launch/artifacts/open_whole.h"
#include "launch/artifacts/run_dir.h"
#include "launch/artifacts/saver.h"
#include "launch/artifacts/shared_folder.h"
#include "launch/artifacts/tensorboard.h"
#include "launch/artifacts/text_table.h"
#include "launch/commands/commands.h"
#include "launch/commands/job.h"
#include "launch/commands/progress.h"
#include "launch/training/checkpoint_space.h"
#include "launch/world/fail_together.h"
#include "launch/world/memory_report.h"
#include "sharding/bucket_size.h"

namespace lockstep {
namespace {

// Set by a signal, checked between steps. A second signal of the same kind, unless it comes within a second and is one
// request with the first, ends the process immediately. So does the first before the first step, when there is nothing
// to save and many ranks take long to start.
std::atomic<int> stop_signal{0};        // read by every rank that is a thread
std::atomic<int64_t> stop_asked_ms{0};  // when it came
std::atomic<bool> training{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
void on_stop_signal(int number) {
  if (!training) {
    constexpr char kText[] = "stopped on request before the first step. Start it again with --resume\n";
    (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
    _exit(static_cast<int>(ExitCode::kSaved));
  }
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t ms = 1000 * static_cast<int64_t>(now.tv_sec) + now.tv_nsec / 1'000'000;
  if (stop_signal == number && ms - stop_asked_ms > 1000) {
    std::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  if (stop_signal != number) stop_asked_ms = ms;
  stop_signal = number;
}
void finish_step_on_signals() {
  for (int s : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP})
    if (std::signal(s, on_stop_signal) == SIG_IGN && s == SIGHUP)
      std::signal(s, SIG_IGN);  // ignored before, as under nohup: keep it so
}

constexpr int64_t kWarmUp = 3;    // steps whose times are not typical
constexpr int kListedRanks = 64;  // whose times are in each line of metrics
constexpr int kFailedSaves = 3;   // consecutive failures after which the run ends

using Clock = std::chrono::steady_clock;

// To a microsecond.
JsonText list_of(const std::vector<double>& ms) {
  std::string out;
  for (double v : ms) out += cat(out.empty() ? "" : ",", std::round(v * 1e3) / 1e3);
  return {cat("[", out, "]")};
}

// To a millisecond.
double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1e3;
}

ProgressOptions progress_options(const Settings& s, const Trainer& t) {
  ProgressOptions o;
  o.title = "train";
  o.total = s.train.steps;
  o.start = t.steps_done();
  const bool cut = s.data.buckets > 1;  // rows have several lengths
  o.rate_unit = cut ? "samples" : t.items_unit();
  o.rate_scale = static_cast<double>(s.batch.global * (cut ? 1 : t.items_per_sample()));
  return o;
}

// How far the run of this thread's rank came, for failure.json: written as the run ends, read when its error is
// reported.
struct Reached {
  int64_t step = -1, equal_step = -1;  // as in Failure
};
thread_local Reached reached;

// The run of one rank, and on rank 0 its artifacts.
class Run {
 public:
  // `at_most`: a resumed run goes on from no later step. `attempt`: attempt_of_job().
  Run(const Settings& settings, const Datasets& data, Communicator& comm, bool resume, int64_t at_most, int64_t attempt)
      : settings_(settings), comm_(comm), chaos_(settings.chaos, comm.rank(), attempt), trainer_(settings, data, comm) {
    const bool first = comm.rank() == 0;
    std::unique_ptr<RunDir> dir;
    fail_together(comm, [&] {
      if (!first) return;
      dir = std::make_unique<RunDir>(settings.run.dir, resume);
      open_log_file(dir->paths().log());
      clean_checkpoints(dir->paths().checkpoints());
    });
    // Found out now, and not when the first checkpoint cannot be put together.
    const std::string not_shared = why_not_shared(comm, settings.run.dir);
    fail_together(comm, [&] { require(not_shared.empty(), ExitCode::kOutputLocked, "run.dir: ", not_shared); });
    fail_together(comm, [&] {
      for (const auto& [key, count] : {std::pair("train.patience", settings.train.patience),
                                       std::pair("checkpoint.keep_best", settings.checkpoint.keep_best)})
        require(count == 0 || trainer_.has_validation(), ExitCode::kConfig, settings.config.place(key),
                ": needs data for validation; set data.validation");
    });
    const bool resumed = resume && resume_newest(at_most);
    fail_together(comm, [&] {  // only now, so that a refused resume does not change the run
      if (!first) return;
      require_space();
      dir->write_config(settings.config.dump_yaml());
    });
    if (!resumed && !settings.init.from.empty()) trainer_.load_initial();
    if (first && settings.verify.every > 0 && !trainer_.has_replicas())
      log_warning(cat(settings.config.place("verify.every"), ": no two of these ranks hold the same parameters and ",
                      "moments, so nothing is compared"));
    if (!chaos_.empty()) trainer_.set_chaos(&chaos_);
    for (const ChaosFault& f : settings.chaos.faults)
      if (first && f.rank >= comm.size())
        log_warning(cat(settings.config.place("chaos.faults"), ": there is no rank ", f.rank, " here: its ", f.kind,
                        " does not occur"));
    int64_t elements = 0;
    if (settings.checkpoint.every > 0 || settings.checkpoint.every_minutes > 0)
      for (const StateEntry& e : trainer_.entries_to_save()) elements += e.data.numel();
    saver_ = std::make_unique<Saver>(comm, RunPaths{settings.run.dir}.checkpoints(), retention(), elements,
                                     [this](int64_t step) { chaos_.before_write(step); });
    if (first) {
      const RunPaths paths = dir->paths();
      const int64_t done = trainer_.steps_done();
      run_dir_ = std::move(dir);
      metrics_ = std::make_unique<MetricsWriter>(paths.metrics(), done);
      events_ = std::make_unique<EventWriter>(paths.tensorboard(), run_dir_->resumed() ? done + 1 : 0);
      log_info(cat("training ", settings.model_name, ", ",
                   short_number(static_cast<double>(trainer_.parameter_count())), " parameters, ", comm.size(),
                   comm.size() == 1 ? " rank" : " ranks", " (", comm.backend(), "), ",
                   current_stream().device_queue() ? std::string()
                                                   : cat(current_stream().threads(), " compute threads per rank, "),
                   trainer_.info().isa, ", steps ", done, " to ", settings.train.steps, ", into ", paths.dir));
      progress_ = std::make_unique<Progress>(progress_options(settings, trainer_));
    }
  }

  ~Run() { reached = {trainer_.steps_done(), trainer_.last_equal_step()}; }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Returns the exit code.
  int go() {
    training = true;
    begun_ = Clock::now();
    bool stopped = false;
    if (settings_.train.steps == 0 && trainer_.steps_done() == 0) save(true, false);  // the initial parameters
    while (trainer_.steps_done() < settings_.train.steps && !out_of_patience() &&
           !(stopped && no_steps_in_progress())) {
      while (!stopped && !save_asked_ && may_start()) trainer_.start({.stop = stop_signal != 0, .save = save_is_due()});
      const StepReport r = trainer_.finish();
      stopped = stopped || r.result.requests.stop;
      save_asked_ = save_asked_ || r.result.requests.save;
      if (comm_.rank() == 0 && comm_.size() > 1 && ++timed_ > kWarmUp) waits_.add(r.transfers, r.step_ms / 1e3);
      const bool eval_now = evaluates_after(r.step);
      EvalReport e;
      if (eval_now) {
        if (progress_) progress_->pause();
        const auto begun = Clock::now();
        e = trainer_.evaluate();
        evaluated_for_ += Clock::now() - begun;
        validation_.add(r.step, e.loss);
      }
      const bool ends = out_of_patience() || (stopped && no_steps_in_progress());
      if (comm_.rank() == 0) write(r, eval_now ? &e : nullptr);
      check_skips(r);
      if (ends || saves_after(r.step) || (save_asked_ && no_steps_in_progress()))
        save(ends || is_last(r.step), eval_now);
      if (eval_now && comm_.rank() == 0) {
        std::string text = cat("step ", r.step, ": validation loss ", fixed(e.loss, 4));
        for (auto& [name, value] : e.metrics) text += cat(", ", name, " ", fixed(value, 4));
        log_info(text);
        if (!e.warning.empty()) log_warning(cat("step ", r.step, ": validation: ", e.warning));
      }
    }
    stopped = stopped && !out_of_patience() && trainer_.steps_done() < settings_.train.steps;
    if (progress_) progress_->finish();
    if (!validation_.finite && !stopped) {
      if (comm_.rank() != 0) throw Error::secondary(ExitCode::kNumeric);
      throw Error(ExitCode::kNumeric,
                  cat("step ", trainer_.steps_done(), ": the validation loss is not finite, though every parameter ",
                      "is; no earlier checkpoint was removed: resume one of them with a lower optim.lr"));
    }
    if (const auto size = waits_.better(settings_.parallel.bucket_mb))
      log_info(cat("waited for other ranks ", fixed(100 * waits_.waiting(), 0),
                   "% of the time; by what each exchange took, buckets of ", fixed(*size, *size < 1 ? 2 : 0),
                   " MB would wait less: comm.bucket=", fixed(*size, *size < 1 ? 2 : 0)));
    if (comm_.rank() == 0) {
      const RunPaths& p = run_dir_->paths();
      if (current_stream().device_queue())
        if (const std::string chosen = device_backend().choices(); !chosen.empty()) run_dir_->write_algorithms(chosen);
      run_dir_->check_held();
      metrics_->check_there();
      if (stopped) {
        log_info(cat("stopped on request after step ", trainer_.steps_done(), "; saved. Continue with --resume"));
      } else {
        if (out_of_patience() && trainer_.steps_done() < settings_.train.steps)
          log_info(cat("ended early after step ", trainer_.steps_done(), ": the validation loss was not lower than ",
                       fixed(validation_.best.value_or(0), 4), ", measured after step ", validation_.best_step, ", in ",
                       validation_.since_best, " evaluations (", settings_.config.place("train.patience"), ")"));
        if (evaluated_for_.count() > 0) log_info(evaluation_text());
        log_info(cat("done: ", trainer_.steps_done(), " steps. Checkpoints in ", p.checkpoints(), ", metrics in ",
                     p.metrics(), ", TensorBoard files in ", p.tensorboard()));
      }
    }
    return stopped ? static_cast<int>(ExitCode::kSaved) : 0;
  }

 private:
  // What evaluations cost, of the time since the first step.
  std::string evaluation_text() const {
    const double seconds = evaluated_for_.count(),
                 share = seconds / std::chrono::duration<double>(Clock::now() - begun_).count();
    return cat("validation took ", fixed(seconds, 1), " s, ", fixed(100 * share, 0), "% of the time",
               share > 0.2 && seconds > 10 ? "; train.eval_samples and train.eval_every bound it" : "");
  }
  bool is_last(int64_t step) const { return step == settings_.train.steps; }
  bool evaluates_after(int64_t step) const {
    return trainer_.has_validation() &&
           (is_last(step) || (settings_.train.eval_every > 0 && step % settings_.train.eval_every == 0));
  }
  bool saves_after(int64_t step) const {
    return is_last(step) || (settings_.checkpoint.every > 0 && step % settings_.checkpoint.every == 0);
  }
  bool out_of_patience() const {
    return settings_.train.patience > 0 && validation_.since_best >= settings_.train.patience;
  }
  // By rank 0's clock.
  bool save_is_due() const {
    const double minutes = settings_.checkpoint.every_minutes;
    return comm_.rank() == 0 && minutes > 0 && Clock::now() - saved_at_ >= std::chrono::duration<double>(60 * minutes);
  }
  Retention retention() const {
    const CheckpointOptions& o = settings_.checkpoint;
    return {o.keep_last, o.keep_every, o.keep_best};
  }
  bool no_steps_in_progress() const { return trainer_.steps_started() == trainer_.steps_done(); }
  // Code that reads the state after a step needs that step to be the last one started.
  bool may_start() const {
    const int64_t launched = trainer_.steps_started();
    const bool looked_at = evaluates_after(launched) || saves_after(launched);
    return trainer_.may_start() && launched < settings_.train.steps && (no_steps_in_progress() || !looked_at);
  }

  // Returns false if there is no checkpoint yet.
  bool resume_newest(int64_t at_most) {
    const auto found = newest_whole(comm_, settings_.run.dir, at_most);
    if (found) {
      fail_together(comm_, [&] { trainer_.resume(*found); });
      validation_ = found->info.validation;
    }
    if (comm_.rank() != 0) return found.has_value();
    if (found) log_info(cat("resumed ", found->dir));
    else
      log_info(cat(settings_.run.dir, " holds no checkpoint ",
                   has_checkpoint(settings_.run.dir) ? cat("up to step ", at_most) : std::string("yet"),
                   ": starting from the beginning"));
    for (const std::string& path : set_aside_newer(RunPaths{settings_.run.dir}.checkpoints(), trainer_.steps_done()))
      log_warning(cat("a checkpoint that was passed over is now ", path));
    return found.has_value();
  }

  // On rank 0.
  void require_space() const {
    int64_t bytes = 0;
    for (const StateEntry& e : trainer_.state()) bytes += e.shape.numel() * size_of(DType::kFloat32);
    require_checkpoint_space(settings_, trainer_.steps_done(), bytes);
  }

  void write(const StepReport& r, const EvalReport* e) {
    run_dir_->check_held();
    const double seconds = r.step_ms / 1e3;
    const double rate = seconds > 0 ? static_cast<double>(r.items) / seconds : 0;
    JsonObject line{{"loss", r.result.loss},
                    {"lr", r.lr},
                    {"grad_norm", r.result.grad_norm},
                    {trainer_.items_unit() + "_per_s", rate},
                    {"step_ms", r.step_ms},
                    {"data_ms", r.data_ms},
                    {"forward_ms", r.forward_ms},
                    {"backward_ms", r.backward_ms},
                    {"comm_ms", r.result.exposed_ms},
                    {"optimizer_ms", r.optimizer_ms},
                    {"time", seconds_since_1970()}};
    if (!r.result.finite) line.emplace_back("skipped", true);
    for (auto& [name, one] : r.phases) {
      line.emplace_back("loss/" + name, one.loss);
      line.emplace_back("grad_norm/" + name, one.grad_norm);
    }
    if (comm_.size() > 1 && comm_.size() <= kListedRanks) line.emplace_back("rank_ms", list_of(r.result.busy_ms));
    if (comm_.size() > 1) {
      BucketSizeAdvice step;
      step.add(r.transfers, seconds);
      for (auto& [bucket, waited_s] : step.waits())
        if (waited_s >= 1e-4) line.emplace_back(cat("wait_ms/", bucket), waited_s * 1e3);
    }
    if (const auto saved = report_saves(); !saved.empty()) {
      line.emplace_back("checkpoint_stall_ms", saved.back().stall_ms);
      line.emplace_back("checkpoint_s", saved.back().seconds);
    }
    std::vector<std::pair<std::string, double>> scalars{{"train/loss", r.result.loss},
                                                        {"train/lr", r.lr},
                                                        {"train/grad_norm", r.result.grad_norm},
                                                        {"speed/" + trainer_.items_unit() + "_per_s", rate}};
    for (auto& [name, one] : r.phases) scalars.emplace_back("train/loss/" + name, one.loss);
    if (e) {
      line.emplace_back("val_loss", e->loss);
      scalars.emplace_back("validation/loss", e->loss);
      for (auto& [name, value] : e->metrics) {
        line.emplace_back("val_" + name, value);
        scalars.emplace_back("validation/" + name, value);
      }
    }
    metrics_->write(r.step, line);
    events_->scalars(r.step, scalars);
    progress_->set(r.step, cat("loss ", fixed(r.result.loss, 4)));
  }

  void check_skips(const StepReport& r) {
    if (r.result.finite) return;
    if (comm_.rank() == 0)
      log_warning(
          cat("step ", r.step, ": the gradient is not finite (", r.result.nonfinite, "); this step changed nothing"));
    const int64_t row = trainer_.info().skipped_in_row;
    if (row >= settings_.optim.skip_limit) {
      tolerate([&] { saver_->finish(); });
      if (comm_.rank() != 0) throw Error::secondary(ExitCode::kNumeric);
      throw Error(ExitCode::kNumeric,
                  cat("step ", r.step, ": ", row, " steps in a row without a finite gradient (", r.result.nonfinite,
                      "); lower optim.lr, set optim.clip_norm, or look for the cause with train.anomaly=true"));
    }
  }

  // A save runs concurrently with the next steps; its success is known when the next save begins.
  // `evaluated`: just now.
  void save(bool must, bool evaluated) {
    // If steps are skipped or the validation loss is not finite, this state may be worse than the earlier ones, so none
    // of them is removed.
    const bool retires = trainer_.info().skipped_in_row == 0 && validation_.finite;
    CheckpointInfo info = trainer_.info();
    info.validation = validation_;
    if (!evaluated) info.validation.loss.reset();
    save_asked_ = false;
    saved_at_ = Clock::now();
    const auto start = [&] { saver_->start(info, trainer_.entries_to_save(), retires); };
    if (tolerate(start)) failed_saves_ = 0;
    else start();
    if (must) saver_->finish();
    if (must && comm_.rank() == 0) report_saves();
  }

  // Runs `save`. Returns false if it failed for lack of storage; throws after kFailedSaves consecutive failures.
  bool tolerate(const std::function<void()>& action) {
    try {
      action();
      return true;
    } catch (const Error& e) {
      if (e.code() != ExitCode::kStorage || ++failed_saves_ >= kFailedSaves) throw;
      if (!e.is_secondary())
        log_warning(cat("checkpoint not saved (", failed_saves_, " of ", kFailedSaves,
                        " in a row that are tolerated): ", e.what()));
      return false;
    }
  }

  // On rank 0, logs the saves that were completed since the last call.
  std::vector<SaveReport> report_saves() {
    auto saved = saver_->completed();
    for (const SaveReport& r : saved)
      log_debug(cat("saved the checkpoint of step ", r.step, " in ", fixed(r.seconds, 3), " s; training waited for ",
                    fixed(r.stall_ms, 1), " ms"));
    return saved;
  }

  const Settings& settings_;
  Communicator& comm_;
  const Chaos chaos_;
  Trainer trainer_;
  std::unique_ptr<RunDir> run_dir_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<Progress> progress_;
  BucketSizeAdvice waits_;
  int64_t timed_ = 0;
  int failed_saves_ = 0;
  ValidationRecord validation_;
  Clock::time_point begun_;
  std::chrono::duration<double> evaluated_for_{0};
  bool save_asked_ = false;  // after the last of the steps that are under way
  Clock::time_point saved_at_ = Clock::now();
};

}  // namespace

std::vector<Command> train_forms() {
  return {
      {"train",
       "train FILE.yaml [key.path=value ...] [--ranks N] [--resume [--at-most STEP]]",
       "Trains the model that FILE.yaml describes; key.path=value overrides one of its keys (`lockstep config keys`\n"
       "lists all keys).\n"
       "Under mpirun each process is a rank; without it, --ranks N runs N ranks as threads of this process.\n"
       "SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2: finish the steps in progress, save, exit with 75; --resume\n"
       "continues from there.",
       {{"ranks", "ranks in this process", "N", "0"},
        {"resume", "continue from the newest valid checkpoint of run.dir, or start if there is none"},
        {"at-most", "with --resume: of those up to this step; later ones are renamed to damaged-...", "STEP", "any"}},
       1}};
}

int train_command(const App& app, const std::vector<std::string>& given) {
  const Arguments arguments = parse_arguments(train_forms(), given);
  if (arguments.help) return 0;
  const bool limited = arguments.text("at-most") != "any";
  const int64_t at_most = limited ? arguments.integer("at-most", 0) : std::numeric_limits<int64_t>::max();
  const auto settings = settings_of_file(app, arguments, true);
  const bool resume = arguments.has("resume") || settings->run.resume;
  settings->data.hdf5.other_folder = settings->run.dir;
  require(resume || !limited, ExitCode::kUsage, "--at-most ", at_most, ": has an effect only with --resume");
  const int64_t attempt = settings->chaos.enabled ? attempt_of_job() : 1;
  finish_step_on_signals();

  Job job(*settings, arguments.ranks());
  job.world().on_failure = [&](const Error& e, int rank) {
    if (RunDir::holds_a_run(settings->run.dir) && e.code() != ExitCode::kOutputLocked)
      write_failure(settings->run.dir, {e.code(), rank, reached.step, e.what(), reached.equal_step});
  };
  std::atomic<int> code{0};
  const int failed = job.run("training", [&](Communicator& comm, const Datasets& data) {
    Run run(*settings, data, comm, resume, at_most, attempt);
    const int result = run.go();
    if (comm.rank() == 0) code = result;
  });
  close_log_file();
  return failed ? failed : code.load();
}

}  // namespace lockstep
