#include "launch/serve/predict_routes.h"

#include <ctime>

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

// The number of classes in "top=3" of a query.
int64_t top_of(const std::string& query) {
  if (query.empty()) return 1;
  const std::string digits = query.starts_with("top=") ? query.substr(4) : "";
  if (digits.empty() || digits.size() > 6 || digits.find_first_not_of("0123456789") != digits.npos)
    refuse_field("top", "the query '", query, "' must be top=K, the number of classes to tell");
  return std::stoll(digits);
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
  const auto name = fields.text("model");
  if (name && *name != model.name)
    throw ApiError({404, str("there is no model '", *name, "' here; the one that is served is '", model.name, "'"),
                    "model", "model_not_found"});
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
    if (!taken && service.drains()) throw ApiError({503, "the server ends"});
    if (!taken) throw ApiError({429, "too many requests wait for their turn; ask again in a second", "", "queue_full"});
  });
  return out;
}

}  // namespace lockstep
