// The fields of the options that Settings has itself: keys, what they mean, and their limits.
#include <charconv>

#include "launch/config/settings.h"

namespace lockstep {

std::vector<Field> fields(RunOptions& o) {
  return {
      field("dir", o.dir, "directory of this run's artifacts: configuration, metrics, log, checkpoints")
          .without_effect_on_math(),
      enum_field("resume", o.resume, {{"never", false}, {"auto", true}},
                 "auto: continue from the newest valid checkpoint of run.dir, or start if there is none, as with "
                 "--resume; never: only with --resume")
          .without_effect_on_math(),
      field("per_machine", o.per_machine,
            "run.dir may be on each machine's own disk: every machine then keeps the files of checkpoints that its "
            "ranks write, a resumed run brings them to where they lack, and the end brings them to rank 0's machine")
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
      field(
          "eval_tasks", o.eval_tasks,
          "files of tasks of lm-evaluation-harness, such as [arc.yaml], on which evaluations score the model, too, as "
          "TASK/METRIC; none that continues texts")
          .without_effect_on_math(),
      field("eval_special_tokens", o.eval_special_tokens,
            "in texts of tasks the special tokens, such as <s>, that the tokenizer of transformers puts around a text, "
            "as lm-evaluation-harness has them by default; false: none (its add_bos_token=False)")
          .without_effect_on_math(),
      field("best.metric", o.best.metric,
            "by which the best checkpoint is chosen (checkpoint.keep_best, --best), and patience counts: loss, or a "
            "metric such as f1, which is then measured, or one of train.eval_tasks, such as arc/acc")
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
      field("embedding_noise", o.embedding_noise,
            "alpha: to the embeddings of each row in training, uniform noise within alpha / sqrt(tokens x features) is "
            "added (NEFTune); 0: none")
          .with_range(0, 1e6)
          .without_effect_at_default(),
      field("anomaly", o.anomaly, "check every result for NaN and infinity, and name the operation; slow")
          .without_effect_on_math(),
      field("watch", o.watch,
            "modules and parameters, by patterns such as ['blocks.*', '*.weight'], of whose results, gradients and "
            "updates the metrics get statistics")
          .without_effect_on_math(),
      field("watch_every", o.watch_every, "in every N-th step")
          .with_unit("steps")
          .at_least(1)
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
          .without_effect_on_math(),
      field("mirror", o.mirror,
            "a second directory to which checkpoints, metrics and configuration are brought beside training, such as "
            "one on a shared disk where run.dir is on a fast one; a resumed run takes the newest checkpoint of either; "
            "empty: none")
          .without_effect_on_math(),
      field("mirror_every", o.mirror_every,
            "of the checkpoints that are saved, bring those whose step is a multiple of this, and the last; 0: each")
          .with_unit("steps")
          .at_least(0)
          .without_effect_on_math(),
      field("write_limit", o.write_limit,
            "each machine writes checkpoints no faster than this, so that other work has the rest of its disk; 0: as "
            "fast as the disk takes it")
          .with_unit("MB/s")
          .with_range(0, 1e6)
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
std::vector<Field> fields(ProfileOptions& o) {
  return {
      field("steps", o.steps,
            "steps whose timeline is written to run.dir/profile, such as 10-13: what every rank and thread did and "
            "when; empty: none")
          .without_effect_on_math(),
      field("ranks", o.ranks, "of at most so many ranks, evenly spread").with_range(1, 4096).without_effect_on_math(),
      field(
          "memory", o.memory,
          "writes what held rank 0's memory when it was most, by use and module, to run.dir/profile/memory.jsonl, for "
          "each step whose peak differs, and names the largest in the log")
          .without_effect_on_math()};
}
std::pair<int64_t, int64_t> ProfileOptions::range() const {
  if (steps.empty()) return {0, -1};
  int64_t first = 0, last = 0;
  const char* const end = steps.data() + steps.size();
  auto [at, error] = std::from_chars(steps.data(), end, first);
  last = first;
  if (error == std::errc() && at != end && *at == '-') {
    const auto second = std::from_chars(at + 1, end, last);
    at = second.ptr;
    error = second.ec;
  }
  require(error == std::errc() && at == end && first >= 1 && last >= first, ExitCode::kConfig, "'", steps,
          "' is no range of steps; write it as 10-13, or 10 for one");
  require(last - first < kMostSteps, ExitCode::kConfig, last - first + 1, " steps; at most ", kMostSteps,
          " fit into a timeline");
  return {first, last};
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
      field(
          "kind", o.kind,
          "kill, stop: the rank sends itself that signal; segv: a memory fault; exit: an early end with exit code 0; "
          "slow: sleep in each step from this one on; hang: loading data never ends; nan: a gradient that is not "
          "finite; weight: flip a bit of a parameter after the update; gradient: flip a bit of this rank's gradient; "
          "gradients: the same in every step from this one on; activations, products, sums: the same in a block's "
          "output, in the result of a matrix product, in a sum of gradients; memory: flip a bit of a parameter before "
          "the step, when nothing writes it; full: the disk is full for this step's checkpoint")
          .with_choices({"kill", "stop", "segv", "exit", "slow", "hang", "nan", "weight", "gradient", "gradients",
                         "activations", "products", "sums", "memory", "full"})
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

}  // namespace lockstep
