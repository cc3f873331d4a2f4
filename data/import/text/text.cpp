#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "core/base/error.h"
#include "core/base/trace.h"
#include "data/import/import.h"
#include "data/import/import_threads.h"
#include "data/import/in_order.h"
#include "data/import/input_stream.h"
#include "data/import/kept_input.h"
#include "data/samples/dataset_file.h"
#include "data/samples/text/token_writer.h"
#include "data/store/same_pass.h"
#include "data/text/tokenizer/block_encoder.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/tokenizer_file.h"
#include "data/text/tokenizer/word_pieces.h"

namespace lockstep {
namespace {

constexpr size_t kBlock = 1 << 20;
constexpr uint32_t kCodePoints = 0x110000;

struct TextInput {
  std::string path, name;  // to open it, any number of times, and for messages
};
using Inputs = std::vector<TextInput>;

// Where a reading of the inputs goes on.
struct TextPosition {
  size_t input = 0;
  int64_t byte = 0;       // of that input, decompressed
  std::string carried{};  // text before that byte that is not part of a block yet
};

// A part of one input, in whole characters where the text is to be UTF-8.
struct InputBlock {
  const TextInput* from = nullptr;
  int64_t begin = 0;    // its first byte in the input, decompressed
  bool last = false;    // of the input
  int64_t done = 0;     // bytes of all inputs so far, as stored
  TextPosition behind;  // where the reading goes on after it
  TextBlock text;
  // Where the block is the last one of an input that was read from its begin: of the whole input.
  std::optional<Hash128> hash{};
};

// Where blocks may end: anywhere, where a normal form can be cut, or behind white space.
enum class BlockEnd : uint8_t { kAnywhere, kNormalForm, kBlank };

// Reads the inputs by blocks.
class BlockReader {
 public:
  // `valid`: the text must be UTF-8, or is made so.
  BlockReader(const Inputs& inputs, std::optional<InvalidBytes> valid, BlockEnd end, const std::string& advice,
              TextPosition at = {}, bool prefix_space = false)
      : inputs_(inputs), valid_(valid), end_(end), prefix_space_(prefix_space), advice_(advice), at_(std::move(at)) {
    for (size_t i = 0; i < at_.input; ++i) before_ += InputStream(inputs_[i].path, inputs_[i].name).size();
  }

  // Returns 0 where the inputs end.
  int64_t next(InputBlock& block) {
    if (at_.input == inputs_.size()) return 0;
    if (!stream_) open();
    block.from = &inputs_[at_.input];
    block.begin = at_.byte - static_cast<int64_t>(at_.carried.size());
    std::string& text = block.text.text;
    text = std::move(at_.carried);
    at_.carried.clear();
    const bool begins = at_.byte == 0;
    bytes_.resize(kBlock);
    size_t got = 0;
    while (got < kBlock && !block.last) {
      const size_t more = stream_->read(bytes_.data() + got, kBlock - got);
      got += more;
      block.last = more == 0;
    }
    const std::string_view bytes(bytes_.data(), got);
    if (valid_) {
      utf8_->add(bytes, text);
      if (block.last) utf8_->finish(text);
      at_.byte = utf8_->taken();
    } else {
      text += bytes;
      at_.byte += static_cast<int64_t>(got);
    }
    if (prefix_space_ && begins && !text.empty() && text[0] != ' ') text.insert(0, 1, ' ');
    if (end_ != BlockEnd::kAnywhere && !block.last) {
      const size_t end = end_ == BlockEnd::kNormalForm ? last_boundary(text) : text.find_last_of(" \t\n\r") + 1;
      at_.carried = text.substr(end);
      text.resize(end);
      require(at_.carried.size() <= kLongestWord, ExitCode::kBadData, block.from->name, ": holds more than ",
              kLongestWord >> 20, " MiB of text without a place where ",
              end_ == BlockEnd::kNormalForm ? "its normal form can be cut" : "a word ends");
    }
    block.done = before_ + stream_->taken();
    if (block.last) {
      if (from_begin_) block.hash = stream_->hash();
      before_ = block.done;
      at_ = {at_.input + 1};
      stream_.reset();
    }
    block.behind = at_;
    return static_cast<int64_t>(std::max<size_t>(1, text.size()));
  }

 private:
  void open() {
    const TextInput& from = inputs_[at_.input];
    stream_.emplace(from.path, from.name);
    stream_->skip(at_.byte);
    from_begin_ = at_.byte == 0;
    utf8_.emplace(valid_.value_or(InvalidBytes::kRefuse), from.name, advice_);
    utf8_->begin_at(at_.byte);
  }

  const Inputs& inputs_;
  const std::optional<InvalidBytes> valid_;
  const BlockEnd end_;
  const bool prefix_space_;  // each input that does not begin with a space gets one
  const std::string advice_;
  TextPosition at_;
  int64_t before_ = 0;  // bytes of the inputs before, as stored
  std::optional<InputStream> stream_;
  std::optional<ValidText> utf8_;
  std::vector<char> bytes_;
  bool from_begin_ = true;
};

constexpr const char* kAdviceForCharacters = "; convert the file to UTF-8, or import it at byte level (--level byte)";
constexpr const char* kAdviceForTokens = "; convert the file to UTF-8, or replace such bytes (--invalid replace)";

// Calls use(code point, its first byte in the text) for each character of valid UTF-8.
template <class Use>
void for_each_character(std::string_view text, Use use) {
  Utf8Reader reader;
  for (size_t i = 0; i < text.size(); ++i)
    if (reader.next(static_cast<uint8_t>(text[i])) == Utf8Reader::Result::kCodePoint)
      use(reader.code_point(), static_cast<int64_t>(i + 1) - reader.length());
}

// The characters of a text. `hashes`: those of the inputs, one behind the other.
Vocabulary vocabulary_in(const Inputs& inputs, int threads, const ProgressCallback& progress, int64_t total,
                         std::vector<Hash128>& hashes) {
  std::vector<std::vector<bool>> seen(static_cast<size_t>(threads), std::vector<bool>(kCodePoints));
  BlockReader reader(inputs, InvalidBytes::kRefuse, BlockEnd::kAnywhere, kAdviceForCharacters);
  in_order<InputBlock>(
      threads, [&](InputBlock& block) { return reader.next(block); },
      [&](InputBlock& block, int thread) {
        std::vector<bool>& mine = seen[static_cast<size_t>(thread)];
        for_each_character(block.text.text, [&](uint32_t c, int64_t) { mine[c] = true; });
      },
      [&](InputBlock& block) {
        if (block.hash) hashes.push_back(*block.hash);
        if (progress) progress(block.done, total);
      });
  std::vector<uint32_t> points;
  for (uint32_t c = 0; c < kCodePoints; ++c)
    if (std::any_of(seen.begin(), seen.end(), [&](const auto& one) { return one[c]; })) points.push_back(c);
  require(!points.empty(), ExitCode::kBadData, inputs[0].name,
          inputs.size() > 1 ? " and the other inputs hold" : ": holds", " no text at all");
  return Vocabulary::chars(std::move(points));
}

class TextImport {
 public:
  // `surveyed`: the hashes of the inputs of which the vocabulary was made; empty: it is a given one.
  TextImport(const Inputs& inputs, const std::string& output, const Vocabulary& vocabulary,
             std::vector<Hash128> surveyed, const ImportOptions& options, const std::string& made_of)
      : inputs_(inputs),
        options_(options),
        vocabulary_(vocabulary),
        surveyed_(std::move(surveyed)),
        threads_(import_threads(options)),
        writer_(output, options.force, std::make_unique<Vocabulary>(vocabulary), 0, made_of) {
    if (!options.separator.empty()) {
      separator_ = vocabulary.special(options.separator);
      require(separator_ >= 0, ExitCode::kUsage, "the separator ", options.separator,
              " is no added token of the tokenizer");
    }
    if (const BytePairs* pairs = vocabulary.pairs()) {
      for (int i = 0; i < threads_; ++i)
        encoders_.push_back(std::make_unique<BpeEncoder>(*pairs, options.special_tokens));
      joiner_.emplace(*pairs, options.special_tokens);
    } else if (vocabulary.level() == TextLevel::kChar) {
      ids_of_.assign(kCodePoints, -1);
      for (uint32_t c : vocabulary.code_points()) ids_of_[c] = vocabulary.token_of(c);
    }
    if (const JsonObject* found = writer_.found()) {
      start_.input = static_cast<size_t>(writer_.found_integer("input", 0, std::ssize(inputs)));
      start_.byte = writer_.found_integer("byte", 0);
      start_.carried = text_of(*found, "carried");
      if (joiner_) joiner_->begin_with(text_of(*found, "rest"), ids_);
    }
  }

  // `before`, of `total`: what was done when it begins, for progress.
  void run(int64_t before, int64_t total) {
    const TextLevel level = vocabulary_.level();
    std::optional<InvalidBytes> valid;
    if (level == TextLevel::kChar) valid = InvalidBytes::kRefuse;
    if (vocabulary_.has_tokenizer()) valid = options_.invalid;
    const BlockEnd end = joiner_ && vocabulary_.pairs()->tables().nfc ? BlockEnd::kNormalForm
                         : level == TextLevel::kWords                 ? BlockEnd::kBlank
                                                                      : BlockEnd::kAnywhere;
    BlockReader reader(inputs_, valid, end, vocabulary_.has_tokenizer() ? kAdviceForTokens : kAdviceForCharacters,
                       start_, joiner_ && vocabulary_.pairs()->tables().prefix_space);
    SaveTimer saves(options_.save_every);
    in_order<InputBlock>(
        threads_, [&](InputBlock& block) { return reader.next(block); },
        [&](InputBlock& block, int thread) { encode(block, thread); },
        [&](InputBlock& block) {
          write(block);
          if (options_.progress) options_.progress(before + block.done, total);
          if (saves.is_due()) save(block.behind), saves.saved();
        });
    require(writer_.tokens() > 0, ExitCode::kBadData, inputs_[0].name,
            inputs_.size() > 1 ? " and the other inputs hold" : ": holds", " no text at all");
    if (saves.any()) save({inputs_.size()});
    writer_.finish(options_.writing);
  }

 private:
  void encode(InputBlock& block, int thread) {
    std::string& text = block.text.text;
    std::vector<int32_t>& ids = block.text.ids;
    if (joiner_) return encode_block(*encoders_[static_cast<size_t>(thread)], *vocabulary_.pairs(), block.text);
    if (const WordPieces* words = vocabulary_.words()) {
      for (const WordPieces::Token& token : words->encode(text, options_.special_tokens)) ids.push_back(token.id);
      return;
    }
    ids.reserve(text.size());
    if (vocabulary_.level() == TextLevel::kByte) {
      for (char c : text) ids.push_back(static_cast<uint8_t>(c));
      return;
    }
    for_each_character(text, [&](uint32_t c, int64_t at) {
      if (ids_of_[c] < 0) refuse(block, c, at);
      ids.push_back(ids_of_[c]);
    });
  }

  [[noreturn]] void refuse(const InputBlock& block, uint32_t c, int64_t at) const {
    require_same_pass(surveyed_.empty(), block.from->name);
    throw Error(ExitCode::kBadData, str(block.from->name, ": the character ", character_text(c), " at byte ",
                                        block.begin + at, " is not in the given vocabulary of ", vocabulary_.size(),
                                        " characters; remove or replace it, or import without --vocabulary"));
  }

  void write(InputBlock& block) {
    if (block.hash && !surveyed_.empty())
      require_same_pass(*block.hash == surveyed_[static_cast<size_t>(block.from - inputs_.data())], block.from->name);
    if (!joiner_) {
      if (block.last && separator_ >= 0) block.text.ids.push_back(separator_);
      return writer_.add(block.text.ids);
    }
    try {
      joiner_->add(block.text, ids_);
      if (block.last) joiner_->finish(ids_);
    } catch (const Error& e) {
      throw e.with_message(str(block.from->name, ": ", e.what()));
    }
    if (block.last && separator_ >= 0) ids_.push_back(separator_);
    writer_.add(ids_);
    ids_.clear();
  }

  void save(const TextPosition& at) {
    writer_.save({{"input", static_cast<int64_t>(at.input)},
                  {"byte", at.byte},
                  {"carried", at.carried},
                  {"rest", joiner_ ? joiner_->rest() : ""}});
  }

  const Inputs& inputs_;
  const ImportOptions& options_;
  const Vocabulary vocabulary_;
  const std::vector<Hash128> surveyed_;
  const int threads_;
  TokenWriter writer_;
  int32_t separator_ = -1;                             // the token behind each input
  std::vector<std::unique_ptr<BpeEncoder>> encoders_;  // one for each thread
  std::optional<BlockJoiner> joiner_;                  // of byte pairs
  std::vector<int32_t> ids_of_;                        // of each code point
  TextPosition start_;
  std::vector<int32_t> ids_;
};

}  // namespace

void import_text(const std::vector<std::string>& paths, const std::string& output, TextLevel level,
                 const ImportOptions& options) {
  trace_mark();
  require(!paths.empty(), ExitCode::kUsage, "no text to import: name at least one file");
  require(
      level != TextLevel::kPieces, ExitCode::kUsage,
      "a SentencePiece model encodes texts one by one, not one long text: import them as JSON lines (import json) or "
      "as a table (import csv --text)");
  require((level != TextLevel::kBpe && level != TextLevel::kWords) || options.vocabulary, ExitCode::kUsage,
          "text is imported at level ", to_text(level), " with a tokenizer only");
  check(!options.vocabulary || options.vocabulary->level() == level, "import at level ", to_text(level),
        " with a vocabulary of level ", to_text(options.vocabulary ? options.vocabulary->level() : level));
  if (level == TextLevel::kBpe || level == TextLevel::kWords) {
    const WordPieces* words = options.vocabulary->words();
    require(!words || !words->needs_whole_text(), ExitCode::kUsage,
            "the tokenizer has an added token with white space, which is found in one text only, not in a long text "
            "that is read by blocks: import texts as JSON lines (import json) or as a table (import csv --text)");
    require(words || !options.special_tokens || !options.vocabulary->pairs()->prepares(true), ExitCode::kUsage,
            "special tokens of this tokenizer change the text beside them (lstrip, rstrip, add_prefix_space): import "
            "text without --special-tokens");
    const size_t bytes = (words ? words->json() : options.vocabulary->pairs()->json()).size();
    require(bytes <= kLargestTokenizer, ExitCode::kBadData, "the tokenizer takes ", bytes, " bytes; a dataset holds ",
            kLargestTokenizer, " at most");
  }
  PendingFile::check_place(output, options.force);
  const bool surveys = level == TextLevel::kChar && !options.vocabulary;  // reads the text twice
  int64_t bytes = 0;
  bool piped = false;
  std::optional<KeptInput> kept;
  Inputs inputs;
  for (const std::string& path : paths) {
    const bool standard = path == "-";
    require(!standard || !piped || surveys, ExitCode::kUsage, "standard input (-) can be read once");
    piped = piped || standard;
    if (standard && surveys && !kept) kept.emplace(output);
    inputs.push_back(standard ? TextInput{kept ? kept->path() : path, "standard input"} : TextInput{path, path});
    if (!standard || kept) bytes += InputStream(inputs.back().path, inputs.back().name).size();
  }
  const int64_t total = piped && !kept ? 0 : bytes * (surveys ? 2 : 1);
  std::vector<Hash128> surveyed;
  Vocabulary vocabulary = level == TextLevel::kByte ? Vocabulary::bytes()
                          : surveys ? vocabulary_in(inputs, import_threads(options), options.progress, total, surveyed)
                                    : *options.vocabulary;
  const std::string how = str("text, special tokens ", options.special_tokens, ", invalid bytes ",
                              options.invalid == InvalidBytes::kReplace ? "replaced" : "refused");
  TextImport import(inputs, output, vocabulary, std::move(surveyed), options,
                    made_of(how, vocabulary, options.separator, paths));
  import.run(surveys ? bytes : 0, total);
}

std::unique_ptr<Vocabulary> vocabulary_of_text(const std::string& path) {
  std::vector<Hash128> hashes;
  return std::make_unique<Vocabulary>(vocabulary_in({{path, path}}, import_threads({}), {}, 0, hashes));
}

std::unique_ptr<Vocabulary> vocabulary_of_dataset(const std::string& path) {
  DatasetHeader header = read_dataset_header(Hdf5File::open(path));
  require(header.kind == DataKind::kTokens, ExitCode::kBadData, path, ": holds no text, and so no vocabulary");
  return std::move(header.vocabulary);
}

bool is_hdf5_file(const std::string& path) {
  constexpr unsigned char kSignature[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  const InputFile input(path);
  std::vector<uint8_t> block(static_cast<size_t>(std::min<int64_t>(input.size, kBlock)));
  input.read(0, block.data(), static_cast<int64_t>(block.size()));
  // The signature is at the beginning, or after a user block of 512, 1024, 2048, ... bytes.
  for (size_t at = 0; at + sizeof kSignature <= block.size(); at = at == 0 ? 512 : 2 * at)
    if (std::memcmp(block.data() + at, kSignature, sizeof kSignature) == 0) return true;
  return false;
}

}  // namespace lockstep
