#include "data/text/conversation.h"

#include <map>

#include "core/base/error.h"

namespace lockstep {
namespace {

// Whether a message may be learnt: its member "weight" is 0 or 1; where it is absent or null, 1.
bool is_learnt(const JsonObject& message) {
  const JsonValue* value = find_member(message, "weight");
  if (!value || std::holds_alternative<std::nullptr_t>(*value)) return true;
  const bool number = std::holds_alternative<int64_t>(*value) || std::holds_alternative<double>(*value);
  const double weight = number ? number_of(message, "weight") : -1;
  require(weight == 0 || weight == 1, ExitCode::kBadData, "has the weight ", json_text_of(*value).substr(0, 40),
          "; a weight is 0, for a message that is not learnt, or 1");
  return weight == 1;
}

// A content is a text, a list of parts of which each has a text, or null where the message says something else.
void check_content(const JsonObject& message) {
  const JsonValue* content = find_member(message, "content");
  const JsonValue* calls = find_member(message, "tool_calls");
  const bool says_more = calls && !std::holds_alternative<std::nullptr_t>(*calls);
  if (says_more && (!content || std::holds_alternative<std::nullptr_t>(*content))) return;
  require(content != nullptr, ExitCode::kBadData, "has no field \"content\"");
  if (std::holds_alternative<std::string>(*content)) return;
  const auto* list = std::get_if<JsonText>(content);
  const auto parts = list ? parse_json_array(list->text) : std::nullopt;
  require(parts.has_value(), ExitCode::kBadData, "its field \"content\" is no text, and no list of parts");
  for (const JsonValue& part : *parts) {
    const auto* text = std::get_if<JsonText>(&part);
    const auto object = text ? parse_json_object(text->text) : std::nullopt;
    require(object && text_of(*object, "type") == "text", ExitCode::kBadData,
            "a part of its field \"content\" is no {\"type\": \"text\", \"text\": ...}: models here read text alone");
    text_field(*object, "text");
  }
}

// A message of ShareGPT's form in ours.
JsonObject of_sharegpt(const JsonObject& message) {
  static const std::map<std::string, std::string> kRoles{{"human", "user"},
                                                         {"user", "user"},
                                                         {"gpt", "assistant"},
                                                         {"chatgpt", "assistant"},
                                                         {"bing", "assistant"},
                                                         {"bard", "assistant"},
                                                         {"assistant", "assistant"},
                                                         {"model", "assistant"},
                                                         {"system", "system"},
                                                         {"observation", "tool"},
                                                         {"tool", "tool"},
                                                         {"function_response", "tool"},
                                                         {"function_call", "assistant"}};
  const std::string from = text_field(message, "from");
  const auto role = kRoles.find(from);
  require(role != kRoles.end(), ExitCode::kBadData, "is from ", json_text_of(from).substr(0, 40),
          "; known are human, gpt, system, function_call and observation");
  const std::string& value = text_field(message, "value");
  JsonObject out{{"role", role->second}};
  std::vector<JsonObject> calls;
  if (from == "function_call") {
    const auto add = [&](const std::string& text) {
      const auto call = parse_json_object(text);
      if (call && find_member(*call, "name")) calls.push_back({{"type", "function"}, {"function", JsonText{text}}});
    };
    if (const auto list = parse_json_array(value)) {
      for (const JsonValue& one : *list)
        if (const auto* text = std::get_if<JsonText>(&one)) add(text->text);
    } else {
      add(value);
    }
    require(!calls.empty(), ExitCode::kBadData, "is a function_call whose value is no JSON object with a \"name\"");
  }
  if (calls.empty()) out.emplace_back("content", value);
  else out.emplace_back("content", nullptr), out.emplace_back("tool_calls", json_array(calls));
  for (const auto& [name, other] : message)
    if (name != "from" && name != "value") out.emplace_back(name, other);
  return out;
}

// A list that a record has as it is, or as a text of JSON; empty: it has none.
std::string list_in(const JsonObject& record, const std::string& name) {
  const JsonValue* value = find_member(record, name);
  if (!value || std::holds_alternative<std::nullptr_t>(*value)) return "";
  const auto* list = std::get_if<JsonText>(value);
  const auto* text = std::get_if<std::string>(value);
  if (text && text->empty()) return "";
  const std::string out = list ? list->text : text ? *text : "";
  const auto items = parse_json_array(out);
  require(items.has_value(), ExitCode::kBadData, "its field \"", name, "\" is no list");
  return items->empty() ? "" : out;
}

}  // namespace

Conversation conversation_of(const JsonObject& record, const std::string& field) {
  const JsonValue* value = find_member(record, field);
  require(value != nullptr, ExitCode::kBadData, "has no field \"", field, "\"");
  const auto* list = std::get_if<JsonText>(value);
  const auto items = list ? parse_json_array(list->text) : std::nullopt;
  require(items.has_value(), ExitCode::kBadData, "its field \"", field, "\" is no list of messages");
  Conversation out;
  bool sharegpt = false;
  for (const JsonValue& item : *items) {
    const auto* text = std::get_if<JsonText>(&item);
    auto message = text ? parse_json_object(text->text) : std::nullopt;
    require(message.has_value(), ExitCode::kBadData, "message ", out.messages.size(), " of \"", field,
            "\" is no object");
    try {
      if (!find_member(*message, "role") && find_member(*message, "from")) {
        sharegpt = true;
        message = of_sharegpt(*message);
      }
      const std::string role = text_field(*message, "role");
      check_content(*message);
      const bool learnt = is_learnt(*message);
      out.messages.emplace_back(role, std::move(*message), learnt);
    } catch (const Error& e) {
      throw e.with_message(str("message ", out.messages.size(), " of \"", field, "\" ", e.what()));
    }
  }
  const std::string system = sharegpt ? text_of(record, "system") : "";
  if (!system.empty() && (out.messages.empty() || out.messages[0].role != "system"))
    out.messages.insert(out.messages.begin(), ChatMessage("system", system));
  out.tools = list_in(record, "tools");
  if (const JsonValue* values = find_member(record, "chat_template_kwargs")) {
    const auto* text = std::get_if<JsonText>(values);
    const auto object = text ? parse_json_object(text->text) : std::nullopt;
    require(object || std::holds_alternative<std::nullptr_t>(*values), ExitCode::kBadData,
            "its field \"chat_template_kwargs\" is no object");
    if (object) out.values = *object;
  }
  return out;
}

}  // namespace lockstep
