#include "core/base/log.h"
#include "core/io/json.h"
#include "launch/artifacts/open_whole.h"
#include "launch/commands/commands.h"
#include "launch/commands/job.h"
#include "launch/training/build_model.h"
#include "launch/world/fail_together.h"

namespace lockstep {
namespace {

DataPart part_of(const std::string& word) {
  if (word == "validation") return DataPart::kValidation;
  if (word == "train") return DataPart::kTrain;
  require(word == "all", ExitCode::kUsage, "--on ", word, ": must be validation, train or all");
  return DataPart::kAll;
}

// The model was built for the context of its training; a shorter context uses a part of its parameters.
TaskSpec task_of(const Checkpoint& c, const DataSpec& data, const Settings& settings) {
  if (data.unit != "tokens" || c.info.input.rank() != 1) return task_of(data);
  require(data.input().shape[0] <= c.info.input[0], ExitCode::kConfig, settings.config.place("data.context"), ": ",
          data.input().shape[0], " tokens are more than the ", c.info.input[0], " that ", c.dir, " was trained with");
  return {c.info.input, data.classes, false, data.vocabulary};
}

}  // namespace

std::vector<Command> eval_forms() {
  return {
      {"eval",
       "eval RUN [key.path=value ...] [--on PART] [--ranks N] [--ema]",
       "Measures the loss of RUN, a run directory (its newest checkpoint) or a checkpoint, and prints "
       "it as one JSON object.\n"
       "The configuration is the run's; key.path=value overrides a key, such as data.path, or "
       "data.context with a shorter one.",
       {{"on", "part of the data: validation, train (in order, from its first sample), or all", "PART", "validation"},
        {"ranks", "ranks in this process", "N", "0"},
        {"ema", "with the averages of the parameters (optim.ema)"},
        {"json", "no effect: the result is always one JSON object"}},
       1}};
}

int eval_command(const App& app, const std::vector<std::string>& given) {
  const Arguments arguments = parse_arguments(eval_forms(), given);
  if (arguments.help) return 0;
  const std::string& run = arguments.positional[0];
  // The configuration is needed before the ranks start; then the ranks verify the checkpoint together.
  auto settings = settings_of_checkpoint(app, open_newest(run, false), arguments.rest());
  const std::string& on = arguments.text("on");
  settings->data.measured = part_of(on);
  settings->train.eval_ema = false;  // what is loaded is measured
  settings->train.eval_samples = 0;  // on all of the part
  return Job(*settings, arguments.ranks()).run("eval", [&](Communicator& comm, const Datasets& data) {
    const Checkpoint checkpoint = open_whole(comm, run);
    std::optional<TaskSpec> task;
    fail_together(comm, [&] { task = task_of(checkpoint, data.validation->spec(), *settings); });
    if (comm.rank() == 0 && task->regression && to_hex(data.validation->identity()) != checkpoint.info.dataset)
      log_warning(cat(run,
                      ": was trained on other data than is measured: rmse is in the unit of this data where it was "
                      "imported with --like, that of the training data"));
    const TensorSpec* labels = data.validation->spec().find(kLabels);
    if (comm.rank() == 0 && labels && labels->shape.rank() == 0 && task->classes == 1)
      log_warning(cat("the labels of this data are of one class, of which the cross-entropy is 0 whatever ", run,
                      " predicts; a run that predicts numbers is measured on data with numbers (--target)"));
    Trainer trainer(*settings, data, comm, task);
    fail_together(comm, [&] { trainer.load_parameters(checkpoint, arguments.has("ema")); });
    const EvalReport e = trainer.evaluate();
    JsonObject line{{"checkpoint", checkpoint.dir},
                    {"step", checkpoint.info.step},
                    {"on", on},
                    {"loss", e.loss},
                    {"targets", e.targets}};
    for (auto& [name, value] : e.metrics) line.emplace_back(name, value);
    if (comm.rank() == 0 && !e.warning.empty()) log_warning(e.warning);
    if (comm.rank() == 0) print(json_line(line) + "\n");
  });
}

}  // namespace lockstep
