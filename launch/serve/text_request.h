// Requests for texts, in the form of OpenAI's API: read and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/serve/request_fields.h"
#include "launch/text/text_engine.h"

namespace lockstep {

// The model that is served, and how its texts are read. Lives as long as the server.
struct ServedText {
  const Origin& origin;
  std::string name;           // as requests name it
  int64_t context = 0;        // tokens of a prompt and its continuation
  int64_t most_choices = 64;  // texts of one request
  std::vector<int32_t> ends;  // of completions: tokens that end a text
  Manner chat;                // of conversations
  std::vector<int32_t> chat_ends;
  std::string no_chat = {};  // why the model takes no conversations; empty: it does
};

struct AskedPrompt {
  std::string text;  // as `echo` repeats it
  std::vector<int32_t> tokens;
};

struct AskedTexts {
  bool chat = false;
  bool stream = false, stream_usage = false, echo = false;
  std::optional<int64_t> log_probs;  // of so many of the likeliest tokens
  int64_t choices = 1;               // texts for each prompt
  uint64_t seed = 0;
  std::vector<AskedPrompt> prompts;
  std::vector<TextJob> jobs;  // `choices` for each prompt, in its order
};

// The body of /v1/completions and of /v1/chat/completions. Throw ApiError.
AskedTexts read_completion(const std::string& body, const ServedText& model);
AskedTexts read_chat(const std::string& body, const ServedText& model);

// The tokens of /tokenize: of a text ("prompt") or of a conversation ("messages").
std::vector<int32_t> read_tokenize(const std::string& body, const ServedText& model);
// The text of the tokens of /detokenize.
std::string read_detokenize(const std::string& body, const ServedText& model);

}  // namespace lockstep
