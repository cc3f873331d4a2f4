#include "launch/serve/text_request.h"

#include <random>

namespace lockstep {
namespace {

constexpr int64_t kMostLikeliest = 20;  // OpenAI's limit of top_logprobs
constexpr size_t kMostStops = 16, kLongestStop = 1024;
constexpr int64_t kCompletionTokens = 16;  // OpenAI's default for completions

// The seed of a request that gives none. Replies return it, so that a client can repeat the request. 53 bits, which
// every JSON reader keeps exactly.
uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) >> 11;
}

// Errors of reading a prompt are the caller's.
template <class Read>
auto of_field(const std::string& name, Read read) {
  try {
    return read();
  } catch (const Error& e) {
    if (e.code() != ExitCode::kBadData && e.code() != ExitCode::kUsage) throw;
    refuse_field(name, "'", name, "': ", e.what());
  }
}

std::vector<int32_t> token_list(const std::vector<JsonValue>& values, const std::string& name, int64_t tokens) {
  std::vector<int32_t> out;
  for (const JsonValue& v : values) {
    const auto* id = std::get_if<int64_t>(&v);
    if (!id || *id < 0 || *id >= tokens)
      refuse_field(name, "'", name, "' holds ", json_text_of(v), "; the model's tokens are 0 to ", tokens - 1);
    out.push_back(static_cast<int32_t>(*id));
  }
  return out;
}

// What cannot fit is refused before it is encoded, which takes time.
void check_size(const std::string& text, const ServedText& model, const std::string& field) {
  constexpr size_t kLongestToken = 256;  // bytes
  const size_t most = kLongestToken * static_cast<size_t>(model.context);
  if (text.size() > most)
    throw ApiError({400,
                    str("'", field, "' has ", text.size(), " bytes, which cannot fit the model's context of ",
                        model.context, " tokens"),
                    field, "context_length_exceeded"});
}

AskedPrompt prompt_of(const std::string& text, const ServedText& model, bool special_tokens) {
  check_size(text, model, "prompt");
  return {text, prompt_of_text(text, *model.origin.vocabulary, {nullptr, special_tokens}).tokens};
}

AskedPrompt prompt_of(const std::vector<JsonValue>& ids, const ServedText& model) {
  const Vocabulary& vocabulary = *model.origin.vocabulary;
  AskedPrompt out{"", token_list(ids, "prompt", vocabulary.size())};
  if (out.tokens.empty()) refuse_field("prompt", "'prompt' has no tokens");
  out.text = vocabulary.decode(out.tokens);
  return out;
}

// A text, a list of texts, a list of token ids, or a list of such lists.
std::vector<AskedPrompt> read_prompts(RequestFields& fields, const ServedText& model) {
  const bool special = fields.flag("special_tokens").value_or(false);
  const JsonValue* value = fields.value("prompt");
  if (!value) refuse_field("prompt", "'prompt' is missing");
  if (const auto* text = std::get_if<std::string>(value)) return {prompt_of(*text, model, special)};
  const auto* list = std::get_if<JsonText>(value);
  const auto items = list ? parse_json_array(list->text) : std::nullopt;
  if (!items || items->empty())
    refuse_field("prompt", "'prompt' must be a text, a list of texts, a list of token ids or a list of such lists");
  if (std::holds_alternative<int64_t>((*items)[0])) return {prompt_of(*items, model)};
  std::vector<AskedPrompt> out;
  if (static_cast<int64_t>(items->size()) > model.most_choices)
    refuse_field("prompt", "'prompt' has ", items->size(), " prompts; one request may have ", model.most_choices);
  for (const JsonValue& item : *items) {
    const auto* text = std::get_if<std::string>(&item);
    const auto* ids = std::get_if<JsonText>(&item);
    const auto tokens = ids ? parse_json_array(ids->text) : std::nullopt;
    if (text) out.push_back(prompt_of(*text, model, special));
    else if (tokens) out.push_back(prompt_of(*tokens, model));
    else
      refuse_field("prompt", "'prompt' must be a text, a list of texts, a list of token ids or a list of such lists");
  }
  return out;
}

// The contents of messages may be lists of parts; those that are texts become one text.
std::string flat_messages(const std::string& list) {
  auto items = parse_json_array(list);
  if (!items) return list;
  for (JsonValue& item : *items) {
    auto* text = std::get_if<JsonText>(&item);
    auto message = text ? parse_json_object(text->text) : std::nullopt;
    if (!message) continue;
    for (auto& [name, value] : *message) {
      const auto* parts_text = name == "content" ? std::get_if<JsonText>(&value) : nullptr;
      const auto parts = parts_text ? parse_json_array(parts_text->text) : std::nullopt;
      if (!parts) continue;
      std::string content;
      for (const JsonValue& part : *parts) {
        const auto* object_text = std::get_if<JsonText>(&part);
        const auto object = object_text ? parse_json_object(object_text->text) : std::nullopt;
        if (!object || text_of(*object, "type") != "text")
          refuse_field("messages", "'messages' has a part that is no text; this model reads texts alone");
        content += text_of(*object, "text");
      }
      value = content;
    }
    text->text = json_line(*message);
  }
  return json_array(*items).text;
}

std::vector<int32_t> read_messages(RequestFields& fields, const ServedText& model) {
  if (!model.no_chat.empty()) refuse_field("messages", model.no_chat);
  const JsonValue* value = fields.value("messages");
  const auto* list = value ? std::get_if<JsonText>(value) : nullptr;
  if (!list) refuse_field("messages", "'messages' must be a list of messages");
  check_size(list->text, model, "messages");
  JsonObject record{{"messages", JsonText{flat_messages(list->text)}}};
  if (const JsonValue* values = fields.value("chat_template_kwargs"))
    record.emplace_back("chat_template_kwargs", *values);
  return of_field("messages", [&] {
    const Conversation conversation = conversation_of(record, "messages");
    require(!conversation.messages.empty(), ExitCode::kBadData, "holds no message");
    require(conversation.messages.back().role != "assistant", ExitCode::kBadData,
            "the conversation ends with a message of the assistant, which answers it already; leave that message out");
    return prompt_of_messages(conversation, *model.origin.vocabulary, model.chat.form).tokens;
  });
}

Sampling read_sampling(RequestFields& fields, uint64_t seed) {
  Sampling out;
  out.temperature = fields.number("temperature", 0, 100).value_or(1);
  out.top_p = fields.number("top_p", 0, 1).value_or(1);
  out.min_p = fields.number("min_p", 0, 1).value_or(0);
  const int64_t top_k = fields.integer("top_k", -1).value_or(0);
  out.top_k = std::max<int64_t>(top_k, 0);
  out.repetition_penalty = fields.number("repetition_penalty", 1e-3, 1e3).value_or(1);
  out.seed = seed;
  return out;
}

std::vector<std::string> read_stops(RequestFields& fields) {
  std::vector<std::string> out;
  const JsonValue* value = fields.value("stop");
  if (!value) return out;
  const auto add = [&](const std::string& stop) {
    if (stop.empty() || stop.size() > kLongestStop)
      refuse_field("stop", "'stop' must hold texts of 1 to ", kLongestStop, " bytes");
    out.push_back(stop);
  };
  if (const auto* text = std::get_if<std::string>(value)) {
    add(*text);
    return out;
  }
  const auto* list = std::get_if<JsonText>(value);
  const auto items = list ? parse_json_array(list->text) : std::nullopt;
  if (!items || items->size() > kMostStops)
    refuse_field("stop", "'stop' must be a text or a list of at most ", kMostStops);
  for (const JsonValue& item : *items) {
    const auto* text = std::get_if<std::string>(&item);
    if (!text) refuse_field("stop", "'stop' must be a text or a list of texts");
    add(*text);
  }
  return out;
}

// What both kinds of requests have. `standard_tokens`: new tokens where the request does not say; 0: what the context
// has room for.
void read_shared(RequestFields& fields, const ServedText& model, std::optional<int64_t> tokens, int64_t standard_tokens,
                 AskedTexts& out) {
  const bool ignore_end = fields.flag("ignore_eos").value_or(false);
  out.stream = fields.flag("stream").value_or(false);
  if (const JsonValue* options = fields.value("stream_options")) {
    const auto* text = std::get_if<JsonText>(options);
    const auto object = text ? parse_json_object(text->text) : std::nullopt;
    if (!object || !out.stream) refuse_field("stream_options", "'stream_options' is an object, and goes with 'stream'");
    out.stream_usage = json_bool(*object, "include_usage").value_or(false);
  }
  out.choices = fields.integer("n", 1, model.most_choices).value_or(1);
  out.seed = static_cast<uint64_t>(
      fields.integer("seed", std::numeric_limits<int64_t>::min()).value_or(static_cast<int64_t>(random_seed())));
  TextJob job;
  job.request.sampling = read_sampling(fields, out.seed);
  job.request.log_probs = out.log_probs;
  job.request.prompt_log_probs = out.echo && out.log_probs;
  job.stops = read_stops(fields);
  if (out.chat) {
    if (!ignore_end) job.stops.insert(job.stops.end(), model.chat.stops.begin(), model.chat.stops.end());
    job.drop_space = model.chat.drop_space;
  }
  if (!ignore_end) job.request.ends = out.chat ? model.chat_ends : model.ends;
  for (const char* name : {"presence_penalty", "frequency_penalty"}) fields.refuse_unless(name, {"0", "0.0"});
  fields.refuse_unless("logit_bias", {"{}"});
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
  fields.refuse_unknown();
  if (static_cast<int64_t>(out.prompts.size()) * out.choices > model.most_choices)
    refuse_field("n", out.prompts.size(), " prompts with 'n' ", out.choices, " are more than ", model.most_choices,
                 " texts, the most of one request");
  for (const AskedPrompt& prompt : out.prompts) {
    const auto size = static_cast<int64_t>(prompt.tokens.size());
    const int64_t room = model.context - size + 1;  // the last new token is not read
    const std::string what = out.chat ? "messages" : "prompt";
    if (size > model.context)
      throw ApiError({400, str("the prompt has ", size, " tokens; the model's context is ", model.context), what,
                      "context_length_exceeded"});
    job.request.tokens = tokens.value_or(standard_tokens > 0 ? std::min(standard_tokens, room) : room);
    if (job.request.tokens == 0) {  // the prompt alone
      job.request.log_probs = out.log_probs.value_or(0);
      job.request.prompt_log_probs = true;
    }
    if (job.request.tokens > room)
      throw ApiError({400,
                      str("the prompt has ", size, " tokens, and ", job.request.tokens,
                          " are asked for; the model's context is ", model.context),
                      what, "context_length_exceeded"});
    job.request.prompt = prompt.tokens;
    for (int64_t choice = 0; choice < out.choices; ++choice) {
      job.request.sampling.seed = seed_of_choice(out.seed, choice);
      out.jobs.push_back(job);
    }
  }
}

}  // namespace

AskedTexts read_completion(const std::string& body, const ServedText& model) {
  RequestFields fields(body);
  AskedTexts out;
  check_model(fields, model.name);
  out.prompts = of_field("prompt", [&] { return read_prompts(fields, model); });
  out.echo = fields.flag("echo").value_or(false);
  if (const JsonValue* given = fields.value("logprobs"); given && !std::holds_alternative<bool>(*given))
    out.log_probs = fields.integer("logprobs", 0, kMostLikeliest);
  else if (given && std::get<bool>(*given)) out.log_probs = 0;
  const auto tokens = fields.integer("max_tokens", 0);
  if (tokens == 0 && !out.echo) refuse_field("max_tokens", "'max_tokens' is 0: must be 1 or more, or go with 'echo'");
  if (const auto best = fields.integer("best_of", 1); best && *best != fields.integer("n", 1).value_or(1))
    refuse_field("best_of", "'best_of' is ", *best, ": it must equal 'n', as all texts are returned");
  fields.refuse_unless("suffix", {"\"\""});
  read_shared(fields, model, tokens, kCompletionTokens, out);
  return out;
}

AskedTexts read_chat(const std::string& body, const ServedText& model) {
  RequestFields fields(body);
  AskedTexts out;
  out.chat = true;
  check_model(fields, model.name);
  out.prompts = {{"", read_messages(fields, model)}};
  const auto most = fields.integer("max_completion_tokens", 1), older = fields.integer("max_tokens", 1);
  const bool log_probs = fields.flag("logprobs").value_or(false);
  const auto likeliest = fields.integer("top_logprobs", 0, kMostLikeliest);
  if (log_probs) out.log_probs = likeliest.value_or(0);
  else if (likeliest) refuse_field("top_logprobs", "'top_logprobs' goes with 'logprobs': true");
  fields.refuse_unless("tools", {"[]"});
  fields.refuse_unless("functions", {"[]"});
  fields.refuse_unless("response_format", {R"({"type":"text"})"});
  fields.refuse_unless("modalities", {R"(["text"])"});
  fields.ignore({"tool_choice", "parallel_tool_calls"});
  read_shared(fields, model, most ? most : older, 0, out);
  return out;
}

std::vector<int32_t> read_tokenize(const std::string& body, const ServedText& model) {
  RequestFields fields(body);
  check_model(fields, model.name);
  std::vector<int32_t> out;
  if (fields.value("messages")) {
    out = read_messages(fields, model);
  } else {
    const bool special = fields.flag("special_tokens").value_or(false);
    const auto text = fields.text("prompt");
    if (!text) refuse_field("prompt", "'prompt' or 'messages' is needed");
    check_size(*text, model, "prompt");
    out = of_field("prompt", [&] { return model.origin.vocabulary->encode(*text, special); });
  }
  fields.refuse_unknown();
  return out;
}

std::string read_detokenize(const std::string& body, const ServedText& model) {
  RequestFields fields(body);
  check_model(fields, model.name);
  const JsonValue* value = fields.value("tokens");
  const auto* list = value ? std::get_if<JsonText>(value) : nullptr;
  const auto items = list ? parse_json_array(list->text) : std::nullopt;
  if (!items) refuse_field("tokens", "'tokens' must be a list of token ids");
  fields.refuse_unknown();
  return model.origin.vocabulary->decode(token_list(*items, "tokens", model.origin.vocabulary->size()));
}

}  // namespace lockstep
