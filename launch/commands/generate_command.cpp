#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/device/stream.h"
#include "core/io/json.h"
#include "launch/arguments/text_options.h"
#include "launch/commands/commands.h"
#include "launch/terminal/output.h"
#include "launch/world/devices.h"
#include "launch/world/world.h"

namespace lockstep {

namespace {

constexpr const char* kNoPrompt = "\n";  // what is continued where no prompt is given

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

void stream_text(Decoder& decoder, const Prompt& prompt, const std::string& beginning, const DecodeRequest& request,
                 const Manner& manner, const Vocabulary& vocabulary, Rate& rate) {
  StreamedText shown;
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
       "generate RUN [init.from=PATH] [--prompt TEXT | --prompts FILE | --messages FILE] [--batch N] [--chat] "
       "[--template NAME] [--template-values JSON] "
       "[--special-tokens] "
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
       "--messages: each line of FILE is a conversation in JSON, a list of {\"role\", \"content\"} or an object with\n"
       "\"messages\", and the assistant's answer to it is a JSON object on a line of standard output, in their order.\n"
       "What a prompt becomes depends neither on the others nor on the number of threads.",
       with_generation_options(
           {{"prompt", "the text to continue; its characters must be in the run's vocabulary", "TEXT", kNoPrompt},
            {"prompts", "a file with a prompt in each line; FILE.jsonl: a JSON object in each line", "FILE", ""},
            {"messages", "a file with a conversation in each line, which the assistant answers; implies --chat", "FILE",
             ""},
            {"batch", "how many prompts are continued at once", "N", "8"},
            {"chat", "a prompt is a message of the user, or a conversation; the assistant answers"},
            {"template",
             "of --chat and --messages: chatml, llama3, plain or a file NAME.jinja, as in data import json; default: "
             "the "
             "one that the model was tuned with or that its tokenizer has, else chatml, or llama3 where the tokenizer "
             "has the tokens of that alone",
             "NAME", ""},
            {"special-tokens", "special tokens that a prompt spells out are those tokens; else they are text"},
            {"no-cache", "compute all tokens again for each new one: the same text, for comparison"},
            {"json", "--prompt, too, gives a JSON object; of --prompts and --messages no effect"}}),
       1, 2}};
}

int generate_command(const App& app, const std::vector<std::string>& given) {
  trace_mark();
  Arguments arguments = parse_arguments(generate_forms(), given);
  if (arguments.help) return 0;
  DecodeRequest request = request_of(arguments);
  const int64_t batch = arguments.integer("batch", 1, 4096);
  const std::string file = arguments.text("prompts"), prompt = arguments.text("prompt");
  const std::string chats = arguments.text("messages");
  const bool chat = arguments.has("chat") || !chats.empty();
  require(!prompt.empty(), ExitCode::kUsage, "lockstep generate: --prompt is empty");
  require(chats.empty() || (file.empty() && prompt == kNoPrompt), ExitCode::kUsage,
          "lockstep generate: --messages names the conversations: leave out --prompt and --prompts");
  require(!chat || !file.empty() || !chats.empty() || prompt != kNoPrompt, ExitCode::kUsage,
          "lockstep generate: --chat answers a message: give --prompt, --prompts or --messages");
  Origin origin = origin_of(app, arguments);
  const Manner manner = manner_of(arguments, chat, origin);
  request.ends = origin.ends;
  const Vocabulary& vocabulary = *origin.vocabulary;
  if (!is_first_process()) return 0;
  const Settings& settings = *origin.settings;
  Stream stream(place_alone(settings.device), Stream::Mode::kInline, available_cores());
  WithStream with(stream);
  apply(settings.device, stream);
  const auto model = model_of(origin, arguments);
  const int64_t context = origin.task.input[0];
  const std::vector<Prompt> prompts = !chats.empty()  ? read_chats(chats, vocabulary, manner.form)
                                      : !file.empty() ? read_prompts(file, vocabulary, manner.form)
                                                      : std::vector{prompt_of_text(prompt, vocabulary, manner.form)};
  warn_of(prompts, context);
  Decoder decoder(*model, origin.task,
                  decoder_options_of(prompts, batch, request.tokens, context, !arguments.has("no-cache")));
  Rate rate;
  if (!file.empty() || !chats.empty() || arguments.has("json"))
    print_objects(decoder, prompts, request, manner, vocabulary, rate);
  else stream_text(decoder, prompts[0], manner.form.chat ? "" : prompt, request, manner, vocabulary, rate);
  rate.say();
  return 0;
}

}  // namespace lockstep
