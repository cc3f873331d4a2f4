#include "launch/training/loop/run.h"

#include <filesystem>
#include <limits>

#include "core/base/log.h"
#include "core/base/text_table.h"
#include "core/device/thread_pool.h"
#include "core/io/files.h"
#include "launch/checkpoints/machine_parts.h"
#include "launch/checkpoints/open_whole.h"
#include "launch/records/goodput.h"
#include "launch/records/metrics.h"
#include "launch/training/loop/checkpoint_space.h"
#include "launch/training/loop/data_notes.h"
#include "launch/training/loop/stop_request.h"
#include "launch/training/profiling/breakdown.h"
#include "launch/world/fail_together.h"
#include "launch/world/memory_report.h"
#include "launch/world/shared_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kUntypicalSteps = 3;  // steps whose times are not typical

using Clock = std::chrono::steady_clock;

thread_local Run::Reached reached_by_rank;  // written as the run ends, read when its error is reported

}  // namespace

Run::Reached Run::reached() { return reached_by_rank; }

Run::Run(const Settings& settings, const Datasets& data, Communicator& comm, const RunStart& options)
    : settings_(settings),
      comm_(comm),
      until_(options.until),
      chaos_(settings.chaos, comm.rank(), options.attempt),
      trainer_(settings, data, comm) {
  open_directory(options);
  require_validation();
  if (settings_.recovery.from == RecoveryOptions::From::kMemory)
    recovery_ = std::make_unique<MemoryRecovery>(settings_, comm_, trainer_);
  trainer_.keep_reference_at(RunPaths{settings_.run.dir}.reference());
  const bool resumed = options.resume && resume_newest(options.at_most);
  choose_best();
  fail_together(comm_, [&] {  // only now, so that a refused resume does not change the run
    if (!dir_) return;
    require_space();
    dir_->write_config(settings_.config.dump_yaml());
    if (mirror_dir_) mirror_dir_->write_config(settings_.config.dump_yaml());
  });
  if (!resumed && !settings_.init.from.empty()) trainer_.load_initial();
  if (recovery_) recovery_->begin(info());
  if (!chaos_.empty()) trainer_.set_chaos(&chaos_);
  if (comm_.rank() == 0) warn_of_settings(), say_of_data(settings_, data);
  saves_ = std::make_unique<RunSaves>(settings_, comm_, trainer_, recovery_.get(), per_machine_,
                                      [this](int64_t step) { chaos_.before_write(step); });
  trainer_.set_before_change([this] { saves_->before_change(); });
  if (recovery_) trainer_.set_before_update([this] { recovery_->before_update(trainer_.steps_done() + 1); });
  const std::vector<int> machines = machine_leaders(comm_);
  if (comm_.rank() == 0) observe(options, machines);
}

Run::~Run() { reached_by_rank = {trainer_.steps_done(), trainer_.last_equal_step(), trainer_.miscomputes()}; }

void Run::open_directory(const RunStart& options) {
  const std::string &dir = settings_.run.dir, &mirror = settings_.checkpoint.mirror;
  fail_together(comm_, [&] {
    if (comm_.rank() != 0) return;
    if (options.resume && !mirror.empty()) bring_back_records(mirror, dir);
    dir_ = std::make_unique<RunDir>(dir, options.resume);
    open_log_file(dir_->paths().log());
    clean_checkpoints(dir_->paths().checkpoints());
    if (mirror.empty()) return;
    try {
      mirror_dir_ = std::make_unique<RunDir>(mirror, options.resume);
    } catch (const Error& e) {
      throw e.with_message(str("checkpoint.mirror: as a directory of this run: ", e.what()));
    }
    clean_checkpoints(mirror_dir_->paths().checkpoints());
  });
  // Found out now, and not when the first checkpoint cannot be put together.
  std::string not_shared = why_not_shared(comm_, dir);
  if (settings_.run.per_machine) {
    const auto all = all_gather_values(comm_, not_shared.empty() ? 0 : 1, "setup");
    per_machine_ = std::find(all.begin(), all.end(), 1) != all.end();
    const std::vector<int> leader_of = machine_leaders(comm_);
    fail_together(comm_, [&] {
      if (!per_machine_ || comm_.rank() == 0 || leader_of[static_cast<size_t>(comm_.rank())] != comm_.rank()) return;
      machine_dir_ = std::make_unique<RunDir>(dir, options.resume);
      clean_checkpoints(machine_dir_->paths().checkpoints());
    });
    not_shared.clear();
  }
  fail_together(comm_, [&] {
    require(not_shared.empty(), ExitCode::kOutputLocked, "run.dir: ", not_shared,
            ", or, with run.per_machine=true, each has one of its own");
  });
  if (mirror.empty()) return;
  const std::string mirror_not_shared = why_not_shared(comm_, mirror);
  fail_together(comm_, [&] {
    require(mirror_not_shared.empty(), ExitCode::kOutputLocked, "checkpoint.mirror: ", mirror_not_shared);
  });
}

void Run::require_validation() {
  fail_together(comm_, [&] {
    for (const auto& [key, count] : {std::pair("train.patience", settings_.train.patience),
                                     std::pair("checkpoint.keep_best", settings_.checkpoint.keep_best)})
      require(count == 0 || trainer_.has_validation(), ExitCode::kConfig, settings_.config.place(key),
              ": needs data for validation; set data.validation");
  });
}

// By what, and whether higher is better. What was the best by another measure does not count.
void Run::choose_best() {
  using Mode = TrainOptions::Best::Mode;
  const TrainOptions::Best& best = settings_.train.best;
  ValidationRecord by;
  if (best.metric != "loss") by.metric = best.metric;
  by.highest = best.mode == Mode::kMax;
  const auto of_tasks = trainer_.task_scores().higher_is_better(by.metric);
  if (best.mode == Mode::kAuto && of_tasks) by.highest = *of_tasks;
  else if (best.mode == Mode::kAuto && !by.metric.empty())
    by.highest = !metric_named(trainer_.placed().metrics(), by.metric).lower_is_better;
  by.finite = validation_.finite;
  by.texts = trainer_.task_scores().texts();
  if (validation_.measures_as(by)) validation_.texts = by.texts;
  else validation_ = by;
}

// In memory, or on disk where that is newer.
std::optional<Checkpoint> Run::newest(int64_t at_most) {
  std::optional<Checkpoint> in_memory;
  if (recovery_) {
    // Other ranks may have done a step that rank 0 died in: its line of the metrics would be missing.
    constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
    const int64_t recorded =
        comm_.rank() == 0 ? last_recorded_step(RunPaths{settings_.run.dir}.metrics()).value_or(kAny) : 0;
    in_memory = recovery_->newest(at_most, all_gather_values(comm_, recorded, "metrics")[0]);
  }
  if (!in_memory) return newest_on_disk(at_most);
  const int64_t step = in_memory->info.step;
  const std::string& mirror = settings_.checkpoint.mirror;
  if (checkpoints_between(settings_.run.dir, step, at_most) == 0 &&
      (mirror.empty() || checkpoints_between(mirror, step, at_most) == 0))
    return in_memory;
  auto on_disk = newest_on_disk(at_most);
  return on_disk && on_disk->info.step > step ? std::move(on_disk) : std::move(in_memory);
}

// How many rank 0 sees there of steps after `after`. Collective.
int64_t Run::checkpoints_between(const std::string& dir, int64_t after, int64_t at_most) {
  int64_t count = 0;
  if (comm_.rank() == 0)
    for (const std::string& path : list_checkpoints(dir))
      if (const int64_t there = step_of_checkpoint(path); there > after && there <= at_most) ++count;
  return all_gather_values(comm_, count, "checkpoints")[0];
}

// In run.dir, or in its mirror where that has a newer one or run.dir has none that is whole.
std::optional<Checkpoint> Run::newest_on_disk(int64_t at_most) {
  const std::string &dir = settings_.run.dir, &mirror = settings_.checkpoint.mirror;
  const auto here = [&] {
    return per_machine_ ? newest_of_machines(comm_, dir, at_most) : newest_whole(comm_, dir, at_most);
  };
  if (mirror.empty() || checkpoints_between(mirror, -1, at_most) == 0) return here();
  std::optional<Checkpoint> found;
  try {
    found = here();
  } catch (const Error& e) {  // on all ranks with the same exit code
    if (e.code() != ExitCode::kBadData) throw;
    if (!e.is_secondary()) log_warning(str(e.what(), "; looking in ", mirror));
  }
  if (found && checkpoints_between(mirror, found->info.step, at_most) == 0) return found;
  std::optional<Checkpoint> mirrored;
  try {
    mirrored = newest_whole(comm_, mirror, at_most);
  } catch (const Error& e) {
    if (e.code() != ExitCode::kBadData || !found) throw;
    if (!e.is_secondary()) log_warning(e.what());
  }
  return !found || (mirrored && mirrored->info.step > found->info.step) ? std::move(mirrored) : std::move(found);
}

CheckpointInfo Run::info() const {
  CheckpointInfo info = trainer_.info();
  info.validation = validation_;
  return info;
}

// Returns false if there is no checkpoint yet.
bool Run::resume_newest(int64_t at_most) {
  const int64_t limit = at_most < 0 ? std::numeric_limits<int64_t>::max() : at_most;
  const auto found = newest(limit);
  if (found) {
    fail_together(comm_, [&] { trainer_.resume(*found); });
    validation_ = found->info.validation;
    from_memory_ = found->memory != nullptr;
  }
  if (machine_dir_) set_aside_newer(machine_dir_->paths().checkpoints(), trainer_.steps_done());
  if (comm_.rank() != 0) return found.has_value();
  if (found) log_info(str("resumed ", found->dir));
  else
    log_info(str(settings_.run.dir, " holds no checkpoint ",
                 has_checkpoint(settings_.run.dir) ? str("up to step ", limit) : std::string("yet"),
                 ": starting from the beginning"));
  for (const RunDir* dir : {dir_.get(), mirror_dir_.get()})
    if (dir)
      for (const std::string& path : set_aside_newer(dir->paths().checkpoints(), trainer_.steps_done()))
        log_warning(str("a checkpoint that was passed over is now ", path));
  return found.has_value();
}

void Run::require_space() const {
  int64_t bytes = 0;
  for (const StateEntry& e : trainer_.state()) bytes += e.region.shape.numel() * size_of(DType::kFloat32);
  require_checkpoint_space(settings_, trainer_.steps_done(), bytes);
}

void Run::warn_of_settings() const {
  if (settings_.batch.by_ranks && comm_.size() > 1)
    log_info(str("batch.micro is ", settings_.batch.micro, ", an even share of batch.global for each of ", comm_.size(),
                 " ranks, and results depend on it: with batch.micro=", settings_.batch.micro,
                 " they are the same at any number of ranks"));
  if (settings_.verify.every > 0 && !trainer_.has_replicas())
    log_warning(str(settings_.config.place("verify.every"), ": no two of these ranks hold the same parameters and ",
                    "moments, so nothing is compared"));
  if (settings_.verify.recompute > 0 && comm_.size() == 1)
    log_warning(str(settings_.config.place("verify.recompute"), ": one rank has no other to check it"));
  for (const ChaosFault& f : settings_.chaos.faults)
    if (f.rank >= comm_.size())
      log_warning(str(settings_.config.place("chaos.faults"), ": there is no rank ", f.rank, " here: its ", f.kind,
                      " does not occur"));
}

// Of a resumed run that has done all its steps.
void Run::say_nothing_is_left() const {
  const TrainOptions& t = settings_.train;
  const bool ends = settings_.schedule->end() && !settings_.config.given("schedule.steps");
  log_info(str(settings_.run.dir, " is at step ", trainer_.steps_done(), " of ", t.steps,
               t.length.empty() ? "" : str(" (", t.length, ")"), ": no step is left to train. To go on, set ",
               t.length.empty() ? "train.steps to more than "
                                : "train.epochs or train.tokens to a longer run, or train.steps to more than ",
               trainer_.steps_done(),
               ends ? ", with resume.allow=[schedule.steps], since the schedule ends with the run" : ""));
}

void Run::observe(const RunStart& options, const std::vector<int>& machines) {
  const bool none_left = trainer_.steps_done() > 0 && trainer_.steps_done() >= settings_.train.steps;
  if (!none_left) begin_attempt(settings_.run.dir, trainer_.steps_done(), comm_.size());
  for (const MakeObserver& make : options.observers)
    if (auto made = make({settings_, trainer_, *dir_, comm_.size(), machines})) observers_.push_back(std::move(made));
  if (none_left) return say_nothing_is_left();
  log_info(str(
      "training ", settings_.model_name, ", ", short_number(static_cast<double>(trainer_.parameter_count())),
      " parameters, ", comm_.size(), comm_.size() == 1 ? " rank" : " ranks", " (", comm_.backend(), "), ",
      current_stream().device_queue() ? std::string() : str(current_stream().threads(), " compute threads per rank, "),
      trainer_.info().isa, ", steps ", trainer_.steps_done(), " to ", settings_.train.steps,
      settings_.train.length.empty() ? "" : " (", settings_.train.length, settings_.train.length.empty() ? "" : ")",
      ", into ", dir_->paths().dir));
  if (trainer_.weighs_samples())
    log_info("the data has sample weights: the loss is the mean by them, the metrics have none");
  else if (trainer_.weighs_validation())
    log_info("the validation data has sample weights: its loss is the mean by them, the metrics have none");
}

// A run that goes on from memory may be after a step that is to be saved and was not: its ranks died in that save.
void Run::save_what_was_due() {
  const int64_t step = trainer_.steps_done();
  if (!from_memory_ || step == 0) return;
  const bool ends = step >= end() || out_of_patience();
  if (!ends && !saves_->after(step) && !saves_best_after(step)) return;
  if (all_gather_values(comm_, has_checkpoint(settings_.run.dir, step) ? 1 : 0, "checkpoints")[0] != 0) return;
  saves_->save(validation_, ends, evaluates_after(step));
}

int Run::go() {
  stop_at_steps();
  begun_ = Clock::now();
  save_what_was_due();
  saves_->mirror_what_is_due(trainer_.steps_done());
  if (settings_.train.steps == 0 && trainer_.steps_done() == 0) saves_->save(validation_, true, false);
  if (const auto [first, last] = settings_.profile.range(); last > trainer_.steps_done()) {
    if (last <= end()) make_timeline(std::max(first, trainer_.steps_done() + 1), last);
    else if (comm_.rank() == 0)
      log_warning(str(settings_.config.place("profile.steps"), ": the run ends before, after step ", end()));
  }
  while (trainer_.steps_done() < end() && !out_of_patience() && !(stopped_ && no_steps_in_progress())) {
    while (!stopped_ && !save_asked_ && may_start()) {
      if (timeline_) timeline_->before(trainer_.steps_started() + 1);
      trainer_.start({.stop = stop_is_requested(), .save = saves_->is_due(), .trace = trace_is_asked()});
    }
    const StepReport done = trainer_.finish();
    if (timeline_ && timeline_->after(done.step)) timeline_.reset();
    after_step(done);
  }
  const bool paused = trainer_.steps_done() >= end();  // by `until`, where steps are left
  stopped_ = (stopped_ || paused) && !out_of_patience() && trainer_.steps_done() < settings_.train.steps;
  for (auto& o : observers_) o->end();
  saves_->finish_mirror();
  if (per_machine_) collect_checkpoints(comm_, settings_.run.dir);
  check_validation();
  if (const auto size = waits_.better(settings_.parallel.bucket_mb))
    log_info(str("waited for other ranks ", fixed(100 * waits_.waiting(), 0),
                 "% of the time; by what each exchange took, buckets of ", fixed(*size, *size < 1 ? 2 : 0),
                 " MB would wait less: comm.bucket=", fixed(*size, *size < 1 ? 2 : 0)));
  if (comm_.rank() == 0) say_end();
  return stopped_ ? static_cast<int>(ExitCode::kSaved) : 0;
}

// `lockstep profile record` leaves its request as a file; rank 0 looks for it once a second.
bool Run::trace_is_asked() {
  if (!dir_ || traced_steps_ > 0) return traced_steps_ > 0;
  if (timeline_) return false;  // one at a time: the request waits
  const auto now = Clock::now();
  if (now - looked_at_ < std::chrono::seconds(1)) return false;
  looked_at_ = now;
  const std::string path = dir_->paths().profile_request();
  constexpr int64_t kMost = ProfileOptions::kMostSteps;
  traced_steps_ = std::clamp<int64_t>(json_integer(read_head(path, 4096), "steps").value_or(0), 0, kMost);
  std::error_code error;
  if (traced_steps_ > 0 && !std::filesystem::remove(path, error)) {
    log_warning_once(str(path, ": cannot be removed (", error.message(), "); this request of a timeline is ignored"));
    traced_steps_ = 0;
  }
  return traced_steps_ > 0;
}

void Run::make_timeline(int64_t first, int64_t last) {
  const bool on_cpu = !current_stream().device_queue();
  comm_.barrier("limits");  // measured by all ranks at the same time, as they share the machine in a step
  MachineLimits limits;
  if (on_cpu) {
    const WithoutMemoryPeak not_counted(current_device());
    limits = measure_limits();
    comm_.barrier("limits");
  }
  timeline_ =
      std::make_unique<Timeline>(comm_, std::pair(first, last), settings_.profile.ranks,
                                 str(RunPaths{settings_.run.dir}.profile(), "/steps-", first, "-", last, ".json"),
                                 JsonObject{{"model", settings_.model_name},
                                            {"first_step", first},
                                            {"last_step", last},
                                            {"ranks", int64_t{comm_.size()}},
                                            {"threads", int64_t{current_stream().threads()}},
                                            {"cores", int64_t{available_cores()}},
                                            {"isa", trainer_.info().isa},
                                            {"compute", std::string(to_text(settings_.parallel.compute))},
                                            {"level", std::string(to_text(settings_.parallel.level))},
                                            {"group", settings_.parallel.group},
                                            {"bucket_mb", settings_.parallel.bucket_mb},
                                            {"recompute", settings_.recompute != Recompute::kNone},
                                            {"gpu", !on_cpu},
                                            {"gflops", limits.gflops},
                                            {"gb_s", limits.gbps}});
}

void Run::after_step(const StepReport& r) {
  stopped_ = stopped_ || r.result.requests.stop;
  save_asked_ = save_asked_ || r.result.requests.save;
  if (r.result.requests.trace) {
    const int64_t steps = all_gather_values(comm_, std::exchange(traced_steps_, 0), "timeline")[0],
                  first = trainer_.steps_started() + 1;
    if (steps > 0 && first <= end() && !timeline_) make_timeline(first, std::min(first + steps - 1, end()));
  }
  if (comm_.rank() == 0 && comm_.size() > 1 && ++timed_ > kUntypicalSteps) waits_.add(r.transfers, r.step_ms / 1e3);
  const bool eval_now = measures_after(r.step);
  EvalReport e;
  const auto before = evaluated_for_;
  if (eval_now) e = evaluate(r.step);
  const bool ends = out_of_patience() || r.step == end() || (stopped_ && no_steps_in_progress());
  if (dir_) {
    dir_->check_held();
    const std::vector<SaveReport> saved = saves_->completed();
    for (auto& o : observers_) o->step({r, eval_now ? &e : nullptr, (evaluated_for_ - before).count(), saved});
  }
  check_skips(r);
  const bool saves =
      ends || saves_->after(r.step) || saves_best_after(r.step) || (save_asked_ && no_steps_in_progress());
  if (recovery_ && (saves || (recovery_->after(r.step) && no_steps_in_progress()))) recovery_->write(info());
  if (saves) {
    save_asked_ = false;
    saves_->save(validation_, ends, evaluates_after(r.step));
  }
  if (eval_now && comm_.rank() == 0) {
    std::string text = str("step ", r.step, ": validation loss ", fixed(e.loss, 4));
    for (auto& [name, value] : e.metrics) text += str(", ", name, " ", fixed(value, 4));
    log_info(text);
    if (!e.warning.empty()) log_warning(str("step ", r.step, ": validation: ", e.warning));
  }
}

EvalReport Run::evaluate(int64_t step) {
  for (auto& o : observers_) o->pause();
  const auto begun = Clock::now();
  const EvalReport e = trainer_.evaluate();
  evaluated_for_ += Clock::now() - begun;
  std::optional<double> value;
  for (auto& [name, one] : e.metrics)
    if (name == validation_.metric) value = one;
  if (evaluates_after(step)) validation_.add(step, e.loss, value);  // what is best is as without `until`
  return e;
}

bool Run::evaluates_after(int64_t step) const {
  return trainer_.has_validation() &&
         (is_last(step) || (settings_.train.eval_every > 0 && step % settings_.train.eval_every == 0));
}

// Its evaluation found a better value than all before: checkpoint.keep_best keeps that state, whatever else is saved.
bool Run::saves_best_after(int64_t step) const {
  return settings_.checkpoint.keep_best > 0 && evaluates_after(step) && validation_.best_step == step &&
         validation_.since_best == 0;
}

bool Run::out_of_patience() const {
  return settings_.train.patience > 0 && validation_.since_best >= settings_.train.patience;
}

// Code that reads the state after a step needs that step to be the last one started.
bool Run::may_start() const {
  const int64_t launched = trainer_.steps_started();
  const bool looked_at =
      measures_after(launched) || saves_->after(launched) || (recovery_ && recovery_->after(launched));
  return trainer_.may_start() && launched < end() && (no_steps_in_progress() || !looked_at);
}

void Run::check_skips(const StepReport& r) {
  if (r.result.finite) return;
  if (comm_.rank() == 0)
    log_warning(
        str("step ", r.step, ": the gradient is not finite (", r.result.nonfinite, "); this step changed nothing"));
  const int64_t row = trainer_.info().skipped_in_row;
  if (row < settings_.optim.skip_limit) return;
  saves_->finish();
  if (comm_.rank() != 0) throw Error::secondary(ExitCode::kNumeric);
  throw Error(ExitCode::kNumeric,
              str("step ", r.step, ": ", row, " steps in a row without a finite gradient (", r.result.nonfinite,
                  "); lower optim.lr, set optim.clip_norm, or look for the cause with train.anomaly=true"));
}

void Run::check_validation() const {
  if (validation_.finite || stopped_) return;
  if (comm_.rank() != 0) throw Error::secondary(ExitCode::kNumeric);
  throw Error(
      ExitCode::kNumeric,
      str("step ", trainer_.steps_done(), ": the validation loss is not finite, though every parameter ",
          "is; no earlier checkpoint was removed: go on from one of them by --resume --at-most STEP, with a lower "
          "optim.lr and resume.allow=[optim.lr]"));
}

// What evaluations cost, of the time since the first step.
std::string Run::evaluation_text() const {
  const double seconds = evaluated_for_.count(),
               share = seconds / std::chrono::duration<double>(Clock::now() - begun_).count();
  return str("validation took ", fixed(seconds, 1), " s, ", fixed(100 * share, 0), "% of the time",
             share > 0.2 && seconds > 10 ? "; train.eval_samples and train.eval_every bound it" : "");
}

void Run::say_end() const {
  const RunPaths& p = dir_->paths();
  if (current_stream().device_queue())
    if (const std::string chosen = device_backend().choices(); !chosen.empty()) dir_->write_algorithms(chosen);
  dir_->check_held();
  for (auto& o : observers_) o->check_there();
  if (stopped_) {
    log_info(str("stopped ", until_ >= 0 && trainer_.steps_done() >= end() ? "by --until" : "on request",
                 " after step ", trainer_.steps_done(), "; saved. Continue with --resume"));
    return;
  }
  if (out_of_patience() && trainer_.steps_done() < settings_.train.steps)
    log_info(str("ended early after step ", trainer_.steps_done(), ": the validation's ",
                 validation_.metric.empty() ? "loss" : validation_.metric, " was not ",
                 validation_.highest ? "higher" : "lower", " than ", fixed(validation_.best.value_or(0), 4),
                 ", measured after step ", validation_.best_step, ", in ", validation_.since_best, " evaluations (",
                 settings_.config.place("train.patience"), ")"));
  if (evaluated_for_.count() > 0) log_info(evaluation_text());
  constexpr double kShort = 60;  // seconds: of a shorter run in one attempt, the start is most
  if (const Goodput g = read_goodput(settings_.run.dir, seconds_since_1970()); g.attempts > 1 || g.wall > kShort)
    log_info(to_text(g));
  log_info(str("done: ", trainer_.steps_done(), " steps. Checkpoints in ", p.checkpoints(), ", metrics in ",
               p.metrics(), ", TensorBoard files in ", p.tensorboard()));
}

}  // namespace lockstep
