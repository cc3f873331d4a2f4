#include "launch/serve/predict_routes.h"

#include <ctime>

#include "data/text/vocabulary.h"
#include "launch/serve/request_fields.h"

namespace lockstep {
namespace {

constexpr const char* kText = "text";  // the field that PredictRequest has texts in

// "rows", "texts" or "images"
const char* reads(const ServedPredictions& model) {
  switch (model.predictor.data->schema.kind) {
    case DataKind::kTokens: return "texts";
    case DataKind::kImages: return "images";
    case DataKind::kTable: break;
  }
  return "rows";
}

std::vector<JsonValue> list_of(RequestFields& fields, const std::string& name, int64_t most) {
  const JsonValue* value = fields.value(name);
  const auto* text = value ? std::get_if<JsonText>(value) : nullptr;
  auto items = text ? parse_json_array(text->text) : std::nullopt;
  if (!items || items->empty())
    refuse_field(name, "'", name, "' must be a list of ", name == "rows" ? "objects, each a row" : "texts");
  if (std::ssize(*items) > most)
    refuse_field(name, "'", name, "' has ", items->size(), "; one request may have ", most);
  return std::move(*items);
}

// RFC 4648.
std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kDigits[three >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

// The values of a layer, [..., "values": LIST], as OpenAI's API has them.
JsonObject embedding_of(const JsonObject& sample, int64_t index, bool as_base64) {
  const JsonValue* values = find_member(sample, "values");
  check(values != nullptr, "a layer without values");
  JsonObject out{{"object", "embedding"}, {"index", index}};
  if (!as_base64) {
    out.emplace_back("embedding", *values);
    return out;
  }
  const auto numbers = parse_json_array(std::get<JsonText>(*values).text);
  check(numbers.has_value(), "the values of a layer are no list");
  std::string bytes;
  for (const JsonValue& each : *numbers) {
    const auto number = static_cast<float>(as_number(each).value_or(0));
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  out.emplace_back("embedding", base64(bytes));
  return out;
}

// The number of classes in "top=3" of a query.
int64_t top_of(const std::string& query) {
  if (query.empty()) return 1;
  const std::string digits = query.starts_with("top=") ? query.substr(4) : "";
  if (digits.empty() || digits.size() > 6 || digits.find_first_not_of("0123456789") != digits.npos)
    refuse_field("top", "the query '", query, "' must be top=K, the number of classes to tell");
  return std::stoll(digits);
}

void require_taken(bool taken, const PredictService& service) {
  if (!taken && service.drains()) throw ApiError({503, "the server ends"});
  if (!taken) throw ApiError({429, "too many requests wait for their turn; ask again in a second", "", "queue_full"});
}

}  // namespace

PredictRequest read_predict(const HttpRequest& request, const ServedPredictions& model) {
  const std::string* type = request.header("content-type");
  const std::string wanted = reads(model);
  PredictRequest out;
  if (type && type->starts_with("image/")) {
    if (wanted != "images") refuse_field("", "the body is an image, but the model reads ", wanted);
    if (request.body.empty()) refuse_field("", "the body is empty; it must be a PNG or JPEG file");
    out.images.push_back(request.body);
    out.top = top_of(request.query);
    return out;
  }
  RequestFields fields(request.body);
  check_model(fields, model.name);
  if (wanted == "images")
    refuse_field("",
                 "the model reads images: send a PNG or JPEG file as the body, with Content-Type image/png or "
                 "image/jpeg");
  for (const JsonValue& item : list_of(fields, wanted, model.most_samples)) {
    if (wanted == "texts") {
      const auto* text = std::get_if<std::string>(&item);
      if (!text) refuse_field("texts", "'texts' must be a list of texts");
      out.rows.push_back({{kText, *text}});
      continue;
    }
    const auto* text = std::get_if<JsonText>(&item);
    auto row = text ? parse_json_object(text->text) : std::nullopt;
    if (!row) refuse_field("rows", "'rows' must be a list of objects, each a row: {COLUMN: VALUE, ...}");
    out.rows.push_back(std::move(*row));
  }
  out.top = fields.integer("top", 0, 1000000).value_or(1);
  fields.refuse_unknown();
  return out;
}

AskedEmbeddings read_embeddings(const HttpRequest& request, const ServedPredictions& model) {
  RequestFields fields(request.body);
  check_model(fields, model.name);
  if (reads(model) != std::string("texts") || !model.predictor.data->vocabulary)
    refuse_field("", "the model reads no texts; /v1/predict gives the values of its layer for what it reads");
  AskedEmbeddings out;
  const JsonValue* input = fields.value("input");
  const auto add = [&](const std::string& text) {
    out.tokens += std::ssize(model.predictor.data->vocabulary->encode(text));
    out.request.rows.push_back({{kText, text}});
  };
  if (const auto* text = input ? std::get_if<std::string>(input) : nullptr) {
    add(*text);
  } else {
    for (const JsonValue& item : list_of(fields, "input", model.most_samples)) {
      const auto* each = std::get_if<std::string>(&item);
      if (!each) refuse_field("input", "'input' must be a text or a list of texts");
      add(*each);
    }
  }
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    refuse_field("encoding_format", "'encoding_format' is '", format, "': must be float or base64");
  out.base64 = format == "base64";
  fields.refuse_unless("dimensions", {});
  fields.ignore({"user"});
  fields.refuse_unknown();
  return out;
}

Routes predict_routes(const ServedPredictions& model, PredictService& service) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? JsonValue(nullptr) : JsonValue(text); };
  const JsonObject entry{{"id", model.name},
                         {"object", "model"},
                         {"created", static_cast<int64_t>(std::time(nullptr))},
                         {"owned_by", "lockstep"},
                         {"root", model.predictor.place},
                         {"reads", std::string(reads(model))},
                         {"about", described(model.predictor.data->schema)},
                         {"system_fingerprint", text_or_null(model.fingerprint)}};
  Routes out;
  out.get("/v1/models", [entry] {
    return json_reply({{"object", "list"}, {"data", json_array(std::vector<JsonObject>{entry})}});
  });
  out.get("/v1/models/" + model.name, [entry] { return json_reply(entry); });
  out.get("/metrics", [&service] {
    const PredictService::Counts c = service.counts();
    MetricsText text;
    text.add("predict_waiting", "gauge", "Requests that wait, or are being answered.", c.waiting);
    text.add("predict_requests_total", "counter", "Requests that were answered.", c.requests);
    text.add("predict_samples_total", "counter", "Their samples.", c.samples);
    text.add("predict_refused_total", "counter", "Requests that were not taken, as too many waited.", c.refused);
    text.add("predict_seconds_total", "counter", "Time spent on them.", c.seconds);
    return text.reply();
  });
  out.post("/v1/predict", [&model, &service, text_or_null](const Routes::Exchange& e) {
    const bool taken = service.submit(read_predict(e->request(), model),
                                      [e, &model, text_or_null](const Predictions& found, std::exception_ptr error) {
                                        if (error) return e->reply(reply_of(error));
                                        if (!found.pictures.empty())
                                          return e->reply({200, "image/png", found.pictures[0]});
                                        e->reply(json_reply({{"object", "list"},
                                                             {"model", model.name},
                                                             {"system_fingerprint", text_or_null(model.fingerprint)},
                                                             {"predictions", json_array(found.samples)}}));
                                      });
    require_taken(taken, service);
  });
  if (!model.embeds) return out;
  out.post("/v1/embeddings", [&model, &service](const Routes::Exchange& e) {
    AskedEmbeddings asked = read_embeddings(e->request(), model);
    const bool taken = service.submit(std::move(asked.request), [e, &model, base64 = asked.base64,
                                                                 tokens = asked.tokens](const Predictions& found,
                                                                                        std::exception_ptr error) {
      if (error) return e->reply(reply_of(error));
      std::vector<JsonObject> data;
      for (const JsonObject& sample : found.samples) data.push_back(embedding_of(sample, std::ssize(data), base64));
      const JsonText usage{json_line({{"prompt_tokens", tokens}, {"total_tokens", tokens}})};
      e->reply(json_reply({{"object", "list"}, {"data", json_array(data)}, {"model", model.name}, {"usage", usage}}));
    });
    require_taken(taken, service);
  });
  return out;
}

}  // namespace lockstep
