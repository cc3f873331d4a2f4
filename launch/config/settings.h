// Settings: all options of a run, bound from one configuration. Built once per process; its ranks share it, read-only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/lora.h"
#include "core/nn/recompute.h"
#include "core/state/checkpoint.h"
#include "data/samples/data_options.h"
#include "launch/app.h"
#include "launch/config/config.h"
#include "launch/world/devices.h"
#include "sharding/options.h"

namespace lockstep {

struct HfModel;

struct RunOptions {
  std::string dir = "runs/default";
  bool resume = false;  // as with --resume
  bool per_machine = false;
};
struct TrainOptions {
  int64_t steps = 1000;     // with epochs or tokens: 0 until resolve_steps()
  double epochs = 0;        // 0: not given
  int64_t tokens = 0;       // 0: not given
  std::string length = {};  // of what steps are resolved: "3 epochs of 640 samples"; empty: they are given
  int64_t eval_every = 0;
  int64_t patience = 0;      // 0: no early stopping
  int64_t eval_samples = 0;  // 0: all
  bool eval_ema = false;
  std::vector<std::string> metrics;     // empty: those of the task that need no request
  std::vector<std::string> eval_tasks;  // files
  bool eval_special_tokens = true;
  struct Best {
    enum class Mode : uint8_t { kAuto, kMin, kMax };
    std::string metric = "loss";
    Mode mode = Mode::kAuto;
  } best = {};
  double label_smoothing = 0;
  std::vector<std::string> class_weights;  // numbers, or "auto" alone
  int64_t loss_rows = 0;                   // 0: all
  double huber_delta = 0;                  // 0: mean squares
  double embedding_noise = 0;
  bool anomaly = false;
  std::vector<std::string> watch;
  int64_t watch_every = 10;
};
struct BatchOptions {
  int64_t global = 32;
  int64_t micro = 0;      // 0: batch.global divided by the number of ranks, which
  bool by_ranks = false;  // resolve_micro_batch notes
};
struct CheckpointOptions {
  int64_t every = 0;
  double every_minutes = 0;
  int64_t keep_last = 2;
  int64_t keep_every = 0;
  int64_t keep_best = 0;
  std::string mirror;  // a run directory; empty: none
  int64_t mirror_every = 0;
  double write_limit = 0;  // MB/s

  bool while_training() const { return every > 0 || every_minutes > 0 || keep_best > 0; }  // and not at the end alone
};
struct RecoveryOptions {
  enum class From : uint8_t { kDisk, kMemory };
  From from = From::kDisk;
  int64_t every = 1, mirror_every = 0;
};
struct ComputeOptions {
  int64_t threads = 0;
};
struct VerifyOptions {
  int64_t every = 0, recompute = 0, memory = 0;
};
struct ProfileOptions {
  static constexpr int64_t kMostSteps = 100;
  std::string steps;  // "10-13", "10"; empty: none
  int64_t ranks = 16;
  bool memory = false;

  // First and last step, from 1; {0, -1} for none. Throws ExitCode::kConfig for what is no range.
  std::pair<int64_t, int64_t> range() const;
};
struct InitOptions {
  std::string from, adapter;
  std::vector<std::string> fresh;  // init.new
  bool new_classes = false;
  bool other_tokenizer = false;
};
struct LaunchOptions {
  int64_t restarts = 0;
  bool grow = false;
  double silence = 10;
  std::string on_failure, on_end;
};
struct ResumeOptions {
  std::vector<std::string> allow;  // keys whose values may differ from those of the checkpoint
};
struct ChaosFault {
  std::string kind;
  int64_t step = 1;  // from 1
  int64_t rank = 0;
  double seconds = 0;   // of kind slow
  int64_t attempt = 1;  // 0: every one
};
struct ChaosOptions {
  bool enabled = false;
  std::vector<ChaosFault> faults;
};
std::vector<Field> fields(RunOptions& o);
std::vector<Field> fields(TrainOptions& o);
std::vector<Field> fields(BatchOptions& o);
std::vector<Field> fields(CheckpointOptions& o);
std::vector<Field> fields(RecoveryOptions& o);
std::vector<Field> fields(ComputeOptions& o);
std::vector<Field> fields(VerifyOptions& o);
std::vector<Field> fields(ProfileOptions& o);
std::vector<Field> fields(InitOptions& o);
std::vector<Field> fields(ResumeOptions& o);
std::vector<Field> fields(LaunchOptions& o);
std::vector<Field> fields(ChaosFault& o);
std::vector<Field> fields(ChaosOptions& o);

struct Settings {
  int64_t seed = 1;
  DeviceOptions device;
  RunOptions run;
  TrainOptions train;
  BatchOptions batch;
  CheckpointOptions checkpoint;
  RecoveryOptions recovery;
  ComputeOptions compute;
  VerifyOptions verify;
  ProfileOptions profile;
  InitOptions init;
  LoraOptions lora;
  std::shared_ptr<const HfModel> pretrained;  // of init.from, where that is a folder of transformers; else null
  std::shared_ptr<const HfModel> adapter;     // of init.adapter; null without
  ResumeOptions resume;
  LaunchOptions launch;
  ChaosOptions chaos;
  double deadline = 60;
  Recompute recompute = Recompute::kNone;
  bool graph = false;
  std::string model_name;
  std::unique_ptr<ModelKind> model;
  std::string task_name;
  std::unique_ptr<TaskKind> task;
  std::vector<Choice<TaskKind>> tasks;  // of the program
  // The settings of a run directory, a checkpoint or a folder of transformers, for using its model.
  std::function<std::unique_ptr<Settings>(const std::string& path)> settings_of_path;
  DataOptions data;
  // What the data of init.from means, which this run's is fitted to; reads files. Empty where there is no such data.
  std::function<std::shared_ptr<const LikeData>()> data_of_init;
  std::unique_ptr<DataSource> source;
  OptimOptions optim;
  std::unique_ptr<OptimizerKind> optimizer;
  ScheduleOptions schedule_options;
  std::unique_ptr<Schedule> schedule;
  DataParallelOptions parallel;
  std::vector<Metric> metrics;  // measured by evaluations, beside the task's
  Config config;                // the origin of each value

  // Whether init.from holds this parameter: it is of no adapter, and init.new does not name it.
  bool init_holds(const std::string& parameter) const;
};

// Throws ExitCode::kConfig naming file:line and key. Values of 0 that stand for another value are resolved here, once
// (batch.micro: an equal share of batch.global for each of `ranks`; schedule.steps: train.steps), but what takes data
// to know (train.epochs, train.tokens) is by resolve_steps() in run_length.h. With `resume`, 0 for batch.micro means
// the value that the checkpoint of run.dir was trained with, since another value would change the bits.
std::unique_ptr<Settings> load_settings(const App& app, ConfigTree tree, int ranks, bool resume = false);
// The configuration of a checkpoint with `overrides` ("key.path=value"), for evaluating or using its model on any
// number of ranks.
std::unique_ptr<Settings> settings_of_checkpoint(const App& app, const Checkpoint& checkpoint,
                                                 const std::vector<std::string>& overrides = {});
// Of a model that another program saved (is_pretrained()), without data to train on.
std::unique_ptr<Settings> settings_of_pretrained(const App& app, const std::string& path);
// The keys of a configuration that another choice would use, such as another optimizer, and this one does not. Throws
// ExitCode::kConfig where a value is wrong.
std::vector<Config::WithoutEffect> keys_without_effect(const App& app, ConfigTree tree);
// comm.deadline in seconds, for use before the number of ranks is known. Throws ExitCode::kConfig.
double deadline_of(const ConfigTree& tree);
// run.resume, likewise.
bool resumes(const ConfigTree& tree);
// All keys, of every model, optimizer and other choice, for `lockstep config keys`.
std::vector<ConfigKey> all_keys(const App& app);

}  // namespace lockstep
