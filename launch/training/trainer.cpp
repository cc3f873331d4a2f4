#include "launch/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <map>

#include "core/base/flight_recorder.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/interop/load_weights.h"
#include "core/kernels/kernels.h"
#include "data/streams/subset.h"
#include "data/text/vocabulary.h"
#include "launch/training/build_model.h"
#include "launch/training/trial_pass.h"
#include "launch/world/fail_together.h"

namespace lockstep {
namespace {

// Steps before one is recorded: libraries choose and prepare, and take the memory that they keep.
constexpr int64_t kUnrecordedSteps = 2;

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

// "4 ranks, level parameters in groups of 2"
std::string layout_text(const Mesh& mesh, ShardLevel level) {
  const int ranks = mesh.data().size;
  std::string out = cat(ranks, ranks == 1 ? " rank" : " ranks", ", level ", to_text(level));
  if (mesh.shard().size > 1 && mesh.replica().size > 1) out += cat(" in groups of ", mesh.shard().size);
  return out;
}

}  // namespace

Trainer::Trainer(const Settings& settings, const Datasets& data, Communicator& comm,
                 const std::optional<TaskSpec>& measured)
    : settings_(settings), data_(data), comm_(comm), exceptions_(std::uncaught_exceptions()) {
  const DataSpec& spec = data_.train->spec();
  fail_together(comm_, [&] {
    model_ = build_model(settings_, measured.value_or(task_of(spec)));
    prepare_for_data(*model_, settings_, spec);
  });
  describe_run();
  fail_together(comm_, [&] {
    distribute(!measured);
    require_recordable();
  });
  preflight();
  fail_together(comm_, [&] {
    require_targets(measured.has_value());
    if (comm_.rank() == 0 && !measured && current_device().has_bytes()) try_pass(settings_, spec);
  });
  if (measured) return;
  const Mesh& mesh = parallel_->mesh();
  if (settings_.verify.every > 0 && mesh.replica().size > 1)
    sentinel_ = std::make_unique<Sentinel>(mesh.replica(), mesh.data());
  if (settings_.verify.every > 0 && has_whole_copies())
    copy_sentinel_ = std::make_unique<Sentinel>(mesh.data(), mesh.data());
  fail_together(comm_, [&] { start_loader(); });
}

// What a checkpoint says of the run, as far as it is known before the model is distributed.
void Trainer::describe_run() {
  info_.dataset = to_hex(data_.train->identity());
  info_.samples = data_.samples;
  // Frozen parameters of files are named by their hash, wherever these lie.
  info_.math_text =
      settings_.config.math_text(settings_.parallel.frozen_of_files ? "init.from" : "",
                                 rules_leave_others(settings_.optim, parameter_names()) ? "optim.rules" : "");
  info_.config = settings_.config.dump_yaml();
  info_.vocabulary = vocabulary_text(data_.train->vocabulary());
  if (data_.like_this) info_.data_schema = schema_text(data_.like_this->schema);
  const DataSpec& spec = data_.train->spec();
  info_.input = spec.input().shape;
  info_.classes = spec.classes;
  info_.tokens = spec.vocabulary;
  const auto& queue = current_stream().device_queue();
  info_.isa = queue ? queue->kernels().isa : kernels().isa;
  if (queue) {
    const DeviceBackend& backend = device_backend();
    const DeviceProperties card = backend.properties(current_device().index);
    info_.isa += cat(" (", card.name, ", ", card.processors, " multiprocessors, ", backend.versions(), ")");
    queue->allow_fast(settings_.parallel.reduce == ReduceMode::kFast);
  }
  info_.writer = kVersion;
  info_.ranks = comm_.size();
}

std::vector<std::string> Trainer::parameter_names() const {
  std::vector<std::string> names;
  for (auto& p : model_->parameters()) names.push_back(p.name);
  return names;
}

// Buckets, slots and what updates them.
void Trainer::distribute(bool updates) {
  DataParallelOptions options = settings_.parallel;
  options.gathered_limit_place = settings_.config.place("sharding.gathered_limit");
  if (const auto phases = model_->phases(); phases.size() > 1)
    for (const StepPhase& p : phases) options.apart.push_back(p.module);
  if (options.frozen_of_files && settings_.pretrained)
    options.file_type = stored_type(*settings_.pretrained, options.frozen);
  parallel_ = std::make_unique<DataParallel>(*model_, comm_, options);
  info_.layout = layout_text(parallel_->mesh(), settings_.parallel.level);
  apply_rules(settings_.optim, parallel_->slots(), parameter_names());
  phases_ = std::make_unique<StepPhases>(*model_, settings_, *parallel_, updates);
  info_.later_updates.assign(phases_->count() - 1, 0);
  const bool scales = settings_.parallel.compute == DType::kFloat16;
  if (scales) loss_scale_ = LossScale::dynamic();
  runs_ahead_ =
      current_stream().mode() == Stream::Mode::kQueue && !scales && !settings_.train.anomaly && phases_->count() == 1;
}

void Trainer::require_recordable() const {
  if (!settings_.graph) return;
  const std::string why = phases_->count() > 1 ? cat("the steps of ", settings_.model_name, " have ", phases_->count(),
                                                     " phases, between which the host waits")
                                               : parallel_->why_not_recorded();
  require(why.empty(), ExitCode::kConfig, settings_.config.place("graph"), ": ", why, "; set graph: false");
}

Trainer::~Trainer() {
  // Its graph waits for the stream, which may wait in it for ranks that will not come.
  if (recorded_ && std::uncaught_exceptions() > exceptions_) comm_.abort(rank_is_ending(comm_.rank()));
}

// Silent differences between ranks are the hardest failures to find: compare everything that must be the same, before
// step 0.
void Trainer::preflight() {
  trace_mark();
  if (comm_.size() == 1) return;
  std::string mine = cat("version: ", info_.writer, "\ninstructions: ", bits_of_isa(info_.isa.c_str()),
                         "\ndataset: ", info_.dataset, "\n");
  for (auto& p : model_->parameters()) mine += cat("parameter ", p.name, ": ", p.parameter->value.shape(), "\n");
  mine += settings_.config.text();
  const auto all = all_gather_text(comm_, mine, "preflight");
  std::map<std::string, std::string> ranks_by_difference;
  for (int r = 1; r < comm_.size(); ++r)
    for (const ConfigDifference& d : diff(all[0], all[static_cast<size_t>(r)])) {
      if (d.key == "compute.threads") continue;  // may differ: bits do not depend on it
      std::string& ranks = ranks_by_difference[cat(d.key, ": ", d.a, " on rank 0, ", d.b, " on rank ")];
      ranks += cat(ranks.empty() ? "" : ", ", r);
    }
  if (ranks_by_difference.empty()) return;
  std::string text = "ranks were started with different settings: ";
  int shown = 0;
  for (auto& [what, ranks] : ranks_by_difference)
    if (++shown <= 5) text += cat(shown > 1 ? "; " : "", what, ranks);
  if (shown > 5) text += cat("; and ", shown - 5, " more");
  if (comm_.rank() != 0) throw Error::secondary(ExitCode::kRanksDisagree);
  throw Error(ExitCode::kRanksDisagree, text);
}

// A loss of no targets at all would be 0. Nearly always the first sample has one, so this reads no more than that.
void Trainer::require_targets(bool measures) const {
  if (comm_.rank() != 0 || !current_device().has_bytes()) return;
  const auto look = [&](const Dataset& part, const char* name) {
    const DataSpec& spec = part.spec();
    const TensorSpec* labels = spec.find(kLabels);
    if (!labels) return;
    std::vector<std::vector<uint8_t>> memory;
    std::vector<void*> sample;
    for (const TensorSpec& one : spec.tensors) {
      memory.emplace_back(static_cast<size_t>(one.shape.numel() * size_of(one.dtype)));
      sample.push_back(memory.back().data());
    }
    const auto* target = static_cast<const int32_t*>(sample[static_cast<size_t>(labels - spec.tensors.data())]);
    for (int64_t i = 0; i < part.size(); ++i) {
      part.read(0, i, sample);
      if (std::any_of(target, target + spec.targets(), [](int32_t t) { return t != kIgnoreIndex; })) return;
    }
    const bool text = spec.unit == "tokens";
    throw Error(ExitCode::kConfig, cat(settings_.config.place(text ? "data.ignore_tokens" : "data.path"),
                                       ": no target counts in the ", name, " of the data, ", part.size(),
                                       " samples: there is no loss", text ? "; ignore fewer tokens" : ""));
  };
  if (!measures) look(*data_.train, "training part");
  if (data_.validation) look(*data_.validation, measures ? "part" : "validation part");
}

void Trainer::start_loader() {
  trace_mark();
  LoaderOptions o;
  o.batch_global = settings_.batch.global;
  o.batch_micro = settings_.batch.micro;
  o.pool = settings_.data.bucket_pool;
  o.seed = static_cast<uint64_t>(settings_.seed);
  o.shuffle = settings_.data.shuffle;
  o.rank = parallel_->mesh().data().index;
  o.size = parallel_->mesh().data().size;
  o.threads = static_cast<int>(settings_.data.threads);
  o.prefetch = static_cast<int>(settings_.data.prefetch);
  o.schedule = parallel_->schedule();
  o.start = {info_.epoch, info_.position};
  loader_ = std::make_unique<Loader>(*data_.train, o);
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
  UnderWay step;
  StepReport& report = step.report;
  WithAnomaly anomaly(settings_.train.anomaly);
  if (chaos_) chaos_->before_step(steps_started() + 1);
  step.begun = Clock::now();
  const StepBatch batch = next_batch();
  report.data_ms = ms_since(step.begun);
  report.step = steps_started() + 1;
  report.lr = learning_rate(*settings_.schedule, settings_.schedule_options.warmup, settings_.optim.lr, report.step - 1,
                            settings_.train.steps);
  report.items = batch.units;
  parallel_->set_loss_scale(loss_scale_.value());
  phases_->prepare(report.lr);
  // An epoch's last step has other shapes; all ranks know it alike.
  // Copies that are verified are read in the middle of a step, which a graph does not stop for.
  const bool reads_copies = copy_sentinel_ && verifies_after(report.step);
  step.recorded =
      settings_.graph && steps_here_ >= kUnrecordedSteps && batch.samples == settings_.batch.global && !reads_copies;
  if (step.recorded) {
    if (!recorded_) recorded_ = std::make_unique<RecordedStep>(*parallel_, current_stream());
    step.outcome =
        recorded_->run(batch, requests, [&](const auto& mine) { return run(batch, mine, requests, report); });
  } else {
    step.outcome = run(batch, batch.mine, requests, report, reads_copies ? &step : nullptr);
  }
  if (chaos_) chaos_->after_update(report.step, parallel_->state());
  ++steps_here_;
  report.transfers = parallel_->transfers();
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
    if (comm_.rank() == 0)
      log_warning(cat("step ", report.step, ": none of its ", report.items, " targets counts (",
                      settings_.config.place("data.ignore_tokens"), "): it has no loss and no gradient"));
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
    if (sentinel_) {
      std::vector<StateEntry> all = state();
      for (StateEntry& e : parallel_->base_state()) all.push_back(std::move(e));
      sentinel_->verify(report.step, all);
    }
    if (copy_sentinel_) copy_sentinel_->verify(report.step, step.copies, step.digests);
  }
  return report;
}

bool Trainer::verifies_after(int64_t step) const {
  return (sentinel_ || copy_sentinel_) && step % settings_.verify.every == 0;
}

int64_t Trainer::last_equal_step() const {
  if (sentinel_ && copy_sentinel_) return std::min(sentinel_->last_equal_step(), copy_sentinel_->last_equal_step());
  if (sentinel_) return sentinel_->last_equal_step();
  return copy_sentinel_ ? copy_sentinel_->last_equal_step() : -1;
}

bool Trainer::may_start() const {
  return under_way_.empty() || (runs_ahead_ && under_way_.size() < 2 && !verifies_after(steps_started()));
}

void Trainer::check_at_rest(const char* what) const { check(under_way_.empty(), what, " while a step is under way"); }

// Exchanges keep their own deadlines, but those within a graph.
StepResult Trainer::outcome_of(const UnderWay& step) {
  if (!step.recorded || comm_.size() == 1) return step.outcome.wait();
  try {
    return step.outcome.wait(Seconds(settings_.deadline));
  } catch (const Error& e) {
    if (e.code() != ExitCode::kRankLost) throw;
    const Error why =
        e.with_message(cat("step ", step.report.step, ", which was recorded: ", e.what(),
                           "; with graph: false the error names it (", settings_.config.place("comm.deadline"), ")"));
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

PendingStep Trainer::run_phase(size_t index, const StepBatch& batch, const std::vector<MicroBatch>& mine,
                               const StepRequests& requests, StepReport& report, UnderWay* verified) {
  trace_mark();
  model_->set_phase(index);
  parallel_->begin_step(batch.micro_count, settings_.batch.global * data_.train->spec().targets(),
                        phases_->module(index));
  double loss_gradient = parallel_->loss_gradient();
  if (chaos_) loss_gradient = chaos_->loss_gradient(report.step, loss_gradient);
  if (chaos_ && !mine.empty()) chaos_->before_backward(report.step, *model_);
  for (const MicroBatch& m : mine) {
    WithRandom random({static_cast<uint64_t>(settings_.seed), report.step - 1, m.samples});
    Tensor loss;
    {
      WithProfilerRange range("forward");
      FlightPhase phase("forward");
      WithLossGradient gradient(loss_gradient);
      const auto forward = Clock::now();
      loss = model_->loss_of(as_computed(m.batch, settings_.parallel.compute));
      report.forward_ms += ms_since(forward);
    }
    WithProfilerRange range("backward");
    FlightPhase phase("backward");
    const auto backward = Clock::now();
    parallel_->backward(m.index, loss, m.targets, loss_gradient);
    report.backward_ms += ms_since(backward);
  }
  PendingStep outcome;
  {
    WithProfilerRange range("exchange");
    FlightPhase phase("exchange");
    outcome = parallel_->end_step(settings_.optim.clip_norm, requests);
  }
  if (verified) {  // before the update, whose values the next step's copies will have
    verified->copies = parallel_->whole_copies();
    verified->digests = digests_of(verified->copies);
  }
  WithProfilerRange range("optimizer");
  FlightPhase phase("optimizer");
  const auto update = Clock::now();
  phases_->update(index, outcome.verdict());
  report.optimizer_ms += ms_since(update);
  return outcome;
}

EvalReport Trainer::evaluate() {
  check(has_validation(), "evaluate: there is no validation data");
  check_at_rest("evaluate");
  model_->set_phase(0);
  if (settings_.train.eval_ema) swap_averages();
  const Dataset& all = *data_.validation;
  const int64_t most = settings_.train.eval_samples;
  std::optional<Subset> some;
  if (most > 0 && most < all.size()) some.emplace(all, most);
  const EvalReport report = lockstep::evaluate(*model_, *parallel_, some ? static_cast<const Dataset&>(*some) : all,
                                               {.micro_batch = settings_.batch.micro,
                                                .loader_threads = static_cast<int>(settings_.data.threads),
                                                .compute = settings_.parallel.compute,
                                                .seed = static_cast<uint64_t>(settings_.seed),
                                                .step = info_.step,
                                                .metrics = metrics_of(settings_.metrics, all.spec())});
  if (settings_.train.eval_ema) swap_averages();
  return report;
}

void Trainer::swap_averages() {
  phases_->swap_averages();
  parallel_->state_was_loaded();
  recorded_.reset();
}

std::vector<StateEntry> Trainer::state() const {
  trace_mark();
  std::vector<StateEntry> out = parallel_->state();
  for (StateEntry& e : phases_->state()) out.push_back(std::move(e));
  return out;
}

std::vector<StateEntry> Trainer::entries_to_save() const {
  trace_mark();
  check_at_rest("the state is saved");
  const Axis& replica = parallel_->mesh().replica();
  return cut_for_rank(state(), replica.index, replica.size);
}

}  // namespace lockstep
