#include "launch/training/step/trainer.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>

#include "core/base/flight_recorder.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/interop/load_weights.h"
#include "core/kernels/kernels.h"
#include "data/text/vocabulary.h"
#include "launch/config/run_data.h"
#include "launch/training/step/trial_pass.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/fail_together.h"
#include "sharding/mesh.h"
#include "sharding/transfer_log.h"

namespace lockstep {
namespace {

// Steps before one is recorded: libraries choose and prepare, and take the memory that they keep.
constexpr int64_t kUnrecordedSteps = 2;

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

}  // namespace

Trainer::Trainer(const Settings& settings, const Datasets& data, Communicator& comm)
    : settings_(settings),
      reference_(data),
      data_(reference_.data()),
      comm_(comm),
      exceptions_(std::uncaught_exceptions()),
      placed_(settings, data_, comm, task_of(data_.train->spec()), PlacedTask::Use::kTrain),
      task_(placed_.task()),
      parallel_(placed_.parallel()),
      info_(placed_.info()) {
  fail_together(comm_, [&] {
    make_phases();
    require_recordable();
    require(settings_.verify.recompute == 0 || settings_.parallel.reduce == ReduceMode::kExact ||
                !current_stream().device_queue(),
            ExitCode::kConfig, settings_.config.place("verify.recompute"),
            ": with reduce: fast the gradients of a GPU have other bits on each rank, so they cannot be compared");
    require(settings_.verify.recompute == 0 || !current_stream().device_queue() ||
                !device_backend().tries("fast_attention"),
            ExitCode::kConfig, settings_.config.place("verify.recompute"),
            ": with fast_attention in LOCKSTEP_CUDA_TRY the gradients of attention have other bits each time, so they "
            "cannot be compared");
    if (comm_.rank() == 0 && current_device().has_bytes()) {
      trial_ = try_pass(settings_, data_.train->spec(), settings_.batch.micro);
      try_smallest_micro_batch(settings_, *data_.train);
    }
  });
  const Mesh& mesh = parallel_.mesh();
  if (settings_.verify.every > 0 && mesh.replica().size > 1)
    sentinel_ = std::make_unique<Sentinel>(mesh.replica(), mesh.data());
  if (settings_.verify.every > 0 && has_whole_copies())
    copy_sentinel_ = std::make_unique<Sentinel>(mesh.data(), mesh.data());
  if (settings_.verify.recompute > 0 && mesh.data().size > 1 && current_device().has_bytes())
    recheck_ = std::make_unique<Recheck>(mesh.data(), parallel_.schedule(), settings_.verify.recompute);
  if (settings_.verify.memory > 0 && current_device().has_bytes())
    memory_check_ = std::make_unique<MemoryCheck>(comm_.rank(), settings_.verify.memory);
  fail_together(comm_, [&] {
    start_loader();
    make_task_scores();
    if (settings_.train.watch.empty()) return;
    try {  // also where a plan has no values to watch: the patterns must match
      auto watch = std::make_unique<ValueWatch>(settings_.train.watch, settings_.train.watch_every, task_.module(),
                                                comm_, mesh.replica().index == 0);
      if (current_device().has_bytes()) watch_ = std::move(watch);
    } catch (const Error& e) {
      throw e.with_message(str(settings_.config.place("train.watch"), ": ", e.what()));
    }
  });
}

void Trainer::make_task_scores() {
  const std::string place = settings_.config.place("train.eval_tasks");
  const DataSpec& spec = data_.train->spec();
  const std::vector<std::string>& files = settings_.train.eval_tasks;
  require(files.empty() || (spec.next_tokens && settings_.train.steps >= 0), ExitCode::kConfig, place,
          ": is for models of the next token, and the data is not of that kind");
  require(files.empty() || has_validation(), ExitCode::kConfig, place,
          ": tasks are scored when the validation is measured; set data.validation");
  try {
    const Vocabulary* vocabulary = data_.train->vocabulary();
    const bool adds = !files.empty() && vocabulary && settings_.train.eval_special_tokens;
    std::string why;
    const Surround around = adds ? special_tokens_of_run(settings_.init.from, *vocabulary, why) : Surround{};
    if (comm_.rank() == 0 && !why.empty()) log_warning(why);
    task_scores_ = std::make_unique<TaskScores>(files, vocabulary, around, spec.model_input()[0], spec.classes);
  } catch (const Error& e) {
    throw e.with_message(str(place, ": ", e.what()));
  }
  const std::string& best = settings_.train.best.metric;
  require(best.find('/') == best.npos || task_scores_->higher_is_better(best), ExitCode::kConfig,
          settings_.config.place("train.best.metric"), ": no task of train.eval_tasks measures ", best);
}

// What updates the parameters, and how.
void Trainer::make_phases() {
  apply_rules(settings_.optim, parallel_.slots(), placed_.parameter_names());
  phases_ = std::make_unique<StepPhases>(task_.phases(), settings_, parallel_);
  info_.later_updates.assign(phases_->count() - 1, 0);
  const bool scales = settings_.parallel.compute == DType::kFloat16;
  if (scales) loss_scale_ = LossScale::dynamic();
  runs_ahead_ =
      current_stream().mode() == Stream::Mode::kQueue && !scales && !settings_.train.anomaly && phases_->count() == 1;
}

void Trainer::require_recordable() const {
  if (!settings_.graph) return;
  const std::string why = dynamic_cast<const GlobalBatchTask*>(&task_)
                              ? std::string("the loss is over the global batch, whose outputs are gathered first")
                          : phases_->count() > 1 ? str("the steps of ", settings_.model_name, " have ",
                                                       phases_->count(), " phases, between which the host waits")
                                                 : parallel_.why_not_recorded();
  require(why.empty(), ExitCode::kConfig, settings_.config.place("graph"), ": ", why, "; set graph: false");
}

Trainer::~Trainer() {
  // Its graph waits for the stream, which may wait in it for ranks that will not come.
  if (recorded_ && std::uncaught_exceptions() > exceptions_) comm_.abort(rank_is_ending(comm_.rank()));
}

LoaderOptions Trainer::loader_options() const {
  LoaderOptions o;
  o.batch_global = settings_.batch.global;
  o.batch_micro = settings_.batch.micro;
  o.pool = settings_.data.bucket_pool;
  o.seed = static_cast<uint64_t>(settings_.seed);
  o.shuffle = settings_.data.shuffle;
  o.rank = parallel_.mesh().data().index;
  o.size = parallel_.mesh().data().size;
  o.threads = static_cast<int>(settings_.data.threads);
  o.prefetch = static_cast<int>(settings_.data.prefetch);
  o.schedule = parallel_.schedule();
  o.start = {info_.epoch, info_.position};
  return o;
}

// Once the parameters with which training begins are there.
void Trainer::make_reference() {
  if (!reference_.is_missing(task_) || !current_device().has_bytes()) return;
  check(steps_started() == 0, "the reference is what training began with");
  loader_.reset();
  reference_.compute(placed_, comm_);
  start_loader();
}

void Trainer::start_loader() {
  trace_mark();
  loader_ = std::make_unique<Loader>(*data_.train, loader_options());
}

StepBatch Trainer::next_batch() {
  FlightPhase phase("load batch");
  if (chaos_) chaos_->while_loading(steps_started() + 1);
  return loader_->next();
}

void Trainer::start(const StepRequests& asked) {
  StepRequests requests = asked;
  requests.busy_ms = busy_ms_;
  check(may_start(), "a step is started while ", static_cast<int64_t>(under_way_.size()), " are under way");
  make_reference();
  UnderWay step;
  StepReport& report = step.report;
  WithAnomaly anomaly(settings_.train.anomaly);
  if (chaos_) chaos_->before_step(steps_started() + 1);
  if (chaos_) chaos_->at_rest(steps_started() + 1, parallel_.state());
  if (chaos_ && chaos_->adds_wrongly(steps_started() + 1)) parallel_.set_sum_observer(&Chaos::flip_bit);
  if (recheck_) recheck_->begin(steps_started());
  step.begun = Clock::now();
  const StepBatch batch = next_batch();
  report.data_ms = ms_since(step.begun);
  report.step = steps_started() + 1;
  report.lr = learning_rate(*settings_.schedule, settings_.schedule_options.warmup, settings_.optim.lr, report.step - 1,
                            settings_.train.steps);
  report.items = batch.units;
  parallel_.set_loss_scale(loss_scale_.value());
  phases_->prepare(report.lr);
  // An epoch's last step has other shapes; all ranks know it alike.
  // Copies that are verified are read in the middle of a step, which a graph does not stop for.
  const bool reads_copies = copy_sentinel_ && verifies_after(report.step);
  step.recorded = settings_.graph && steps_here_ >= kUnrecordedSteps && batch.samples == settings_.batch.global &&
                  !reads_copies && !rechecks_in(report.step) && !watches_in(report.step) &&
                  !checks_memory_after(report.step - 1) && !checks_memory_after(report.step);
  if (step.recorded) {
    if (!recorded_) recorded_ = std::make_unique<RecordedStep>(parallel_, current_stream());
    step.outcome =
        recorded_->run(batch, requests, [&](const auto& mine) { return run(batch, mine, requests, report); });
  } else {
    step.outcome = run(batch, batch.mine, requests, report, reads_copies ? &step : nullptr);
  }
  if (chaos_) chaos_->after_update(report.step, parallel_.state());
  ++steps_here_;
  report.transfers = parallel_.transfers();
  step.next = batch.next;
  under_way_.push_back(std::move(step));
}

StepReport Trainer::finish() {
  trace_mark();
  check(!under_way_.empty(), "no step is under way");
  const UnderWay step = std::move(under_way_.front());
  under_way_.pop_front();
  StepReport report = step.report;
  {
    FlightPhase phase("wait for the step");
    report.result = outcome_of(step);
  }
  if (phases_->count() == 1) {
    phases_->settle(0, !report.result.finite);
  } else {
    report.phases.emplace_back(phases_->module(report.phases.size()), report.result);
    for (size_t i = 0; i < phases_->count(); ++i) phases_->settle(i, !report.phases[i].second.finite);
    report.result = joined(report.phases);
  }
  // The mean of nothing is no loss of 0. A whole part without targets was refused before the first step.
  if (report.result.targets == 0 && current_device().has_bytes()) {
    report.result.loss = std::numeric_limits<double>::quiet_NaN();
    const std::string none =
        weighs_samples()
            ? str("the weights of its samples add up to 0 (", settings_.config.place("data.path"))
            : str("none of its ", report.items, " targets counts (", settings_.config.place("data.ignore_tokens"));
    if (comm_.rank() == 0) log_warning(str("step ", report.step, ": ", none, "): it has no loss and no gradient"));
  }
  const bool finite = report.result.finite;
  loss_scale_.update(finite);
  info_.loss_scale = loss_scale_.value();
  info_.good_steps = loss_scale_.good_steps();
  ++info_.step;
  info_.epoch = step.next.epoch;
  info_.position = step.next.position;
  const std::vector<int64_t> updates = phases_->updates();
  info_.updates = updates[0];
  info_.later_updates.assign(updates.begin() + 1, updates.end());
  info_.skipped_in_row = finite ? 0 : info_.skipped_in_row + 1;
  info_.skipped += finite ? 0 : 1;
  report.step_ms = ms_since(std::max(step.begun, finished_at_));
  finished_at_ = Clock::now();
  if (watches_in(report.step)) report.watched = watch_->finish(report.step);
  busy_ms_ = std::max(0.0, report.step_ms - report.result.exposed_ms);
  record_flight_step({.step = report.step,
                      .total = settings_.train.steps,
                      .loss = report.result.loss,
                      .items_per_s = report.step_ms > 0 ? 1e3 * static_cast<double>(report.items) / report.step_ms : 0,
                      .step_ms = report.step_ms,
                      .waited_ms = report.result.exposed_ms});
  if (verifies_after(report.step)) {
    FlightPhase phase("verify");
    // The state first: where that differs, it says more exactly whose is wrong.
    if (sentinel_) sentinel_->verify(report.step, compared_state());
    if (copy_sentinel_) copy_sentinel_->verify(report.step, step.copies, step.digests);
  }
  if (checks_memory_after(report.step)) memory_check_->take(report.step, state());
  return report;
}

bool Trainer::rechecks_in(int64_t step) const { return recheck_ && recheck_->is_due(step); }

bool Trainer::verifies_after(int64_t step) const {
  return (sentinel_ || copy_sentinel_) && step % settings_.verify.every == 0;
}

int64_t Trainer::last_equal_step() const {
  if (memory_check_ && memory_check_->failed()) return memory_check_->last_good_step();
  if (recheck_ && recheck_->failed()) return recheck_->last_good_step();
  std::vector<int64_t> steps;
  if (sentinel_) steps.push_back(sentinel_->last_equal_step());
  if (copy_sentinel_) steps.push_back(copy_sentinel_->last_equal_step());
  if (steps.empty()) return recheck_ ? recheck_->last_good_step() : -1;
  return *std::min_element(steps.begin(), steps.end());
}

bool Trainer::may_start() const {
  return under_way_.empty() || (runs_ahead_ && under_way_.size() < 2 && !watches_in(steps_started()) &&
                                !verifies_after(steps_started()) && !checks_memory_after(steps_started()));
}

void Trainer::check_at_rest(const char* what) const { check(under_way_.empty(), what, " while a step is under way"); }

// Exchanges keep their own deadlines, but those within a graph.
StepResult Trainer::outcome_of(const UnderWay& step) {
  if (!step.recorded || comm_.size() == 1) return step.outcome.wait();
  try {
    return step.outcome.wait(Seconds(settings_.deadline));
  } catch (const Error& e) {
    if (e.code() != ExitCode::kRankLost) throw;
    const Error why = e.with_message(str("step ", step.report.step, ", which ran as a CUDA graph: ", e.what(),
                                         "; with graph: false the error names the exchange and the missing ranks (",
                                         settings_.config.place("comm.deadline"), ")"));
    comm_.abort(why);  // else the graph's end would be waited for
    throw why;
  }
}

// A step's work from its data to the update, in the order of the stream. The host learns a phase's outcome before the
// next one begins.
PendingStep Trainer::run(const StepBatch& batch, const std::vector<MicroBatch>& mine, const StepRequests& requests,
                         StepReport& report, UnderWay* verified) {
  for (size_t i = 0; i + 1 < phases_->count(); ++i) {
    const StepResult result = run_phase(i, batch, mine, {}, report, nullptr).wait();
    report.phases.emplace_back(phases_->module(i), result);
  }
  return run_phase(phases_->count() - 1, batch, mine, requests, report, verified);
}

std::optional<GlobalBatchLoss> Trainer::loss_of_all(const StepBatch& batch, StepReport& report) {
  auto* task = dynamic_cast<GlobalBatchTask*>(&task_);
  if (!task) return {};
  FlightPhase phase("forward of the global batch");
  const auto forward = Clock::now();
  const Tensor outputs =
      outputs_of_all(parallel_, batch, settings_.batch.micro, parallel_.schedule(), [&](const MicroBatch& m) {
        WithRandom random({static_cast<uint64_t>(settings_.seed), report.step - 1, m.samples});
        return task->output(as_computed(m.batch, settings_.parallel.compute));
      });
  GlobalBatchLoss loss(*task, outputs);
  report.forward_ms += ms_since(forward);
  return loss;
}

// What a micro-batch adds to the loss.
Tensor Trainer::loss_of(size_t phase, const MicroBatch& micro, const std::optional<GlobalBatchLoss>& of_all,
                        double loss_gradient) {
  WithProfilerRange range("forward");
  WithLossGradient gradient(loss_gradient);
  const Batch computed = as_computed(micro.batch, settings_.parallel.compute);
  return of_all ? of_all->loss_of(task_.output(computed), micro.index * settings_.batch.micro)
                : task_.loss(computed, phase);
}

// One micro-batch of the step, of whatever rank, beside it.
void Trainer::compute_apart(size_t phase, const StepBatch& batch, int64_t micro,
                            const std::optional<GlobalBatchLoss>& of_all, int64_t step, const GradientSink& sink) {
  FlightPhase flight("recheck");
  LoaderOptions options = loader_options();
  options.only = micro;
  options.threads = 0;
  options.start = {batch.epoch, batch.position};
  Loader loader(*data_.train, options);
  const StepBatch one = loader.next();
  const MicroBatch& m = one.mine[0];
  if (chaos_) chaos_->before_pass(step, false, task_.module());
  WithRandom random({static_cast<uint64_t>(settings_.seed), step - 1, m.samples});
  parallel_.compute_apart(
      settings_.batch.global * data_.train->spec().targets(), phases_->module(phase),
      [&] { return loss_of(phase, m, of_all, parallel_.loss_gradient()); }, sink);
  current_stream().synchronize();  // before the loader's memory is given back
}

std::vector<StateEntry> Trainer::compared_state() const {
  std::vector<StateEntry> all = state();
  for (StateEntry& e : parallel_.base_state()) all.push_back(std::move(e));
  return all;
}

// Before gradients are compared: a weight that changed in memory makes gradients differ, too, and the processor that
// computed them is not to blame.
void Trainer::compare_state(int64_t step) {
  if (memory_check_) fail_together(comm_, [&] { memory_check_->compare(state()); });
  if (sentinel_) sentinel_->verify(step, compared_state());
  if (copy_sentinel_) {
    const std::vector<StateEntry> copies = parallel_.whole_copies();
    copy_sentinel_->verify(step, copies, digests_of(copies));
  }
}

PendingStep Trainer::run_phase(size_t index, const StepBatch& batch, const std::vector<MicroBatch>& mine,
                               const StepRequests& requests, StepReport& report, UnderWay* verified) {
  trace_mark();
  // What the loss over the global batch makes of its outputs, before the step's own pass.
  const std::optional<GlobalBatchLoss> of_all = loss_of_all(batch, report);
  const bool rechecks = rechecks_in(report.step);
  Recheck::Results gradients, sums;
  const auto into = [](GradientHashes& hashes) {
    return GradientSink([&hashes](const std::string& name, const Tensor& t) { hashes.add(name, t); });
  };
  const GradientSink to_watched = into(gradients.own);
  Recheck::Turn turn;
  const bool rechecks_sums = rechecks && parallel_.sums() > 0;
  const size_t bucket = rechecks_sums ? recheck_->bucket(report.step, parallel_.sums()) : 0;
  if (rechecks) {
    turn = recheck_->turn(report.step, batch.micro_count);
    compute_apart(index, batch, turn.checked, of_all, report.step, into(gradients.checked));
  }
  parallel_.begin_step(batch.micro_count, settings_.batch.global * data_.train->spec().targets(),
                       phases_->module(index));
  if (rechecks && turn.watched >= 0) parallel_.watch(turn.watched, to_watched);
  if (rechecks_sums) parallel_.keep_leaves(bucket);
  const bool watches = watches_in(report.step) && index + 1 == phases_->count();
  if (watches) watch_->begin_passes();
  double loss_gradient = parallel_.loss_gradient();
  if (chaos_) loss_gradient = chaos_->loss_gradient(report.step, loss_gradient);
  for (const MicroBatch& m : mine) {
    if (chaos_) chaos_->before_pass(report.step, &m == &mine[0], task_.module());
    WithRandom random({static_cast<uint64_t>(settings_.seed), report.step - 1, m.samples});
    if (watches) watch_->begin_micro(m.index);
    Tensor loss;
    {
      FlightPhase phase("forward");
      const auto forward = Clock::now();
      loss = loss_of(index, m, of_all, loss_gradient);
      report.forward_ms += ms_since(forward);
    }
    WithProfilerRange range("backward");
    FlightPhase phase("backward");
    const auto backward = Clock::now();
    parallel_.backward(m.index, loss, m.targets, loss_gradient);
    report.backward_ms += ms_since(backward);
  }
  if (watches) watch_->end_passes();
  if (before_change_) before_change_();
  PendingStep outcome;
  {
    WithProfilerRange range("exchange");
    FlightPhase phase("exchange");
    outcome = parallel_.end_step(settings_.optim.clip_norm, requests);
  }
  if (rechecks_sums) {
    parallel_.sum_of_part(bucket, into(sums.own));
    parallel_.sum_again(bucket, recheck_->owners(report.step), into(sums.checked));
    sums.again = [&](int64_t owner, const GradientSink& sink) {
      parallel_.sum_again(bucket, std::vector<int>(static_cast<size_t>(comm_.size()), static_cast<int>(owner)), sink);
    };
  }
  if (rechecks && index == 0) compare_state(report.step - 1);
  if (rechecks) {
    gradients.again = [&](int64_t micro, const GradientSink& sink) {
      compute_apart(index, batch, micro, of_all, report.step, sink);
    };
    recheck_->compare(report.step, batch.micro_count, gradients, rechecks_sums ? &sums : nullptr,
                      index + 1 == phases_->count());
  }
  if (verified) {  // before the update, whose values the next step's copies will have
    verified->copies = parallel_.whole_copies();
    verified->digests = digests_of(verified->copies);
  }
  WithProfilerRange range("optimizer");
  FlightPhase phase("optimizer");
  const auto update = Clock::now();
  // The last thing before the state changes, anywhere: a rank that went on would write over the state that all can go
  // back to.
  if (memory_check_ && memory_check_->has_taken() && index == 0)
    fail_together(comm_, [&] { memory_check_->compare(state()); });
  const bool observed = memory_check_ && (memory_check_->has_taken() || checks_memory_after(report.step));
  if (observed && index == 0) memory_check_->begin_update(report.step, state());
  phases_->set_observer(observed ? memory_check_.get() : nullptr);
  if (before_update_) before_update_();
  if (watches) watch_->before_update(parallel_.slots());
  phases_->update(index, outcome.verdict());
  if (observed && index + 1 == phases_->count()) memory_check_->end_update();
  if (watches) watch_->after_update(parallel_.slots());
  report.optimizer_ms += ms_since(update);
  return outcome;
}

}  // namespace lockstep
