#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/device/stream.h"
#include "core/io/json.h"
#include "data/vocabulary.h"
#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/commands/find_vocabulary.h"
#include "launch/config/settings.h"
#include "launch/training/build_model.h"
#include "launch/training/generate.h"
#include "launch/weights/hf_config.h"
#include "launch/weights/hf_model.h"
#include "launch/world/devices.h"
#include "launch/world/world.h"

namespace lockstep {

namespace {

// The text of one sequence as it grows: ends at the first of `stop`, of which nothing is shown; what may be its
// beginning is held back.
class GrowingText {
 public:
  explicit GrowingText(std::string stop) : stop_(std::move(stop)) {}
  // Returns what of the text so far is new and certain.
  std::string add(const std::string& more) {
    held_ += more;
    size_t certain = held_.size();
    if (!stop_.empty()) {
      const size_t found = held_.find(stop_);
      stopped_ = found != held_.npos;
      size_t begin = stopped_ ? found : held_.size() - std::min(held_.size(), stop_.size() - 1);
      while (!stopped_ && begin < held_.size() && !stop_.starts_with(std::string_view(held_).substr(begin))) ++begin;
      certain = begin;
    }
    return take(certain);
  }
  std::string rest() { return stopped_ ? "" : take(held_.size()); }
  bool stopped() const { return stopped_; }

 private:
  std::string take(size_t n) {
    const std::string out = held_.substr(0, n);
    held_.erase(0, n);
    return out;
  }
  std::string stop_, held_;
  bool stopped_ = false;
};

// A line of the file is a prompt; an empty one is an error.
std::vector<std::string> prompts_of(const std::string& path) {
  std::ifstream in(path);
  require(in.good(), ExitCode::kMissingInput, "--prompts ", path, ": cannot be opened");
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    require(!line.empty(), ExitCode::kBadData, path, ": line ", out.size() + 1, " is empty; each line is a prompt");
    out.push_back(line);
  }
  require(!out.empty(), ExitCode::kBadData, path, ": holds no prompt");
  return out;
}

// Counts new tokens, and says at the end how many came in a second.
class Rate {
 public:
  void count() { ++tokens_; }
  void say() const {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
    char text[80];
    std::snprintf(text, sizeof text, "%lld tokens in %.2f s, %.1f tokens/s", static_cast<long long>(tokens_),
                  taken.count(), static_cast<double>(tokens_) / taken.count());
    log_info(text);
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  int64_t tokens_ = 0;
};

GenerateOptions options_of(const Arguments& arguments) {
  GenerateOptions o;
  o.tokens = arguments.integer("tokens", 0, 1000000);
  o.top_k = arguments.integer("top-k", 0);
  o.seed = static_cast<uint64_t>(arguments.integer("seed", std::numeric_limits<int64_t>::min()));
  o.temperature = arguments.number("temperature", 0);
  o.top_p = arguments.number("top-p", 0, 1);
  o.min_p = arguments.number("min-p", 0, 1);
  o.repetition_penalty = arguments.number("repetition-penalty", 1e-3, 1e3);
  o.cache = !arguments.has("no-cache");
  return o;
}

// What texts are continued with: a checkpoint, or a folder of transformers.
struct Origin {
  std::string place;
  std::optional<Checkpoint> checkpoint;
  std::unique_ptr<Settings> settings;
  std::shared_ptr<const Vocabulary> vocabulary;
  TaskSpec task;
  std::vector<int32_t> ends;  // tokens that end a text
};

Origin origin_of_run(const App& app, const std::string& run) {
  Origin o;
  o.checkpoint = open_newest(run);
  o.place = o.checkpoint->dir;
  o.vocabulary = parse_vocabulary(o.checkpoint->info.vocabulary);
  require(o.vocabulary != nullptr, ExitCode::kUsage, o.place,
          ": was not trained on text; there is nothing to generate");
  o.settings = settings_of_checkpoint(app, *o.checkpoint);
  o.task = task_of(o.checkpoint->info);
  return o;
}

Origin origin_of_folder(const App& app, const std::string& folder) {
  Origin o;
  o.place = folder;
  o.settings = settings_of_pretrained(app, folder);
  const HfConfig config = HfConfig::load(folder + "/config.json");
  o.vocabulary = find_vocabulary(folder, PlainFile::kJson);
  o.task = {o.settings->pretrained->task.input, o.vocabulary->size()};
  const std::string own = folder + "/generation_config.json";
  std::error_code error;
  HfConfig ending = std::filesystem::exists(own, error) ? HfConfig::load(own) : config;
  if (!ending.has("eos_token_id")) ending = config;
  if (const auto ids = ending.json_of("eos_token_id"))
    for (const int64_t id :
         ids->starts_with('[') ? ending.integers("eos_token_id") : std::vector<int64_t>{ending.integer("eos_token_id")})
      o.ends.push_back(static_cast<int32_t>(id));
  return o;
}

}  // namespace

std::vector<Command> generate_forms() {
  return {
      {"generate",
       "generate RUN [--prompt TEXT | --prompts FILE [--batch N]] [--tokens N] [--temperature X] [--top-k K] "
       "[--top-p P] [--min-p P] [--repetition-penalty X] [--stop TEXT] [--seed S] [--ema] [--no-cache]",
       "Continues TEXT with the model of RUN, a run directory (its newest checkpoint), a checkpoint, or a folder of\n"
       "transformers with its tokenizer, whose token for the end of a text ends it; or each line of FILE, several at\n"
       "once: then a line of standard output is a JSON object with prompt, text, tokens and whether --stop ended it.\n"
       "What a prompt becomes depends neither on the others nor on the number of threads.",
       {{"prompt", "the text to continue; its characters must be in the run's vocabulary", "TEXT", "\n"},
        {"prompts", "a file with a prompt in each line", "FILE", ""},
        {"batch", "how many prompts are continued at once", "N", "8"},
        {"tokens", "how many tokens to add", "N", "200"},
        {"temperature", "divides the logits: lower is more predictable; 0: always the most likely token", "X", "0.8"},
        {"top-k", "sample from the K most likely tokens only; 0: from all", "K", "0"},
        {"top-p", "sample from the fewest most likely tokens that have the probability P together", "P", "1"},
        {"min-p", "sample from tokens that have at least P times the probability of the most likely", "P", "0"},
        {"repetition-penalty", "lowers the logits of tokens that the text has already; 1: not", "X", "1"},
        {"stop", "end before this text", "TEXT", ""},
        {"seed", "seed of the sampling", "S", "1"},
        {"ema", "with the averages of the parameters (optim.ema)"},
        {"no-cache", "compute all tokens again for each new one: the same text, for comparison"}},
       1,
       1}};
}

int generate_command(const App& app, const std::vector<std::string>& given) {
  const Arguments arguments = parse_arguments(generate_forms(), given);
  if (arguments.help) return 0;
  GenerateOptions options = options_of(arguments);
  const auto batch = static_cast<size_t>(arguments.integer("batch", 1, 4096));
  const std::string stop = arguments.text("stop"), file = arguments.text("prompts");
  const std::string& from = arguments.positional[0];
  const Origin origin = is_hf_folder(from) ? origin_of_folder(app, from) : origin_of_run(app, from);
  options.vocabulary = origin.task.classes;
  options.ends = origin.ends;
  const Vocabulary* vocabulary = origin.vocabulary.get();
  const bool averages = arguments.has("ema");
  require(origin.checkpoint || !averages, ExitCode::kUsage, "--ema: ", from, " holds no averages of parameters");
  if (!is_first_process()) return 0;
  const Settings& settings = *origin.settings;
  Stream stream(place_alone(settings.device), Stream::Mode::kInline, available_cores());
  WithStream with(stream);
  apply(settings.device, stream);
  const auto model =
      origin.checkpoint ? load_model(settings, *origin.checkpoint, averages) : load_pretrained(settings, origin.task);
  require(!model->sees_ahead(), ExitCode::kUsage, origin.place, ": its model, ", settings.model_name,
          ", does not predict the next token of a text; there is nothing to generate");
  const int64_t context = origin.task.input[0];
  Rate rate;
  if (!file.empty()) {
    const std::vector<std::string> prompts = prompts_of(file);
    std::vector<std::vector<int32_t>> encoded;
    for (const std::string& prompt : prompts) try {
        encoded.push_back(vocabulary->encode(prompt));
      } catch (const Error& e) {
        throw Error(e.code(), cat(file, ": line ", encoded.size() + 1, ": ", e.what()));
      }
    for (size_t begin = 0; begin < prompts.size(); begin += batch) {
      const size_t count = std::min(batch, prompts.size() - begin);
      const auto first = encoded.begin() + static_cast<std::ptrdiff_t>(begin);
      std::vector<GrowingText> growing(count, GrowingText(stop));
      std::vector<std::string> texts(count);
      std::vector<int64_t> tokens(count);
      generate(*model, {first, first + static_cast<std::ptrdiff_t>(count)}, context, options,
               [&](size_t i, int32_t token) {
                 texts[i] += growing[i].add(vocabulary->decode({token}));
                 ++tokens[i], rate.count();
                 return !growing[i].stopped();
               });
      for (size_t i = 0; i < count; ++i) {
        texts[i] += growing[i].rest();
        print(json_line({{"prompt", prompts[begin + i]},
                         {"text", texts[i]},
                         {"tokens", tokens[i]},
                         {"stopped", growing[i].stopped()}}) +
              "\n");
      }
    }
    rate.say();
    return 0;
  }
  const std::string prompt = arguments.text("prompt");
  std::vector<int32_t> tokens = vocabulary->encode(prompt);
  require(!tokens.empty(), ExitCode::kUsage, "lockstep generate: --prompt is empty");
  // Output to a file is the text itself. Output to a terminal is escaped, so only whole characters are written.
  std::string character;
  Utf8Reader reader;
  const auto show = [&, terminal = ::isatty(STDOUT_FILENO) == 1](const std::string& text) {
    if (!terminal) return print(text, Shown::kAsItIs);
    for (char c : text) {
      character += c;
      if (reader.next(static_cast<uint8_t>(c)) == Utf8Reader::Result::kMore) continue;
      print(character);
      character.clear();
      reader = {};
    }
  };
  show(prompt);
  GrowingText growing(stop);
  generate(*model, {std::move(tokens)}, context, options, [&](size_t, int32_t token) {
    rate.count();
    show(growing.add(vocabulary->decode({token})));
    return !growing.stopped();
  });
  show(growing.rest());
  print("\n");
  rate.say();
  return 0;
}

}  // namespace lockstep
