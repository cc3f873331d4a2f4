#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "core/base/error.h"
#include "core/base/trace.h"
#include "core/io/pending_file.h"
#include "data/dataset_file.h"
#include "data/import.h"
#include "data/input_stream.h"
#include "data/token_writer.h"
#include "data/tokenizer/tokenizer_file.h"

namespace lockstep {
namespace {

constexpr size_t kBlock = 1 << 20;
constexpr uint32_t kCodePoints = 0x110000;

// The next block of an input; false at its end.
bool next_block(InputStream& input, std::vector<uint8_t>& block) {
  block.resize(kBlock);
  block.resize(input.read(block.data(), kBlock));
  return !block.empty();
}

struct TextInput {
  std::string path, name;  // to open it, any number of times, and for messages
};
using Inputs = std::vector<TextInput>;

// Text is read twice: what standard input gave lies in a file without a name meanwhile, which its descriptor opens.
class KeptInput {
 public:
  explicit KeptInput(const std::string& beside) : spool_(beside) {
    std::vector<uint8_t> block(kBlock);
    for (ssize_t got = 1; got > 0;) {
      do got = ::read(STDIN_FILENO, block.data(), block.size());
      while (got < 0 && errno == EINTR);
      require(got >= 0, ExitCode::kBadData, "standard input cannot be read: ", std::strerror(errno));
      spool_.append(block.data(), static_cast<size_t>(got));
    }
    spool_.flush();
  }
  std::string path() const { return cat("/proc/self/fd/", spool_.descriptor()); }

 private:
  Spool spool_;
};

class Ticker {
 public:
  Ticker(const ProgressCallback& progress, int64_t total) : progress_(progress), total_(total) {}
  // `input` was read up to here.
  void at(const InputStream& input) {
    if (progress_) progress_(std::min(before_ + input.taken(), total_), total_);
  }
  void end_of(const InputStream& input) { before_ += input.taken(); }

 private:
  const ProgressCallback& progress_;
  int64_t before_ = 0, total_;
};

// Calls use(code point, its first byte) for each character; throws for invalid UTF-8.
template <class Use>
void for_each_character(const TextInput& from, Ticker& ticker, Use use) {
  InputStream input(from.path, from.name);
  Utf8Reader reader;
  std::vector<uint8_t> block;
  int64_t at = 0;
  auto invalid = [&](int64_t begin) {
    throw Error(ExitCode::kBadData, cat(from.name, ": invalid UTF-8 at byte ", begin,
                                        "; convert the file to UTF-8, or import it at byte level (--level byte)"));
  };
  while (next_block(input, block)) {
    for (uint8_t byte : block) {
      auto result = reader.next(byte);
      ++at;
      if (result == Utf8Reader::Result::kCodePoint) use(reader.code_point(), at - reader.length());
      if (result == Utf8Reader::Result::kInvalid) invalid(at - reader.length());
    }
    ticker.at(input);
  }
  if (!reader.between()) invalid(at - reader.length());
  ticker.end_of(input);
}

struct Survey {
  int64_t tokens = 0;
  std::unique_ptr<Vocabulary> vocabulary;
};

std::unique_ptr<Vocabulary> vocabulary_of(const std::vector<bool>& seen) {
  std::vector<uint32_t> points;
  for (uint32_t c = 0; c < kCodePoints; ++c)
    if (seen[c]) points.push_back(c);
  return points.empty() ? nullptr : std::make_unique<Vocabulary>(Vocabulary::chars(std::move(points)));
}

// The first pass counts the tokens and determines the vocabulary: `given`, or if that is null, the characters of the
// text.
Survey survey(const Inputs& inputs, TextLevel level, const Vocabulary* given, Ticker& ticker) {
  Survey out;
  if (level == TextLevel::kByte) {
    for (const TextInput& from : inputs) {
      InputStream input(from.path, from.name);
      std::vector<uint8_t> block;
      while (next_block(input, block)) {
        out.tokens += static_cast<int64_t>(block.size());
        ticker.at(input);
      }
      ticker.end_of(input);
    }
    out.vocabulary = std::make_unique<Vocabulary>(Vocabulary::bytes());
  } else {
    std::vector<bool> seen(kCodePoints);
    for (const TextInput& from : inputs)
      for_each_character(from, ticker, [&](uint32_t c, int64_t at) {
        if (given && !seen[c])
          require(given->token_of(c) >= 0, ExitCode::kBadData, from.name, ": the character ", character_text(c),
                  " at byte ", at, " is not in the given vocabulary of ", given->size(),
                  " characters; remove or replace it, or import without --vocabulary");
        seen[c] = true;
        ++out.tokens;
      });
    out.vocabulary = given ? std::make_unique<Vocabulary>(*given) : vocabulary_of(seen);
  }
  return out;
}

// The second pass. Throws `changed` if an input differs from what the first pass read.
template <class Id>
std::vector<uint64_t> write_characters(Hdf5File& file, const Inputs& inputs, const Survey& s, Ticker& ticker) {
  ChunkWriter writer(file, "tokens", token_type(s.vocabulary->size()), {s.tokens}, tokens_per_chunk());
  std::vector<int32_t> ids(kCodePoints, -1);
  for (uint32_t c : s.vocabulary->code_points()) ids[c] = s.vocabulary->token_of(c);
  std::vector<Id> buffer;
  int64_t left = s.tokens;
  for (const TextInput& from : inputs) {
    auto changed = [&](bool is) {
      require(!is, ExitCode::kBadData, from.name, ": changed while it was imported; import it again");
    };
    for_each_character(from, ticker, [&](uint32_t c, int64_t) {
      changed(ids[c] < 0 || left-- == 0);
      buffer.push_back(static_cast<Id>(ids[c]));
      if (buffer.size() < kBlock) return;
      writer.append(buffer.data(), static_cast<int64_t>(buffer.size()));
      buffer.clear();
    });
    changed(&from == &inputs.back() && left != 0);
  }
  writer.append(buffer.data(), static_cast<int64_t>(buffer.size()));
  return writer.finish();
}

std::vector<uint64_t> write_bytes(Hdf5File& file, const Inputs& inputs, const Survey& s, Ticker& ticker) {
  ChunkWriter writer(file, "tokens", StoredType::kUInt8, {s.tokens}, tokens_per_chunk());
  std::vector<uint8_t> block;
  int64_t left = s.tokens;
  for (const TextInput& from : inputs) {
    InputStream input(from.path, from.name);
    auto changed = [&](bool is) {
      require(!is, ExitCode::kBadData, from.name, ": changed while it was imported; import it again");
    };
    while (next_block(input, block)) {
      left -= static_cast<int64_t>(block.size());
      changed(left < 0);
      writer.append(block.data(), static_cast<int64_t>(block.size()));
      ticker.at(input);
    }
    changed(&from == &inputs.back() && left != 0);
    ticker.end_of(input);
  }
  return writer.finish();
}

using UseTokens = std::function<void(const std::vector<int32_t>& ids)>;

// Hands on the token ids of the inputs, some at a time.
void for_each_tokens(const Inputs& inputs, const ImportOptions& o, Ticker& ticker, const UseTokens& use) {
  const BytePairs& pairs = *o.vocabulary->pairs();
  const AddedToken* separator = pairs.added(o.separator);
  require(o.separator.empty() || separator, ExitCode::kUsage, "the separator ", o.separator,
          " is no added token of the tokenizer");
  BpeEncoder encoder(pairs, o.special_tokens);
  std::vector<uint8_t> block;
  std::string text;
  std::vector<int32_t> ids;
  for (const TextInput& from : inputs) {
    InputStream input(from.path, from.name);
    ValidText valid(o.invalid, from.name, "; convert the file to UTF-8, or replace such bytes (--invalid replace)");
    const auto encode = [&](bool last) {
      try {
        encoder.add(text, ids);
        if (last) encoder.finish(ids);
      } catch (const Error& e) {
        throw e.with_message(cat(from.name, ": ", e.what()));
      }
      if (last && separator) ids.push_back(separator->id);
      use(ids);
      text.clear();
      ids.clear();
    };
    while (next_block(input, block)) {
      valid.add({reinterpret_cast<const char*>(block.data()), block.size()}, text);
      encode(false);
      ticker.at(input);
    }
    valid.finish(text);
    encode(true);
    ticker.end_of(input);
  }
}

// In two passes, as characters are: the first counts the tokens.
template <class Id>
std::vector<uint64_t> write_tokens(Hdf5File& file, const Inputs& inputs, const ImportOptions& o, Ticker& ticker,
                                   int64_t left) {
  ChunkWriter writer(file, "tokens", token_type(o.vocabulary->size()), {left}, tokens_per_chunk());
  std::vector<Id> buffer;
  const auto changed = [&](bool is) {
    require(!is, ExitCode::kBadData, inputs[0].name, inputs.size() > 1 ? " or another input" : "",
            ": changed while it was imported; import it again");
  };
  for_each_tokens(inputs, o, ticker, [&](const std::vector<int32_t>& ids) {
    left -= static_cast<int64_t>(ids.size());
    changed(left < 0);
    buffer.assign(ids.begin(), ids.end());
    writer.append(buffer.data(), static_cast<int64_t>(buffer.size()));
  });
  changed(left != 0);
  return writer.finish();
}

Survey survey_tokens(const Inputs& inputs, const ImportOptions& o, Ticker& ticker) {
  Survey out;
  for_each_tokens(inputs, o, ticker, [&](const auto& ids) { out.tokens += static_cast<int64_t>(ids.size()); });
  out.vocabulary = std::make_unique<Vocabulary>(*o.vocabulary);
  return out;
}

}  // namespace

void import_text(const std::vector<std::string>& paths, const std::string& output, TextLevel level,
                 const ImportOptions& options) {
  trace_mark();
  require(!paths.empty(), ExitCode::kUsage, "no text to import: name at least one file");
  require(level != TextLevel::kBpe || options.vocabulary, ExitCode::kUsage,
          "text is imported at level bpe with a tokenizer only");
  check(!options.vocabulary || options.vocabulary->level() == level, "import at level ", to_text(level),
        " with a vocabulary of level ", to_text(options.vocabulary ? options.vocabulary->level() : level));
  if (level == TextLevel::kBpe) {
    const size_t bytes = tokenizer_json(options.vocabulary->pairs()->tables()).size();
    require(bytes <= kLargestTokenizer, ExitCode::kBadData, "the tokenizer takes ", bytes, " bytes; a dataset holds ",
            kLargestTokenizer, " at most");
  }
  PendingFile pending(output, options.force);
  int64_t bytes = 0;
  std::optional<KeptInput> kept;
  Inputs inputs;
  for (const std::string& path : paths) {
    if (path == "-" && !kept) kept.emplace(output);
    inputs.push_back(path == "-" ? TextInput{kept->path(), "standard input"} : TextInput{path, path});
    bytes += InputStream(inputs.back().path, inputs.back().name).size();
  }
  Ticker ticker(options.progress, 2 * bytes);  // two passes
  Survey s = level == TextLevel::kBpe ? survey_tokens(inputs, options, ticker)
                                      : survey(inputs, level, options.vocabulary.get(), ticker);
  require(s.tokens > 0, ExitCode::kBadData, inputs[0].name,
          inputs.size() > 1 ? " and the other inputs hold" : ": holds", " no text at all");

  Hdf5File file = Hdf5File::create(pending.temporary());
  DatasetHeader header;
  header.kind = DataKind::kTokens;
  header.tokens = s.tokens;
  header.vocabulary_size = s.vocabulary->size();
  const auto write = [&](auto id) {
    using Id = decltype(id);
    header.hashes = level == TextLevel::kBpe ? write_tokens<Id>(file, inputs, options, ticker, s.tokens)
                                             : write_characters<Id>(file, inputs, s, ticker);
  };
  const StoredType type = token_type(header.vocabulary_size);
  if (level == TextLevel::kByte) header.hashes = write_bytes(file, inputs, s, ticker);
  else if (type == StoredType::kUInt8) write(uint8_t{});
  else if (type == StoredType::kUInt16) write(uint16_t{});
  else write(uint32_t{});
  header.vocabulary = std::move(s.vocabulary);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

std::unique_ptr<Vocabulary> vocabulary_of_text(const std::string& path) {
  const ProgressCallback silent;
  Ticker ticker(silent, 0);
  Survey s = survey({{path, path}}, TextLevel::kChar, nullptr, ticker);
  require(s.tokens > 0, ExitCode::kBadData, path, ": holds no text at all");
  return std::move(s.vocabulary);
}

std::unique_ptr<Vocabulary> vocabulary_of_dataset(const std::string& path) {
  DatasetHeader header = read_dataset_header(Hdf5File::open(path));
  require(header.kind == DataKind::kTokens, ExitCode::kBadData, path, ": holds images, which have no vocabulary");
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
