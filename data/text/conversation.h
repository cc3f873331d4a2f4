// Conversation: messages, and what else a chat template asks for, as records of data have them. Plain values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/io/json.h"

namespace lockstep {

struct ChatMessage {
  std::string role;
  JsonObject members;  // as the template sees them: "role", "content" and what else the message has
  bool learnt = true;  // false: none of its tokens is a target, whatever the role

  ChatMessage(std::string role, JsonObject members, bool learnt = true)
      : role(std::move(role)), members(std::move(members)), learnt(learnt) {}
  ChatMessage(const std::string& role, const std::string& content, bool learnt = true)
      : ChatMessage(role, JsonObject{{"role", role}, {"content", content}}, learnt) {}
  std::string content() const { return text_of(members, "content"); }  // empty where it is no text
};

struct Conversation {
  std::vector<ChatMessage> messages = {};
  std::string tools = {};  // a list in JSON; empty: none
  JsonObject values = {};  // other names that the template may ask for, such as enable_thinking
};
// The conversation in a field of a record: a list of messages with "role" and "content" (a text, a list of parts with
// texts, or null beside "tool_calls"), or, as ShareGPT's, with "from" and "value". The record's "tools",
// "chat_template_kwargs" and, of ShareGPT's, "system" belong to it. Throws ExitCode::kBadData naming the field, and the
// message where one is wrong.
Conversation conversation_of(const JsonObject& record, const std::string& field);

}  // namespace lockstep
