#include "data/text/tokenizer/word_piece_file.h"

#include <algorithm>

#include "data/text/tokenizer/file_parts.h"
#include "data/text/valid_text.h"

namespace lockstep {
namespace {

class WordPieceReader : TokenizerJson {
 public:
  using TokenizerJson::TokenizerJson;

  WordPieceTables read(std::string_view text, LengthRules rules) {
    const JsonObject whole = TokenizerJson::whole(text, rules);
    read_model(member_object(whole, "model"));
    if (!is_absent(whole, "added_tokens")) read_added(member_list(whole, "added_tokens"));
    if (!is_absent(whole, "normalizer")) read_normalizer(member_object(whole, "normalizer"));
    const JsonObject split = only_part(
        is_absent(whole, "pre_tokenizer") ? JsonObject{} : member_object(whole, "pre_tokenizer"), "pretokenizers");
    refuse(text_of(split, "type") != "BertPreTokenizer", "has the pre-tokenizer ", quoted_token(text_of(split, "type")),
           "; with WordPiece BertPreTokenizer is supported");
    if (!is_absent(whole, "post_processor"))
      tables_.around = surround(member_object(whole, "post_processor"), static_cast<int64_t>(tables_.tokens.size()));
    if (!is_absent(whole, "decoder")) {
      const JsonObject decoder = member_object(whole, "decoder");
      refuse(text_of(decoder, "type") != "WordPiece" || text_of(decoder, "prefix") != tables_.prefix,
             "has a decoder other than WordPiece with the model's prefix");
      tables_.cleanup = json_bool(decoder, "cleanup").value_or(true);
    }
    return std::move(tables_);
  }

 private:
  // Of a Sequence of one part that part, of an empty one nothing.
  JsonObject only_part(JsonObject part, std::string_view parts) const {
    if (text_of(part, "type") != "Sequence") return part;
    const std::vector<JsonValue> all = member_list(part, parts);
    refuse(all.size() > 1, "has a Sequence of ", all.size(), " ", parts, "; with WordPiece one is supported");
    return all.empty() ? JsonObject{} : object(list_or_object(&all[0]), str("has ", parts, " that are no objects"));
  }

  void read_model(const JsonObject& model) {
    refuse(text_of(model, "type") != "WordPiece" && !is_absent(model, "type"), "has a model of type ",
           quoted_token(text_of(model, "type")));
    if (!is_absent(model, "unk_token")) tables_.unknown = text_of(model, "unk_token");
    if (!is_absent(model, "continuing_subword_prefix")) tables_.prefix = text_of(model, "continuing_subword_prefix");
    tables_.longest_word = integer_of(model, "max_input_chars_per_word", 100);
    tables_.tokens = tokens_by_id(list_or_object(model, "vocab"), kMostGaps);
  }

  void read_added(const std::vector<JsonValue>& tokens) {
    const size_t model = tables_.tokens.size();
    for (const JsonValue& value : tokens) {
      const JsonObject token = object(list_or_object(&value), "has an added token that is no JSON object");
      AddedToken a;
      a.text = json_text(token, "content", where_);
      const int64_t id = json_int(token, "id", where_);
      refuse(id < 0 || id >= static_cast<int64_t>(model) + kMostGaps, "the added token ", quoted_token(a.text),
             " has the id ", id, ", which leaves ids without a token");
      refuse(json_bool(token, "single_word").value_or(false), "the added token ", quoted_token(a.text),
             " has single_word, which is not supported");
      a.id = static_cast<int32_t>(id);
      a.special = json_bool(token, "special").value_or(false);
      a.lstrip = json_bool(token, "lstrip").value_or(false);
      a.rstrip = json_bool(token, "rstrip").value_or(false);
      a.normalized = json_bool(token, "normalized").value_or(!a.special);
      if (static_cast<size_t>(id) >= tables_.tokens.size()) tables_.tokens.resize(static_cast<size_t>(id) + 1);
      std::string& place = tables_.tokens[static_cast<size_t>(id)];
      refuse(!place.empty() && place != a.text, "the added token ", quoted_token(a.text), " has the id ", id,
             ", and the vocabulary says otherwise");
      a.in_vocabulary = static_cast<size_t>(id) < model && !place.empty();
      place = a.text;
      tables_.added.push_back(std::move(a));
    }
    std::sort(tables_.added.begin(), tables_.added.end(), [](auto& a, auto& b) { return a.id < b.id; });
  }

  void read_normalizer(const JsonObject& given) {
    const JsonObject n = only_part(given, "normalizers");
    if (n.empty()) return;
    refuse(text_of(n, "type") != "BertNormalizer", "has the normalizer ", quoted_token(text_of(n, "type")),
           "; with WordPiece BertNormalizer is supported, or none");
    const auto truth = [&](const char* key, bool standard) { return json_bool(n, key).value_or(standard); };
    tables_.rules.clean = truth("clean_text", true);
    tables_.rules.ideographs = truth("handle_chinese_chars", true);
    tables_.rules.lowercase = truth("lowercase", true);
    tables_.rules.strip_accents = truth("strip_accents", tables_.rules.lowercase);
  }

  static constexpr int64_t kMostGaps = 1 << 16;

  WordPieceTables tables_;
};

}  // namespace

std::shared_ptr<const WordPieces> parse_word_piece_json(std::string_view text, std::string_view where,
                                                        LengthRules rules) {
  return std::make_shared<const WordPieces>(WordPieceReader(where).read(text, rules), where);
}

std::shared_ptr<const WordPieces> parse_vocab_txt(std::string_view text, std::string_view config,
                                                  std::string_view where) {
  const int64_t invalid = first_invalid(text, TextEncoding::kUtf8);
  require(invalid < 0, ExitCode::kBadData, where, ": byte ", invalid, " is not valid UTF-8");
  WordPieceTables t;
  for (std::string_view line : lines_of(text)) t.tokens.emplace_back(line);
  const auto id_of = [&](std::string_view token) {
    const auto found = std::find(t.tokens.begin(), t.tokens.end(), token);
    return found == t.tokens.end() ? -1 : static_cast<int32_t>(found - t.tokens.begin());
  };
  for (size_t i = 0; i < t.tokens.size(); ++i) {
    const std::string& token = t.tokens[i];
    require(!token.empty(), ExitCode::kBadData, where, ":", i + 1, ": is empty; each line is a token");
    const bool special =
        token == "[PAD]" || token == "[UNK]" || token == "[CLS]" || token == "[SEP]" || token == "[MASK]";
    if (special && id_of(token) == static_cast<int32_t>(i))
      t.added.push_back({static_cast<int32_t>(i), token, true, true});
  }
  const auto given = parse_json_object(config.empty() ? "{}" : config);
  require(given.has_value(), ExitCode::kBadData, where, ": tokenizer_config.json beside it is no JSON object");
  const bool lowercase = json_bool(*given, "do_lower_case").value_or(true);
  t.rules = {.clean = true,
             .ideographs = json_bool(*given, "tokenize_chinese_chars").value_or(true),
             .strip_accents = json_bool(*given, "strip_accents").value_or(lowercase),
             .lowercase = lowercase};
  const int32_t begin = id_of("[CLS]"), end = id_of("[SEP]");
  if (begin >= 0 && end >= 0) t.around = {{begin}, {end}};
  return std::make_shared<const WordPieces>(std::move(t), where);
}

std::string word_piece_json(const WordPieceTables& t) {
  std::vector<bool> model(t.tokens.size(), true);
  std::string added, vocabulary;
  for (const AddedToken& a : t.added) {
    model[static_cast<size_t>(a.id)] = a.in_vocabulary;
    added += str(added.empty() ? "" : ",", "{\"id\":", a.id, ",\"content\":", json_text_of(a.text),
                 ",\"single_word\":false,\"lstrip\":", a.lstrip, ",\"rstrip\":", a.rstrip,
                 ",\"normalized\":", a.normalized, ",\"special\":", a.special, "}");
  }
  for (size_t i = 0; i < t.tokens.size(); ++i)
    if (model[i]) vocabulary += str(vocabulary.empty() ? "" : ",", json_text_of(t.tokens[i]), ":", i);
  return str("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[", added,
             "],\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":", t.rules.clean,
             ",\"handle_chinese_chars\":", t.rules.ideographs, ",\"strip_accents\":", t.rules.strip_accents,
             ",\"lowercase\":", t.rules.lowercase, "},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},",
             "\"post_processor\":", surround_json(t.around, t.tokens),
             ",\"decoder\":{\"type\":\"WordPiece\",\"prefix\":", json_text_of(t.prefix), ",\"cleanup\":", t.cleanup,
             "},\"model\":{\"type\":\"WordPiece\",\"unk_token\":", json_text_of(t.unknown),
             ",\"continuing_subword_prefix\":", json_text_of(t.prefix),
             ",\"max_input_chars_per_word\":", t.longest_word, ",\"vocab\":{", vocabulary, "}}}\n");
}

}  // namespace lockstep
