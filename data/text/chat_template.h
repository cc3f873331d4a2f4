// Chat templates: how the messages of a conversation become one text, and which parts of it are learnt. A template is
// the Jinja text that a tokenizer's folder has, or one of ours; it travels with a vocabulary. Plain values; a
// ChatTemplate may be shared by threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.h"
#include "data/text/conversation.h"
#include "data/text/jinja/template.h"
#include "data/text/record_encoder.h"
#include "data/text/vocabulary.h"

namespace lockstep {

// bos_token, eos_token and the like of a tokenizer, and their texts.
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

// The text of a template, and what it knows of its tokenizer.
struct ChatSource {
  std::string name;           // chatml, llama3, plain, a file's name, or "own": that of the tokenizer's folder
  std::string source;         // Jinja; empty: no template is known, but the tokens are
  std::string tool_use = {};  // the template in its place where a conversation has tools; empty: the same
  SpecialTokens tokens = {};
  friend bool operator==(const ChatSource&, const ChatSource&) = default;
  bool has_template() const { return !source.empty(); }

  std::string text() const;                          // JSON on one line
  static ChatSource parse(const std::string& text);  // throws ExitCode::kBadData
};
// Of a folder with a tokenizer: its tokens, and chat_template.jinja or the chat_template of tokenizer_config.json; null
// where it has nothing of these. Throws ExitCode::kBadData naming a file that is not what it should be.
std::shared_ptr<const ChatSource> chat_source_of_folder(const std::string& folder);

class ChatTemplate {
 public:
  // values: a JSON object of names that the template may ask for, in every conversation; empty: none. strftime_now is
  // the time of this call. Throws ExitCode::kBadData naming the line of the template, and kUsage for other values.
  ChatTemplate(ChatSource source, const Vocabulary& vocabulary, const std::string& values = {});

  const std::string& name() const { return source_.name; }
  const ChatSource& source() const { return source_; }
  // What the parts of a record depend on besides the conversation.
  std::string identity() const;
  // The tokens that parts with `special` become, and messages never.
  const std::vector<std::string>& special() const { return special_; }
  const std::string& head() const { return head_; }  // what stands before an answer of the assistant
  const std::string& end() const { return end_; }    // what ends it: a token, or a text; empty: not known

  // The text of a conversation. Targets are what the template has within {% generation %}; without that what it writes
  // of an assistant's message, from behind head() up to the last special token. With `answer_follows` the head of an
  // answer comes last. Throws ExitCode::kBadData where the template refuses the conversation, and naming a message of
  // which it shows nothing.
  std::vector<TextPart> parts(const Conversation& conversation, bool answer_follows = false) const;

 private:
  const jinja::Template& used_for(const Conversation& conversation) const;
  jinja::Rendered rendered(const Conversation& conversation, bool answer_follows) const;
  void require_whole(const Conversation& conversation, const jinja::Rendered& text) const;
  std::vector<uint8_t> marks(const Conversation& conversation, const jinja::Rendered& text) const;
  size_t special_at(const jinja::Text& text, size_t at) const;  // bytes of the special token there; 0: there is none
  void find_head_and_end();

  ChatSource source_;
  jinja::Template usual_;
  std::unique_ptr<const jinja::Template> with_tools_;
  std::vector<std::string> special_;  // the longest first
  bool begins_special_[256] = {};
  JsonObject values_;
  int64_t now_ = 0;
  std::string head_, end_;
};

const std::vector<ChatSource>& chat_sources();  // ours: chatml, llama3, plain
// name: one of ours, a file that ends in .jinja, or "own", the vocabulary's; empty: that, and where it has none the
// first of ours whose special tokens it has, which is chatml or llama3. Throws ExitCode::kUsage for another name, and
// where the tokenizer lacks one of the special tokens of ours.
std::shared_ptr<const ChatTemplate> chat_template(const std::string& name, const Vocabulary& vocabulary,
                                                  const std::string& values = {});

}  // namespace lockstep
