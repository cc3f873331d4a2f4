#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "core/device/thread_pool.h"
#include "core/io/json.h"
#include "core/io/pending_file.h"
#include "data/import/input_stream.h"
#include "data/text/tokenizer/tokenizer_file.h"
#include "data/text/tokenizer/train_bpe.h"
#include "data/text/tokenizer/word_pieces.h"
#include "launch/arguments/command_line.h"
#include "launch/arguments/vocabulary_options.h"
#include "launch/commands/commands.h"
#include "launch/terminal/output.h"
#include "launch/terminal/progress.h"
#include "launch/text/find_vocabulary.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

constexpr size_t kReadBytes = 1 << 20;

// Calls use(bytes) for each block of a file, or of standard input where the path is "-".
template <class Use>
void for_each_block(const std::string& path, Use use) {
  InputStream input(path);
  std::string block;
  for (;;) {
    block.resize(kReadBytes);
    block.resize(input.read(block.data(), kReadBytes));
    if (block.empty()) return;
    use(block);
  }
}

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

int encode_text(const Arguments& a) {
  const auto vocabulary = find_vocabulary(a.positional[0], PlainFile::kJson, length_rules(a));
  const std::string& path = a.positional[1];
  std::vector<int32_t> ids;
  int64_t count = 0;
  const auto show = [&] {
    std::string line;
    for (int32_t id : ids) line += str(count++ > 0 ? " " : "", id);
    if (!line.empty()) print_out(line);
    ids.clear();
  };
  if (vocabulary->pairs() && !vocabulary->pairs()->prepares(a.has("special-tokens"))) {
    BpeEncoder encoder(*vocabulary->pairs(), a.has("special-tokens"));
    ValidText valid(invalid_bytes(a), input_name(path), "; replace such bytes with --invalid replace");
    std::string text;
    for_each_block(path, [&](const std::string& block) {
      text.clear();
      valid.add(block, text);
      encoder.add(text, ids);
      show();
    });
    text.clear();
    valid.finish(text);
    encoder.add(text, ids);
    encoder.finish(ids);
  } else {
    std::string text;
    for_each_block(path, [&](const std::string& block) { text += block; });
    if (vocabulary->has_tokenizer()) {
      ValidText valid(invalid_bytes(a), input_name(path), "; replace such bytes with --invalid replace");
      std::string checked;
      valid.add(text, checked);
      valid.finish(checked);
      text = std::move(checked);
    }
    ids = vocabulary->encode(text, a.has("special-tokens"));
  }
  show();
  print_out("\n");
  return 0;
}

int decode_ids(const Arguments& a) {
  const auto vocabulary = find_vocabulary(a.positional[0], PlainFile::kJson);
  const std::string where = input_name(a.positional[1]);
  const Shown shown = shown_on_output();
  std::string number;
  std::vector<int32_t> ids;
  const auto take = [&] {
    if (number.empty()) return;
    int32_t id = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), id);
    require(error == std::errc() && end == number.data() + number.size(), ExitCode::kBadData, where, ": '",
            escaped(number.substr(0, 40), Lines::kEscape), "' is no token id");
    ids.push_back(id);
    number.clear();
  };
  for_each_block(a.positional[1], [&](const std::string& block) {
    for (char c : block) {
      if (c == ' ' || c == '\n' || c == '\t' || c == '\r') take();
      else if (number.size() < 40) number += c;
    }
    if (vocabulary->pieces() || vocabulary->words()) return;  // of these only the whole is known
    print_out(vocabulary->decode(ids), shown);
    ids.clear();
  });
  take();
  print_out(vocabulary->decode_text(ids), shown);
  return 0;
}

int train_tokenizer(const Arguments& a) {
  const std::vector<std::string> inputs(a.positional.begin(), a.positional.end() - 1);
  const std::string& output = a.positional.back();
  BpeTraining options;
  options.vocabulary = a.integer("vocab-size", 0);
  options.pattern = a.text("pattern");
  options.invalid = invalid_bytes(a);
  for (const std::string& token : a.list("special")) options.special.push_back(token);
  options.threads = static_cast<int>(a.integer("threads", 0, kMostRanks));
  if (options.threads == 0) options.threads = available_cores();
  PendingFile pending(output, a.has("force"));
  ProgressOptions shown;
  shown.title = "read";
  shown.unit = "bytes";
  for (const std::string& path : inputs) shown.total += InputFile(path).size;
  Progress progress(shown);
  options.progress = [&](int64_t done, int64_t) { progress.set(done); };
  const BytePairs pairs(train_bpe(inputs, options), output);
  progress.finish();
  {
    const Descriptor file = open_to_append(pending.temporary());
    require(file && write_all(file, tokenizer_json(pairs.tables())), ExitCode::kStorage, output,
            ": cannot be written; is the disk full?");
  }
  pending.commit();
  if (pairs.size() < options.vocabulary)
    log_warning(str(output, ": has ", pairs.size(), " tokens, fewer than --vocab-size: no other pair occurs twice"));
  print_out(str("vocabulary: ", pairs.size(), "\nmerges: ", pairs.tables().merges.size(), "\n"));
  return 0;
}

std::string added_text(const std::vector<AddedToken>& tokens) {
  std::string out;
  for (const AddedToken& t : tokens)
    out += str(t.special ? "special token " : "added token ", t.id, ": ", escaped(t.text, Lines::kEscape), "\n");
  return out;
}

std::string normalizer_text(const BertRules& rules) {
  std::string out;
  for (const auto& [is, what] :
       {std::pair(rules.clean, "clean text"), std::pair(rules.ideographs, "ideographs alone"),
        std::pair(rules.strip_accents, "without accents"), std::pair(rules.lowercase, "lower case")})
    if (is) out += str(out.empty() ? "" : ", ", what);
  return str("normalizer: ", out.empty() ? "none" : out, "\n");
}

int describe_tokenizer(const Arguments& a) {
  const auto vocabulary = find_vocabulary(a.positional[0], PlainFile::kJson);
  const int64_t first = a.integer("first", 0);
  std::vector<JsonValue> tokens, patterns, added;
  for (int64_t id = 0; id < std::min(first, vocabulary->size()); ++id)
    tokens.emplace_back(vocabulary->decode({static_cast<int32_t>(id)}));
  JsonObject out{{"level", std::string(to_text(vocabulary->level()))}, {"vocabulary", vocabulary->size()}};
  if (const BytePairs* pairs = vocabulary->pairs()) {
    for (const std::string& p : pairs->tables().patterns) patterns.emplace_back(p);
    for (const AddedToken& t : pairs->tables().added) added.emplace_back(t.text);
    out.insert(out.end(), {{"merges", static_cast<int64_t>(pairs->tables().merges.size())},
                           {"ignore_merges", pairs->tables().ignore_merges},
                           {"patterns", json_array(patterns)},
                           {"added_tokens", json_array(added)}});
  }
  if (const WordPieces* words = vocabulary->words()) {
    const BertRules& rules = words->tables().rules;
    for (const AddedToken& t : words->tables().added) added.emplace_back(t.text);
    out.insert(out.end(), {{"lowercase", rules.lowercase},
                           {"strip_accents", rules.strip_accents},
                           {"added_tokens", json_array(added)},
                           {"mask", int64_t{words->mask()}}});
  }
  out.emplace_back("first_tokens", json_array(tokens));
  if (a.has("json")) {
    print_out(json_line(out) + "\n");
    return 0;
  }
  std::string text = str("level: ", to_text(vocabulary->level()), "\nvocabulary: ", vocabulary->size(), "\n");
  if (const BytePairs* pairs = vocabulary->pairs()) {
    const BpeTables& t = pairs->tables();
    text += str("merges: ", t.merges.size(), t.ignore_merges ? ", not for words that are tokens\n" : "\n");
    for (const std::string& p : t.patterns) text += str("pattern: ", p, "\n");
    text += added_text(t.added);
  }
  if (const WordPieces* words = vocabulary->words()) {
    text += normalizer_text(words->tables().rules);
    text += added_text(words->tables().added);
  }
  for (size_t i = 0; i < tokens.size(); ++i)
    text += str("token ", i, ": '", escaped(std::get<std::string>(tokens[i]), Lines::kEscape), "'\n");
  print_out(text);
  return 0;
}

}  // namespace

std::vector<Command> tokenizer_forms() {
  const std::string from =
      "FROM is a tokenizer.json, a SentencePiece model (NAME.model), BERT's vocab.txt, a folder that holds\n"
      "tokenizer.json, tokenizer.model, vocab.txt, or encoder.json and vocab.bpe, or vocab.json and merges.txt,\n"
      "or a run, a checkpoint or a dataset.";
  return {{"tokenizer train",
           "tokenizer train INPUT... OUTPUT.json [--vocab-size N] [--pattern NAME] [--special LIST] "
           "[--threads N] [--force]",
           "Makes a byte-level BPE tokenizer of the texts, as a tokenizer.json: the 256 bytes, then the most frequent\n"
           "pairs, then <|endoftext|> and the tokens of --special. The same texts give the same tokenizer on any\n"
           "number of threads.",
           {{"vocab-size", "tokens to make", "N", "50257"},
            {"pattern", "how text is split into words: gpt2, llama3 or qwen2", "NAME", "gpt2"},
            {"special", "special tokens beside <|endoftext|>, such as <|im_start|>,<|im_end|> for --template chatml",
             "LIST", ""},
            {"threads", "threads that read; 0: one for each core", "N", "0"},
            {"force", "replace an existing OUTPUT.json"},
            invalid_option()},
           2},
          {"tokenizer encode",
           "tokenizer encode FROM FILE [--special-tokens] [--whole-texts] [--invalid HOW]",
           "Prints the token ids of a text. FILE may be - for standard input, and compressed by gzip or Zstandard.\n" +
               from,
           {{"special-tokens", "special tokens that the text spells out are those tokens; else they are text"},
            whole_texts_option(),
            invalid_option()},
           2,
           2},
          {"tokenizer decode",
           "tokenizer decode FROM FILE",
           "Prints the text of token ids, which FILE holds with white space between them. FILE may be - for\n"
           "standard input.\n" +
               from,
           {},
           2,
           2},
          {"tokenizer inspect",
           "tokenizer inspect FROM [--first N] [--json]",
           "Describes a tokenizer.\n" + from,
           {{"first", "how many tokens to print", "N", "0"}, {"json", "one JSON object"}},
           1,
           1}};
}

int tokenizer_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(tokenizer_forms(), given);
  if (a.help || !is_first_process()) return 0;
  if (a.form == "train") return train_tokenizer(a);
  if (a.form == "encode") return encode_text(a);
  return a.form == "decode" ? decode_ids(a) : describe_tokenizer(a);
}

}  // namespace lockstep
