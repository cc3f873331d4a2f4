#include "data/text/tokenizer/file_parts.h"

#include <algorithm>

#include "data/text/tokenizer/bpe_tables.h"

namespace lockstep {

JsonObject TokenizerJson::whole(std::string_view text, LengthRules rules) const {
  JsonObject out = object(text, "is no JSON object, or has a key twice");
  for (const char* key : {"truncation", "padding"})
    if (rules == LengthRules::kRefuse && !is_absent(out, key))
      refuse(true, "has \"", key, "\": ", json_text_of(*find_member(out, key)).substr(0, 200),
             ", which is not applied to texts; give --whole-texts to encode them whole, or make \"", key,
             "\" null in a copy of the file");
  return out;
}

JsonObject TokenizerJson::object(std::string_view text, std::string_view otherwise) const {
  auto found = parse_json_object(text);
  refuse(!found, otherwise);
  return std::move(*found);
}

bool TokenizerJson::is_absent(const JsonObject& of, std::string_view key) {
  const JsonValue* v = find_member(of, key);
  return !v || std::holds_alternative<std::nullptr_t>(*v);
}

std::string_view TokenizerJson::list_or_object(const JsonValue* v) {
  const auto* text = v ? std::get_if<JsonText>(v) : nullptr;
  return text ? std::string_view(text->text) : std::string_view();
}

JsonObject TokenizerJson::member_object(const JsonObject& of, std::string_view key) const {
  return object(list_or_object(of, key), str("has no object \"", key, "\""));
}

std::vector<JsonValue> TokenizerJson::member_list(const JsonObject& of, std::string_view key) const {
  auto found = parse_json_array(list_or_object(of, key));
  refuse(!found, "has no list \"", key, "\"");
  return std::move(*found);
}

std::vector<std::string> TokenizerJson::tokens_by_id(std::string_view vocabulary, int64_t most_gaps) const {
  const JsonObject list = object(vocabulary, "has a vocabulary that is no JSON object, or has a token twice");
  int64_t largest = -1;
  for (const auto& [token, value] : list) {
    const int64_t* id = std::get_if<int64_t>(&value);
    refuse(!id || *id < 0 || *id >= kMostBpeTokens, "token ", quoted_token(token), " has an id that is none");
    largest = std::max(largest, *id);
  }
  refuse(largest >= static_cast<int64_t>(list.size()) + most_gaps, "leaves ids without a token");
  std::vector<std::string> out(static_cast<size_t>(largest + 1));
  for (const auto& [token, value] : list) {
    std::string& place = out[static_cast<size_t>(std::get<int64_t>(value))];
    refuse(token.empty(), "has an empty token");
    refuse(!place.empty(), "tokens ", quoted_token(place), " and ", quoted_token(token), " have the same id");
    place = token;
  }
  return out;
}

Surround TokenizerJson::surround(const JsonObject& post, int64_t tokens) const {
  Surround out;
  const auto id_in = [&](const JsonValue& value) {
    const int64_t* id = std::get_if<int64_t>(&value);
    refuse(!id || *id < 0 || *id >= tokens, "has a post-processor with an id that is none");
    return static_cast<int32_t>(*id);
  };
  const std::string type = text_of(post, "type");
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    for (const auto& [key, to] : {std::pair("cls", &out.before), std::pair("sep", &out.after)}) {
      const std::vector<JsonValue> pair = member_list(post, key);
      refuse(pair.size() != 2, "has a post-processor whose \"", key, "\" is no token and its id");
      to->push_back(id_in(pair[1]));
    }
    return out;
  }
  refuse(type != "TemplateProcessing", "has the post-processor ", quoted_token(type),
         "; BertProcessing, RobertaProcessing and TemplateProcessing are supported");
  const JsonObject special = member_object(post, "special_tokens");
  bool behind = false;
  for (const JsonValue& value : member_list(post, "single")) {
    const JsonObject part = object(list_or_object(&value), "has a part of a template that is no object");
    if (find_member(part, "Sequence")) {
      refuse(behind, "has a template with two texts for one");
      behind = true;
      continue;
    }
    const std::string name = text_of(member_object(part, "SpecialToken"), "id");
    for (const JsonValue& id : member_list(member_object(special, name), "ids"))
      (behind ? out.after : out.before).push_back(id_in(id));
  }
  refuse(!behind, "has a template without the text");
  return out;
}

std::string surround_json(const Surround& around, const std::vector<std::string>& tokens) {
  if (around.empty()) return "null";
  const auto text = [&](int32_t id) { return json_text_of(tokens[static_cast<size_t>(id)]); };
  const auto special_part = [&](int32_t id, int part) {  // with the ids of a text's first or second part
    return str("{\"SpecialToken\":{\"id\":", text(id), ",\"type_id\":", part, "}}");
  };
  std::string before, after, second, special;
  std::vector<int32_t> ids = around.before;
  ids.insert(ids.end(), around.after.begin(), around.after.end());
  for (int32_t id : around.before) before += special_part(id, 0) + ",";
  for (int32_t id : around.after) after += "," + special_part(id, 0), second += "," + special_part(id, 1);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (int32_t id : ids)
    special += str(special.empty() ? "" : ",", text(id), ":{\"id\":", text(id), ",\"ids\":[", id, "],\"tokens\":[",
                   text(id), "]}");
  const std::string a = before + "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}" + after;
  return str("{\"type\":\"TemplateProcessing\",\"single\":[", a, "],\"pair\":[", a,
             ",{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}", second, "],\"special_tokens\":{", special, "}}");
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.push_back(line);
    at = end + 1;
  }
  return out;
}

}  // namespace lockstep
