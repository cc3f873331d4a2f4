#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/decode/decoder.h"
#include "core/device/stream.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_model.h"
#include "core/io/json.h"
#include "data/text/vocabulary.h"
#include "launch/commands/chosen_checkpoint.h"
#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/commands/find_vocabulary.h"
#include "launch/commands/prompts.h"
#include "launch/config/settings.h"
#include "launch/training/build_model.h"
#include "launch/training/load_model.h"
#include "launch/world/devices.h"
#include "launch/world/world.h"

namespace lockstep {

namespace {

constexpr const char* kNoPrompt = "\n";  // what is continued where no prompt is given

// The text of one sequence as it grows: ends at the first of the texts `stops`, of which nothing is shown; what may be
// the beginning of one is held back. With `drop_space` a space at its beginning is left out.
class GrowingText {
 public:
  GrowingText(std::vector<std::string> stops, bool drop_space) : stops_(std::move(stops)), drop_space_(drop_space) {}
  // Returns what of the text so far is new and certain.
  std::string add(const std::string& more) {
    held_ += more;
    if (drop_space_ && !held_.empty()) {
      if (held_[0] == ' ') held_.erase(0, 1);
      drop_space_ = false;
    }
    size_t certain = held_.size();
    for (const std::string& stop : stops_)
      if (const size_t found = held_.find(stop); found != held_.npos)
        stopped_ = true, certain = std::min(certain, found);
    for (const std::string& stop : stops_) {
      if (stopped_) break;
      size_t begin = held_.size() - std::min(held_.size(), stop.size() - 1);
      while (!stop.starts_with(std::string_view(held_).substr(begin))) ++begin;
      certain = std::min(certain, begin);
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
  std::vector<std::string> stops_;
  bool drop_space_;
  std::string held_;
  bool stopped_ = false;
};

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

// What every prompt is continued with.
DecodeRequest request_of(const Arguments& arguments) {
  DecodeRequest r;
  r.tokens = arguments.integer("tokens", 0, 1000000);
  r.sampling.top_k = arguments.integer("top-k", 0);
  r.sampling.seed = static_cast<uint64_t>(arguments.integer("seed", std::numeric_limits<int64_t>::min()));
  r.sampling.temperature = arguments.number("temperature", 0);
  r.sampling.top_p = arguments.number("top-p", 0, 1);
  r.sampling.min_p = arguments.number("min-p", 0, 1);
  r.sampling.repetition_penalty = arguments.number("repetition-penalty", 1e-3, 1e3);
  r.slides = true;
  return r;
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

// The tokens that end a text by a folder of transformers.
std::vector<int32_t> ends_of_folder(const std::string& folder) {
  const HfConfig config = HfConfig::load(folder + "/config.json");
  const std::string own = folder + "/generation_config.json";
  std::error_code error;
  HfConfig ending = std::filesystem::exists(own, error) ? HfConfig::load(own) : config;
  if (!ending.has("eos_token_id")) ending = config;
  std::vector<int32_t> out;
  if (const auto ids = ending.json_of("eos_token_id"))
    for (const int64_t id :
         ids->starts_with('[') ? ending.integers("eos_token_id") : std::vector<int64_t>{ending.integer("eos_token_id")})
      out.push_back(static_cast<int32_t>(id));
  return out;
}

// Those of the folder that the run began with, perhaps by way of other runs; without one <|endoftext|>, where the
// tokenizer has it, as an exported folder says.
std::vector<int32_t> ends_of_run(const App& app, const std::string& place, const Settings& settings,
                                 const Vocabulary& vocabulary, int depth = 0) {
  constexpr int kDeepest = 100;  // runs that began with runs
  if (!vocabulary.has_tokenizer()) return {};
  const std::string& from = settings.init.from;
  if (!from.empty() && depth < kDeepest) try {
      if (is_hf_folder(from)) return ends_of_folder(from);
      if (!is_pretrained(from)) {
        const Checkpoint earlier = open_newest(from);
        return ends_of_run(app, earlier.dir, *settings_of_checkpoint(app, earlier), vocabulary, depth + 1);
      }
    } catch (const Error& e) {
      log_warning(str(place, ": began with init.from: ", from,
                      ", which does not say its tokens for the end of a text (", e.what(),
                      "); name such a token's text by --stop"));
    }
  const int32_t end = vocabulary.special("<|endoftext|>");
  return end >= 0 ? std::vector<int32_t>{end} : std::vector<int32_t>{};
}

Origin origin_of_run(const App& app, const std::string& run) {
  Origin o;
  o.checkpoint = open_newest(run);
  o.place = o.checkpoint->dir;
  o.vocabulary = parse_vocabulary(o.checkpoint->info.vocabulary);
  require(o.vocabulary != nullptr, ExitCode::kUsage, o.place,
          ": was not trained on text; there is nothing to generate");
  o.settings = settings_of_checkpoint(app, *o.checkpoint);
  o.task = task_of(o.checkpoint->info);
  o.ends = ends_of_run(app, o.place, *o.settings, *o.vocabulary);
  return o;
}

Origin origin_of_folder(const App& app, const std::string& folder) {
  Origin o;
  o.place = folder;
  o.settings = settings_of_pretrained(app, folder);
  o.vocabulary = find_vocabulary(folder, PlainFile::kJson);
  o.task = {o.settings->pretrained->task.input, o.vocabulary->size()};
  o.ends = ends_of_folder(folder);
  return o;
}

// What the model computes in. Says so where that is not what the run trained in.
DType precision_of(const Arguments& arguments, const Origin& origin) {
  const std::string& name = arguments.text("precision");
  const DType trained = origin.settings->parallel.compute;
  if (name == "run") return trained;
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    if (name == to_text(type)) {
      if (origin.checkpoint && type != trained)
        log_info(str("computing in ", to_text(type), "; ", origin.place, " was trained in ", to_text(trained),
                     " (precision.compute), which --precision run takes"));
      return type;
    }
  throw Error(ExitCode::kUsage, str("--precision ", name, ": is fp32, bf16, fp16 or run"));
}

// How prompts are read and where their continuations end.
struct Manner {
  PromptForm form;
  std::vector<std::string> stops;
  bool drop_space = false;  // that a tokenizer puts before an answer
};

Manner manner_of(const Arguments& arguments, Origin& origin) {
  const std::string& name = arguments.text("template");
  require(arguments.has("chat") || name.empty(), ExitCode::kUsage, "--template ", name, ": is for --chat");
  Manner out;
  const Vocabulary& vocabulary = *origin.vocabulary;
  if (const std::string& stop = arguments.text("stop"); !stop.empty()) out.stops.push_back(stop);
  if (arguments.has("chat")) {
    const ChatTemplate& chat = chat_template(name, vocabulary);
    out.form.chat = &chat;
    if (!is_beginning(chat, vocabulary))
      log_warning(str("the tokenizer joins what the template ", chat.name,
                      " puts before an answer in another way than before the words that it was tuned on"));
    const bool token = vocabulary.has_tokenizer() && vocabulary.special(chat.end) >= 0;
    if (token) origin.ends.push_back(vocabulary.special(chat.end));
    else if (!arguments.has("ignore-end")) out.stops.push_back(chat.end);
    out.drop_space = vocabulary.has_tokenizer() && chat.head.ends_with(' ');
  }
  out.form.special_tokens = arguments.has("special-tokens");
  check_form(out.form, vocabulary);
  if (arguments.has("ignore-end")) origin.ends.clear();
  return out;
}

void warn_of(const std::vector<Prompt>& prompts, int64_t context) {
  const auto spelt = std::find_if(prompts.begin(), prompts.end(), [](const Prompt& p) { return !p.spelt.empty(); });
  if (spelt != prompts.end())
    log_warning(str("the prompt holds ", spelt->spelt, " as text; --special-tokens reads it as that token"));
  const auto most = std::max_element(prompts.begin(), prompts.end(),
                                     [](auto& a, auto& b) { return a.tokens.size() < b.tokens.size(); });
  if (static_cast<int64_t>(most->tokens.size()) > context)
    log_warning(str("a prompt has ", most->tokens.size(), " tokens, of which the model reads the last ", context));
}

// Room for the longest prompt that the model reads whole, and what is added to it.
DecoderOptions decoder_options_of(const std::vector<Prompt>& prompts, int64_t batch, int64_t added, int64_t context,
                                  bool cache) {
  int64_t longest = 0;
  for (const Prompt& p : prompts)
    if (const auto size = static_cast<int64_t>(p.tokens.size()); size <= context) longest = std::max(longest, size);
  return {.places = std::min(batch, static_cast<int64_t>(prompts.size())),
          .place_tokens = std::min(context, longest + added),
          .cache = cache};
}

// Called with each new token of a prompt; returns whether its text goes on.
using OnToken = std::function<bool(size_t prompt, int32_t token)>;

// Continues the prompts, as many at once as the decoder has places; `on_end` is called where a prompt's text has ended.
void continue_prompts(Decoder& decoder, const std::vector<Prompt>& prompts, const DecodeRequest& request,
                      const OnToken& on_token, const std::function<void(size_t prompt)>& on_end) {
  size_t admitted = 0, ended = 0;  // the decoder's ids are the prompts' indices
  if (request.tokens == 0)
    while (ended < prompts.size()) on_end(ended++);
  while (ended < prompts.size()) {
    for (; admitted < prompts.size() && decoder.free_places() > 0; ++admitted) {
      DecodeRequest own = request;
      own.prompt = prompts[admitted].tokens;
      decoder.admit(std::move(own));
    }
    for (const Decoded& d : decoder.step()) {
      const auto i = static_cast<size_t>(d.id);
      const bool continues = !d.token || on_token(i, *d.token);
      if (d.finish != Finish::kNone) on_end(i), ++ended;
      else if (!continues) decoder.cancel(d.id);
    }
  }
}

// A JSON object for each prompt, in their order.
void print_objects(Decoder& decoder, const std::vector<Prompt>& prompts, const DecodeRequest& request,
                   const Manner& manner, const Vocabulary& vocabulary, Rate& rate) {
  struct Answer {
    GrowingText growing;
    std::string text = {};
    int64_t tokens = 0;
    bool ended = false;
  };
  std::vector<Answer> answers(prompts.size(), Answer{GrowingText(manner.stops, manner.drop_space)});
  const auto add = [&](size_t i, int32_t token) {
    Answer& a = answers[i];
    a.text += a.growing.add(vocabulary.decode({token}));
    ++a.tokens, rate.count();
    return !a.growing.stopped();
  };
  size_t printed = 0;
  continue_prompts(decoder, prompts, request, add, [&](size_t i) {
    answers[i].ended = true;
    for (; printed < prompts.size() && answers[printed].ended; ++printed) {
      Answer& a = answers[printed];
      JsonObject line = prompts[printed].given;
      line.emplace_back("text", std::exchange(a.text, {}) + a.growing.rest());
      line.emplace_back("tokens", a.tokens);
      line.emplace_back("stopped", a.growing.stopped() || a.tokens < request.tokens);
      print_out(json_line(line) + "\n");
    }
  });
}

// Text on standard output as it grows. Output to a file is the text itself. Output to a terminal is escaped, so only
// whole characters are written.
class ShownText {
 public:
  void add(const std::string& text) {
    if (!terminal_) return print_out(text, Shown::kAsItIs);
    for (char c : text) {
      character_ += c;
      if (reader_.next(static_cast<uint8_t>(c)) == Utf8Reader::Result::kMore) continue;
      print_out(character_);
      character_.clear();
      reader_ = {};
    }
  }

 private:
  const bool terminal_ = ::isatty(STDOUT_FILENO) == 1;
  std::string character_;
  Utf8Reader reader_;
};

void stream_text(Decoder& decoder, const Prompt& prompt, const std::string& beginning, const DecodeRequest& request,
                 const Manner& manner, const Vocabulary& vocabulary, Rate& rate) {
  ShownText shown;
  shown.add(beginning);
  GrowingText growing(manner.stops, manner.drop_space);
  const auto add = [&](size_t, int32_t token) {
    rate.count();
    shown.add(growing.add(vocabulary.decode({token})));
    return !growing.stopped();
  };
  continue_prompts(decoder, {prompt}, request, add, [](size_t) {});
  shown.add(growing.rest());
  print_out("\n");
}

}  // namespace

std::vector<Command> generate_forms() {
  return {
      {"generate",
       "generate RUN [--prompt TEXT | --prompts FILE [--batch N]] [--chat [--template NAME]] [--special-tokens] "
       "[--tokens N] [--temperature X] [--top-k K] [--top-p P] [--min-p P] [--repetition-penalty X] [--stop TEXT] "
       "[--ignore-end] [--seed S] [--precision P] [--best | --at STEP] [--ema] [--no-cache] [--json]",
       "Continues TEXT with the model of RUN, a run directory (its newest checkpoint), a checkpoint, or a folder of\n"
       "transformers with its tokenizer; or each prompt of FILE, several at once: then a line of standard output is a\n"
       "JSON object with prompt, text, tokens and whether it was stopped: by --stop or the model's token for the end "
       "of\n"
       "a text, which is not shown, before --tokens were added. --chat: TEXT is a user's message, and the answer to "
       "it\n"
       "is printed alone. Each line of FILE is a prompt; or, where its name ends in .jsonl, a JSON object with a "
       "text,\n"
       "\"prompt\", or for --chat with a conversation, \"messages\".\n"
       "What a prompt becomes depends neither on the others nor on the number of threads.",
       with_choice_of_checkpoint(
           {{"prompt", "the text to continue; its characters must be in the run's vocabulary", "TEXT", kNoPrompt},
            {"prompts", "a file with a prompt in each line; FILE.jsonl: a JSON object in each line", "FILE", ""},
            {"batch", "how many prompts are continued at once", "N", "8"},
            {"chat", "a prompt is a message of the user, or a conversation; the assistant answers"},
            {"template", "of --chat: chatml, llama3 or plain, as in data import json; default: chatml", "NAME", ""},
            {"special-tokens", "special tokens that a prompt spells out are those tokens; else they are text"},
            {"tokens", "how many tokens to add", "N", "200"},
            {"temperature", "divides the logits: lower is more predictable; 0: always the most likely token", "X",
             "0.8"},
            {"top-k", "sample from the K most likely tokens only; 0: from all", "K", "0"},
            {"top-p", "sample from the fewest most likely tokens that have the probability P together", "P", "1"},
            {"min-p", "sample from tokens that have at least P times the probability of the most likely", "P", "0"},
            {"repetition-penalty", "lowers the logits of tokens that the text has already; 1: not", "X", "1"},
            {"stop", "end before this text", "TEXT", ""},
            {"ignore-end", "go on behind the model's tokens for the end of a text, and the template's"},
            {"seed", "seed of the sampling", "S", "1"},
            {"precision", "what the model computes in: fp32, bf16, fp16, or run: what the run trained in", "P", "fp32"},
            {"ema", "with the averages of the parameters (optim.ema)"},
            {"no-cache", "compute all tokens again for each new one: the same text, for comparison"},
            {"json", "--prompt, too, gives a JSON object; of --prompts no effect"}}),
       1, 1}};
}

int generate_command(const App& app, const std::vector<std::string>& given) {
  const Arguments arguments = parse_arguments(generate_forms(), given);
  if (arguments.help) return 0;
  DecodeRequest request = request_of(arguments);
  const int64_t batch = arguments.integer("batch", 1, 4096);
  const std::string file = arguments.text("prompts"), prompt = arguments.text("prompt");
  require(!prompt.empty(), ExitCode::kUsage, "lockstep generate: --prompt is empty");
  require(!arguments.has("chat") || !file.empty() || prompt != kNoPrompt, ExitCode::kUsage,
          "lockstep generate: --chat answers a message: give --prompt or --prompts");
  const std::string from = chosen_checkpoint(arguments);
  Origin origin = is_hf_folder(from) ? origin_of_folder(app, from) : origin_of_run(app, from);
  const Manner manner = manner_of(arguments, origin);
  request.ends = origin.ends;
  const Vocabulary& vocabulary = *origin.vocabulary;
  const bool averages = arguments.has("ema");
  require(origin.checkpoint || !averages, ExitCode::kUsage, "--ema: ", from, " holds no averages of parameters");
  if (!is_first_process()) return 0;
  const Settings& settings = *origin.settings;
  const DType precision = precision_of(arguments, origin);
  Stream stream(place_alone(settings.device), Stream::Mode::kInline, available_cores());
  WithStream with(stream);
  apply(settings.device, stream);
  const auto model =
      origin.checkpoint ? load_model(settings, *origin.checkpoint, averages) : load_pretrained(settings, origin.task);
  compute_in(*model, precision);
  require(model->traits().causal, ExitCode::kUsage, origin.place, ": its model, ", settings.model_name,
          ", does not predict the next token of a text; there is nothing to generate");
  const int64_t context = origin.task.input[0];
  const std::vector<Prompt> prompts = file.empty() ? std::vector{prompt_of_text(prompt, vocabulary, manner.form)}
                                                   : read_prompts(file, vocabulary, manner.form);
  warn_of(prompts, context);
  Decoder decoder(*model, origin.task,
                  decoder_options_of(prompts, batch, request.tokens, context, !arguments.has("no-cache")));
  Rate rate;
  if (!file.empty() || arguments.has("json")) print_objects(decoder, prompts, request, manner, vocabulary, rate);
  else stream_text(decoder, prompts[0], manner.form.chat ? "" : prompt, request, manner, vocabulary, rate);
  rate.say();
  return 0;
}

}  // namespace lockstep
