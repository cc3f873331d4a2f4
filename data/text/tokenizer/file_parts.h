// What the readers of tokenizers' files share: the parts of a tokenizer.json, and lines of text. What they refuse is
// ExitCode::kBadData, with the file's name before it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/text/tokenizer/bpe_tables.h"
#include "data/text/tokenizer/tokenizer_file.h"

namespace lockstep {

class TokenizerJson {
 public:
  explicit TokenizerJson(std::string_view where) : where_(where) {}

 protected:
  template <class... What>
  void refuse(bool is, const What&... what) const {
    require(!is, ExitCode::kBadData, where_, ": ", what...);
  }
  // The whole file. Refuses "truncation" and "padding", unless `rules` leave them out.
  JsonObject whole(std::string_view text, LengthRules rules) const;
  JsonObject object(std::string_view text, std::string_view otherwise) const;
  static bool is_absent(const JsonObject& of, std::string_view key);
  // The JSON of a list or an object; empty for anything else, which no parser takes.
  static std::string_view list_or_object(const JsonValue* v);
  static std::string_view list_or_object(const JsonObject& of, std::string_view key) {
    return list_or_object(find_member(of, key));
  }
  JsonObject member_object(const JsonObject& of, std::string_view key) const;
  std::vector<JsonValue> member_list(const JsonObject& of, std::string_view key) const;
  // The tokens of {"token": id, ...} by id, empty where an id has none; of these ids at most `most_gaps`, as a list
  // with gaps must not cost memory.
  std::vector<std::string> tokens_by_id(std::string_view vocabulary, int64_t most_gaps) const;
  // What a post-processor puts around a single text: BertProcessing, RobertaProcessing or TemplateProcessing, with ids
  // below `tokens`.
  Surround surround(const JsonObject& post, int64_t tokens) const;

  const std::string_view where_;
};

// A post-processor that puts these of `tokens` around a text; "null" where it is none.
std::string surround_json(const Surround& around, const std::vector<std::string>& tokens);

// The lines of a text, without their ends.
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace lockstep
