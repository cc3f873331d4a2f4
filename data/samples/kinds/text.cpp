// Text: token ids, in one sequence or in records, which may have a label each, or be pairs.
#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "data/samples/dataset_file.h"
#include "data/samples/header_parts.h"
#include "data/samples/records.h"
#include "data/samples/sample_kind.h"
#include "data/samples/schema.h"
#include "data/samples/text/text_report.h"
#include "data/samples/text/token_dataset.h"
#include "data/samples/text/token_writer.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer/pieces.h"
#include "data/text/tokenizer/tokenizer_file.h"
#include "data/text/tokenizer/word_piece_file.h"

namespace lockstep {
namespace {

constexpr int64_t kMostCodePoints = 0x110000;
constexpr int64_t kLargestChat = 16 << 20;  // bytes

std::unique_ptr<Vocabulary> read_vocabulary(const Hdf5File& file) {
  std::string level = file.string_attribute("", "level");
  if (level == "byte") return std::make_unique<Vocabulary>(Vocabulary::bytes());
  if (level == "ids") return nullptr;
  if (level == "bpe" || level == "sentencepiece" || level == "wordpiece") {
    const Hdf5Info info = list_info(file, "tokenizer");
    require(info.shape[0] > 0 && info.shape[0] <= static_cast<int64_t>(kLargestTokenizer), ExitCode::kBadData,
            file.path(), ": dataset 'tokenizer' has shape ", info.shape, "; expected at most ", kLargestTokenizer,
            " bytes");
    std::string text(static_cast<size_t>(info.shape[0]), '\0');
    file.read("tokenizer", StoredType::kUInt8, {0, info.shape[0]}, text.data());
    const std::string where = str(file.path(), ": dataset 'tokenizer'");
    if (level == "wordpiece")
      return std::make_unique<Vocabulary>(Vocabulary::word_pieces(parse_word_piece_json(text, where)));
    return std::make_unique<Vocabulary>(level == "bpe" ? Vocabulary::byte_pairs(parse_tokenizer_json(text, where))
                                                       : Vocabulary::pieces(PieceModel::parse(std::move(text), where)));
  }
  require(level == "char", ExitCode::kBadData, file.path(), ": level '", level,
          "' is not one of byte, char, bpe, sentencepiece, wordpiece, ids");
  const Hdf5Info info = list_info(file, "vocabulary");
  require(info.shape[0] > 0 && info.shape[0] <= kMostCodePoints, ExitCode::kBadData, file.path(),
          ": dataset 'vocabulary' has shape ", info.shape, "; expected a list of code points");
  std::vector<uint32_t> points(static_cast<size_t>(info.shape[0]));
  file.read("vocabulary", StoredType::kUInt32, {0, info.shape[0]}, points.data());
  for (size_t i = 0; i < points.size(); ++i)
    require(points[i] < kMostCodePoints && (i == 0 || points[i - 1] < points[i]), ExitCode::kBadData, file.path(),
            ": vocabulary entry ", i, " (", points[i], ") is not a code point greater than the previous one");
  return std::make_unique<Vocabulary>(Vocabulary::chars(std::move(points)));
}

// The chat template that goes with the vocabulary; null: there is none.
std::shared_ptr<const ChatSource> read_chat(const Hdf5File& file) {
  if (!file.has("chat_template")) return nullptr;
  const Hdf5Info info = list_info(file, "chat_template");
  require(info.shape[0] > 0 && info.shape[0] <= kLargestChat, ExitCode::kBadData, file.path(),
          ": dataset 'chat_template' has shape ", info.shape, "; expected at most ", kLargestChat, " bytes");
  std::string text(static_cast<size_t>(info.shape[0]), '\0');
  file.read("chat_template", StoredType::kUInt8, {0, info.shape[0]}, text.data());
  try {
    return std::make_shared<const ChatSource>(ChatSource::parse(text));
  } catch (const Error& e) {
    throw e.with_message(str(file.path(), ": dataset 'chat_template': ", e.what()));
  }
}

// What the dataset "tokenizer" holds; null: there is none.
const std::string* tokenizer_of(const Vocabulary* v) {
  if (!v) return nullptr;
  if (v->words()) return &v->words()->json();
  return v->pairs() ? &v->pairs()->json() : v->pieces() ? &v->pieces()->bytes() : nullptr;
}

template <class T>
int64_t first_beyond(const uint8_t* bytes, int64_t count, int64_t limit) {
  if (limit > static_cast<int64_t>(std::numeric_limits<T>::max())) return -1;
  // Compares the maximum first: that vectorises, and almost always suffices.
  const T* ids = reinterpret_cast<const T*>(bytes);
  T largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, ids[i]);
  if (static_cast<int64_t>(largest) < limit) return -1;
  return std::find_if(ids, ids + count, [&](T id) { return static_cast<int64_t>(id) >= limit; }) - ids;
}

int64_t first_beyond(StoredType type, const uint8_t* bytes, int64_t count, int64_t limit) {
  if (type == StoredType::kUInt8) return first_beyond<uint8_t>(bytes, count, limit);
  if (type == StoredType::kUInt16) return first_beyond<uint16_t>(bytes, count, limit);
  return first_beyond<uint32_t>(bytes, count, limit);
}

std::unique_ptr<StoredRows> open_tokens(std::shared_ptr<const Hdf5File> file, const DatasetHeader& header,
                                        int64_t memory_bytes) {
  StoredType type = file->info("tokens").type;
  auto check_ids = [path = file->path(), limit = header.vocabulary_size, type](IndexRange rows, const uint8_t* bytes) {
    int64_t at = first_beyond(type, bytes, rows.size(), limit);
    if (at < 0) return;
    uint32_t id = 0;
    std::memcpy(&id, bytes + at * size_of(type), static_cast<size_t>(size_of(type)));
    throw Error(ExitCode::kBadData, str(path, ": token ", rows.begin + at, " is ", id, ", beyond the vocabulary of ",
                                        limit, "; import the text again"));
  };
  return std::make_unique<StoredRows>(stored_rows(std::move(file), "tokens"), header.hashes, memory_bytes, check_ids);
}

class TokenCopy final : public SampleWriter {
 public:
  explicit TokenCopy(NewDataset d)
      : writer_(d.path, d.replace, std::move(d.header.vocabulary), d.header.vocabulary_size) {
    if (d.header.records.paired) writer_.set_paired();
    if (d.header.records.labelled) writer_.set_classes(d.header.classes, std::move(d.header.class_names));
  }

  void append(const std::shared_ptr<const DatasetFile>& file, IndexRange samples,
              const std::vector<int32_t>& labels) override {
    const FileTokens source(file);
    if (source.records() == 0) return copy(source, samples);
    int64_t record = samples.begin;
    visit_records(*file, records_of(file->header, samples), [&](IndexRange tokens) {
      copy(source, tokens);
      if (file->header.records.labelled)
        writer_.end_record(label_of(*file, record, labels), file->weight_of(record)), ++record;
      else writer_.end_record();
    });
  }
  void close() override { writer_.close(); }
  PartialOutput& output() override { return writer_.output(); }

 private:
  void copy(const FileTokens& source, IndexRange tokens) {
    for (IndexRange now = tokens; now.begin < tokens.end; now.begin = now.end) {
      now.end = std::min(tokens.end, now.begin + kTokensAtOnce);
      ids_.resize(static_cast<size_t>(now.size()));
      source.read(now, ids_.data());
      targets_.resize(source.has_targets() ? ids_.size() : 0);
      if (source.has_targets()) source.read_targets(now, targets_.data());
      writer_.add(ids_, targets_);
    }
  }

  TokenWriter writer_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> targets_;
};

bool all_ones(const StoredRows& rows, int64_t count) {
  bool out = true;
  rows.visit({0, count}, [&](IndexRange piece, const uint8_t* bytes) {
    out &= std::find(bytes, bytes + piece.size(), 0) == bytes + piece.size();
  });
  return out;
}

void cut_text(DatasetFile& file, int64_t samples) {
  DatasetHeader& h = file.header;
  h.tokens = samples;
  if (file.record_ends) {
    const int64_t records = records_of(h, {0, samples}).end;
    visit_records(file, {records - 1, records}, [&](IndexRange tokens) { h.tokens = tokens.end; });
    h.records.end_hashes = hashes_of_first(*file.record_ends, h.records.end_hashes, records, tokens_per_chunk());
    h.records.count = records;
  }
  if (h.records.labelled) cut_labels(file, samples), cut_weights(file, samples);
  h.hashes = hashes_of_first(*file.rows, h.hashes, h.tokens, rows_per_chunk(h));
  if (file.targets && all_ones(*file.targets, h.tokens)) {  // then nobody stores them
    file.targets.reset();
    h.records.target_hashes.clear();
  } else if (file.targets) {
    h.records.target_hashes = hashes_of_first(*file.targets, h.records.target_hashes, h.tokens, tokens_per_chunk());
  }
}

class TextKind final : public SampleKind {
 public:
  TextKind()
      : SampleKind({.name = "tokens",
                    .rows = "tokens",
                    .sample = "record",
                    .samples = "records",
                    .content = "text",
                    .value = "",
                    .unlabelled = "is text, which has no labels"}) {}

  void read_header(const Hdf5File& file, const std::string&, DatasetHeader& h) const override {
    const std::string& path = file.path();
    const Hdf5Info info = file.info("tokens");
    const bool good =
        info.type == StoredType::kUInt8 || info.type == StoredType::kUInt16 || info.type == StoredType::kUInt32;
    require(good && info.shape.rank() == 1 && info.shape[0] > 0, ExitCode::kBadData, path, ": dataset 'tokens' holds ",
            info.type, " of shape ", info.shape, "; expected a list of uint8, uint16 or uint32");
    h.tokens = info.shape[0];
    h.vocabulary = read_vocabulary(file);
    if (h.vocabulary) h.vocabulary->set_chat(read_chat(file));
    h.vocabulary_size = count_attribute(file, "vocabulary_size", h.tokens);
    require(!h.vocabulary || h.vocabulary->size() == h.vocabulary_size, ExitCode::kBadData, path,
            ": vocabulary_size is ", h.vocabulary_size, ", but the vocabulary has ",
            h.vocabulary ? h.vocabulary->size() : 0, " entries");
    h.records = read_records_header(file, h.tokens);
    if (!h.records.labelled) return;
    read_classes(file, h.records.count, "records", h);
    read_weights_header(file, h.records.count, "records", h);
  }

  void write_header(Hdf5File& file, const DatasetHeader& h) const override {
    file.set_attribute("", "level", h.level());
    file.set_attribute("", "vocabulary_size", h.vocabulary_size);
    if (h.records.count > 0) write_hashes(file, "record_ends", h.records.end_hashes);
    if (!h.records.target_hashes.empty()) write_hashes(file, "targets", h.records.target_hashes);
    if (h.records.labelled) write_classes(file, h), write_weights_header(file, h);
    if (h.records.paired) file.set_attribute("", "pairs", int64_t{1});
    if (h.vocabulary && h.vocabulary->level() == TextLevel::kChar)
      file.write_all("vocabulary", StoredType::kUInt32, {h.vocabulary_size}, h.vocabulary->code_points().data());
    if (const std::string* text = tokenizer_of(h.vocabulary.get()))
      file.write_all("tokenizer", StoredType::kUInt8, {static_cast<int64_t>(text->size())}, text->data());
    if (h.vocabulary && h.vocabulary->chat()) {
      const std::string text = h.vocabulary->chat()->text();
      file.write_all("chat_template", StoredType::kUInt8, {static_cast<int64_t>(text.size())}, text.data());
    }
  }

  void hash(const DatasetHeader& h, Hasher128& hasher) const override {
    auto add = [&](const auto& list) { hasher.update(list.data(), list.size() * sizeof list[0]); };
    const RecordsHeader& r = h.records;
    add(str("tokens ", h.tokens, " level ", h.level(), " vocabulary ", h.vocabulary_size,
            r.count > 0 ? str(" records ", r.count, " targets ", !r.target_hashes.empty()) : "",
            r.paired ? " pairs" : "", r.labelled ? str(" classes ", h.classes) : "",
            h.weight_hashes.empty() ? "" : " weights", "\n"));
    if (h.vocabulary) add(h.vocabulary->code_points());
    if (const std::string* text = tokenizer_of(h.vocabulary.get())) add(*text);
    add(h.hashes);
    add(r.end_hashes);
    add(r.target_hashes);
    add(h.label_hashes);
    add(h.weight_hashes);
  }

  std::vector<StoredList> lists(const DatasetHeader& h) const override {
    return {{"record_ends", &h.records.end_hashes},
            {"targets", &h.records.target_hashes},
            {"labels", &h.label_hashes},
            {std::string(kSampleWeights), &h.weight_hashes}};
  }
  int64_t samples(const DatasetHeader& h) const override {
    return h.records.count > 0 ? h.records.count / (h.records.paired ? 2 : 1) : h.tokens;
  }
  int64_t rows_per_chunk(const DatasetHeader&) const override { return tokens_per_chunk(); }

  void open(const std::shared_ptr<const Hdf5File>& file, int64_t memory_bytes, DatasetFile& out) const override {
    out.rows = open_tokens(file, out.header, memory_bytes);
    open_records(file, memory_bytes, out);
    if (!out.header.records.labelled) return;
    out.labels = read_labels(stored_rows(file, "labels"), out.header, "record");
    open_weights(file, "record", out);
  }
  void cut(DatasetFile& file, int64_t samples) const override { cut_text(file, samples); }
  std::unique_ptr<SampleWriter> writer(NewDataset dataset) const override {
    return std::make_unique<TokenCopy>(std::move(dataset));
  }
  bool is_one_sequence(const DatasetFile& file) const override { return !file.record_ends; }

  std::string difference(const DatasetHeader& other, const DatasetHeader& first) const override {
    if (bool(other.vocabulary) != bool(first.vocabulary)) return "one has a vocabulary, the other ids alone";
    const std::string words = other.vocabulary ? first_difference(*other.vocabulary, *first.vocabulary) : "";
    if (!words.empty()) return words;
    if (other.vocabulary_size != first.vocabulary_size)
      return str("vocabularies of ", other.vocabulary_size, " and ", first.vocabulary_size, " ids");
    if ((other.records.count > 0) != (first.records.count > 0)) return "one has records, the other is one text";
    if (other.records.paired != first.records.paired) return "one has pairs of records";
    return other.records.labelled == first.records.labelled ? "" : "one has a label for each record";
  }

  // Ids of characters become those that the same characters have there.
  void fit(SchemaFit& fit, DatasetFile* file) const override {
    DatasetHeader& h = fit.header;
    const Vocabulary *ours = h.vocabulary.get(), *theirs = fit.like.vocabulary.get();
    if (!file || !ours || !theirs || ours->level() != TextLevel::kChar || theirs->level() != TextLevel::kChar) return;
    if (ours->code_points() == theirs->code_points()) return;
    for (uint32_t character : ours->code_points()) {
      file->token_of.push_back(theirs->token_of(character));
      if (file->token_of.back() < 0)
        fit.refuse(str("the character ", character_text(character), " is not in its vocabulary"), "");
    }
    h.vocabulary = std::make_unique<Vocabulary>(*theirs);
    h.vocabulary_size = theirs->size();
  }

  void inspect(const DatasetFile& file, DatasetReport& report, const ProgressCallback& progress) const override {
    inspect_text(file, report, progress);
  }
  std::string text(const DatasetReport& report) const override { return text_lines(report); }
  JsonObject json(const DatasetReport& report) const override { return text_json(report); }
  ShownSample show(const std::shared_ptr<const DatasetFile>& file, int64_t index) const override {
    return printed_text(show_text(file, index));
  }

  SampleParts parts(const std::shared_ptr<const DatasetFile>& file, const DataOptions& o) const override {
    if (file->header.records.labelled && o.mask == 0) return labelled_text_parts(file, o);
    return text_parts(std::make_shared<FileTokens>(file), o);
  }
};

}  // namespace

const SampleKind& text_kind() {
  static const TextKind kind;
  return kind;
}

StoredType token_type(int64_t vocabulary_size) {
  if (vocabulary_size <= 1 << 8) return StoredType::kUInt8;
  return vocabulary_size <= 1 << 16 ? StoredType::kUInt16 : StoredType::kUInt32;
}

}  // namespace lockstep
