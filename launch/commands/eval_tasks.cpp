#include "launch/commands/eval_tasks.h"

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "core/base/log.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_model.h"
#include "core/io/append_file.h"
#include "core/io/files.h"
#include "core/io/json.h"
#include "core/io/pending_file.h"
#include "data/text/tokenizer/special_tokens.h"
#include "launch/arguments/chosen_checkpoint.h"
#include "launch/arguments/text_options.h"
#include "launch/checkpoints/open_whole.h"
#include "launch/commands/job.h"
#include "launch/config/run_data.h"
#include "launch/scoring/asked_task.h"
#include "launch/terminal/output.h"
#include "launch/terminal/shown_progress.h"
#include "launch/training/evaluation/task_scores.h"
#include "launch/training/step/placed_task.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/fail_together.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

constexpr std::string_view kSpecialTokens = "train.eval_special_tokens=";
constexpr int64_t kBlock = 256;  // documents that are scored, and written, at once
constexpr int64_t kTexts = 8;    // that a rank continues at once: no rank waits for another for long

// Samples that are scored; of each task others.
class RequestSource final : public DataSource {
 public:
  explicit RequestSource(std::shared_ptr<const Dataset> requests) : requests_(std::move(requests)) {}
  std::vector<Field> options(DataOptions&) override { return {}; }
  Datasets open(const DataOptions&, uint64_t) const override {
    Datasets out;
    out.train = out.validation = requests_;
    out.measured = DataPart::kAll;
    out.samples = requests_->size();
    return out;
  }

 private:
  std::shared_ptr<const Dataset> requests_;
};

// One document's line of --to.
struct DocumentLine {
  std::vector<DocumentFigure> figures;
  std::vector<ContinuationScore> scores;
  std::string generated;
};

JsonObject line_of(const AskedTask& asked, size_t i, const DocumentLine& d) {
  JsonObject out{{"task", asked.task.name}, {"document", static_cast<int64_t>(i)}};
  const Question& q = asked.questions[i];
  if (asked.task.kind == ScoringKind::kMultipleChoice) out.emplace_back("answer", q.answer);
  if (asked.task.kind == ScoringKind::kGenerate)
    out.emplace_back("generated", d.generated), out.emplace_back("target", q.choices[0]);
  std::vector<JsonValue> sums, greedy, figures, weights;
  for (const ContinuationScore& s : d.scores) sums.emplace_back(s.log_probability), greedy.emplace_back(s.greedy);
  if (!d.scores.empty())
    out.emplace_back("log_probabilities", json_array(sums)), out.emplace_back("greedy", json_array(greedy));
  for (size_t m = 0; m < d.figures.size(); ++m) {
    out.emplace_back(asked.task.metrics[m].name, d.figures[m].value);
    weights.emplace_back(d.figures[m].weight);
  }
  if (asked.task.kind == ScoringKind::kRolling) out.emplace_back("weights", json_array(weights));
  return out;
}

// The figures of a line that an earlier run wrote; nothing where it is none of this task's.
std::optional<std::vector<DocumentFigure>> figures_in(std::string_view line, const AskedTask& asked, size_t i) {
  const auto object = parse_json_object(line);
  if (!object || text_of(*object, "task") != asked.task.name ||
      integer_of(*object, "document", -1) != static_cast<int64_t>(i))
    return std::nullopt;
  std::vector<DocumentFigure> out;
  const JsonValue* listed = find_member(*object, "weights");
  const auto weights = listed && std::holds_alternative<JsonText>(*listed)
                           ? parse_json_array(std::get<JsonText>(*listed).text)
                           : std::nullopt;
  for (size_t m = 0; m < asked.task.metrics.size(); ++m) {
    const JsonValue* value = find_member(*object, asked.task.metrics[m].name);
    const auto number = value ? as_number(*value) : std::nullopt;
    const auto weight = weights && m < weights->size() ? as_number((*weights)[m]) : 1.0;
    if (!number || !weight) return std::nullopt;
    out.push_back({*number, *weight});
  }
  return out;
}

// --to: a line for each document as it is done, under FILE.partial until all are. An evaluation that was cut short goes
// on from there when it is asked for again.
class KeptLines {
 public:
  KeptLines(std::string path, const std::string& identity, bool force)
      : path_(std::move(path)), partial_(path_ + ".partial") {
    PendingFile::check_place(path_, force);
    const std::string head = json_line({{"evaluation", identity}}) + "\n";
    std::error_code error;
    if (std::filesystem::exists(partial_, error)) {
      std::string all = InputFile(partial_).text(int64_t{1} << 32);
      all.resize(all.rfind('\n') == all.npos ? 0 : all.rfind('\n') + 1);  // the last line may be cut
      if (all.starts_with(head)) {
        for (size_t at = head.size(), end; at < all.size(); at = end + 1) {
          end = all.find('\n', at);
          found_.push_back(all.substr(at, end - at));
        }
        std::filesystem::resize_file(partial_, all.size());
      } else {
        std::filesystem::remove(partial_);
      }
    }
    file_.emplace(partial_);
    if (found_.empty() && std::filesystem::file_size(partial_) == 0) write(head);
  }
  const std::vector<std::string>& found() const { return found_; }
  void write(const std::string& lines) {
    require(file_->append(lines), ExitCode::kStorage, partial_, ": cannot be written; is the disk full?");
  }
  // Without the line that says what they are.
  void finish() {
    const std::string all = InputFile(partial_).text(int64_t{1} << 32);
    replace_file(path_, all.substr(all.find('\n') + 1));
    std::filesystem::remove(partial_);
  }

 private:
  std::string path_, partial_;
  std::vector<std::string> found_;
  std::optional<AppendFile> file_;
};

class TaskEvaluation {
 public:
  TaskEvaluation(const App& app, Arguments& arguments)
      : arguments_(arguments), run_(arguments.positional[0]), tasks_(asked_tasks(arguments.list("task"))) {
    const std::optional<bool> adds = take_special_tokens(arguments);
    origin_ = origin_of(app, arguments);
    run_ = chosen_checkpoint(arguments);
    require(build_model(*origin_.settings, origin_.task)->traits().causal, ExitCode::kConfig, "--task: the model of ",
            run_, ", ", origin_.settings->model_name,
            ", sees a text as a whole, and tasks score what follows one; use a decoder (gpt, llama)");
    origin_.settings->train.eval_ema = false;
    origin_.settings->train.class_weights.clear();
    origin_.settings->data.measured = DataPart::kAll;
    if (adds.value_or(origin_.settings->train.eval_special_tokens)) around_ = special_tokens();
    // The samples of PlacedTask: what is scored comes block by block.
    const auto none =
        std::make_shared<const ScoreRequests>(std::vector<ScoreRequest>{{{0, 0}, 1}}, context(), classes());
    origin_.settings->source = std::make_unique<RequestSource>(none);
  }

  int run() {
    return Job(*origin_.settings, arguments_.ranks()).run_unopened("eval", [&](Communicator& comm, SharedData& data) {
      evaluate(comm, data.open(comm));
    });
  }

 private:
  // train.eval_special_tokens=... among the arguments, which loses it.
  static std::optional<bool> take_special_tokens(Arguments& a) {
    std::optional<bool> out;
    std::erase_if(a.positional, [&](const std::string& text) {
      if (!text.starts_with(kSpecialTokens)) return false;
      const std::string value = text.substr(kSpecialTokens.size());
      require(value == "true" || value == "false", ExitCode::kConfig, text, ": must be true or false");
      out = value == "true";
      return true;
    });
    return out;
  }

  Surround special_tokens() const {
    if (!origin_.checkpoint) return special_tokens_around(run_, *origin_.vocabulary);
    std::string why;
    Surround out = special_tokens_of_run(origin_.settings->init.from, *origin_.vocabulary, why);
    if (!why.empty() && is_first_process()) log_warning(why);
    return out;
  }

  int64_t context() const { return origin_.task.input[0]; }
  int64_t classes() const { return origin_.task.classes; }

  void evaluate(Communicator& comm, const Datasets& data) {
    std::optional<Checkpoint> checkpoint;
    if (origin_.checkpoint) checkpoint = open_whole(comm, run_);
    TaskSpec shapes = task_of(data.train->spec());
    shapes.input = origin_.task.input;
    PlacedTask placed(*origin_.settings, data, comm, shapes, PlacedTask::Use::kPredict);
    if (checkpoint) fail_together(comm, [&] { placed.load_parameters(*checkpoint, arguments_.has("ema")); });
    else placed.load_initial();
    const Vocabulary& vocabulary = *origin_.vocabulary;
    const QuestionTokens tokens(vocabulary, context(), around_);
    if (comm.rank() == 0 && !tokens.form().empty())
      log_info(
          str("texts are encoded as ", tokens.form(), "; train.eval_special_tokens=false leaves special tokens out"));
    const std::string to = arguments_.text("to");
    std::unique_ptr<KeptLines> kept;  // of rank 0
    fail_together(comm, [&] {
      if (comm.rank() != 0 || to.empty()) return;
      std::string identity = checkpoint ? to_hex(digest_of(*checkpoint)) : identity_of_folder(run_);
      for (const AskedTask& t : tasks_) identity += identity_of(t.task);
      identity += tokens.form();
      if (const auto& folder = origin_.settings->pretrained; folder && folder->longest > folder->task.input[0])
        identity += " by length";
      kept = std::make_unique<KeptLines>(to, to_hex(hash128(identity + (arguments_.has("ema") ? "ema" : ""))),
                                         arguments_.has("force"));
    });
    std::unique_ptr<Model> whole;     // for texts that are continued
    std::vector<JsonObject> results;  // of rank 0
    size_t found = 0;
    int64_t total = 0, done = 0;
    for (const AskedTask& t : tasks_) total += std::ssize(t.questions);
    ShownProgress shown("score", "documents");
    for (const AskedTask& t : tasks_) {
      std::vector<std::vector<DocumentFigure>> figures;
      const size_t count = t.questions.size();
      // What an earlier evaluation has done.
      fail_together(comm, [&] {
        for (; kept && figures.size() < count && found < kept->found().size(); ++found) {
          auto earlier = figures_in(kept->found()[found], t, figures.size());
          require(earlier.has_value(), ExitCode::kBadData, to, ".partial: line ", found + 2,
                  " is none of this evaluation's; remove the file, to begin anew");
          figures.push_back(std::move(*earlier));
        }
      });
      const int64_t resumed = std::stoll(broadcast_text(comm, std::to_string(figures.size()), 0, "documents"));
      done += resumed;
      const bool generates = t.task.kind == ScoringKind::kGenerate;
      const auto block = static_cast<size_t>(generates ? kTexts * comm.size() : kBlock);
      for (auto begin = static_cast<size_t>(resumed); begin < count; begin += block) {
        const size_t end = std::min(count, begin + block);
        std::vector<DocumentLine> lines(end - begin);
        if (generates) generate(comm, t, begin, tokens, whole, lines);
        else score(comm, placed, t, begin, tokens, lines);
        fail_together(comm, [&] {
          std::string text;
          for (size_t i = begin; comm.rank() == 0 && i < end; ++i) {
            DocumentLine& d = lines[i - begin];
            d.figures = figures_of(t.task, t.questions[i], d.scores, d.generated);
            figures.push_back(d.figures);
            text += json_line(line_of(t, i, d)) + "\n";
          }
          if (kept) kept->write(text);
        });
        done += static_cast<int64_t>(end - begin);
        if (comm.rank() == 0) shown(done, total);
      }
      if (comm.rank() != 0) continue;
      JsonObject metrics;
      for (const auto& [name, value] : totals_of(t.task, figures)) metrics.emplace_back(name, value);
      results.push_back({{"task", t.task.name},
                         {"model", checkpoint ? checkpoint->dir : run_},
                         {"documents", static_cast<int64_t>(count)},
                         {"metrics", JsonText{json_line(metrics)}}});
    }
    shown.finish();
    fail_together(comm, [&] {
      if (kept) kept->finish();
      for (const JsonObject& line : results) print_out(json_line(line) + "\n");
    });
  }

  // Rank 0 gets the scores.
  void score(Communicator& comm, PlacedTask& placed, const AskedTask& t, size_t begin, const QuestionTokens& tokens,
             std::vector<DocumentLine>& lines) const {
    const size_t end = begin + lines.size();
    AskedRequests asked;
    fail_together(comm, [&] { asked = requests_of(t, begin, end, tokens); });
    const ScoreRequests data(std::move(asked.requests), context(), classes());
    const auto scores = score_requests(placed.task(), placed.parallel(), data, placed.eval_options());
    auto sums = asked.sums(t, begin, end, scores);
    for (size_t d = 0; d < lines.size(); ++d) lines[d].scores = std::move(sums[d]);
  }

  // Each rank continues its part of the texts with a model of its own.
  void generate(Communicator& comm, const AskedTask& t, size_t begin, const QuestionTokens& tokens,
                std::unique_ptr<Model>& model, std::vector<DocumentLine>& lines) const {
    std::vector<JsonObject> mine;
    const auto ranks = static_cast<size_t>(comm.size()), rank = static_cast<size_t>(comm.rank());
    fail_together(comm, [&] {
      if (!model) model = load_model_of(origin_, origin_.settings->parallel.compute, arguments_.has("ema"));
      std::vector<Prompt> prompts;
      for (size_t d = rank; d < lines.size(); d += ranks) try {
          prompts.push_back({{}, tokens.prompt(t.questions[begin + d].context, t.task.new_tokens)});
        } catch (const Error& e) {
          throw e.with_message(str(t.task.path, ": document ", begin + d, ": ", e.what()));
        }
      if (prompts.empty()) return;
      std::vector<std::string> texts(prompts.size());
      DecodeRequest request;
      request.tokens = t.task.new_tokens;
      request.sampling.temperature = 0;
      request.ends = origin_.ends;
      request.slides = true;  // prompts leave room for what is added, but not all of that is in the cache
      Decoder decoder(*model, origin_.task,
                      {.places = std::min(kTexts, std::ssize(prompts)), .place_tokens = context()});
      const auto has_stop = [&](const std::string& text) {
        return std::any_of(t.task.until.begin(), t.task.until.end(),
                           [&](const std::string& stop) { return !stop.empty() && text.find(stop) != text.npos; });
      };
      continue_prompts(
          decoder, prompts, request,
          [&](size_t p, int32_t token) {
            texts[p] += origin_.vocabulary->text_of(token);
            return !has_stop(texts[p]);
          },
          [](size_t) {});
      for (size_t p = 0; p < prompts.size(); ++p) {
        for (const std::string& stop : t.task.until)
          if (!stop.empty()) texts[p].resize(std::min(texts[p].find(stop), texts[p].size()));
        mine.push_back({{"d", static_cast<int64_t>(rank + p * ranks)}, {"text", texts[p]}});
      }
    });
    for (const std::string& text : all_gather_text(comm, json_array(mine).text, "generated texts"))
      visit_json_list(
          text, [&](JsonObject&& o) { lines[static_cast<size_t>(integer_of(o, "d"))].generated = text_of(o, "text"); });
  }

  // Of a folder whose weights are not read for it.
  static std::string identity_of_folder(const std::string& folder) {
    std::string out;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.is_regular_file()) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files)
      out += str(file.filename().string(), " ", std::filesystem::file_size(file), " ",
                 std::filesystem::last_write_time(file).time_since_epoch().count(), "\n");
    return out;
  }

  const Arguments& arguments_;
  std::string run_;
  std::vector<AskedTask> tasks_;
  Origin origin_;
  Surround around_;  // special tokens around texts
};

}  // namespace

int eval_tasks(const App& app, Arguments& arguments) {
  for (const char* other : {"on", "confusion"})
    require(arguments.text(other).empty(), ExitCode::kUsage, "lockstep eval: --", other,
            " is for data, not for --task");
  for (const std::string& more : arguments.rest())
    require(more.starts_with("init.from=") || more.starts_with(kSpecialTokens), ExitCode::kUsage,
            "lockstep eval: ", more, ": with --task the configuration is the run's; init.from=PATH and ",
            kSpecialTokens, "false alone may be given");
  return TaskEvaluation(app, arguments).run();
}

}  // namespace lockstep
