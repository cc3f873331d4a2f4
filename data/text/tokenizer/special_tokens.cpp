#include "data/text/tokenizer/special_tokens.h"

#include <filesystem>

#include "core/base/plain_file.h"
#include "core/io/json.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer/file_parts.h"

namespace lockstep {
namespace {

constexpr int64_t kMostBytes = 64 << 20;  // bytes

bool has_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

class PostProcessor : TokenizerJson {
 public:
  using TokenizerJson::TokenizerJson;

  Surround read(std::string_view file, int64_t tokens) const {
    const JsonObject all = TokenizerJson::whole(file, LengthRules::kIgnore);
    Surround out;
    if (!is_absent(all, "post_processor")) add(member_object(all, "post_processor"), tokens, out);
    return out;
  }

 private:
  void add(const JsonObject& post, int64_t tokens, Surround& out) const {
    const std::string type = text_of(post, "type");
    if (type == "ByteLevel") return;
    if (type == "Sequence") {
      for (const JsonValue& part : member_list(post, "processors"))
        add(object(list_or_object(&part), "has a post-processor that is no JSON object"), tokens, out);
      return;
    }
    refuse(!out.empty(), "has two post-processors that put tokens around a text");
    out = surround(post, tokens);
  }
};

// The token of this name, as a tokenizer without tokenizer.json has it: the folder's, or a SentencePiece model's own.
int32_t named_token(const Vocabulary& vocabulary, std::string_view name, std::string_view own) {
  if (vocabulary.chat())
    for (const auto& [key, text] : vocabulary.chat()->tokens)
      if (key == name) return vocabulary.special(text);
  return vocabulary.pieces() ? vocabulary.special(own) : -1;
}

}  // namespace

Surround special_tokens_around(const std::string& folder, const Vocabulary& vocabulary) {
  if (const std::string file = folder + "/tokenizer.json"; has_file(file))
    return PostProcessor(file).read(InputFile(file).text(kMostBytes), vocabulary.size());
  if (vocabulary.words()) return *vocabulary.around();
  Surround out;
  const std::string file = folder + "/tokenizer_config.json";
  if (!has_file(file)) return out;
  const auto config = parse_json_object(InputFile(file).text(kMostBytes));
  require(config.has_value(), ExitCode::kBadData, file, ": is no JSON object");
  const int32_t begin = named_token(vocabulary, "bos_token", "<s>"), end = named_token(vocabulary, "eos_token", "</s>");
  if (json_bool(*config, "add_bos_token").value_or(false) && begin >= 0) out.before.push_back(begin);
  if (json_bool(*config, "add_eos_token").value_or(false) && end >= 0) out.after.push_back(end);
  return out;
}

}  // namespace lockstep
