#include "launch/text/text_model.h"

#include <algorithm>
#include <filesystem>

#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_model.h"
#include "launch/text/find_vocabulary.h"
#include "launch/training/weights/build_model.h"
#include "launch/training/weights/load_model.h"

namespace lockstep {

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
      log_warning(str(place, ": its end-of-text tokens cannot be read from init.from: ", from, " (", e.what(),
                      "); give init.from=PATH where that has moved, or the text of such a token by --stop"));
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

}  // namespace

Origin open_origin(const App& app, const std::string& from, const std::vector<std::string>& overrides) {
  trace_mark();
  const bool folder = is_hf_folder(from);
  require(!folder || overrides.empty(), ExitCode::kUsage, "init.from=PATH is for runs and checkpoints; ", from,
          " is a folder of transformers: leave init.from out");
  return folder ? origin_of_folder(app, from) : origin_of_run(app, from, overrides);
}

std::unique_ptr<Model> load_model_of(const Origin& origin, DType precision, bool averages) {
  trace_mark();
  auto model = origin.checkpoint ? load_model(*origin.settings, *origin.checkpoint, averages)
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

Manner manner_of(const MannerOptions& options, Origin& origin) {
  Manner out;
  const Vocabulary& vocabulary = *origin.vocabulary;
  if (!options.stop.empty()) out.stops.push_back(options.stop);
  if (options.chat) {
    out.form.chat = chat_template(options.chat_template, vocabulary, options.template_values);
    const ChatTemplate& chat = *out.form.chat;
    require_characters(chat, out.form, vocabulary, origin.place);
    if (!is_beginning(chat, vocabulary))
      log_warning(str("the tokenizer merges the end of the template ", chat.name(),
                      " with the beginning of an answer, so that a prompt has other tokens than in tuning; answers may "
                      "be worse"));
    const bool token = vocabulary.has_tokenizer() && vocabulary.special(chat.end()) >= 0;
    if (token) origin.ends.push_back(vocabulary.special(chat.end()));
    else if (!options.ignore_end && !chat.end().empty()) out.stops.push_back(chat.end());
    out.drop_space = vocabulary.has_tokenizer() && chat.head().ends_with(' ');
  }
  out.form.special_tokens = options.special_tokens;
  check_form(out.form, vocabulary);
  if (options.ignore_end) origin.ends.clear();
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

}  // namespace lockstep
