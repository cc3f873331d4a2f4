// Prompts of `lockstep generate`: texts, or conversations that a chat template turns into one text that an answer
// follows. Plain values and functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "data/text/chat_template.h"
#include "data/text/vocabulary.h"

namespace lockstep {

struct PromptForm {
  std::shared_ptr<const ChatTemplate> chat = {};  // a text is then one message of the user
  bool special_tokens = false;  // without `chat`: special tokens that the text spells out are those tokens
};

struct Prompt {
  JsonObject given;  // as it was given: {"prompt": TEXT} or {"messages": [...]}, with the other fields of its object
  std::vector<int32_t> tokens = {};
  std::string spelt = {};  // a special token of the tokenizer that the text spells out and that is text; empty: none
};

// Throws ExitCode::kUsage where the vocabulary has no special tokens to be read.
void check_form(const PromptForm& form, const Vocabulary& vocabulary);
// Whether the last tokens of a prompt are those that an imported conversation has there, before the first word of an
// answer. They differ where a tokenizer makes one token of two line ends, but two tokens of them before a word;
// transformers has the same difference.
bool is_beginning(const ChatTemplate& chat, const Vocabulary& vocabulary);
// Throws ExitCode::kBadData for text that the vocabulary cannot encode, for a text without tokens and, with
// `special_tokens`, naming a <|token|> that the tokenizer lacks.
Prompt prompt_of_text(const std::string& text, const Vocabulary& vocabulary, const PromptForm& form);
// Of a conversation that an answer of the assistant follows, with form.chat.
Prompt prompt_of_messages(const Conversation& conversation, const Vocabulary& vocabulary, const PromptForm& form);
// Of a file: each line is a text, or, where its name ends in .jsonl, a JSON object with "prompt" (a text) or, with a
// chat template, "messages" (objects with "role" and "content", of which the last is not the assistant's). Throws
// ExitCode::kMissingInput, and kBadData naming file and line for what prompt_of_text() refuses, an empty line, a line
// that is no such object, and a file without prompts.
std::vector<Prompt> read_prompts(const std::string& path, const Vocabulary& vocabulary, const PromptForm& form);
// Of a file of JSON lines with form.chat: each line is a list of messages, or an object with "messages". Throws what
// read_prompts() does.
std::vector<Prompt> read_chats(const std::string& path, const Vocabulary& vocabulary, const PromptForm& form);

}  // namespace lockstep
