#include "launch/export/export_data.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/io/json.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer/bpe.h"
#include "data/text/tokenizer/pieces.h"
#include "data/text/tokenizer/tokenizer_file.h"
#include "data/text/tokenizer/word_pieces.h"
#include "launch/config/run_data.h"

namespace lockstep {
namespace {

template <class T>
JsonText list_text(const std::vector<T>& values) {
  return json_array(std::vector<JsonValue>(values.begin(), values.end()));
}

void set_member(JsonObject& object, const std::string& key, JsonValue value) {
  std::erase_if(object, [&](const auto& member) { return member.first == key; });
  object.emplace_back(key, std::move(value));
}

void add_pieces(const Checkpoint& c, const PieceModel& pieces, HfExport& out) {
  out.files = {{"tokenizer.model", pieces.bytes()},
               {"tokenizer_config.json", json_line({{"tokenizer_class", "LlamaTokenizer"},
                                                    {"model_max_length", c.info.input[0]},
                                                    {"add_bos_token", false},
                                                    {"add_eos_token", false}}) +
                                             "\n"}};
}

void add_pairs(const Checkpoint& c, const BytePairs& pairs, HfExport& out) {
  JsonObject config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"model_max_length", c.info.input[0]}};
  const Surround& around = pairs.tables().around;
  if (!around.empty()) {  // an encoder's
    const auto text = [&](int32_t id) { return pairs.tables().tokens[static_cast<size_t>(id)]; };
    config.front().second = std::string("RobertaTokenizer");
    config.emplace_back("add_prefix_space", pairs.tables().prefix_space);
    for (const char* key : {"bos_token", "cls_token"}) config.emplace_back(key, text(around.before.front()));
    for (const char* key : {"eos_token", "sep_token"}) config.emplace_back(key, text(around.after.back()));
    for (const auto& [key, token] :
         {std::pair("pad_token", "<pad>"), std::pair("unk_token", "<unk>"), std::pair("mask_token", "<mask>")})
      if (pairs.added(token)) config.emplace_back(key, token);
    out.files = {{"tokenizer.json", tokenizer_json(pairs.tables())},
                 {"tokenizer_config.json", json_line(config) + "\n"}};
    return;
  }
  const std::string end = "<|endoftext|>";
  const AddedToken* token = pairs.added(end);
  if (token) config.emplace_back("eos_token", end);
  set_member(out.config, "eos_token_id", token ? JsonValue(int64_t{token->id}) : JsonValue(nullptr));
  set_member(out.config, "bos_token_id", nullptr);
  out.files = {{"tokenizer.json", tokenizer_json(pairs.tables())}, {"tokenizer_config.json", json_line(config) + "\n"}};
}

void add_words(const Checkpoint& c, const WordPieces& words, HfExport& out) {
  const BertRules& rules = words.tables().rules;
  std::string list;
  for (const std::string& token : words.tables().tokens) list += token + "\n";
  JsonObject config{{"tokenizer_class", "BertTokenizer"},
                    {"model_max_length", c.info.input[0]},
                    {"do_lower_case", rules.lowercase},
                    {"strip_accents", rules.strip_accents},
                    {"tokenize_chinese_chars", rules.ideographs}};
  for (const auto& [key, token] :
       {std::pair("unk_token", "[UNK]"), std::pair("sep_token", "[SEP]"), std::pair("pad_token", "[PAD]"),
        std::pair("cls_token", "[CLS]"), std::pair("mask_token", "[MASK]")})
    if (words.special(token) >= 0) config.emplace_back(key, token);
  out.files = {
      {"tokenizer.json", words.json()}, {"vocab.txt", list}, {"tokenizer_config.json", json_line(config) + "\n"}};
  if (const int32_t padding = words.special("[PAD]"); padding >= 0)
    set_member(out.config, "pad_token_id", int64_t{padding});
}

// The chat template of the data, where the folder that the model came from has none or another one; and, of a tokenizer
// that is written here, its tokens.
void add_chat(const Vocabulary& vocabulary, const std::string& source, HfExport& out) {
  const ChatSource* chat = vocabulary.chat();
  if (!chat || !vocabulary.has_tokenizer()) return;
  const auto theirs = source.empty() ? nullptr : chat_source_of_folder(source);
  if (chat->has_template() && (!theirs || theirs->source != chat->source || theirs->tool_use != chat->tool_use)) {
    out.files.emplace_back("chat_template.jinja", chat->source);
    if (!chat->tool_use.empty()) out.files.emplace_back("additional_chat_templates/tool_use.jinja", chat->tool_use);
  }
  for (auto& [name, text] : out.files) {
    if (name != "tokenizer_config.json") continue;
    JsonObject config = *parse_json_object(text);
    for (const auto& [token, of] : chat->tokens) {
      set_member(config, token, of);
      const int32_t id = vocabulary.special(of);
      for (const char* known : {"bos_token", "eos_token", "pad_token"})
        if (token == known && id >= 0) set_member(out.config, token + "_id", int64_t{id});
    }
    text = json_line(config) + "\n";
  }
}

void add_tokenizer(const Checkpoint& c, const std::string& source, HfExport& out) {
  const auto vocabulary = parse_vocabulary(c.info.vocabulary);
  if (!vocabulary) return;  // ids of a tokenizer that only the user knows
  const std::string difference = tokenizer_difference(source, *vocabulary);
  if (!source.empty() && difference.empty() && has_tokenizer(source)) return;  // its files say more of the same
  out.other_tokenizer = true;
  if (vocabulary->pieces()) add_pieces(c, *vocabulary->pieces(), out);
  else if (vocabulary->words()) add_words(c, *vocabulary->words(), out);
  else if (vocabulary->pairs()) add_pairs(c, *vocabulary->pairs(), out);
  else if (has_tokenizer(source))
    log_warning(str("the data of ", c.dir, " has ", to_text(vocabulary->level()),
                    "s as tokens, for which transformers "
                    "has no tokenizer: none is written, not even that of ",
                    source));
}

void add_classes(const Checkpoint& c, const DataSchema& s, HfExport& out) {
  if (s.class_names.empty() || s.classes != c.info.classes) return;
  JsonObject names, numbers;
  for (size_t i = 0; i < s.class_names.size(); ++i) {
    names.emplace_back(std::to_string(i), s.class_names[i]);
    numbers.emplace_back(s.class_names[i], static_cast<int64_t>(i));
  }
  set_member(out.config, "id2label", JsonText{json_line(names)});
  set_member(out.config, "label2id", JsonText{json_line(numbers)});
}

// As transformers' ViTImageProcessor computes (byte / 255 - mean) / std of images that it resizes as we do.
void add_preprocessor(const Checkpoint& c, const DataSchema& s, HfExport& out) {
  const Shape& image = c.info.input;
  if (s.kind != DataKind::kImages || image.rank() != 3) return;
  if (s.mean.empty()) {
    log_warning(str(c.dir,
                    ": was trained on several files, each normalised by its own mean and deviation, so no "
                    "preprocessor_config.json says how images are normalised; join the files with `lockstep data "
                    "merge` before training, or write it by hand"));
    return;
  }
  constexpr int64_t kBilinear = 2;
  out.files.emplace_back("preprocessor_config.json",
                         json_line({{"image_processor_type", "ViTImageProcessor"},
                                    {"do_resize", true},
                                    {"size", JsonText{json_line({{"height", image[0]}, {"width", image[1]}})}},
                                    {"resample", kBilinear},
                                    {"do_rescale", true},
                                    {"rescale_factor", 1.0 / 255},
                                    {"do_normalize", true},
                                    {"image_mean", list_text(s.mean)},
                                    {"image_std", list_text(s.stddev)}}) +
                             "\n");
}

}  // namespace

void add_data_of_run(const Checkpoint& c, const LikeData* data, const std::string& source, HfExport& out) {
  add_tokenizer(c, source, out);
  if (const auto vocabulary = parse_vocabulary(c.info.vocabulary)) add_chat(*vocabulary, source, out);
  if (!data) return;
  if (out.config.end() !=
      std::find_if(out.config.begin(), out.config.end(), [](auto& m) { return m.first == "id2label"; }))
    add_classes(c, data->schema, out);
  add_preprocessor(c, data->schema, out);
}

}  // namespace lockstep
