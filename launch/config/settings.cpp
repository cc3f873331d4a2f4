#include "launch/config/settings.h"

#include <algorithm>
#include <filesystem>

#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/interop/hf_model.h"
#include "core/io/json.h"
#include "core/state/checkpoint.h"
#include "core/state/state.h"
#include "launch/config/pretrained.h"
#include "launch/config/resumed_config.h"
#include "launch/config/run_data.h"
#include "launch/config/run_length.h"
#include "launch/config/settings_checks.h"

namespace lockstep {

std::vector<Field> fields(RunOptions& o) {
  return {field("dir", o.dir, "directory of this run's artifacts: configuration, metrics, log, checkpoints")
              .without_effect_on_math(),
          enum_field("resume", o.resume, {{"never", false}, {"auto", true}},
                     "auto: continue from the newest valid checkpoint of run.dir, or start if there is none, as with "
                     "--resume; never: only with --resume")
              .without_effect_on_math()};
}
std::vector<Field> fields(TrainOptions& o) {
  return {
      field("steps", o.steps, "total optimizer steps; 0: only save the initial parameters, as step 0")
          .with_unit("steps")
          .with_range(0, 1e12)
          .without_effect_on_math(),
      field("epochs", o.epochs,
            "in place of train.steps: passes over the training part of the data, such as 3 or 0.5; 0: not given")
          .with_unit("epochs")
          .with_range(0, 1e9)
          .without_effect_on_math(),
      field("tokens", o.tokens,
            "in place of train.steps: tokens to train on, counted as the rate of the progress display is; 0: not given")
          .with_unit("tokens")
          .with_range(0, 1e18)
          .without_effect_on_math(),
      field("eval_every", o.eval_every, "measure the validation loss every N steps; 0: only at the end")
          .with_unit("steps")
          .at_least(0)
          .without_effect_on_math(),
      field("eval_samples", o.eval_samples,
            "measure it on at most N samples, evenly spread over the validation part and always the same; 0: on "
            "all of it")
          .with_unit("samples")
          .at_least(0)
          .without_effect_on_math(),
      field("eval_ema", o.eval_ema, "measure it with the averages of the parameters (optim.ema)")
          .without_effect_on_math(),
      field("metrics", o.metrics,
            "what evaluations measure beside the loss, such as [accuracy, f1, auc]; empty: what is usual for the "
            "task")
          .without_effect_on_math(),
      field("best.metric", o.best.metric,
            "by which the best checkpoint is chosen (checkpoint.keep_best, --best), and patience counts: loss, or a "
            "metric such as f1, which is then measured")
          .without_effect_on_math(),
      enum_field("best.mode", o.best.mode,
                 {{"auto", TrainOptions::Best::Mode::kAuto},
                  {"min", TrainOptions::Best::Mode::kMin},
                  {"max", TrainOptions::Best::Mode::kMax}},
                 "whether the lowest or the highest is the best; auto: as the metric has it")
          .without_effect_on_math(),
      field("patience", o.patience,
            "end the run, with exit code 0, once the validation (train.best) has not been better than before for N "
            "evaluations in a row; 0: train all steps")
          .with_unit("evaluations")
          .at_least(0)
          .without_effect_on_math(),
      field("label_smoothing", o.label_smoothing,
            "share of each target that all classes get in equal parts, in the training loss of tasks of labels")
          .with_range(0, 1)
          .without_effect_at_default(),
      field("class_weights", o.class_weights,
            "by what the training loss of a sample, or of a pixel of a mask, is multiplied: a number for each class in "
            "their order, or [auto]: N / (classes x samples of the class), so that rare classes count as much as "
            "frequent ones; empty: all count alike")
          .without_effect_at_default(),
      field("loss_rows", o.loss_rows,
            "rows whose logits the training loss of a language model holds at a time, a multiple of 64; it then "
            "computes them once more in the backward pass; 0: all are held")
          .with_unit("rows")
          .with_range(0, int64_t(1) << 30)
          .without_effect_on_math(),
      field("huber_delta", o.huber_delta,
            "where targets are numbers: distances above this one, in standard deviations of the targets, count "
            "linearly (Huber's loss); 0: all squared")
          .at_least(0)
          .without_effect_at_default(),
      field("anomaly", o.anomaly, "check every result for NaN and infinity, and name the operation; slow")
          .without_effect_on_math()};
}
std::vector<Field> fields(BatchOptions& o) {
  trace_mark();
  return {
      field("global", o.global, "samples of one optimizer step, over all ranks")
          .with_unit("samples")
          .with_range(1, 1 << 30),
      field("micro", o.micro,
            "samples of one forward and backward pass: the unit of exactness; 0: batch.global divided by the number of "
            "ranks "
            "(the result then depends on it)")
          .with_unit("samples")
          .with_range(0, 1 << 30)};
}
std::vector<Field> fields(CheckpointOptions& o) {
  return {
      field("every", o.every, "save every N steps; 0: only at the end")
          .with_unit("steps")
          .at_least(0)
          .without_effect_on_math(),
      field("every_minutes", o.every_minutes,
            "also save when so much time has passed since the last save; 0: never for that reason")
          .with_unit("minutes")
          .with_range(0, 1e6)
          .without_effect_on_math(),
      field("keep_last", o.keep_last, "keep this many newest checkpoints; 0: all").at_least(0).without_effect_on_math(),
      field("keep_every", o.keep_every, "also keep, forever, each checkpoint whose step is a multiple of this; 0: none")
          .with_unit("steps")
          .at_least(0)
          .without_effect_on_math(),
      field("keep_best", o.keep_best,
            "also keep this many checkpoints with the best validation (train.best), and save after each evaluation "
            "(train.eval_every) that is the best so far; 0: neither")
          .at_least(0)
          .without_effect_on_math()};
}
std::vector<Field> fields(RecoveryOptions& o) {
  using From = RecoveryOptions::From;
  return {
      enum_field("from", o.from, {{"disk", From::kDisk}, {"memory", From::kMemory}},
                 "where `lockstep launch` finds the state to go on from after a failure: disk: in the newest "
                 "checkpoint; memory: also in that of the last steps, which each machine keeps in memory, two "
                 "copies of what its ranks hold")
          .without_effect_on_math(),
      field("every", o.every, "with recovery.from: memory: keep the state after every N-th step")
          .with_unit("steps")
          .at_least(1)
          .without_effect_on_math(),
      field("mirror_every", o.mirror_every,
            "with recovery.from: memory: after every N-th step, also copy what the ranks of one machine alone hold to "
            "the next machine, so that the loss of a machine costs N steps; 0: never")
          .with_unit("steps")
          .at_least(0)
          .without_effect_on_math()};
}
std::vector<Field> fields(ComputeOptions& o) {
  return {field("threads", o.threads, "compute threads of each rank; 0: this machine's cores divided by its ranks")
              .with_range(0, 1024)
              .without_effect_on_math()};
}
std::vector<Field> fields(VerifyOptions& o) {
  return {
      field("every", o.every,
            "every N steps, the ranks that hold the same parameters and moments compare them: a value "
            "that changed on one of them ends the run; 0: never")
          .with_unit("steps")
          .at_least(0)
          .without_effect_on_math(),
      field("recompute", o.recompute,
            "every N steps, each rank computes a micro-batch of another rank once more: gradients that "
            "differ end the run and name whose are wrong; 0: never")
          .with_unit("steps")
          .at_least(0)
          .without_effect_on_math(),
      field("memory", o.memory,
            "after every N-th step each rank hashes its parameters and moments, and compares before the next update: "
            "memory that changed meanwhile ends the run with exit code 76, naming rank and tensor; 0: never")
          .with_unit("steps")
          .at_least(0)
          .without_effect_on_math()};
}
std::vector<Field> fields(InitOptions& o) {
  return {field("from", o.from,
                "start from the parameters of this run or checkpoint directory, or of a folder as Hugging Face's "
                "transformers saves models, which also sets the model's options; empty: from initial values"),
          field("new", o.fresh,
                "parameters that do not come from init.from but from initial values, by patterns such as ['head.*']: a "
                "new head for other classes")
              .without_effect_at_default(),
          field("new_classes", o.new_classes,
                "the data has other classes, or numbers to predict, than the run that init.from is: its labels are not "
                "taken for those of that run; init.new then names the parameters that learn them")
              .without_effect_at_default(),
          field("other_tokenizer", o.other_tokenizer,
                "the data may be of another tokenizer than that of init.from, a folder of transformers: its parameters "
                "then learn anew what each token means")
              .without_effect_at_default(),
          field("adapter", o.adapter,
                "a folder in which peft saved a LoRA adapter of init.from, a folder of transformers: training starts "
                "from it; it sets lora.*")
              .without_effect_at_default()};
}
std::vector<Field> fields(ResumeOptions& o) {
  return {field("allow", o.allow,
                "keys that may have other values than in the checkpoint that --resume continues, such as "
                "[schedule.steps]; from there on the run has the bits of the new values")
              .without_effect_on_math()};
}
std::vector<Field> fields(ChaosFault& o) {
  return {
      field("kind", o.kind,
            "kill, stop: a signal to itself; segv: a memory fault; exit: an early end with exit code 0; slow: sleep "
            "in each step from this one on; hang: loading data never ends; nan: a gradient that is not finite; "
            "weight, gradient: flip a bit of a parameter after the update, of this rank's gradient; gradients: of each "
            "from this step on; memory: flip a bit of a parameter before the step, when nothing writes it; full: the "
            "disk is full for this step's checkpoint")
          .with_choices({"kill", "stop", "segv", "exit", "slow", "hang", "nan", "weight", "gradient", "gradients",
                         "memory", "full"})
          .without_effect_on_math(),
      field("step", o.step, "in which the fault occurs, from 1").at_least(1).without_effect_on_math(),
      field("rank", o.rank, "on which it occurs").at_least(0).without_effect_on_math(),
      field("seconds", o.seconds, "that kind: slow sleeps").with_unit("s").with_range(0, 1e6).without_effect_on_math(),
      field("attempt", o.attempt,
            "only in this start of the job, by the environment variable LOCKSTEP_ATTEMPT (default 1); 0: in each")
          .at_least(0)
          .without_effect_on_math()};
}
std::vector<Field> fields(ChaosOptions& o) {
  return {field("enabled", o.enabled, "inject the faults of chaos.faults, to rehearse what follows them")
              .without_effect_on_math(),
          list_field("faults", o.faults, "what `lockstep train` injects").without_effect_on_math()};
}

std::vector<Field> fields(LaunchOptions& o) {
  return {
      field("restarts", o.restarts,
            "how often `lockstep launch` goes on from the newest valid checkpoint after a failure")
          .with_range(0, 1e6)
          .without_effect_on_math(),
      field("grow", o.grow,
            "after a machine was lost, `lockstep launch` asks it every few seconds; once it answers, the ranks save "
            "and go on with it")
          .without_effect_on_math(),
      field("silence", o.silence,
            "`lockstep launch` gives up a rank that is stopped, or of which nothing was heard, for this long")
          .with_unit("s")
          .with_range(1, 1e5)
          .without_effect_on_math(),
      field("on_failure", o.on_failure,
            "a shell command that `lockstep launch` runs after each failure, with LOCKSTEP_RUN, LOCKSTEP_EXIT_CODE "
            "and LOCKSTEP_MESSAGE in its environment")
          .without_effect_on_math(),
      field("on_end", o.on_end, "the same when the job has ended for good").without_effect_on_math()};
}

namespace {

std::vector<Field> top_fields(Settings& s) {
  return {field("seed", s.seed, "of initial values, data order and dropout").with_range(0, 9e15),
          recompute_field(s.recompute),
          field("graph", s.graph,
                "record a whole step as one CUDA graph and launch that: small batches then do not wait for the host; "
                "needs fixed shapes and no dropout, and sharding.level none or optimizer")
              .without_effect_on_math()};
}
std::vector<Field> comm_fields(Settings& s) {
  return {field("comm.deadline", s.deadline,
                "a collective that takes longer than this ends the run, naming the missing ranks")
              .with_unit("s")
              .with_range(1, 1e6)
              .without_effect_on_math()};
}
// Binds section.name, one of `choices`, and the options of the named choice. Keys that only other choices have are
// passed to Config::know(). `keys_only`: makes no choice, and passes the keys of all choices to know().
// `absent_at_default`: as Field::without_effect_at_default() has it, of the name.
template <class Kind, class OptionsOf>
std::unique_ptr<Kind> bind_choice(Config& config, const std::string& section, const std::vector<Choice<Kind>>& choices,
                                  std::string& name, const char* doc, bool keys_only, const OptionsOf& options_of,
                                  bool absent_at_default = false) {
  Field selector = field("name", name, doc).with_choices(names_of(choices));
  config.bind(section, {absent_at_default ? std::move(selector).without_effect_at_default() : std::move(selector)});
  std::unique_ptr<Kind> chosen;
  std::vector<std::string> bound;
  if (!keys_only) {
    chosen = make_choice(choices, name);
    for (const Field& f : options_of(*chosen)) bound.push_back(f.key);
    config.bind(section, options_of(*chosen));
  }
  struct Known {
    Field field;
    std::string names;
  };
  std::vector<std::unique_ptr<Kind>> kinds;  // the fields point into them
  std::vector<Known> known;
  for (auto& c : choices) {
    kinds.push_back(c.make());
    for (Field& f : options_of(*kinds.back())) {
      if (std::find(bound.begin(), bound.end(), f.key) != bound.end()) continue;
      const auto same = std::find_if(known.begin(), known.end(), [&](auto& k) { return k.field.key == f.key; });
      if (same == known.end()) known.push_back({std::move(f), c.name});
      else same->names += " or " + c.name;
    }
  }
  for (const Known& k : known)
    config.know(section, {k.field}, str("has an effect only with ", section, ".name: ", k.names));
  return chosen;
}

void bind_all(Settings& s, const App& app, bool keys_only) {
  const auto own_options = [](Configurable& kind) { return kind.options(); };
  s.config.bind("", top_fields(s));
  s.config.bind("run", fields(s.run));
  s.model_name = app.models.empty() ? "" : app.models.front().name;
  s.model = bind_choice(s.config, "model", app.models, s.model_name, "the model", keys_only, own_options);
  s.task_name = app.tasks.empty() ? "" : app.tasks.front().name;
  s.task = bind_choice(s.config, "task", app.tasks, s.task_name,
                       "what is learnt; auto: the model's own task, or the one that the data's targets are of",
                       keys_only, own_options, true);
  s.config.bind("train", fields(s.train));
  s.config.bind("batch", fields(s.batch));
  s.optimizer = bind_choice(s.config, "optim", app.optimizers, s.optim.name, "the optimizer", keys_only, own_options);
  s.config.bind("optim", fields(s.optim));
  s.schedule = bind_choice(s.config, "schedule", app.schedules, s.schedule_options.name,
                           "how the learning rate moves after warm-up", keys_only, own_options);
  s.config.bind("schedule", fields(s.schedule_options));
  s.source = bind_choice(s.config, "data", app.data, s.data.name,
                         "source of samples: a file made by `lockstep data import`, or generated for benchmarks",
                         keys_only, [&](DataSource& source) { return source.options(s.data); });
  s.config.bind("data", fields(s.data));
  s.config.bind("", fields(s.parallel));
  s.config.bind("", comm_fields(s));
  s.config.bind("", fields(s.device));
  s.config.bind("checkpoint", fields(s.checkpoint));
  s.config.bind("recovery", fields(s.recovery));
  s.config.bind("compute", fields(s.compute));
  s.config.bind("verify", fields(s.verify));
  s.config.bind("init", fields(s.init));
  s.config.bind("lora", fields(s.lora));
  s.config.bind("resume", fields(s.resume));
  s.config.bind("launch", fields(s.launch));
  s.config.bind("chaos", fields(s.chaos));
}

// What the newest readable checkpoint of a run holds beside tensors.
std::optional<CheckpointInfo> newest_info(const std::string& dir) {
  for (const std::string& path : list_checkpoints(dir)) {
    try {
      return open_checkpoint(path).info;
    } catch (const Error&) {
      // Damaged: the error is reported when the run is resumed.
    }
  }
  return std::nullopt;
}

void resolve_micro_batch(Settings& s, int ranks, const std::optional<CheckpointInfo>& resumed) {
  trace_mark();
  if (s.batch.micro > 0) return;
  const int64_t before = resumed ? integer_in(resolved_math_text(*resumed), "batch.micro") : 0;
  if (before > 0) {
    s.batch.micro = before;
    s.config.resolve("batch.micro", before, "the value that the checkpoint was trained with");
    return;
  }
  require(s.batch.global % ranks == 0, ExitCode::kConfig, s.config.place("batch.micro"),
          ": 0 divides batch.global evenly, but ", s.batch.global, " samples do not divide among ", ranks,
          " ranks; set batch.micro");
  s.batch.micro = s.batch.global / ranks;
  s.batch.by_ranks = true;
  s.config.resolve("batch.micro", s.batch.micro, str("an equal share of batch.global for each of ", ranks, " ranks"));
}

std::unique_ptr<Settings> bind_settings(const App& app, ConfigTree tree, int ranks, bool resume) {
  auto s = std::make_unique<Settings>();
  s->config = Config(std::move(tree));
  bind_all(*s, app, false);
  s->config.finish();
  const std::optional<CheckpointInfo> resumed = resume ? newest_info(s->run.dir) : std::nullopt;
  if (resumed) {
    s->data.resumed = {resumed->dataset, resumed->samples};
    s->data.like = recorded_data(*resumed, s->run.dir);
  }
  resolve_micro_batch(*s, ranks, resumed);
  begin_steps(*s);
  check_settings(*s, app, ranks);
  s->metrics = app.metrics;
  s->tasks = app.tasks;
  s->settings_of_path = [app](const std::string& path) {
    return is_pretrained(path) ? settings_of_pretrained(app, path)
                               : settings_of_checkpoint(app, open_newest(path, false));
  };
  s->parallel.seed = static_cast<uint64_t>(s->seed);
  s->parallel.frozen_of_files |= s->lora.rank > 0;
  s->parallel.frozen = [optim = s->optim, lora = s->lora, fresh = s->init.fresh](const std::string& name) {
    const bool adapted =
        lora.rank > 0 && !is_lora_parameter(name) && !matches_any(lora.train, name) && !matches_any(fresh, name);
    return adapted || is_frozen(optim, name);
  };
  return s;
}

// With the tensors that init.new names ignored in the folder.
std::shared_ptr<const HfModel> without_new(std::shared_ptr<const HfModel> model, const Settings& s) {
  if (!model || s.init.fresh.empty()) return model;
  auto out = std::make_shared<HfModel>(*model);
  if (model->family.empty()) out->ignored = s.init.fresh;  // a file with our names
  std::erase_if(out->tensors, [&](const HfTensor& t) {
    const bool is_new = !s.init_holds(name_in_model(t.name));
    if (is_new) out->ignored.insert(out->ignored.end(), t.from.begin(), t.from.end());
    return is_new;
  });
  return out;
}

// The data of a run that begins with another one's parameters means what it meant there.
std::shared_ptr<const LikeData> data_of_init(const App& app, const Settings& s) {
  std::string why;
  const auto data =
      s.pretrained ? data_of_folder(*s.pretrained) : data_of_run(app, open_newest(s.init.from, false), why);
  if (!data && !s.pretrained)
    log_warning(str(s.init.from, ": what its data means is not known", why.empty() ? "" : str(" (", why, ")"),
                    ": classes and normalisation are those of this run's data"));
  if (!data) return nullptr;
  auto like = std::make_shared<LikeData>(*data);
  like->name = s.init.from;
  like->new_classes = s.init.new_classes || (s.pretrained && !s.init.fresh.empty());
  like->remedy =
      "to learn other classes, set init.new_classes: true and name in init.new the parameters that learn them";
  return like;
}

}  // namespace

bool Settings::init_holds(const std::string& parameter) const {
  return !is_lora_parameter(parameter) && !matches_any(init.fresh, parameter);
}

std::unique_ptr<Settings> load_settings(const App& app, ConfigTree tree, int ranks, bool resume) {
  const auto pretrained = take_model_of_folder(tree);
  const auto adapter = take_adapter_of_folder(tree, pretrained.get());
  auto s = bind_settings(app, std::move(tree), ranks, resume);
  s->pretrained = without_new(pretrained, *s);
  s->adapter = adapter;
  if (!s->init.from.empty() && s->data.resumed.identity.empty())
    s->data_of_init = [app, self = s.get()] { return data_of_init(app, *self); };
  return s;
}

std::unique_ptr<Settings> settings_of_pretrained(const App& app, const std::string& path) {
  ConfigTree tree = ConfigTree::parse("{}", path);
  tree.set(str("init.from=", json_text_of(path)), path);
  return load_settings(app, std::move(tree), 1);
}

std::unique_ptr<Settings> settings_of_checkpoint(const App& app, const Checkpoint& c,
                                                 const std::vector<std::string>& overrides) {
  ConfigTree tree = ConfigTree::parse(c.info.config, c.dir + ": its configuration");
  // sharding.group may not divide the current number of ranks, and this machine may have no GPU; no training step is
  // run.
  for (const char* text : {"sharding.group=0", "device=auto", "graph=false"}) tree.set(text, "this command");
  for (const std::string& text : overrides) tree.apply_override(text);
  // What such a checkpoint does not hold is read from init.from again.
  const auto pretrained = c.info.base.empty() ? nullptr : take_model_of_folder(tree);
  auto s = bind_settings(app, std::move(tree), 1, false);  // an evaluation's samples divide among any number of ranks
  std::error_code ignored;
  require(c.info.base.empty() || std::filesystem::exists(s->init.from, ignored), ExitCode::kMissingInput, c.dir,
          ": does not hold its frozen parameters, which are those of init.from: ", s->init.from,
          ", and nothing is there; where that has moved, give init.from=PATH on the command line");
  s->data.resumed = {c.info.dataset, c.info.samples};
  s->data.like = recorded_data(c.info, c.dir);
  s->pretrained = without_new(pretrained, *s);
  return s;
}

std::vector<Config::WithoutEffect> keys_without_effect(const App& app, ConfigTree tree) {
  const auto pretrained = take_model_of_folder(tree);
  take_adapter_of_folder(tree, pretrained.get());
  Settings s;
  s.config = Config(std::move(tree));
  bind_all(s, app, false);
  return s.config.without_effect();
}

double deadline_of(const ConfigTree& tree) {
  Settings s;
  Config given(tree);
  given.bind("", comm_fields(s));
  return s.deadline;
}

bool resumes(const ConfigTree& tree) {
  RunOptions run;
  Config given(tree);
  given.bind("run", fields(run));
  return run.resume;
}

std::vector<ConfigKey> all_keys(const App& app) {
  Settings s;
  bind_all(s, app, true);
  return s.config.keys();
}

}  // namespace lockstep
