#include "launch/serve/text_answer.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <random>
#include <utility>

#include "core/base/hash.h"
#include "core/base/text_table.h"

namespace lockstep {
namespace {

std::string new_id(const char* kind) {
  static const uint64_t process = std::random_device()();
  static std::atomic<uint64_t> number{0};
  return kind + to_hex(hash128(str(process, " ", ++number))).substr(0, 24);
}

const char* finish_of(Finish finish) { return finish == Finish::kLength ? "length" : "stop"; }

JsonValue text_or_null(const char* text) { return text ? JsonValue(std::string(text)) : JsonValue(nullptr); }

// As JSON has it: bytes that are no UTF-8 become U+FFFD.
std::string valid_utf8(const std::string& text) {
  const auto read = parse_json_array(json_array(std::vector<JsonValue>{text}).text);
  return std::get<std::string>(read.value()[0]);
}

JsonText json_of(const JsonObject& object) { return {json_line(object)}; }

}  // namespace

TextAnswer::TextAnswer(std::shared_ptr<HttpExchange> exchange, AskedTexts asked, const ServedText& model,
                       std::string fingerprint)
    : exchange_(std::move(exchange)),
      asked_(std::move(asked)),
      model_(model),
      fingerprint_(std::move(fingerprint)),
      id_(new_id(asked_.chat ? "chatcmpl-" : "cmpl-")),
      created_(std::time(nullptr)),
      choices_(asked_.prompts.size() * static_cast<size_t>(asked_.choices)) {}

const AskedPrompt& TextAnswer::prompt_of(size_t index) const {
  return asked_.prompts[index / static_cast<size_t>(asked_.choices)];
}

std::string TextAnswer::text_of(int32_t token) const { return model_.origin.vocabulary->decode({token}); }

void TextAnswer::update(size_t index, TextUpdate update) {
  if (failed_) return;
  Choice& choice = choices_[index];
  if (update.finish == Finish::kCancelled) return fail(update.error);
  if (!update.prompt.empty()) choice.prompt = std::move(update.prompt);
  if (!choice.begun && asked_.echo) update.text.insert(0, prompt_of(index).text);
  choice.tokens.insert(choice.tokens.end(), std::make_move_iterator(update.tokens.begin()),
                       std::make_move_iterator(update.tokens.end()));
  const bool last = update.finish != Finish::kNone;
  if (last) choice.finish = finish_of(update.finish), choice.ended = true, ++ended_;
  if (asked_.stream) stream(index, update.text, last);
  else choice.text += update.text;
  choice.begun = true;
  if (ended_ == choices_.size()) reply();
}

void TextAnswer::fail(const std::string& why) {
  failed_ = true;
  const HttpError error{500, why};
  if (!asked_.stream || std::none_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.begun; })) {
    HttpReply reply = reply_of(error);
    reply.headers.emplace_back("x-should-retry", "false");  // OpenAI's clients would ask again
    return exchange_->reply(std::move(reply));
  }
  send_event(json_line(object_of(error)));
  exchange_->end();
}

JsonObject TextAnswer::head(const char* object) const {
  return {{"id", id_},
          {"object", std::string(object)},
          {"created", created_},
          {"model", model_.name},
          {"system_fingerprint", fingerprint_},
          {"seed", static_cast<int64_t>(asked_.seed)}};
}

JsonObject TextAnswer::usage() const {
  int64_t given = 0, added = 0;
  for (const AskedPrompt& prompt : asked_.prompts) given += static_cast<int64_t>(prompt.tokens.size());
  for (const Choice& choice : choices_)
    added += std::count_if(choice.tokens.begin(), choice.tokens.end(), [](const auto& token) { return !token.ends; });
  return {{"prompt_tokens", given}, {"completion_tokens", added}, {"total_tokens", given + added}};
}

// Of the tokens [first, end) of a choice, with those of the prompt in front.
JsonValue TextAnswer::log_probs(size_t index, size_t first, size_t end, bool with_prompt) {
  if (!asked_.log_probs) return nullptr;
  Choice& choice = choices_[index];
  if (asked_.chat) return chat_log_probs(choice, first, end);
  std::vector<JsonValue> tokens, values, likeliest, offsets;
  const auto add = [&](int32_t id, const LogProbs* found, bool first_of_prompt = false) {
    std::string text = text_of(id);
    // The space that a tokenizer puts in front of a text is none of the prompt's.
    if (first_of_prompt && text.starts_with(' ') && !prompt_of(index).text.starts_with(' ')) text.erase(0, 1);
    tokens.emplace_back(text);
    offsets.emplace_back(choice.offset);
    choice.offset += static_cast<int64_t>(columns(text));
    values.push_back(found ? JsonValue(found->chosen.log_prob) : JsonValue(nullptr));
    if (!found || *asked_.log_probs == 0) return likeliest.emplace_back(nullptr), void();
    JsonObject top;  // of tokens that read alike, the likelier
    for (const TokenLogProb& each : found->likeliest)
      if (const std::string name = valid_utf8(text_of(each.token)); !find_member(top, name))
        top.emplace_back(name, each.log_prob);
    likeliest.emplace_back(json_of(top));
  };
  if (with_prompt) {
    const std::vector<int32_t>& prompt = prompt_of(index).tokens;
    for (size_t i = 0; i < prompt.size(); ++i)
      add(prompt[i], i == 0 || i > choice.prompt.size() ? nullptr : &choice.prompt[i - 1], i == 0);
  }
  for (size_t i = first; i < end; ++i)
    add(choice.tokens[i].id, choice.tokens[i].log_probs ? &*choice.tokens[i].log_probs : nullptr);
  return json_of({{"tokens", json_array(tokens)},
                  {"token_logprobs", json_array(values)},
                  {"top_logprobs", json_array(likeliest)},
                  {"text_offset", json_array(offsets)}});
}

JsonValue TextAnswer::chat_log_probs(const Choice& choice, size_t first, size_t end) const {
  const auto of = [&](const TokenLogProb& each) {
    const std::string text = text_of(each.token);
    std::vector<JsonValue> bytes;
    for (const char c : text) bytes.emplace_back(static_cast<int64_t>(static_cast<unsigned char>(c)));
    return JsonObject{{"token", text}, {"logprob", each.log_prob}, {"bytes", json_array(bytes)}};
  };
  std::vector<JsonObject> content;
  for (size_t i = first; i < end; ++i) {
    const auto& found = choice.tokens[i].log_probs;
    if (!found || choice.tokens[i].ends) continue;
    JsonObject token = of(found->chosen);
    std::vector<JsonObject> top;
    for (const TokenLogProb& each : found->likeliest) top.push_back(of(each));
    token.emplace_back("top_logprobs", json_array(top));
    content.push_back(std::move(token));
  }
  return json_of({{"content", json_array(content)}, {"refusal", nullptr}});
}

void TextAnswer::send_event(const std::string& data) { exchange_->send("data: " + data + "\n\n"); }

// One event: what is new of a choice. Tokens whose text is held back wait for it.
void TextAnswer::stream(size_t index, const std::string& text, bool last) {
  Choice& choice = choices_[index];
  if (std::none_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.begun; }))
    exchange_->begin({200, "text/event-stream", "", {}});
  const auto event = [&](JsonValue content, JsonValue log_probs, const char* finish) {
    JsonObject out{{"index", static_cast<int64_t>(index)}};
    out.emplace_back(asked_.chat ? "delta" : "text", std::move(content));
    out.emplace_back("logprobs", std::move(log_probs));
    out.emplace_back("finish_reason", text_or_null(finish));
    JsonObject whole = head(asked_.chat ? "chat.completion.chunk" : "text_completion");
    whole.emplace_back("choices", json_array(std::vector<JsonObject>{out}));
    send_event(json_line(whole));
  };
  if (asked_.chat && !choice.begun) event(json_of({{"role", "assistant"}, {"content", ""}}), nullptr, nullptr);
  if (text.empty() && !last) return;
  const size_t first = std::exchange(choice.sent, choice.tokens.size());
  JsonValue found = log_probs(index, first, choice.tokens.size(), asked_.echo && first == 0 && !choice.begun);
  if (!asked_.chat) return event(text, std::move(found), last ? choice.finish : nullptr);
  if (!text.empty()) event(json_of({{"content", text}}), std::exchange(found, nullptr), nullptr);
  if (last) event(json_of({}), std::move(found), choice.finish);
}

void TextAnswer::reply() {
  if (asked_.stream) {
    if (asked_.stream_usage) {
      JsonObject last = head(asked_.chat ? "chat.completion.chunk" : "text_completion");
      last.emplace_back("choices", json_array(std::vector<JsonObject>{}));
      last.emplace_back("usage", json_of(usage()));
      send_event(json_line(last));
    }
    send_event("[DONE]");
    return exchange_->end();
  }
  std::vector<JsonObject> choices;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    JsonObject out{{"index", static_cast<int64_t>(i)}};
    if (asked_.chat)
      out.emplace_back("message", json_of({{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}));
    else out.emplace_back("text", choice.text);
    out.emplace_back("logprobs", log_probs(i, 0, choice.tokens.size(), asked_.echo));
    out.emplace_back("finish_reason", text_or_null(choice.finish));
    choices.push_back(std::move(out));
  }
  JsonObject whole = head(asked_.chat ? "chat.completion" : "text_completion");
  whole.emplace_back("choices", json_array(choices));
  whole.emplace_back("usage", json_of(usage()));
  exchange_->reply({200, "application/json", json_line(whole) + "\n"});
}

}  // namespace lockstep
