#include "launch/text/text_model.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "core/base/log.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_model.h"
#include "launch/arguments/chosen_checkpoint.h"
#include "launch/arguments/find_vocabulary.h"
#include "launch/training/weights/build_model.h"
#include "launch/training/weights/load_model.h"

namespace lockstep {

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

namespace {

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
                      "); name such a token's text by --stop, or by init.from=PATH where that has moved"));
    }
  const int32_t end = vocabulary.special("<|endoftext|>");
  return end >= 0 ? std::vector<int32_t>{end} : std::vector<int32_t>{};
}

Origin origin_of_run(const App& app, const std::string& run, const std::vector<std::string>& overrides) {
  Origin o;
  o.checkpoint = open_newest(run);
  o.place = o.checkpoint->dir;
  o.vocabulary = parse_vocabulary(o.checkpoint->info.vocabulary);
  require(o.vocabulary != nullptr, ExitCode::kUsage, o.place,
          ": was not trained on text; there is nothing to generate");
  o.settings = settings_of_checkpoint(app, *o.checkpoint, overrides);
  o.task = task_of(o.checkpoint->info);
  o.ends = ends_of_run(app, o.place, *o.settings, *o.vocabulary);
  return o;
}

Origin origin_of_folder(const App& app, const std::string& folder) {
  Origin o;
  o.place = folder;
  o.settings = settings_of_pretrained(app, folder);
  o.vocabulary = find_vocabulary(folder, PlainFile::kJson);
  const HfModel& model = *o.settings->pretrained;
  o.task = {model.task.input, o.vocabulary->size()};
  if (model.longest > o.task.input[0]) {
    o.task.input = {model.longest};
    for (Field& f : o.settings->model->options())
      if (f.key == "rope_by_length") *std::get<bool*>(f.target) = true;
  }
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

}  // namespace

Origin origin_of(const App& app, Arguments& arguments) {
  const std::vector<std::string> moved = take_init_from(arguments);
  require(arguments.positional.size() == 1, ExitCode::kUsage, "unexpected argument '", arguments.positional.back(),
          "'; --help lists the options");
  const std::string from = chosen_checkpoint(arguments);
  const bool folder = is_hf_folder(from);
  require(!folder || moved.empty(), ExitCode::kUsage, "init.from: ", from, " is no run, and began with nothing");
  Origin out = folder ? origin_of_folder(app, from) : origin_of_run(app, from, moved);
  require(out.checkpoint || !arguments.has("ema"), ExitCode::kUsage, "--ema: ", from,
          " holds no averages of parameters");
  return out;
}

std::unique_ptr<Model> model_of(const Origin& origin, const Arguments& arguments) {
  const DType precision = precision_of(arguments, origin);
  auto model = origin.checkpoint ? load_model(*origin.settings, *origin.checkpoint, arguments.has("ema"))
                                 : load_pretrained(*origin.settings, origin.task);
  compute_in(*model, precision);
  require(model->traits().causal, ExitCode::kUsage, origin.place, ": its model, ", origin.settings->model_name,
          ", does not predict the next token of a text; there is nothing to generate");
  return model;
}

namespace {

// A vocabulary of characters may lack those that the template itself puts around messages: then none could be sent.
void require_characters(const ChatTemplate& chat, const PromptForm& form, const Vocabulary& vocabulary,
                        const std::string& place) {
  if (vocabulary.has_tokenizer()) return;
  try {
    prompt_of_messages({{{"user", ""}, {"assistant", ""}}}, vocabulary, form);
  } catch (const Error& e) {
    throw Error(ExitCode::kUsage, str(place, ": cannot take messages: the template ", chat.name(),
                                      " puts text around them that its vocabulary has no tokens for (", e.what(),
                                      "); it was not trained on conversations of that template. `lockstep generate` "
                                      "continues a text, and --template names another template"));
  }
}

}  // namespace

Manner manner_of(const Arguments& arguments, bool chat_wanted, Origin& origin) {
  const std::string& name = arguments.text("template");
  require(chat_wanted || name.empty(), ExitCode::kUsage, "--template ", name, ": is for --chat and --messages");
  require(chat_wanted || arguments.text("template-values").empty(), ExitCode::kUsage,
          "--template-values: is for --chat and --messages");
  Manner out;
  const Vocabulary& vocabulary = *origin.vocabulary;
  if (const std::string& stop = arguments.text("stop"); !stop.empty()) out.stops.push_back(stop);
  if (chat_wanted) {
    out.form.chat = chat_template(name, vocabulary, arguments.text("template-values"));
    const ChatTemplate& chat = *out.form.chat;
    require_characters(chat, out.form, vocabulary, origin.place);
    if (!is_beginning(chat, vocabulary))
      log_warning(str("the tokenizer joins what the template ", chat.name(),
                      " puts before an answer in another way than before the words that it was tuned on"));
    const bool token = vocabulary.has_tokenizer() && vocabulary.special(chat.end()) >= 0;
    if (token) origin.ends.push_back(vocabulary.special(chat.end()));
    else if (!arguments.has("ignore-end") && !chat.end().empty()) out.stops.push_back(chat.end());
    out.drop_space = vocabulary.has_tokenizer() && chat.head().ends_with(' ');
  }
  out.form.special_tokens = arguments.has("special-tokens");
  check_form(out.form, vocabulary);
  if (arguments.has("ignore-end")) origin.ends.clear();
  return out;
}

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

std::vector<Option> with_generation_options(std::vector<Option> own) {
  const std::vector<Option> shared{
      template_values_option(),
      {"tokens", "how many tokens to add", "N", "200"},
      {"temperature", "divides the logits: lower is more predictable; 0: always the most likely token", "X", "0.8"},
      {"top-k", "sample from the K most likely tokens only; 0: from all", "K", "0"},
      {"top-p", "sample from the fewest most likely tokens that have the probability P together", "P", "1"},
      {"min-p", "sample from tokens that have at least P times the probability of the most likely", "P", "0"},
      {"repetition-penalty", "lowers the logits of tokens that the text has already; 1: not", "X", "1"},
      {"stop", "end before this text", "TEXT", ""},
      {"ignore-end", "go on behind the model's tokens for the end of a text, and the template's"},
      {"seed", "seed of the sampling", "S", "1"},
      {"precision", "what the model computes in: fp32, bf16, fp16, or run: what the run trained in", "P", "fp32"},
      {"ema", "with the averages of the parameters (optim.ema)"}};
  own.insert(own.end(), shared.begin(), shared.end());
  return with_choice_of_checkpoint(std::move(own));
}

}  // namespace lockstep
