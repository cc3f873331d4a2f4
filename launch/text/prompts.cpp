#include "launch/text/prompts.h"

#include <algorithm>
#include <fstream>
#include <functional>

#include "core/base/error.h"
#include "data/import/line_reader.h"
#include "data/text/tokenizer/bpe.h"

namespace lockstep {
namespace {

// The first <|name|> of a text that is no token of the tokenizer; empty: there is none.
std::string unknown_token(const std::string& text, const Vocabulary& vocabulary) {
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  for (size_t at = text.find("<|"); at != text.npos; at = text.find("<|", at + 2)) {
    const size_t end = text.find_first_not_of(kName, at + 2);
    if (end == text.npos || end == at + 2 || text.compare(end, 2, "|>") != 0) continue;
    const std::string token = text.substr(at, end + 2 - at);
    if (vocabulary.special(token) < 0) return token;
  }
  return "";
}

// The first special token that a text spells out; empty: there is none.
std::string spelt_token(const std::string& text, const Vocabulary& vocabulary) {
  if (vocabulary.pairs())
    for (const AddedToken& token : vocabulary.pairs()->tables().added)
      if (token.special && text.find(token.text) != text.npos) return token.text;
  return "";
}

// `answer`: what it begins with.
std::vector<int32_t> encode_chat(const Conversation& conversation, const ChatTemplate& chat,
                                 const Vocabulary& vocabulary, const std::string& answer = "") {
  std::vector<TextPart> parts = chat.parts(conversation, true);
  // A tokenizer makes a space one token with the word behind it, which an answer begins with.
  if (answer.empty() && vocabulary.has_tokenizer() && !parts.empty() && !parts.back().special &&
      parts.back().text.ends_with(' '))
    parts.back().text.pop_back();
  parts.push_back({answer});
  std::vector<int32_t> ids;
  std::vector<uint8_t> targets;
  RecordEncoder(vocabulary, chat.special()).encode(parts, ids, targets);
  return ids;
}

// The fields of an object that its answer is printed beside: all but those that the answer has itself.
JsonObject kept_of(const JsonObject& object) {
  JsonObject out;
  for (const auto& member : object)
    if (const auto& name = member.first; name != "text" && name != "tokens" && name != "stopped") out.push_back(member);
  return out;
}

// Of an object with a conversation.
Prompt prompt_of_chat(const JsonObject& object, const Vocabulary& vocabulary, const PromptForm& form) {
  const Conversation conversation = conversation_of(object, "messages");
  require(!conversation.messages.empty(), ExitCode::kBadData, "its field \"messages\" holds no message");
  require(conversation.messages.back().role != "assistant", ExitCode::kBadData,
          "its conversation ends with a message of the assistant, which answers it already; leave that message out");
  return {kept_of(object), encode_chat(conversation, *form.chat, vocabulary)};
}

Prompt prompt_of_object(std::string_view line, const Vocabulary& vocabulary, const PromptForm& form) {
  const auto object = parse_json_object(line);
  require(object.has_value(), ExitCode::kBadData,
          "is no JSON object (or has a key twice, or is nested deeper than 32 levels)");
  const JsonValue *text = find_member(*object, "prompt"), *messages = find_member(*object, "messages");
  require((text != nullptr) != (messages != nullptr), ExitCode::kBadData,
          "needs one of the fields \"prompt\" and \"messages\"", text ? ", and has both" : "");
  if (text) {
    const auto* content = std::get_if<std::string>(text);
    require(content != nullptr, ExitCode::kBadData, "its field \"prompt\" is no text");
    Prompt out = prompt_of_text(*content, vocabulary, form);
    out.given = kept_of(*object);
    return out;
  }
  require(form.chat != nullptr, ExitCode::kBadData,
          "has messages, which a chat template turns into a prompt: add --chat");
  return prompt_of_chat(*object, vocabulary, form);
}

// Of a line of --messages.
Prompt prompt_of_list(std::string_view line, const Vocabulary& vocabulary, const PromptForm& form) {
  if (parse_json_array(line)) return prompt_of_chat({{"messages", JsonText{std::string(line)}}}, vocabulary, form);
  const auto object = parse_json_object(line);
  require(object.has_value() && find_member(*object, "messages"), ExitCode::kBadData,
          "is neither a list of messages nor a JSON object with \"messages\"");
  return prompt_of_chat(*object, vocabulary, form);
}

// A prompt for each line of a file of JSON lines.
std::vector<Prompt> prompts_of_lines(const std::string& path, const std::function<Prompt(std::string_view)>& read) {
  std::vector<Prompt> out;
  LineReader lines(path);
  for (std::string_view line; lines.next(line);) try {
      require(!lines.too_long(), ExitCode::kBadData, "is longer than ", LineReader::kLongestLine >> 20, " MiB");
      out.push_back(read(line));
    } catch (const Error& e) {
      throw e.with_message(str(lines.place(), ": ", e.what()));
    }
  require(!out.empty(), ExitCode::kBadData, path, ": holds no prompt");
  return out;
}

}  // namespace

void check_form(const PromptForm& form, const Vocabulary& vocabulary) {
  require(!form.special_tokens || form.chat || vocabulary.has_tokenizer(), ExitCode::kUsage,
          "--special-tokens is for a model with a tokenizer; the tokens of this one are ", to_text(vocabulary.level()),
          "s, none of which is special");
}

bool is_beginning(const ChatTemplate& chat, const Vocabulary& vocabulary) {
  if (!vocabulary.has_tokenizer()) return true;
  const Conversation question{{{"user", "Is it?"}}};
  const auto head = encode_chat(question, chat, vocabulary),
             with_answer = encode_chat(question, chat, vocabulary, "Yes");
  return head.size() <= with_answer.size() && std::equal(head.begin(), head.end(), with_answer.begin());
}

Prompt prompt_of_text(const std::string& text, const Vocabulary& vocabulary, const PromptForm& form) {
  Prompt out{{{"prompt", text}}};
  if (form.chat) {
    out.tokens = encode_chat({{{"user", text}}}, *form.chat, vocabulary);
    return out;
  }
  if (form.special_tokens) {
    const std::string unknown = unknown_token(text, vocabulary);
    require(unknown.empty(), ExitCode::kBadData, "the prompt holds ", unknown,
            ", which is no added token of the tokenizer; without --special-tokens it is text");
  } else {
    out.spelt = spelt_token(text, vocabulary);
  }
  out.tokens = vocabulary.encode(text, form.special_tokens);
  require(!out.tokens.empty(), ExitCode::kBadData, "the prompt is empty");
  return out;
}

Prompt prompt_of_messages(const Conversation& conversation, const Vocabulary& vocabulary, const PromptForm& form) {
  return {{}, encode_chat(conversation, *form.chat, vocabulary)};
}

std::vector<Prompt> read_prompts(const std::string& path, const Vocabulary& vocabulary, const PromptForm& form) {
  if (path.ends_with(".jsonl"))
    return prompts_of_lines(path, [&](std::string_view line) { return prompt_of_object(line, vocabulary, form); });
  std::vector<Prompt> out;
  std::ifstream in(path);
  require(in.good(), ExitCode::kMissingInput, "--prompts ", path, ": cannot be opened");
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    require(!line.empty(), ExitCode::kBadData, path, ": line ", out.size() + 1, " is empty; each line is a prompt");
    try {
      out.push_back(prompt_of_text(line, vocabulary, form));
    } catch (const Error& e) {
      throw e.with_message(str(path, ": line ", out.size() + 1, ": ", e.what()));
    }
  }
  require(!out.empty(), ExitCode::kBadData, path, ": holds no prompt");
  return out;
}

std::vector<Prompt> read_chats(const std::string& path, const Vocabulary& vocabulary, const PromptForm& form) {
  return prompts_of_lines(path, [&](std::string_view line) { return prompt_of_list(line, vocabulary, form); });
}

}  // namespace lockstep
