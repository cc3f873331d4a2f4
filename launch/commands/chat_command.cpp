#include <unistd.h>

#include <csignal>
#include <iostream>
#include <set>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/device/stream.h"
#include "core/io/files.h"
#include "core/io/json.h"
#include "launch/arguments/text_options.h"
#include "launch/commands/commands.h"
#include "launch/terminal/output.h"
#include "launch/world/devices.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

constexpr const char* kHelp =
    "/reset       forget the conversation\n"
    "/system TEXT begin a new one, with this message before it\n"
    "/save FILE   write it as a line of JSON, as `data import json --messages` reads it\n"
    "/help        this list\n"
    "/exit        end, as the end of input does\n"
    "Ctrl-C ends an answer. A line that ends with \\ goes on in the next one.\n";

volatile std::sig_atomic_t interrupted = 0;

// Ctrl-C ends the answer that is being written, and does nothing else, as long as this lives.
class AnswersAreInterrupted {
 public:
  AnswersAreInterrupted() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = SA_RESTART;
    interrupted = 0;
    ::sigaction(SIGINT, &action, &before_);
  }
  ~AnswersAreInterrupted() { ::sigaction(SIGINT, &before_, nullptr); }
  AnswersAreInterrupted(const AnswersAreInterrupted&) = delete;

 private:
  struct sigaction before_ {};
};

class Chat {
 public:
  Chat(const Origin& origin, const Manner& manner, Model& model, const DecodeRequest& request,
       const std::string& system)
      : vocabulary_(*origin.vocabulary),
        manner_(manner),
        request_(request),
        context_(origin.task.input[0]),
        decoder_(model, origin.task, {.places = 1, .place_tokens = context_}) {
    begin(system);
  }

  void begin(const std::string& system) {
    messages_.clear();
    if (!system.empty()) messages_.push_back({"system", system});
    first_sent_ = messages_.size();
  }

  // Answers a message of the user, and remembers both. One that the vocabulary cannot encode is refused with a warning,
  // and not remembered.
  void say(const std::string& text) {
    messages_.push_back({"user", text});
    Prompt prompt;
    try {
      vocabulary_.encode(text);  // an error then counts the bytes of the message, and not of the whole conversation
      prompt = fitting_prompt();
    } catch (const Error& e) {
      if (e.code() != ExitCode::kBadData) throw;
      messages_.pop_back();
      return log_warning(str("this message is not sent: ", e.what()));
    }
    StreamedText shown;
    GrowingText growing(manner_.stops, manner_.drop_space);
    std::string answer;
    const auto show = [&](const std::string& more) { shown.add(more), answer += more; };
    const AnswersAreInterrupted interruptible;
    continue_prompts(
        decoder_, {std::move(prompt)}, request_,
        [&](size_t, int32_t token) {
          show(growing.add(vocabulary_.decode({token})));
          return !growing.stopped() && interrupted == 0;
        },
        [](size_t) {});
    show(growing.rest());
    print_out("\n");
    messages_.push_back({"assistant", answer});
  }

  // In place of what this conversation was saved to before, and of nothing else.
  void save(const std::string& path) {
    std::vector<JsonObject> all;
    for (const ChatMessage& m : messages_) all.push_back(m.members);
    write_output(path, json_line({{"messages", json_array(all)}}) + "\n", saved_.contains(path));
    saved_.insert(path);
    log_info(str("saved ", messages_.size(), " messages to ", path));
  }

 private:
  // The conversation's tokens. Where they and an answer are more than the model's context, the model no longer sees the
  // oldest turns; it always sees the system's message.
  Prompt fitting_prompt() {
    for (bool said = false;; said = true) {
      std::vector<ChatMessage> sent(messages_.begin() + static_cast<std::ptrdiff_t>(first_sent_), messages_.end());
      if (messages_[0].role == "system") sent.insert(sent.begin(), messages_[0]);
      Prompt prompt = prompt_of_messages({std::move(sent)}, vocabulary_, manner_.form);
      const auto tokens = static_cast<int64_t>(prompt.tokens.size());
      const bool fits = tokens + std::min(request_.tokens, context_ / 2) <= context_;
      if (fits || messages_.size() - first_sent_ <= 2) return prompt;
      if (!said)
        log_warning(str("the conversation has ", tokens, " tokens of the model's ", context_,
                        "; its oldest turns are left out from now on"));
      first_sent_ += 2;
    }
  }

  const Vocabulary& vocabulary_;
  const Manner& manner_;
  const DecodeRequest& request_;
  const int64_t context_;
  Decoder decoder_;
  std::vector<ChatMessage> messages_;
  size_t first_sent_ = 0;        // of messages_, the first that the model sees, but for the system's
  std::set<std::string> saved_;  // names of files
};

// A message, or a command; false at the end of input.
bool read_message(std::string& text) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  text.clear();
  for (std::string line; terminal && (std::cerr << (text.empty() ? "> " : ". ") << std::flush),
                         static_cast<bool>(std::getline(std::cin, line));) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.ends_with('\\')) return text += line, true;
    line.back() = '\n';
    text += line;
  }
  return !text.empty();
}

// Whether the conversation goes on. What a command cannot do is said, and ends nothing.
bool obey(const std::string& line, Chat& conversation) {
  const size_t space = line.find(' ');
  const std::string word = line.substr(0, space), rest = space == line.npos ? "" : line.substr(space + 1);
  if (word == "/exit") return false;
  if (word == "/help") log_info(kHelp);
  else if (word == "/reset") conversation.begin("");
  else if (word == "/system") conversation.begin(rest);
  else if (word == "/save" && !rest.empty()) try {
      conversation.save(rest);
    } catch (const Error& e) {
      log_warning(e.what());
    }
  else log_warning(str(word, word == "/save" ? " needs the name of a file" : " is no command; /help lists them"));
  return true;
}

}  // namespace

std::vector<Command> chat_forms() {
  std::vector<Option> options{
      {"system", "a message of the system before the conversation", "TEXT", ""},
      {"template",
       "chatml, llama3, plain or a file NAME.jinja, as in data import json; default: the one that the model was tuned "
       "with or that its tokenizer has, else chatml, or llama3 where the tokenizer has the tokens of that alone",
       "NAME", ""}};
  return {{"chat",
           "chat RUN [init.from=PATH] [--system TEXT] [--template NAME] [--template-values JSON] [--tokens N] "
           "[--temperature X] [--top-k K] "
           "[--top-p P] "
           "[--min-p P] [--repetition-penalty X] [--stop TEXT] [--seed S] [--precision P] [--best | --at STEP] [--ema]",
           str("A conversation with the model of RUN, which was trained on conversations: a run directory (its newest\n"
               "checkpoint), a checkpoint, or a folder of transformers with its tokenizer. Each line of standard input "
               "is a\nmessage, and the answer is printed as it grows; both are remembered. These are no messages:\n",
               kHelp),
           with_generation_options(std::move(options)), 1, 2}};
}

int chat_command(const App& app, const std::vector<std::string>& given) {
  Arguments arguments = parse_arguments(chat_forms(), given);
  if (arguments.help) return 0;
  DecodeRequest request = request_of(arguments);
  Origin origin = origin_of(app, arguments);
  const Manner manner = manner_of(arguments, true, origin);
  request.ends = origin.ends;
  if (!is_first_process()) return 0;
  Stream stream(place_alone(origin.settings->device), Stream::Mode::kInline, available_cores());
  WithStream with(stream);
  apply(origin.settings->device, stream);
  const auto model = model_of(origin, arguments);
  Chat conversation(origin, manner, *model, request, arguments.text("system"));
  for (std::string text; read_message(text);) {
    if (text.empty()) continue;
    if (text[0] != '/') conversation.say(text);
    else if (!obey(text, conversation)) break;
  }
  return 0;
}

}  // namespace lockstep
