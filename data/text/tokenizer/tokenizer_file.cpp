#include "data/text/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/io/json.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer/file_parts.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/pieces.h"
#include "data/text/tokenizer/unicode_8.h"
#include "data/text/tokenizer/word_piece_file.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kLargestFile = 64 << 20;

// Reads the parts of one tokenizer.json, and refuses what cannot be kept to.
class JsonReader : TokenizerJson {
 public:
  using TokenizerJson::TokenizerJson;

  BpeTables read(std::string_view text, LengthRules rules) {
    const JsonObject whole = TokenizerJson::whole(text, rules);
    // Such a file has other parts that are not supported, too.
    const auto model = parse_json_object(list_or_object(whole, "model"));
    refuse(model && json_bool(*model, "byte_fallback").value_or(false),
           "has byte_fallback, which is read from the model's SentencePiece file alone: put tokenizer.model beside it");
    if (!is_absent(whole, "normalizer")) read_normalizer(member_object(whole, "normalizer"));
    const JsonObject decoder = member_object(whole, "decoder");
    refuse(text_of(decoder, "type") != "ByteLevel", "has the decoder ", quoted_token(text_of(decoder, "type")),
           "; ByteLevel is supported");
    read_model(member_object(whole, "model"));
    read_added(whole);
    const JsonObject splits = member_object(whole, "pre_tokenizer");
    refuse(!read_splits(splits), "has no ByteLevel pre-tokenizer at the end");
    if (!is_absent(whole, "post_processor")) read_around(member_object(whole, "post_processor"));
    return std::move(tables_);
  }

  // {"token": id, ...}
  void read_tokens(std::string_view text) {
    texts_ = tokens_by_id(text, kMostBpeTokens);
    for (size_t i = 0; i < texts_.size(); ++i)
      if (!texts_[i].empty()) ids_.emplace(texts_[i], static_cast<int32_t>(i));
  }
  void add_merge(std::string_view left, std::string_view right) {
    const auto a = ids_.find(std::string(left)), b = ids_.find(std::string(right));
    refuse(a == ids_.end() || b == ids_.end(), "merge ", tables_.merges.size(), " is of ",
           quoted_token(a == ids_.end() ? left : right), ", which is no token");
    refuse(left.find(' ') != left.npos || right.find(' ') != right.npos, "merge ", tables_.merges.size(),
           " is of a token with a space, which stands for no byte");
    tables_.merges.emplace_back(a->second, b->second);
  }
  void add_merge(std::string_view line) {
    const size_t space = line.find(' ');
    refuse(space == line.npos || line.find(' ', space + 1) != line.npos, "merge ", tables_.merges.size(), ", ",
           quoted_token(line), ", is not two tokens");
    add_merge(line.substr(0, space), line.substr(space + 1));
  }
  // Translates the tokens from the alphabet; those in `added` are text.
  void translate() {
    for (const AddedToken& a : tables_.added) {
      const auto id = static_cast<size_t>(a.id);
      if (id >= texts_.size()) texts_.resize(id + 1);
      tables_.tokens.resize(texts_.size());
      tables_.tokens[id] = a.text;
    }
    tables_.tokens.resize(texts_.size());
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (!tables_.tokens[i].empty()) continue;
      refuse(texts_[i].empty(), "has no token ", i, ", though there are ", texts_.size(), " ids");
      auto bytes = from_alphabet(texts_[i]);
      refuse(!bytes, "token ", i, ", ", quoted_token(texts_[i]), ", has a character that stands for no byte");
      tables_.tokens[i] = std::move(*bytes);
    }
  }
  // Of tables without a list of added tokens.
  void find_special_tokens() {
    std::vector<bool> made(texts_.size());
    std::string joined;
    for (const auto& [left, right] : tables_.merges) {
      joined.assign(texts_[static_cast<size_t>(left)]).append(texts_[static_cast<size_t>(right)]);
      if (const auto id = ids_.find(joined); id != ids_.end()) made[static_cast<size_t>(id->second)] = true;
    }
    for (size_t i = 0; i < texts_.size(); ++i) {
      const auto bytes = from_alphabet(texts_[i]);
      if (!made[i] && !texts_[i].empty() && !(bytes && bytes->size() == 1))
        tables_.added.push_back({static_cast<int32_t>(i), texts_[i], true, true});
    }
  }
  BpeTables& tables() { return tables_; }

 private:
  // Of an encoder. What decoders put in front of a text belongs to chat templates and to --document-token.
  void read_around(const JsonObject& post) {
    const std::string type = text_of(post, "type");
    if (type == "Sequence") {
      for (const JsonValue& part : member_list(post, "processors"))
        read_around(object(list_or_object(&part), "has a post-processor that is no JSON object"));
      return;
    }
    if (type != "BertProcessing" && type != "RobertaProcessing" && type != "TemplateProcessing") return;
    Surround around = surround(post, static_cast<int64_t>(tables_.tokens.size()));
    if (around.before.empty() || around.after.empty()) return;
    for (const auto* ids : {&around.before, &around.after})
      for (const int32_t id : *ids)
        refuse(std::none_of(tables_.added.begin(), tables_.added.end(), [&](auto& a) { return a.id == id; }),
               "has a post-processor with the token ", id, ", which is no added token");
    refuse(!tables_.around.empty(), "has two post-processors that put tokens around a text");
    tables_.around = std::move(around);
  }

  void read_normalizer(const JsonObject& normalizer) {
    if (text_of(normalizer, "type") == "Sequence") {
      const std::vector<JsonValue> parts = member_list(normalizer, "normalizers");
      refuse(parts.size() > 1, "has a Sequence of ", parts.size(), " normalizers; NFC is supported, or none");
      if (parts.empty()) return;
      const JsonObject only = object(list_or_object(&parts[0]), "has a normalizer that is no JSON object");
      refuse(text_of(only, "type") == "Sequence", "has a sequence of normalizers within another");
      return read_normalizer(only);
    }
    refuse(text_of(normalizer, "type") != "NFC", "has a normalizer (", text_of(normalizer, "type"),
           "); NFC is supported, or none");
    refuse(!can_normalise(),
           "has the normalizer NFC, which this build does not support; install libutf8proc-dev and build again");
    tables_.nfc = true;
  }

  void read_model(const JsonObject& model) {
    const bool bpe =
        is_absent(model, "type") ? find_member(model, "merges") != nullptr : text_of(model, "type") == "BPE";
    refuse(!bpe, "has a model of type ", quoted_token(text_of(model, "type")), "; BPE is supported");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      refuse(!text_of(model, key).empty(), "has a ", key, ", which byte-level BPE has not");
    refuse(!is_absent(model, "dropout") && number_of(model, "dropout", 1) != 0, "has dropout, which is not supported");
    tables_.ignore_merges = json_bool(model, "ignore_merges").value_or(false);
    read_tokens(list_or_object(model, "vocab"));
    for (const JsonValue& merge : member_list(model, "merges")) {
      if (const auto* line = std::get_if<std::string>(&merge)) {
        add_merge(*line);
        continue;
      }
      const auto pair = parse_json_array(list_or_object(&merge));
      const bool two = pair && pair->size() == 2 && std::holds_alternative<std::string>((*pair)[0]) &&
                       std::holds_alternative<std::string>((*pair)[1]);
      refuse(!two, "merge ", tables_.merges.size(), " is not two tokens");
      add_merge(std::get<std::string>((*pair)[0]), std::get<std::string>((*pair)[1]));
    }
  }

  void read_added(const JsonObject& whole) {
    if (is_absent(whole, "added_tokens")) return translate();
    for (const JsonValue& value : member_list(whole, "added_tokens")) {
      const JsonObject token = object(list_or_object(&value), "has an added token that is no JSON object");
      const std::string& content = json_text(token, "content", where_);
      const int64_t id = json_int(token, "id", where_);
      refuse(id < 0 || id >= kMostBpeTokens, "the added token ", quoted_token(content), " has the id ", id);
      const bool special = json_bool(token, "special").value_or(false);
      const bool left = json_bool(token, "lstrip").value_or(false), right = json_bool(token, "rstrip").value_or(false);
      refuse(json_bool(token, "single_word").value_or(false), "the added token ", quoted_token(content),
             " has single_word, which is not supported");
      refuse((left || right) && !special, "the added token ", quoted_token(content), " has ",
             left ? "lstrip" : "rstrip", " and is not special, which is not supported");
      const auto known = ids_.find(content);
      const bool in_vocabulary = known != ids_.end() && known->second == id;
      refuse(!in_vocabulary && (known != ids_.end() ||
                                (id < static_cast<int64_t>(texts_.size()) && !texts_[static_cast<size_t>(id)].empty())),
             "the added token ", quoted_token(content), " has the id ", id, ", and the vocabulary says otherwise");
      tables_.added.push_back({static_cast<int32_t>(id), content, special, in_vocabulary, left, right});
    }
    for (const AddedToken& a : tables_.added) plain_tokens_ |= !a.special;
    for (const AddedToken& a : tables_.added)
      refuse(tables_.nfc && nfc(a.text) != a.text, "the added token ", quoted_token(a.text),
             " is not in the normal form NFC, which text has");
    std::sort(tables_.added.begin(), tables_.added.end(), [](auto& a, auto& b) { return a.id < b.id; });
    // A list with gaps must not cost memory.
    refuse(
        !tables_.added.empty() && tables_.added.back().id >= static_cast<int64_t>(texts_.size() + tables_.added.size()),
        "the added token ", quoted_token(tables_.added.empty() ? "" : tables_.added.back().text),
        " leaves ids without a token");
    translate();
  }

  // Appends the patterns of a pre-tokenizer; returns whether it ends with ByteLevel.
  bool read_splits(const JsonObject& o) {
    const std::string type = text_of(o, "type");
    if (type == "Sequence") {
      bool ended = false;
      for (const JsonValue& value : member_list(o, "pretokenizers")) {
        refuse(ended, "has a pre-tokenizer after ByteLevel");
        const JsonObject part = object(list_or_object(&value), "has a pre-tokenizer that is no JSON object");
        refuse(text_of(part, "type") == "Sequence", "has a sequence of pre-tokenizers within another");
        ended = read_splits(part);
      }
      return ended;
    }
    if (type == "ByteLevel") {
      tables_.prefix_space = json_bool(o, "add_prefix_space").value_or(true);
      refuse(tables_.prefix_space && !tables_.patterns.empty(),
             "has add_prefix_space behind other splits, which is not supported");
      refuse(tables_.prefix_space && plain_tokens_,
             "has add_prefix_space beside added tokens that are not special, which is not supported");
      if (json_bool(o, "use_regex").value_or(true)) tables_.patterns.emplace_back(named_pattern("gpt2"));
      return true;
    }
    std::string behavior = text_of(o, "behavior");
    std::string pattern;
    if (type == "Digits") {
      pattern = "\\p{N}";
      behavior = json_bool(o, "individual_digits").value_or(false) ? "Isolated" : "Contiguous";
    } else if (type == "Punctuation") {
      pattern = punctuation_pattern();
    } else {
      refuse(type != "Split", "has the pre-tokenizer ", quoted_token(type),
             "; Split, Digits, Punctuation, ByteLevel and a Sequence are supported");
      const JsonObject given = member_object(o, "pattern");
      pattern = text_of(given, "Regex").empty() ? escaped_pattern(text_of(given, "String")) : text_of(given, "Regex");
      refuse(pattern.empty(), "has a Split without a \"Regex\" or \"String\"");
    }
    // Matches and what is between them are words, whichever of the two an inverted split calls matches.
    const bool contiguous = behavior == "Contiguous" && !json_bool(o, "invert").value_or(false);
    refuse(behavior != "Isolated" && !contiguous, "has a ", type, " with the behavior ", quoted_token(behavior),
           json_bool(o, "invert").value_or(false) ? ", inverted" : "", "; Isolated and Contiguous are supported");
    tables_.patterns.push_back(contiguous ? str("(?:", pattern, ")+") : pattern);
    refuse(tables_.patterns.size() > 16, "has more than 16 patterns");
    return false;
  }

  // A text as a pattern that matches it alone.
  static std::string escaped_pattern(std::string_view text) {
    std::string out;
    for (char c : text) {
      if (std::string_view("\\^$.|?*+()[]{}-").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
    return out;
  }
  // What the package takes as punctuation: all of ASCII's, and Unicode 8's.
  static std::string punctuation_pattern() {
    std::string later;
    for (const CodePoints& p : kSinceUnicode9)
      later += p.first == p.last ? to_utf8(p.first) : str(to_utf8(p.first), "-", to_utf8(p.last));
    return str("(?![", later, "])[\\p{P}$+<=>^`|~\u166D\U000111C9]");
  }

  bool plain_tokens_ = false;  // added tokens that are not special
  BpeTables tables_;
  std::vector<std::string> texts_;  // of each id, as the file has it
  std::unordered_map<std::string, int32_t> ids_;
};

std::string content_of(const std::string& path) { return InputFile(path).text(kLargestFile); }

}  // namespace

std::shared_ptr<const BytePairs> parse_tokenizer_json(std::string_view text, std::string_view where,
                                                      LengthRules rules) {
  return std::make_shared<const BytePairs>(JsonReader(where).read(text, rules), where);
}

std::shared_ptr<const BytePairs> parse_tables(std::string_view vocabulary, std::string_view merges,
                                              std::string_view where) {
  JsonReader reader(where);
  reader.read_tokens(vocabulary);
  const std::vector<std::string_view> lines = lines_of(merges);
  for (size_t i = 0; i < lines.size(); ++i)
    if (!lines[i].empty() && !(i == 0 && lines[i].starts_with("#version"))) reader.add_merge(lines[i]);
  reader.find_special_tokens();
  reader.translate();
  reader.tables().patterns.emplace_back(named_pattern("gpt2"));
  return std::make_shared<const BytePairs>(std::move(reader.tables()), where);
}

bool has_tokenizer_files(const std::string& folder) {
  std::error_code error;
  for (const char* name : {"tokenizer.json", "encoder.json", "vocab.json"})
    if (fs::exists(fs::path(folder) / name, error)) return true;
  return false;
}

std::shared_ptr<const BytePairs> read_tokenizer(const std::string& path, LengthRules rules) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return parse_tokenizer_json(content_of(path), path, rules);
  require(has_tokenizer_files(path), ExitCode::kMissingInput, path,
          ": has neither tokenizer.json, nor encoder.json and ", "vocab.bpe, nor vocab.json and merges.txt");
  const auto within = [&](const char* name) { return (fs::path(path) / name).string(); };
  if (const std::string json = within("tokenizer.json"); fs::exists(json, error))
    return parse_tokenizer_json(content_of(json), json, rules);
  const bool gpt2 = fs::exists(within("encoder.json"), error);
  return parse_tables(content_of(within(gpt2 ? "encoder.json" : "vocab.json")),
                      content_of(within(gpt2 ? "vocab.bpe" : "merges.txt")), path);
}

namespace {
// As RoBERTa's files have it, where a text gets one token on either side: it puts two between a pair of texts.
std::string around_json(const BpeTables& t) {
  if (t.around.before.size() != 1 || t.around.after.size() != 1) return surround_json(t.around, t.tokens);
  const auto token = [&](int32_t id) {
    return str("[", json_text_of(t.tokens[static_cast<size_t>(id)]), ",", id, "]");
  };
  return str("{\"type\":\"RobertaProcessing\",\"sep\":", token(t.around.after[0]),
             ",\"cls\":", token(t.around.before[0]), ",\"trim_offsets\":true,\"add_prefix_space\":", t.prefix_space,
             "}");
}
}  // namespace

std::string tokenizer_json(const BpeTables& t) {
  std::vector<bool> model(t.tokens.size(), true);
  std::string added, vocabulary, merges, splits;
  for (const AddedToken& a : t.added) {
    model[static_cast<size_t>(a.id)] = a.in_vocabulary;
    added += str(added.empty() ? "" : ",", "{\"id\":", a.id, ",\"content\":", json_text_of(a.text),
                 ",\"single_word\":false,\"lstrip\":", a.lstrip, ",\"rstrip\":", a.rstrip,
                 ",\"normalized\":false,\"special\":", a.special, "}");
  }
  std::vector<std::string> texts(t.tokens.size());
  for (size_t i = 0; i < t.tokens.size(); ++i) texts[i] = to_alphabet(t.tokens[i]);
  for (const AddedToken& a : t.added) texts[static_cast<size_t>(a.id)] = a.text;
  for (size_t i = 0; i < texts.size(); ++i)
    if (model[i]) vocabulary += str(vocabulary.empty() ? "" : ",", json_text_of(texts[i]), ":", i);
  for (const auto& [left, right] : t.merges)
    merges += str(merges.empty() ? "" : ",",
                  json_text_of(str(texts[static_cast<size_t>(left)], " ", texts[static_cast<size_t>(right)])));
  const bool gpt2 = t.patterns.size() == 1 && t.patterns[0] == named_pattern("gpt2");
  const std::string byte_level = str("{\"type\":\"ByteLevel\",\"add_prefix_space\":", t.prefix_space,
                                     ",\"trim_offsets\":true,", "\"use_regex\":", gpt2, "}");
  for (const std::string& p : t.patterns)
    splits += str("{\"type\":\"Split\",\"pattern\":{\"Regex\":", json_text_of(p),
                  "},\"behavior\":\"Isolated\",\"invert\":false},");
  return str(
      "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[", added,
      "],\"normalizer\":", t.nfc ? "{\"type\":\"NFC\"}" : "null", ",\"pre_tokenizer\":",
      gpt2 ? byte_level : str("{\"type\":\"Sequence\",\"pretokenizers\":[", splits, byte_level, "]}"),
      ",\"post_processor\":", around_json(t), ",\"decoder\":", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,",
      "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,",
      "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,",
      "\"byte_fallback\":false,\"ignore_merges\":", t.ignore_merges, ",\"vocab\":{", vocabulary, "},\"merges\":[",
      merges, "]}}\n");
}

const std::string& BytePairs::json() const {
  std::call_once(json_once_, [&] { json_ = tokenizer_json(tables_); });
  return json_;
}

namespace {

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The SentencePiece model that `path` is, or holds without a tokenizer.json beside it; empty: there is none.
std::string piece_model_in(const std::string& path) {
  if (path.ends_with(".model")) return path;
  const std::string model = path + "/tokenizer.model";
  return !exists(path + "/tokenizer.json") && exists(model) ? model : "";
}

// BERT's list of tokens that `path` is, or holds without another tokenizer; empty: there is none.
std::string vocab_txt_in(const std::string& path) {
  if (path.ends_with(".txt")) return path;
  const std::string list = path + "/vocab.txt";
  return !has_tokenizer_files(path) && piece_model_in(path).empty() && exists(list) ? list : "";
}

Vocabulary vocabulary_of_vocab_txt(const std::string& path) {
  const std::string beside = (fs::path(path).parent_path() / "tokenizer_config.json").string();
  return Vocabulary::word_pieces(
      parse_vocab_txt(content_of(path), exists(beside) ? content_of(beside) : std::string(), path));
}

// A member of an object that is an object; of a file that is none, empty.
JsonObject object_at(const JsonObject& of, std::string_view key) {
  const JsonValue* value = find_member(of, key);
  const auto* json = value ? std::get_if<JsonText>(value) : nullptr;
  return json ? parse_json_object(json->text).value_or(JsonObject()) : JsonObject();
}

// The SentencePiece file that the model of a tokenizer.json was made of, where the package's own reading of it is not
// supported and that file is beside it. Throws where the two have different tokens.
std::string pieces_beside(const std::string& json, const JsonObject& whole) {
  const JsonObject model = object_at(whole, "model");
  if (text_of(model, "type") == "WordPiece" || !json_bool(model, "byte_fallback").value_or(false)) return "";
  const std::string path = (fs::path(json).parent_path() / "tokenizer.model").string();
  if (!exists(path)) return "";
  const auto pieces = PieceModel::read(path);
  const JsonObject vocabulary = object_at(model, "vocab");
  const auto differs = [&](const std::string& token, int64_t id) {
    return id < 0 || id >= pieces->size() || pieces->piece(static_cast<int32_t>(id)).text != token;
  };
  for (const auto& [token, value] : vocabulary) {
    const auto* id = std::get_if<int64_t>(&value);
    require(id && !differs(token, *id), ExitCode::kBadData, json, ": its token ", quoted_token(token),
            " is not the same in tokenizer.model, which is read for a model with byte_fallback");
  }
  const JsonValue* added = find_member(whole, "added_tokens");
  const auto* list = added ? std::get_if<JsonText>(added) : nullptr;
  for (const JsonValue& value :
       list ? parse_json_array(list->text).value_or(std::vector<JsonValue>()) : std::vector<JsonValue>()) {
    const auto* text = std::get_if<JsonText>(&value);
    const auto token = text ? parse_json_object(text->text) : std::nullopt;
    require(token && !differs(text_of(*token, "content"), integer_of(*token, "id", -1)), ExitCode::kBadData, json,
            ": its added token ", quoted_token(token ? text_of(*token, "content") : ""),
            " is not in tokenizer.model, which is read for a model with byte_fallback");
  }
  return path;
}

}  // namespace

bool has_tokenizer(const std::string& folder) {
  return has_tokenizer_files(folder) || !piece_model_in(folder).empty() || !vocab_txt_in(folder).empty();
}

namespace {

Vocabulary tokens_of(const std::string& path, LengthRules rules) {
  if (const std::string model = piece_model_in(path); !model.empty())
    return Vocabulary::pieces(PieceModel::read(model));
  if (const std::string list = vocab_txt_in(path); !list.empty()) return vocabulary_of_vocab_txt(list);
  std::error_code error;
  const std::string json = fs::is_directory(path, error) ? path + "/tokenizer.json" : path;
  if (!exists(json)) return Vocabulary::byte_pairs(read_tokenizer(path, rules));
  const std::string text = content_of(json);
  const JsonObject whole = parse_json_object(text).value_or(JsonObject());
  if (const std::string pieces = pieces_beside(json, whole); !pieces.empty())
    return Vocabulary::pieces(PieceModel::read(pieces));
  if (text_of(object_at(whole, "model"), "type") == "WordPiece")
    return Vocabulary::word_pieces(parse_word_piece_json(text, json, rules));
  return Vocabulary::byte_pairs(parse_tokenizer_json(text, json, rules));
}

}  // namespace

Vocabulary vocabulary_of_tokenizer(const std::string& path, LengthRules rules) {
  Vocabulary out = tokens_of(path, rules);
  std::error_code error;
  if (fs::is_directory(path, error)) out.set_chat(chat_source_of_folder(path));
  return out;
}

}  // namespace lockstep
