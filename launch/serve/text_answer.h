// TextAnswer: the reply to one request for texts, whole or as a stream of events, in the form of OpenAI's API. Made
// from the updates of a TextEngine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launch/http/http_server.h"
#include "launch/serve/text_request.h"

namespace lockstep {

class TextAnswer {
 public:
  // `fingerprint`: of the model and how it computes. `exchange`: that of the request. `asked.jobs` is not read.
  TextAnswer(std::shared_ptr<HttpExchange> exchange, AskedTexts asked, const ServedText& model,
             std::string fingerprint);

  // Of the job `index`. Sends what is certain, where the request asks for a stream, and the whole once all have ended.
  // Used by one thread.
  void update(size_t index, TextUpdate update);

 private:
  struct Choice {
    std::string text = {};
    std::vector<TextUpdate::Token> tokens = {};
    std::vector<LogProbs> prompt = {};
    size_t sent = 0;     // of `tokens`, in a stream
    int64_t offset = 0;  // characters before the next token, for text_offset
    bool ended = false, begun = false;
    const char* finish = nullptr;
  };

  void fail(const std::string& why);
  void stream(size_t index, const std::string& text, bool last);
  void reply();
  void send_event(const std::string& data);
  JsonObject head(const char* object) const;
  JsonObject usage() const;
  JsonValue log_probs(size_t index, size_t first, size_t end, bool with_prompt);
  JsonValue chat_log_probs(const Choice& choice, size_t first, size_t end) const;
  const AskedPrompt& prompt_of(size_t index) const;
  std::string text_of(int32_t token) const;

  const std::shared_ptr<HttpExchange> exchange_;
  const AskedTexts asked_;
  const ServedText& model_;
  const std::string fingerprint_, id_;
  const int64_t created_;
  std::vector<Choice> choices_;
  size_t ended_ = 0;
  bool failed_ = false;
};

}  // namespace lockstep
