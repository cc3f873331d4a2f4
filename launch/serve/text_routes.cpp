#include "launch/serve/text_routes.h"

#include <ctime>

#include "launch/serve/text_answer.h"

namespace lockstep {
namespace {

void answer_texts(const Routes::Exchange& exchange, AskedTexts asked, const ServedText& model, TextEngine& engine,
                  const std::string& fingerprint) {
  std::vector<TextJob> jobs = std::move(asked.jobs);
  const auto answer = std::make_shared<TextAnswer>(exchange, std::move(asked), model, fingerprint);
  const auto id = engine.submit(
      std::move(jobs), [answer](size_t index, TextUpdate update) { answer->update(index, std::move(update)); });
  if (!id && engine.drains()) throw ApiError({503, "the server ends"});
  if (!id) throw ApiError({429, "too many texts wait for their turn; ask again in a second", "", "queue_full"});
  exchange->on_gone([&engine, id = *id] { engine.cancel(id); });
}

HttpReply metrics(const TextEngineCounts& c) {
  MetricsText out;
  out.add("texts_waiting", "gauge", "Texts that wait for a place.", c.waiting);
  out.add("texts_running", "gauge", "Texts that are being continued.", c.running);
  out.add("texts_total", "counter", "Texts that have ended.", c.texts);
  out.add("texts_cancelled_total", "counter", "Texts that ended early: their client went, or they took too long.",
          c.cancelled);
  out.add("texts_refused_total", "counter", "Texts that were not taken, as too many waited.", c.refused);
  out.add("prompt_tokens_total", "counter", "Tokens of prompts.", c.prompt_tokens);
  out.add("new_tokens_total", "counter", "Tokens that were added to prompts.", c.new_tokens);
  out.add("first_token_seconds_sum", "counter", "From a request to its first token, summed.", c.first_token_seconds);
  out.add("first_token_seconds_count", "counter", "First tokens.", c.first_tokens);
  out.add("later_token_seconds_sum", "counter", "From a text's first token to its last, summed.", c.later_seconds);
  out.add("later_token_seconds_count", "counter", "Tokens after the first ones, of texts that have ended.",
          c.later_tokens);
  return out.reply();
}

}  // namespace

Routes text_routes(const ServedText& model, TextEngine& engine, const std::string& fingerprint) {
  const JsonObject entry{{"id", model.name},
                         {"object", "model"},
                         {"created", static_cast<int64_t>(std::time(nullptr))},
                         {"owned_by", "lockstep"},
                         {"max_model_len", model.context},
                         {"root", model.origin.place},
                         {"reads", "prompts"},
                         {"chat", model.no_chat.empty()},
                         {"system_fingerprint", fingerprint}};
  Routes out;
  out.get("/metrics", [&engine] { return metrics(engine.counts()); });
  out.get("/v1/models", [entry] {
    return json_reply({{"object", "list"}, {"data", json_array(std::vector<JsonObject>{entry})}});
  });
  out.get("/v1/models/" + model.name, [entry] { return json_reply(entry); });
  out.post("/v1/completions", [&model, &engine, fingerprint](const Routes::Exchange& e) {
    answer_texts(e, read_completion(e->request().body, model), model, engine, fingerprint);
  });
  out.post("/v1/chat/completions", [&model, &engine, fingerprint](const Routes::Exchange& e) {
    answer_texts(e, read_chat(e->request().body, model), model, engine, fingerprint);
  });
  out.post("/tokenize", [&model](const Routes::Exchange& e) {
    const std::vector<int32_t> tokens = read_tokenize(e->request().body, model);
    e->reply(json_reply({{"count", static_cast<int64_t>(tokens.size())},
                         {"max_model_len", model.context},
                         {"tokens", json_array(std::vector<JsonValue>(tokens.begin(), tokens.end()))}}));
  });
  out.post("/detokenize", [&model](const Routes::Exchange& e) {
    e->reply(json_reply({{"prompt", read_detokenize(e->request().body, model)}}));
  });
  return out;
}

}  // namespace lockstep
