#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>

#include "core/base/log.h"
#include "data/import/images/mask_values.h"
#include "data/streams/unlabelled.h"
#include "launch/arguments/chosen_checkpoint.h"
#include "launch/arguments/table_options.h"
#include "launch/checkpoints/open_whole.h"
#include "launch/commands/commands.h"
#include "launch/commands/job.h"
#include "launch/predict/layer_values.h"
#include "launch/predict/predicted_values.h"
#include "launch/predict/prediction_inputs.h"
#include "launch/predict/prediction_writer.h"
#include "launch/predict/predictor.h"
#include "launch/terminal/shown_progress.h"
#include "launch/training/evaluation/predict.h"
#include "launch/training/step/placed_task.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/fail_together.h"
#include "launch/world/temp_dir.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

// Runs `work` on rank 0 while the others wait for it, however long it takes: it calls tick() now and then. Collective.
void run_on_first_rank(Communicator& comm, const std::function<void(const std::function<void()>& tick)>& work) {
  constexpr const char* kLabel = "predict";
  if (comm.rank() != 0) {
    while (all_gather_values(comm, 0, kLabel)[0] == 1) continue;
    return fail_together(
        comm, [] {}, kLabel);
  }
  auto last = std::chrono::steady_clock::now();
  std::exception_ptr error;
  try {
    work([&] {
      const auto now = std::chrono::steady_clock::now();
      if (now - last < std::chrono::seconds(2)) return;
      last = now;
      all_gather_values(comm, 1, kLabel);
    });
  } catch (...) {
    error = std::current_exception();
  }
  all_gather_values(comm, 0, kLabel);
  fail_together(
      comm,
      [&] {
        if (error) std::rethrow_exception(error);
      },
      kLabel);
}

std::string paths_text(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}
std::vector<std::string> paths_in(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0, end; at < text.size(); at = end + 1)
    out.push_back(text.substr(at, (end = text.find('\n', at)) - at));
  return out;
}

InputOptions input_options(const Arguments& a) {
  InputOptions out;
  out.table.fill_missing = a.has("fill-missing");
  out.table.decimal_comma = a.has("decimal-comma");
  out.table.thousands = thousands_of(a);
  out.table.encoding = encoding_of(a);
  out.table.delimiter = delimiter_of(a);
  const std::string& unknown = a.text("unknown");
  require(unknown == "missing" || unknown == "error", ExitCode::kUsage, "--unknown ", unknown,
          ": must be missing or error");
  out.table.unknown_is_missing = unknown == "missing";
  if (!a.text("keep").empty()) out.keep = a.list("keep");
  out.is_table = !a.text("text").empty();
  if (out.is_table) out.text = a.text("text");
  out.separator = a.text("separator");
  out.skip_bad = a.integer("skip-bad", 0);
  return out;
}

int64_t samples_at_once(const Arguments& a, const DataSpec& spec) {
  const int64_t given = a.integer("batch", 0, 1 << 20);
  return given > 0 ? given : samples_at_once(spec);
}

// What is predicted takes the place of the run's data. `resized`: the size that images get, [height, width, channels];
// empty: what the run's configuration says.
void set_data(const std::vector<std::string>& datasets, const std::shared_ptr<const LikeData>& like,
              const Shape& resized, Settings& s) {
  s.data.measured = DataPart::kAll;
  if (resized.rank() > 0) s.data.image.height = resized[0], s.data.image.width = resized[1];
  s.source = std::make_unique<UnlabelledSource>(datasets, like);
}

// Of each class.
std::vector<std::array<uint8_t, 3>> colours_of(const MaskPalette& palette) {
  std::vector<std::array<uint8_t, 3>> out(palette.names.size());
  for (const auto& [colour, value] : palette.classes)
    if (value < out.size())
      out[value] = {static_cast<uint8_t>(colour >> 16), static_cast<uint8_t>(colour >> 8),
                    static_cast<uint8_t>(colour)};
  return out;
}

// The dotted name of the module whose values take the place of predictions; or "".
const std::string& layer_in(const Arguments& a) { return a.text("layer"); }

Pooling pooling_of(const Arguments& a, DataKind kind) {
  const std::string& name = a.text("pool");
  require(name.empty() || (!layer_in(a).empty() && kind == DataKind::kTokens), ExitCode::kUsage,
          "--pool is for what a layer (--layer) gives the tokens of texts");
  if (name.empty() || name == "mean") return Pooling::kMean;
  require(name == "first" || name == "last", ExitCode::kUsage, "--pool ", name, ": must be mean, first or last");
  return name == "first" ? Pooling::kFirst : Pooling::kLast;
}

class PredictJob {
 public:
  // `overrides` of the run's configuration.
  PredictJob(const App& app, const Arguments& arguments, const std::vector<std::string>& overrides)
      : arguments_(arguments), run_(chosen_checkpoint(arguments)) {
    from_ = open_predictor(app, run_, overrides);
    const bool folder = !from_.checkpoint;
    require(!folder || !arguments.has("ema"), ExitCode::kUsage, "--ema: ", run_, " holds no averages of parameters");
    require(from_.settings->data.mask == 0 || !layer().empty(), ExitCode::kUsage, from_.place,
            ": was trained to find hidden tokens (data.mask), and says nothing of a whole text; --layer tells what a "
            "layer of it gives");
    const bool images = from_.data->schema.kind == DataKind::kImages;
    const bool sized = from_.settings->data.image.height > 0 && from_.settings->data.image.width > 0;
    require(images || !arguments.has("resize"), ExitCode::kUsage, "--resize is for images, and ", from_.place,
            " was trained on none");
    require(images || arguments.integer("skip-bad", 0) == 0, ExitCode::kUsage, "--skip-bad is for images, and ",
            from_.place, " was trained on none");
    if (images && (folder || arguments.has("resize"))) resized_ = from_.input;
    if (images && !sized && resized_.rank() == 0) stored_ = from_.input;
    PredictedClasses classes;
    classes.top = arguments.text("top") == "all" ? 0 : arguments.integer("top", 1);
    if (!arguments.text("palette").empty()) classes.colours = colours_of(read_mask_palette(arguments.text("palette")));
    const DataSchema& schema = from_.data->schema;
    const bool chooses = schema.target == TargetKind::kLabels && schema.classes > 0 && layer().empty();
    require(chooses || arguments.text("top") == "1", ExitCode::kUsage, "--top is for classes, which ", from_.place,
            layer().empty() ? " does not predict" : " predicts without --layer");
    require(classes.colours.empty() || layer().empty(), ExitCode::kUsage, "--palette is for masks, not for a --layer");
    pooling_ = pooling_of(arguments, schema.kind);
    if (layer().empty()) values_ = predicted_values(schema, from_.input, classes);
    output_ = {arguments.text("output"),
               prediction_format(arguments.text("output"), arguments.text("format"), values_ && values_->is_picture()),
               arguments.has("force")};
    check_place(output_);
  }

  int run() {
    return Job(*from_.settings, arguments_.ranks()).run_unopened("predict", [&](Communicator& comm, SharedData& data) {
      const TempDir folder(comm);
      std::unique_ptr<PredictionInputs> inputs;  // of rank 0
      run_on_first_rank(comm, [&](const std::function<void()>& tick) { inputs = import(folder / "inputs", tick); });
      const std::string datasets = broadcast_text(comm, inputs ? paths_text(inputs->datasets()) : "", 0, "inputs");
      std::call_once(has_data_, [&] { set_data(paths_in(datasets), from_.data, resized_, *from_.settings); });
      predict_all(comm, data.open(comm), inputs.get());
    });
  }

 private:
  std::unique_ptr<PredictionInputs> import(const std::string& folder, const std::function<void()>& tick) {
    std::filesystem::create_directory(folder);
    require(from_.settings->data.packing != Packing::kPairs, ExitCode::kUsage, from_.place,
            ": was tuned by pairs of answers: `lockstep eval` says which it prefers, `generate` and `chat` what it "
            "answers");
    ShownProgress shown("import", from_.data->schema.kind == DataKind::kImages ? "images" : "bytes");
    InputOptions how = input_options(arguments_);
    how.image = stored_;
    how.context = from_.input.rank() == 1 && from_.settings->data.mask == 0 ? from_.input[0] : 0;
    how.imported = [&] { shown.finish(); };
    how.progress = [&, stoppable = progress_until_stopped(shown, shown_name(), "the prediction")](int64_t done,
                                                                                                  int64_t total) {
      stoppable(done, total);
      tick();
    };
    return std::make_unique<PredictionInputs>(arguments_.rest(), *from_.data, folder, std::move(how));
  }

  void predict_all(Communicator& comm, const Datasets& data, PredictionInputs* inputs) {
    std::optional<Checkpoint> checkpoint;
    if (from_.checkpoint) checkpoint = open_whole(comm, run_);
    TaskSpec shapes;
    fail_together(comm, [&] {
      shapes = task_of(data.validation->spec());
      if (data.validation->spec().next_tokens) shapes.input = from_.input;  // texts may be shorter
      require(shapes.input == from_.input, ExitCode::kBadData, "the input's samples are ",
              data.validation->spec().input().name, " ", shapes.input, ", but ", from_.place, " was trained on ",
              from_.input);
    });
    PlacedTask placed(*from_.settings, data, comm, shapes, PlacedTask::Use::kPredict);
    if (checkpoint) fail_together(comm, [&] { placed.load_parameters(*checkpoint, arguments_.has("ema")); });
    else placed.load_initial();
    std::unique_ptr<PredictedValues> of_layer;
    std::unique_ptr<PredictionWriter> writer;
    fail_together(comm, [&] {
      if (!layer().empty()) of_layer = layer_values(placed.task().module(), layer(), pooling_);
      else if (inputs) writer = prediction_writer(output_, *values_, inputs->kept(), inputs->samples());
    });
    PredictedValues& values = of_layer ? *of_layer : *values_;
    KnownOfSample known;
    std::string parts;  // of a sample
    ShownProgress shown("predict", "samples");
    const auto progress = progress_until_stopped(shown, shown_name(), "the prediction");
    EvalOptions options = placed.eval_options();
    options.micro_batch = samples_at_once(arguments_, data.validation->spec());
    predict(
        placed.task(), placed.parallel(), *data.validation, options,
        [&](const Tensor& output, const Batch& batch) { return values.encode(output, batch); },
        [&](const PredictedSamples& some) {
          if (!writer) writer = prediction_writer(output_, values, inputs->kept(), inputs->samples());
          const size_t bytes = values.bytes();
          check(some.bytes.size() == bytes * static_cast<size_t>(some.count), "predictions of another size");
          for (int64_t i = 0; i < some.count; ++i) {
            if (parts.empty()) known = inputs->next();
            parts += some.bytes.substr(static_cast<size_t>(i) * bytes, bytes);
            if (parts.size() < bytes * static_cast<size_t>(inputs->parts())) continue;
            writer->add(known, values.joined(parts));
            parts.clear();
          }
          progress(some.first + some.count, data.validation->size());
        });
    fail_together(comm, [&] {
      if (!writer) return;
      writer->finish();
      shown.finish();
      log_info(str("predicted ", inputs->samples(), " samples by ", checkpoint ? checkpoint->dir : run_));
    });
  }

  const std::string& layer() const { return layer_in(arguments_); }
  std::string shown_name() const { return output_.path.empty() ? "standard output" : output_.path; }

  const Arguments& arguments_;
  const std::string run_;
  Predictor from_;                           // the ranks verify its checkpoint together
  Shape resized_, stored_;                   // the size that images get, or must have
  std::unique_ptr<PredictedValues> values_;  // null where those of a layer are asked for
  Pooling pooling_ = Pooling::kMean;
  PredictionOutput output_;
  std::once_flag has_data_;
};

}  // namespace

std::vector<Command> predict_forms() {
  return {
      {"predict",
       "predict RUN INPUT... [init.from=PATH] [-o FILE] [--top K] [--keep COLUMN,...] [--best | --at STEP] [--batch N] "
       "[--ranks N]",
       "Predicts the targets of samples by RUN, a run directory (its newest checkpoint), a checkpoint or a folder of\n"
       "transformers: an INPUT is a table (.csv, .tsv, JSON lines), a folder of images, a PNG or JPEG\n"
       "file, an array (.npy), an IDX file of images, a file of texts, one a line or in a table, or a dataset (.h5);\n"
       "- is standard input, of tables and texts.\n"
       "It is read as the run's own data was: columns and categories are found by name, and normalised as there. A\n"
       "column of the targets is not read. Predictions come in the order of the input, classes with their\n"
       "probabilities, numbers in their own unit, log-probabilities of texts, or what a --layer of the model gives,\n"
       "beside columns that are no features.\n"
       "The output appears under its name when it is complete; it is the same at every number of ranks and every\n"
       "--batch.",
       with_choice_of_checkpoint(
           {{"output,o", "the output: .csv, .jsonl or .npy by its name; default: CSV on standard output", "FILE", ""},
            {"format", "csv, jsonl, npy or, of masks, png, whatever the output's name says", "NAME", ""},
            {"force", "replace an existing file"},
            {"layer", "what this module of the model gives, by its dotted name, in the place of predictions", "NAME",
             ""},
            {"pool", "of a layer that gives each token of a text values: mean (default), first or last", "HOW", ""},
            {"palette", "the colours of masks' classes, as in data import images; default: those of PASCAL VOC", "FILE",
             ""},
            {"top", "how many classes are told, with their probabilities; all: each class's probability", "K", "1"},
            {"keep", "columns that are copied to the output; default: all that are no features", "COLUMN,...", ""},
            {"text",
             "the column or field of a table that holds the texts (default: text); with this option an input whose "
             "name "
             "does not say CSV or JSON is read as a table, too",
             "COLUMN", ""},
            {"separator", "a token such as <|endoftext|> that follows each text, as the run's import put it", "TOKEN",
             ""},
            {"skip-bad", "leave out up to N images of an input that cannot be decoded, and name them", "N", "0"},
            {"resize",
             "take images of any size: the middle of each is resized to the size of the run's images; for runs whose "
             "own "
             "images were not resized"},
            {"unknown", "a category that the run does not know is an error, or a missing value: error or missing",
             "HOW", "error"},
            {"fill-missing",
             "a missing number becomes the run's mean; without it, that is so in columns of which the run's own table "
             "missed values, and an error in others"},
            {"encoding", "how a table's bytes are characters: utf-8 (default), latin-1 or windows-1252", "NAME", ""},
            {"delimiter",
             "the character between a table's cells, or tab; default: what the name and the first row tell", "CHAR",
             ""},
            {"decimal-comma",
             "numbers of a table have a comma in the place of the point; default, with --thousands: as in the run's "
             "own table"},
            thousands_option(""),
            {"batch", "samples that a rank computes at once; 0: what suits their size", "N", "0"},
            {"ranks", "ranks in this process", "N", "0"},
            {"ema", "with the averages of the parameters (optim.ema)"}}),
       2}};
}

int predict_command(const App& app, const std::vector<std::string>& given) {
  Arguments arguments = parse_arguments(predict_forms(), given);
  if (arguments.help) return 0;
  const std::vector<std::string> moved = take_init_from(arguments);
  require(arguments.positional.size() > 1, ExitCode::kUsage, "lockstep predict: missing argument INPUT");
  return PredictJob(app, arguments, moved).run();
}

}  // namespace lockstep
