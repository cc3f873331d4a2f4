#include "data/text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/plain_file.h"
#include "data/text/valid_text.h"

namespace lockstep {
namespace fs = std::filesystem;
using jinja::Rendered;
using jinja::Text;

namespace {

constexpr int64_t kLargestFile = 16 << 20;  // bytes
constexpr std::string_view kFile = ".jinja";

// What a content says, whether it is a text or a list of parts.
constexpr const char* kWords =
    "{%- macro words(m) -%}"
    "{%- if m.content is string -%}{{ m.content }}"
    "{%- elif m.content -%}{%- for part in m.content -%}{{ part.text }}{%- endfor -%}{%- endif -%}"
    "{%- endmacro -%}";

constexpr const char* kChatml =
    "{%- for m in messages -%}"
    "{{ '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' -%}{%- generation -%}{{ words(m) + '<|im_end|>' }}{%- endgeneration -%}"
    "{%- else -%}{{ words(m) + '<|im_end|>' }}{%- endif -%}"
    "{{ '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

constexpr const char* kLlama3 =
    "{{ '<|begin_of_text|>' }}"
    "{%- for m in messages -%}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
    "{%- if m.role == 'assistant' -%}{%- generation -%}{{ words(m) | trim + '<|eot_id|>' }}{%- endgeneration -%}"
    "{%- else -%}{{ words(m) | trim + '<|eot_id|>' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}";

constexpr const char* kPlain =
    "{%- for m in messages -%}"
    "{{ m.role + ': ' }}"
    "{%- if m.role == 'assistant' -%}{%- generation -%}{{ words(m) + '\\n' }}{%- endgeneration -%}"
    "{%- else -%}{{ words(m) + '\\n' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'assistant: ' }}{%- endif -%}";

// The special tokens of one of ours; none for others.
const std::vector<std::string>& tokens_of(const std::string& name) {
  static const std::map<std::string, std::vector<std::string>> all{
      {"", {}},
      {"chatml", {"<|im_start|>", "<|im_end|>"}},
      {"llama3", {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}}};
  const auto found = all.find(name);
  return found == all.end() ? all.at("") : found->second;
}

// The text of a token as tokenizer_config.json has it: a text, or an object with "content".
std::string token_text(const JsonObject& object, std::string_view key) {
  const JsonValue* value = find_member(object, key);
  if (!value) return "";
  if (const auto* text = std::get_if<std::string>(value)) return *text;
  const auto* list = std::get_if<JsonText>(value);
  const auto token = list ? parse_json_object(list->text) : std::nullopt;
  return token ? text_of(*token, "content") : "";
}

JsonObject object_in(const std::string& path) {
  const auto object = parse_json_object(InputFile(path).text(kLargestFile));
  require(object.has_value(), ExitCode::kBadData, path, ": is no JSON object");
  return *object;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// "chat_template" of tokenizer_config.json: a text, or a list of named ones.
void read_templates(const JsonObject& config, const std::string& path, ChatSource& out) {
  const JsonValue* value = find_member(config, "chat_template");
  if (!value || std::holds_alternative<std::nullptr_t>(*value)) return;
  if (const auto* text = std::get_if<std::string>(value)) {
    out.source = *text;
    return;
  }
  const auto* list = std::get_if<JsonText>(value);
  const auto items = list ? parse_json_array(list->text) : std::nullopt;
  require(items.has_value(), ExitCode::kBadData, path, ": its chat_template is neither a text nor a list of them");
  for (const JsonValue& item : *items) {
    const auto* text = std::get_if<JsonText>(&item);
    const auto named = text ? parse_json_object(text->text) : std::nullopt;
    require(named.has_value(), ExitCode::kBadData, path, ": its chat_template holds what is no object");
    if (text_of(*named, "name") == "default") out.source = text_of(*named, "template");
    if (text_of(*named, "name") == "tool_use") out.tool_use = text_of(*named, "template");
  }
}

// bos_token and the like, by tokenizer_config.json or, where that has none, by special_tokens_map.json.
SpecialTokens named_tokens(const JsonObject& config, const std::string& folder) {
  const std::string map = folder + "/special_tokens_map.json";
  const JsonObject others = is_file(map) ? object_in(map) : JsonObject();
  SpecialTokens out;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    std::string token = token_text(config, name);
    if (token.empty()) token = token_text(others, name);
    if (!token.empty()) out.emplace_back(name, token);
  }
  return out;
}

std::vector<std::string> special_tokens_of(const ChatSource& source, const Vocabulary& vocabulary) {
  std::vector<std::string> out = tokens_of(source.name);
  if (source.name == "plain" || !vocabulary.has_tokenizer()) return out;
  // A template of ours has its own tokens alone: others in a message are text of it in any case.
  if (out.empty()) out = vocabulary.special_texts();
  std::sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.size() > b.size(); });
  return out;
}

jinja::Template parsed(const std::string& text, const ChatSource& source) {
  try {
    return jinja::Template(text);
  } catch (const Error& e) {
    throw e.with_message(str("the chat template ", source.name, ": ", e.what(),
                             "; --template names another one: chatml, llama3, plain or a file NAME.jinja"));
  }
}

}  // namespace

std::string ChatSource::text() const {
  JsonObject named;
  for (const auto& [name, token] : tokens) named.emplace_back(name, token);
  JsonObject out{{"name", name}, {"source", source}};
  if (!tool_use.empty()) out.emplace_back("tool_use", tool_use);
  out.emplace_back("tokens", JsonText{json_line(named)});
  return json_line(out);
}

ChatSource ChatSource::parse(const std::string& text) {
  const auto object = parse_json_object(text);
  require(object.has_value(), ExitCode::kBadData, "the chat template is no JSON object");
  constexpr const char* kWhere = "the chat template";
  ChatSource out{json_text(*object, "name", kWhere), json_text(*object, "source", kWhere)};
  out.tool_use = text_of(*object, "tool_use");
  const JsonValue* tokens = find_member(*object, "tokens");
  const auto* list = tokens ? std::get_if<JsonText>(tokens) : nullptr;
  const auto named = list ? parse_json_object(list->text) : std::nullopt;
  require(named.has_value(), ExitCode::kBadData, "the tokens of the chat template are no JSON object");
  for (const auto& [name, value] : *named) {
    const auto* token = std::get_if<std::string>(&value);
    require(token != nullptr, ExitCode::kBadData, "the token ", name, " of the chat template is no text");
    out.tokens.emplace_back(name, *token);
  }
  return out;
}

std::shared_ptr<const ChatSource> chat_source_of_folder(const std::string& folder) {
  ChatSource out{"own", ""};
  const std::string config = folder + "/tokenizer_config.json", file = folder + "/chat_template.jinja",
                    tools = folder + "/additional_chat_templates/tool_use.jinja";
  const JsonObject settings = is_file(config) ? object_in(config) : JsonObject();
  read_templates(settings, config, out);
  if (is_file(file)) out.source = InputFile(file).text(kLargestFile), out.tool_use.clear();
  if (is_file(tools)) out.tool_use = InputFile(tools).text(kLargestFile);
  for (const std::string* text : {&out.source, &out.tool_use})
    require(first_invalid(*text, TextEncoding::kUtf8) < 0, ExitCode::kBadData, folder,
            ": its chat template holds bytes that are no UTF-8");
  out.tokens = named_tokens(settings, folder);
  if (!out.has_template() && out.tokens.empty()) return nullptr;
  return std::make_shared<const ChatSource>(std::move(out));
}

ChatTemplate::ChatTemplate(ChatSource source, const Vocabulary& vocabulary, const std::string& values)
    : source_(std::move(source)),
      usual_(parsed(source_.source, source_)),
      special_(special_tokens_of(source_, vocabulary)),
      now_(static_cast<int64_t>(std::time(nullptr))) {
  if (!source_.tool_use.empty())
    with_tools_ = std::make_unique<const jinja::Template>(parsed(source_.tool_use, source_));
  if (!values.empty()) {
    const auto object = parse_json_object(values);
    require(object.has_value(), ExitCode::kUsage, "--template-values ", values.substr(0, 60),
            ": is no JSON object, such as {\"enable_thinking\": false}");
    values_ = *object;
  }
  for (const std::string& token : special_) begins_special_[static_cast<uint8_t>(token[0])] = true;
  find_head_and_end();
}

std::string ChatTemplate::identity() const {
  const bool dated = usual_.mentions("strftime_now") || (with_tools_ && with_tools_->mentions("strftime_now"));
  return str(hash128(source_.text()), " ", json_line(values_), dated ? str(" at ", now_ / 86400) : "");
}

const jinja::Template& ChatTemplate::used_for(const Conversation& conversation) const {
  return with_tools_ && !conversation.tools.empty() ? *with_tools_ : usual_;
}

Rendered ChatTemplate::rendered(const Conversation& conversation, bool answer_follows) const {
  require(conversation.messages.size() < Text::kOtherInput, ExitCode::kBadData, "has ", conversation.messages.size(),
          " messages; a conversation has ", Text::kOtherInput - 1, " at most");
  jinja::Values values;
  for (const auto& [name, token] : source_.tokens) values.emplace_back(name, Text(token));
  for (const JsonObject* more : {&values_, &conversation.values})
    for (const auto& [name, value] : *more) values.emplace_back(name, jinja::of_json(value, Text::kOtherInput));
  jinja::List messages;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    auto message = std::make_shared<jinja::Dict>();
    const auto origin = static_cast<char16_t>(i + 1);
    message->message = origin;
    for (const auto& [name, value] : conversation.messages[i].members)
      message->put(Text(name, name == "role" ? char16_t{0} : origin),
                   jinja::of_json(value, name == "role" ? char16_t{0} : origin));
    messages.items.emplace_back(std::move(message));
  }
  values.emplace_back("messages", std::move(messages));
  values.emplace_back("tools", conversation.tools.empty()
                                   ? jinja::Value()
                                   : jinja::of_json(JsonText{conversation.tools}, Text::kOtherInput));
  values.emplace_back("documents", nullptr);
  values.emplace_back("add_generation_prompt", answer_follows);
  try {
    return used_for(conversation).render(values, now_);
  } catch (const Error& e) {
    throw e.with_message(str("the chat template ", source_.name, ", ", e.what()));
  }
}

size_t ChatTemplate::special_at(const Text& text, size_t at) const {
  if (!begins_special_[static_cast<uint8_t>(text.bytes[at])]) return 0;
  for (const std::string& token : special_) {
    if (text.bytes.compare(at, token.size(), token) != 0) continue;
    const auto from_template = [&](size_t byte) { return text.origin_of(byte) == 0; };
    size_t i = at;
    while (i < at + token.size() && from_template(i)) ++i;
    if (i == at + token.size()) return token.size();
  }
  return 0;
}

void ChatTemplate::require_whole(const Conversation& conversation, const Rendered& r) const {
  std::vector<uint8_t> seen(conversation.messages.size() + 1);
  for (const char16_t origin : r.text.origins)
    if (origin < seen.size()) seen[origin] = 1;
  for (const jinja::Span& span : r.messages)
    if (span.message < seen.size() && conversation.messages[span.message - 1u].content().empty())
      seen[span.message] = 1;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage& m = conversation.messages[i];
    const JsonValue* content = find_member(m.members, "content");
    const bool blank = content && std::holds_alternative<std::string>(*content) &&
                       jinja::stripped(Text(m.content()), nullptr, jinja::Sides::kBoth).empty();
    require(seen[i + 1] || blank, ExitCode::kBadData, "the chat template ", source_.name, " shows nothing of message ",
            i, " (role ", m.role, "), and so would drop it");
    const JsonValue* calls = find_member(m.members, "tool_calls");
    require(!calls || std::holds_alternative<std::nullptr_t>(*calls) || used_for(conversation).mentions("tool_calls"),
            ExitCode::kBadData, "the chat template ", source_.name, " has no place for the tool_calls of message ", i);
  }
}

std::vector<uint8_t> ChatTemplate::marks(const Conversation& conversation, const Rendered& r) const {
  std::vector<uint8_t> out(r.text.size());
  const auto learnt = [&](char16_t message) {
    return message == 0 || message > conversation.messages.size() || conversation.messages[message - 1u].learnt;
  };
  // By the message that the loop was at; a template that counts messages is at none: then by what it shows of them.
  const auto span_learnt = [&](const jinja::Span& span) {
    bool out = learnt(span.message);
    for (size_t i = span.begin; span.message == 0 && i < span.end; ++i) out = out && learnt(r.text.origin_of(i));
    return out;
  };
  const auto mark = [&](size_t begin, size_t end) {
    if (begin < end)
      std::fill(out.begin() + static_cast<std::ptrdiff_t>(begin), out.begin() + static_cast<std::ptrdiff_t>(end), 1);
  };
  if (used_for(conversation).marks_generations()) {
    for (const jinja::Span& span : r.generations)
      if (span_learnt(span)) mark(span.begin, span.end);
    return out;
  }
  const bool answers =
      std::any_of(conversation.messages.begin(), conversation.messages.end(),
                  [](const ChatMessage& m) { return m.role == "assistant" && m.learnt && !m.content().empty(); });
  require(!answers || !r.messages.empty(), ExitCode::kBadData, "the chat template ", source_.name,
          " does not loop over the messages, so that nobody knows what of its text is an answer; mark answers by "
          "{% generation %} and {% endgeneration %}");
  for (char16_t before = 0; jinja::Span span : r.messages) {
    const ChatMessage& m = conversation.messages[span.message - 1u];
    const bool begins = std::exchange(before, span.message) != span.message;
    if (m.role != "assistant" || !m.learnt) continue;
    // What the template puts before an answer is not learnt, as far as it stands here, too.
    for (size_t i = 0; begins && i < head_.size() && span.begin < span.end && r.text.bytes[span.begin] == head_[i] &&
                       r.text.origin_of(span.begin) == 0;
         ++i)
      ++span.begin;
    // White space of the template behind the token that ends an answer is not.
    size_t end = span.end;
    const auto is_blank = [&](size_t at) {
      return r.text.origin_of(at) == 0 && std::string_view(" \t\r\n").find(r.text.bytes[at]) != std::string_view::npos;
    };
    while (end > span.begin && is_blank(end - 1)) --end;
    for (const std::string& token : special_)
      if (end >= span.begin + token.size() && special_at(r.text, end - token.size()) == token.size()) {
        span.end = end;
        break;
      }
    mark(span.begin, span.end);
  }
  return out;
}

std::vector<TextPart> ChatTemplate::parts(const Conversation& conversation, bool answer_follows) const {
  constexpr std::string_view kInRoles = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. ";
  for (size_t i = 0; i < conversation.messages.size(); ++i)
    require(conversation.messages[i].role.find_first_not_of(kInRoles) == std::string::npos, ExitCode::kBadData,
            "message ", i, " has a role that is no word: ", json_text_of(conversation.messages[i].role).substr(0, 60));
  const Rendered r = rendered(conversation, answer_follows);
  require_whole(conversation, r);
  // Of a prompt nothing is learnt.
  const std::vector<uint8_t> targets = answer_follows ? std::vector<uint8_t>(r.text.size()) : marks(conversation, r);
  std::vector<TextPart> out;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (begin < end) out.push_back({r.text.bytes.substr(begin, end - begin), targets[begin] != 0, false});
    begin = end;
  };
  for (size_t at = 0; at < r.text.size();) {
    if (const size_t size = special_at(r.text, at); size > 0) {
      flush(at);
      out.push_back({r.text.bytes.substr(at, size), targets[at] != 0, true});
      begin = at += size;
      continue;
    }
    if (at > begin && targets[at] != targets[begin]) flush(at);
    ++at;
  }
  flush(r.text.size());
  return out;
}

// By a conversation of two short messages. A template that refuses it, or writes them elsewhere, has neither.
void ChatTemplate::find_head_and_end() {
  const std::string answer = "Yes";
  try {
    const Conversation question{{{"user", "Is it?"}}}, both{{{"user", "Is it?"}, {"assistant", answer}}};
    const std::string before = rendered(question, false).text.bytes, with_head = rendered(question, true).text.bytes;
    if (with_head.starts_with(before)) head_ = with_head.substr(before.size());
    bool found = false;
    for (const TextPart& part : parts(both)) {
      const size_t at = part.target && !found ? part.text.find(answer) : std::string::npos;
      if (at != std::string::npos) {
        found = true;
        end_ = part.text.substr(at + answer.size());
      } else if (found && part.target && (part.special || end_.empty())) {
        // The token says more than the text before it.
        end_ = part.text;
        if (part.special) break;
      }
    }
  } catch (const Error&) {
    head_.clear(), end_.clear();
  }
}

const std::vector<ChatSource>& chat_sources() {
  static const std::vector<ChatSource> all{
      {"chatml", str(kWords, kChatml)}, {"llama3", str(kWords, kLlama3)}, {"plain", str(kWords, kPlain)}};
  return all;
}

namespace {

// The first of ours with special tokens all of which the tokenizer has; where there is none, chatml.
std::string usual_template(const Vocabulary& vocabulary) {
  for (const ChatSource& s : chat_sources()) {
    const auto& tokens = tokens_of(s.name);
    if (!tokens.empty() &&
        std::all_of(tokens.begin(), tokens.end(), [&](auto& t) { return vocabulary.special(t) >= 0; }))
      return s.name;
  }
  return "chatml";
}

}  // namespace

std::shared_ptr<const ChatTemplate> chat_template(const std::string& name, const Vocabulary& vocabulary,
                                                  const std::string& values) {
  const auto with_tokens = [&](ChatSource source) {
    if (vocabulary.chat()) source.tokens = vocabulary.chat()->tokens;
    return std::make_shared<const ChatTemplate>(std::move(source), vocabulary, values);
  };
  const bool has_own = vocabulary.chat() && vocabulary.chat()->has_template();
  if (has_own && (name.empty() || name == "own")) return with_tokens(*vocabulary.chat());
  if (name.ends_with(kFile))
    return with_tokens({fs::path(name).filename().string(), InputFile(name).text(kLargestFile)});
  const std::string wanted = name.empty() ? usual_template(vocabulary) : name;
  std::string names;
  for (const ChatSource& s : chat_sources()) {
    names += str(names.empty() ? "" : ", ", s.name);
    if (s.name != wanted) continue;
    const RecordEncoder encoder(vocabulary);
    for (const std::string& token : tokens_of(s.name)) encoder.need_token(token, str("the template ", s.name));
    return with_tokens(s);
  }
  throw Error(ExitCode::kUsage, str("there is no template ", wanted, "; there are ", names,
                                    ", the tokenizer's own, and files that end in ", kFile));
}

}  // namespace lockstep
