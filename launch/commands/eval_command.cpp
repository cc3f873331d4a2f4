#include <algorithm>
#include <filesystem>

#include "core/base/log.h"
#include "core/io/files.h"
#include "core/io/json.h"
#include "data/samples/sample_kind.h"
#include "launch/arguments/chosen_checkpoint.h"
#include "launch/checkpoints/open_whole.h"
#include "launch/commands/commands.h"
#include "launch/commands/eval_tasks.h"
#include "launch/commands/job.h"
#include "launch/config/run_data.h"
#include "launch/records/run_dir.h"
#include "launch/terminal/output.h"
#include "launch/training/evaluation/confusion_files.h"
#include "launch/training/evaluation/reference.h"
#include "launch/training/step/placed_task.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/fail_together.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

DataPart part_of(const std::string& word) {
  if (word == "validation") return DataPart::kValidation;
  if (word == "train") return DataPart::kTrain;
  require(word == "all", ExitCode::kUsage, "--on ", word, ": must be validation, train or all");
  return DataPart::kAll;
}

// Whether one of the overrides is of a key that begins so.
bool sets(const std::vector<std::string>& overrides, std::initializer_list<std::string_view> keys) {
  return std::any_of(overrides.begin(), overrides.end(), [&](const std::string& text) {
    return std::any_of(keys.begin(), keys.end(), [&](std::string_view key) { return text.starts_with(key); });
  });
}

// The overrides, and those that they imply: a file given by hand takes the place of the run's files, under whichever of
// the two keys the run named them.
std::vector<std::string> overrides_of(const Arguments& arguments, const Checkpoint& c) {
  std::vector<std::string> out = arguments.rest();
  const bool path = sets(out, {"data.path="}), sources = sets(out, {"data.sources"});
  if (path == sources) return out;
  const ConfigTree tree = ConfigTree::parse(c.info.config, c.dir + ": its configuration");
  const ConfigNode* data = tree.root().find("data");
  if (data && data->find(path ? "sources" : "path")) out.emplace_back(path ? "data.sources=[]" : "data.path=\"\"");
  return out;
}

struct MeasuredPart {
  std::string on;
  int64_t of_samples = 0;  // where it is a part of a copy of the run's data: of how many samples; else 0
};

// Another file than the run's that is given by hand is measured whole, unless a part of it is asked for. So is one that
// begins with the run's samples, which a run that goes on would use no more of. A copy of the run's data is measured as
// that is: a model's loss on what it was trained on would pass for that on new data.
MeasuredPart measured_part(const Arguments& arguments, const Checkpoint& c, Settings& settings) {
  if (!arguments.text("on").empty()) return {arguments.text("on")};
  const bool given = sets(arguments.rest(), {"data.path=", "data.sources", "data.hdf5.samples"});
  if (!given || sets(arguments.rest(), {"data.validation", "data.fold."})) return {"validation"};
  DataOptions whole = settings.data;
  whole.measured = DataPart::kAll;
  const Datasets data = settings.source->open(whole, static_cast<uint64_t>(settings.seed));
  if (!data.train || to_hex(data.train->identity()) != c.info.dataset) return {"all"};
  if (data.stored_samples == data.samples) return {"validation", data.train->size()};
  if (is_first_process())
    log_warning(str(settings.data.path, ": its first ", data.samples, " of ", data.stored_samples,
                    " samples are those of ", c.dir, "'s data, on which it was trained; all are measured"));
  settings.data.resumed = {};
  return {"all"};
}

// "12 samples, all of test.h5"
std::string measured_text(const Datasets& data, const DataOptions& options, const MeasuredPart& part) {
  const std::string& on = part.on;
  const std::string& file =
      on == "validation" && !options.validation_path.empty() ? options.validation_path : options.path;
  const std::string name = file.empty() ? "the data" : file;
  return str(data.validation->size(), " samples, ",
             on == "all"     ? "all"
             : on == "train" ? "the training part"
                             : "the validation part",
             " of ", name,
             part.of_samples > 0
                 ? str(": ", options.path.empty() ? "data.sources" : options.path, " holds the run's own data, ",
                       part.of_samples, " samples; --on all measures all of them")
                 : "",
             data.validation->spec().find(kSampleWeights) ? "; the loss is the mean by sample weights" : "");
}

// The model was built for the context of its training; a shorter context uses a part of its parameters.
TaskSpec task_of(const Checkpoint& c, const DataSpec& data, const Settings& settings) {
  const bool sized = settings.data.image.height > 0 || settings.data.image.width > 0;  // by the run or the command line
  require(data.unit != "images" || sized || data.input().shape == c.info.input, ExitCode::kBadData,
          "the images of the data are ", data.input().shape, " (height, width, channels), but ", c.dir,
          " was trained on ", c.info.input, "; data.image.height and data.image.width resize them");
  if (data.unit != "tokens" || c.info.input.rank() != 1) return task_of(data);
  require(data.model_input()[0] <= c.info.input[0], ExitCode::kConfig, settings.config.place("data.context"), ": ",
          data.model_input()[0], " tokens are more than the ", c.info.input[0], " that ", c.dir, " was trained with");
  TaskSpec task = task_of(data);
  task.input = c.info.input;
  return task;
}

std::string measures_of(const std::vector<Metric>& metrics) {
  std::string out = "loss";
  for (const Metric& m : metrics) out += ", " + m.name;
  return out;
}

// Whether the run had several files without a normalisation in common.
bool keeps_own_statistics(const Settings& s) {
  return s.data.like && sample_kind(s.data.like->schema.kind).normalised() && s.data.like->schema.mean.empty();
}

// Of a checkpoint that does not say what its data means. Data that it was trained on needs no more than that.
std::shared_ptr<const LikeData> data_to_fit(const App& app, const Checkpoint& c, const Settings& settings) {
  std::string why;
  if (auto known = data_of_run(app, c, why)) return known;
  const Datasets data = settings.source->open(settings.data, static_cast<uint64_t>(settings.seed));
  require(!data.like_this || to_hex(data.train->identity()) == c.info.dataset, ExitCode::kBadData, c.dir,
          ": was written by a version that did not record what its data means (classes, columns, normalisation), so ",
          data.like_this ? data.like_this->name : "", " cannot be matched to it",
          why.empty() ? "" : str(" (", why, ")"),
          "; put the dataset back to the path in the run's configuration, or resume the run (--resume) for one step");
  return nullptr;
}

}  // namespace

std::vector<Command> eval_forms() {
  return {
      {"eval",
       "eval RUN [key.path=value ...] [--on PART] [--best | --at STEP] [--ranks N] [--ema] [--confusion FILE] "
       "[--task FILE.yaml,... [--to FILE.jsonl]] [--force]",
       "Measures the loss of RUN, a run directory (its newest checkpoint) or a checkpoint, and prints "
       "it as one JSON object.\n"
       "The configuration is the run's; key.path=value overrides a key, such as data.path, or "
       "data.context with a shorter one. Other data than the run's is fitted to it by name: it gets the\n"
       "run's normalisation, numbers of classes and columns; what the run does not have is refused.\n"
       "With --task RUN may also be a folder of transformers: the model is scored on the task's documents, as\n"
       "lm-evaluation-harness does, with the run's own configuration.",
       with_choice_of_checkpoint(
           {{"on",
             "part of the data: validation, train (in order, from its first sample), or all; default: all of a file "
             "that data.path=FILE gives here, unless it holds the data that the run was trained on; else validation",
             "PART", ""},
            {"ranks", "ranks in this process", "N", "0"},
            {"confusion",
             "write how often each label was predicted as each class to a CSV file, a row for each label; FILE.png: "
             "as a picture, by shares of each row",
             "FILE", ""},
            {"task",
             "files of tasks of lm-evaluation-harness, on which the model is scored in the place of its data; a JSON "
             "object for each",
             "FILE.yaml,...", ""},
            {"to", "of --task: a line of JSON for each document; one that was cut short goes on from there",
             "FILE.jsonl", ""},
            {"force", "of --confusion and --to: replace an existing file"},
            {"ema", "with the averages of the parameters (optim.ema)"},
            {"json", "no effect: the result is always one JSON object"}}),
       1}};
}

int eval_command(const App& app, const std::vector<std::string>& given) {
  Arguments arguments = parse_arguments(eval_forms(), given);
  if (arguments.help) return 0;
  if (!arguments.text("task").empty()) return eval_tasks(app, arguments);
  require(arguments.text("to").empty(), ExitCode::kUsage, "lockstep eval: --to is for --task");
  const std::string confusion = arguments.text("confusion");
  require(!confusion.empty() || !arguments.has("force"), ExitCode::kUsage,
          "lockstep eval: --force is for --confusion and --task");
  if (!confusion.empty()) check_output(confusion, arguments.has("force"));
  const std::string run = chosen_checkpoint(arguments);
  // The configuration is needed before the ranks start; then the ranks verify the checkpoint together.
  const Checkpoint newest = open_newest(run, false);
  auto settings = settings_of_checkpoint(app, newest, overrides_of(arguments, newest));
  if (!settings->data.like && sets(arguments.rest(), {"data."}))
    settings->data.like = data_to_fit(app, newest, *settings);
  const MeasuredPart part = measured_part(arguments, newest, *settings);
  const std::string& on = part.on;
  settings->data.measured = part_of(on);
  const bool pictured = is_confusion_picture(confusion);
  settings->train.eval_ema = false;  // what is loaded is measured
  settings->train.eval_samples = 0;  // on all of the part
  return Job(*settings, arguments.ranks()).run("eval", [&](Communicator& comm, const Datasets& data) {
    const Checkpoint checkpoint = open_whole(comm, run);
    Reference reference(data);
    TaskSpec shapes;
    fail_together(comm, [&] {
      const bool other = to_hex(data.validation->identity()) != checkpoint.info.dataset;
      require(!other || settings->data.like || !data.like_this || !settings->data.validation_path.empty(),
              ExitCode::kBadData, checkpoint.dir, ": was trained on other data than ", settings->data.path,
              " is now, and does not say what that data meant");
      if (other && comm.rank() == 0 && keeps_own_statistics(*settings))
        log_warning(str(checkpoint.dir,
                        ": was trained on several files, each normalised by its own mean and deviation; ",
                        settings->data.path, " is normalised by its own, too"));
      shapes = task_of(checkpoint, reference.data().validation->spec(), *settings);
    });
    PlacedTask placed(*settings, reference.data(), comm, shapes, PlacedTask::Use::kMeasure);
    if (reference.is_missing(placed.task())) {
      const auto of_run = std::filesystem::absolute(checkpoint.dir + "/../..").lexically_normal();
      reference.set_file(RunPaths{of_run.string()}.reference(), false);
      reference.compute_for(checkpoint, placed, *settings, comm);
    }
    fail_together(comm, [&] { placed.load_parameters(checkpoint, arguments.has("ema")); });
    if (reference.is_missing(placed.task())) reference.compute(placed, comm);
    const std::vector<Metric> measured = placed.task().metrics();
    fail_together(comm, [&] {
      require(confusion.empty() || find_metric(measured, "confusion"), ExitCode::kUsage,
              "--confusion: ", checkpoint.dir,
              " predicts no classes of samples or pixels, which a confusion matrix counts; it is "
              "measured by ",
              measures_of(measured));
    });
    const std::vector<std::string> more =
        confusion.empty() ? std::vector<std::string>{} : std::vector<std::string>{"confusion"};
    const EvalReport e = placed.evaluate(*reference.data().validation, more);
    if (comm.rank() == 0) log_info(str("measured ", measured_text(data, settings->data, part)));
    JsonObject line{{"checkpoint", checkpoint.dir},
                    {"step", checkpoint.info.step},
                    {"on", on},
                    {"samples", data.validation->size()},
                    {"loss", e.loss}};
    if (data.validation->spec().find(kSampleWeights)) line.emplace_back("weight", e.targets);
    else line.emplace_back("targets", static_cast<int64_t>(e.targets));
    for (auto& [name, value] : e.metrics) line.emplace_back(name, value);
    if (comm.rank() == 0 && !e.warning.empty()) log_warning(e.warning);
    if (comm.rank() == 0) print_out(json_line(line) + "\n");
    fail_together(comm, [&] {
      if (comm.rank() != 0 || confusion.empty()) return;
      const auto names = data.like_this ? data.like_this->schema.class_names : std::vector<std::string>{};
      write_confusion(confusion, e.confusion, names, arguments.has("force"));
      if (pictured) log_info(str(confusion, ": ", confusion_legend(e.confusion, names)));
    });
  });
}

}  // namespace lockstep
