#include "data/samples/dataset_file.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "data/samples/channel_sums.h"
#include "data/samples/header_parts.h"
#include "data/samples/schema.h"
#include "data/text/tokenizer/pieces.h"
#include "data/text/tokenizer/tokenizer_file.h"

namespace lockstep {
namespace {

constexpr const char* kFormat = "lockstep-data";
constexpr int64_t kTokensPerChunk = 64 << 10;
constexpr int64_t kImageChunkBytes = 128 << 10;
constexpr int64_t kMostCodePoints = 0x110000;

std::unique_ptr<Vocabulary> read_vocabulary(const Hdf5File& file) {
  std::string level = file.string_attribute("", "level");
  if (level == "byte") return std::make_unique<Vocabulary>(Vocabulary::bytes());
  if (level == "ids") return nullptr;
  if (level == "bpe" || level == "sentencepiece") {
    const Hdf5Info info = list_info(file, "tokenizer");
    require(info.shape[0] > 0 && info.shape[0] <= static_cast<int64_t>(kLargestTokenizer), ExitCode::kBadData,
            file.path(), ": dataset 'tokenizer' has shape ", info.shape, "; expected at most ", kLargestTokenizer,
            " bytes");
    std::string text(static_cast<size_t>(info.shape[0]), '\0');
    file.read("tokenizer", StoredType::kUInt8, {0, info.shape[0]}, text.data());
    const std::string where = cat(file.path(), ": dataset 'tokenizer'");
    return std::make_unique<Vocabulary>(level == "bpe" ? Vocabulary::byte_pairs(parse_tokenizer_json(text, where))
                                                       : Vocabulary::pieces(PieceModel::parse(std::move(text), where)));
  }
  require(level == "char", ExitCode::kBadData, file.path(), ": level '", level,
          "' is not one of byte, char, bpe, sentencepiece, ids");
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

// What the dataset "tokenizer" holds; null: there is none.
const std::string* tokenizer_of(const Vocabulary* v) {
  return v && v->pairs() ? &v->pairs()->json() : v && v->pieces() ? &v->pieces()->bytes() : nullptr;
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
  auto check_ids = [path = file->path(), limit = header.vocabulary_size, type](Range rows, const uint8_t* bytes) {
    int64_t at = first_beyond(type, bytes, rows.size(), limit);
    if (at < 0) return;
    uint32_t id = 0;
    std::memcpy(&id, bytes + at * size_of(type), static_cast<size_t>(size_of(type)));
    throw Error(ExitCode::kBadData, cat(path, ": token ", rows.begin + at, " is ", id, ", beyond the vocabulary of ",
                                        limit, "; import the text again"));
  };
  return std::make_unique<StoredRows>(stored_rows(std::move(file), "tokens"), header.hashes, memory_bytes, check_ids);
}

RecordsHeader read_records_header(const Hdf5File& file, int64_t tokens) {
  RecordsHeader out;
  if (!file.has("record_ends")) return out;
  const Hdf5Info ends = file.info("record_ends");
  require(ends.type == StoredType::kInt64 && ends.shape.rank() == 1 && ends.shape[0] > 0 && ends.shape[0] <= tokens,
          ExitCode::kBadData, file.path(), ": dataset 'record_ends' holds ", ends.type, " of shape ", ends.shape,
          "; expected a list of int64, at most one for each of ", tokens, " tokens");
  out.count = ends.shape[0];
  out.end_hashes = read_hashes(file, "record_ends");
  out.labelled = file.has("labels");
  out.paired = file.has_attribute("", "pairs");
  require(!out.paired || (file.int_attribute("", "pairs") == 1 && out.count % 2 == 0 && !out.labelled),
          ExitCode::kBadData, file.path(), ": attribute 'pairs' is there, but it is not 1, or ", out.count,
          " records are no pairs, or they have labels");
  if (!file.has("targets")) return out;
  const Hdf5Info targets = file.info("targets");
  require(targets.type == StoredType::kUInt8 && targets.shape == Shape{tokens}, ExitCode::kBadData, file.path(),
          ": dataset 'targets' holds ", targets.type, " of shape ", targets.shape, "; expected uint8 [", tokens, "]");
  out.target_hashes = read_hashes(file, "targets");
  return out;
}

void open_records(const std::shared_ptr<const Hdf5File>& file, int64_t memory_bytes, DatasetFile& out) {
  const RecordsHeader& records = out.header.records;
  if (records.count == 0) return;
  auto check_ends = [path = out.path, last = records.count - 1, tokens = out.header.tokens](Range rows,
                                                                                            const uint8_t* bytes) {
    const auto* ends = reinterpret_cast<const int64_t*>(bytes);
    int64_t before = rows.begin;  // no record is empty, so record i ends beyond token i
    for (int64_t i = 0; i < rows.size(); before = ends[i++])
      require(ends[i] > before && ends[i] <= tokens && (rows.begin + i < last || ends[i] == tokens), ExitCode::kBadData,
              path, ": record ", rows.begin + i, " ends at token ", ends[i],
              ", which does not follow the record before it or is not the end of ", tokens, " tokens");
  };
  out.record_ends =
      std::make_unique<StoredRows>(stored_rows(file, "record_ends"), records.end_hashes, memory_bytes / 4, check_ends);
  if (records.target_hashes.empty()) return;
  auto check_targets = [path = out.path](Range rows, const uint8_t* bytes) {
    const auto* at = std::find_if(bytes, bytes + rows.size(), [](uint8_t t) { return t > 1; });
    require(at == bytes + rows.size(), ExitCode::kBadData, path, ": the target mark of token ",
            rows.begin + (at - bytes), " is neither 0 nor 1");
  };
  out.targets = std::make_unique<StoredRows>(stored_rows(file, "targets"), records.target_hashes, memory_bytes / 2,
                                             check_targets);
}

}  // namespace

Hash128 DatasetHeader::computed_identity() const {
  Hasher128 hasher;
  auto add = [&](const auto& list) { hasher.update(list.data(), list.size() * sizeof list[0]); };
  if (kind == DataKind::kTokens) {
    add(cat("tokens ", tokens, " level ", level(), " vocabulary ", vocabulary_size,
            records.count > 0 ? cat(" records ", records.count, " targets ", !records.target_hashes.empty()) : "",
            records.paired ? " pairs" : "", records.labelled ? cat(" classes ", classes) : "", "\n"));
    if (vocabulary) add(vocabulary->code_points());
    if (const std::string* text = tokenizer_of(vocabulary.get())) add(*text);
    add(hashes);
    add(records.end_hashes);
    add(records.target_hashes);
    add(label_hashes);
  } else {
    hash_labelled(*this, hasher);
  }
  return hasher.digest();
}

DatasetHeader read_dataset_header(const Hdf5File& file) {
  const std::string& path = file.path();
  require(file.has_attribute("", "format") && file.string_attribute("", "format") == kFormat, ExitCode::kBadData, path,
          ": is an HDF5 file, but not a lockstep dataset; make one with `lockstep data import`");
  int64_t version = file.int_attribute("", "version");
  require(version == kDatasetVersion, ExitCode::kBadData, path, ": has dataset format version ", version,
          "; this program reads version ", kDatasetVersion);
  DatasetHeader h;
  std::string kind = file.string_attribute("", "kind");
  h.encoded = kind == "encoded_images";
  const bool known = kind == "tokens" || kind == "images" || kind == "table" || h.encoded;
  require(known, ExitCode::kBadData, path, ": kind '", kind, "' is none of tokens, images, encoded_images, table");
  h.kind = kind == "tokens" ? DataKind::kTokens : kind == "table" ? DataKind::kTable : DataKind::kImages;
  h.hashes = read_hashes(file, rows_name(h.kind));
  Hdf5Info info = file.info(rows_name(h.kind));
  if (h.kind == DataKind::kTokens) {
    bool good = info.type == StoredType::kUInt8 || info.type == StoredType::kUInt16 || info.type == StoredType::kUInt32;
    require(good && info.shape.rank() == 1 && info.shape[0] > 0, ExitCode::kBadData, path, ": dataset 'tokens' holds ",
            info.type, " of shape ", info.shape, "; expected a list of uint8, uint16 or uint32");
    h.tokens = info.shape[0];
    h.vocabulary = read_vocabulary(file);
    h.vocabulary_size = count_attribute(file, "vocabulary_size", h.tokens);
    require(!h.vocabulary || h.vocabulary->size() == h.vocabulary_size, ExitCode::kBadData, path,
            ": vocabulary_size is ", h.vocabulary_size, ", but the vocabulary has ",
            h.vocabulary ? h.vocabulary->size() : 0, " entries");
    h.records = read_records_header(file, h.tokens);
    if (h.records.labelled) read_classes(file, h.records.count, "records", h);
  } else {
    read_labelled_header(file, h);
  }
  h.identity = h.computed_identity();
  std::string stored = file.string_attribute("", "identity");
  require(stored == to_hex(h.identity), ExitCode::kBadData, path, ": its identity is ", stored,
          ", but its header gives ", h.identity, ": header or chunk hashes were changed; import the data again");
  return h;
}

void write_dataset_header(Hdf5File& file, DatasetHeader& h) {
  bool tokens = h.kind == DataKind::kTokens;
  const std::string rows = rows_name(h.kind);
  const std::string kind = h.encoded ? "encoded_images" : h.kind == DataKind::kTable ? "table" : rows;
  auto write_words = [&](const std::string& name, const std::vector<uint64_t>& words) {
    file.write_all(name, StoredType::kUInt64, {static_cast<int64_t>(words.size())}, words.data());
  };
  file.set_attribute("", "format", std::string(kFormat));
  file.set_attribute("", "version", kDatasetVersion);
  file.set_attribute("", "kind", kind);
  write_words(rows + "_hash", h.hashes);
  if (tokens) {
    file.set_attribute("", "level", h.level());
    file.set_attribute("", "vocabulary_size", h.vocabulary_size);
    if (h.records.count > 0) write_words("record_ends_hash", h.records.end_hashes);
    if (!h.records.target_hashes.empty()) write_words("targets_hash", h.records.target_hashes);
    if (h.records.labelled) write_classes(file, h);
    if (h.records.paired) file.set_attribute("", "pairs", int64_t{1});
    if (h.vocabulary && h.vocabulary->level() == TextLevel::kChar)
      file.write_all("vocabulary", StoredType::kUInt32, {h.vocabulary_size}, h.vocabulary->code_points().data());
    if (const std::string* text = tokenizer_of(h.vocabulary.get()))
      file.write_all("tokenizer", StoredType::kUInt8, {static_cast<int64_t>(text->size())}, text->data());
  } else {
    write_labelled_header(file, h);
  }
  h.identity = h.computed_identity();
  file.set_attribute("", "identity", to_hex(h.identity));
}

StoredType token_type(int64_t vocabulary_size) {
  if (vocabulary_size <= 1 << 8) return StoredType::kUInt8;
  return vocabulary_size <= 1 << 16 ? StoredType::kUInt16 : StoredType::kUInt32;
}

int64_t tokens_per_chunk() { return kTokensPerChunk; }
int64_t images_per_chunk(int64_t image_bytes) { return std::max<int64_t>(1, kImageChunkBytes / image_bytes); }

int64_t rows_per_chunk(const DatasetHeader& h) {
  if (h.kind == DataKind::kTokens) return tokens_per_chunk();
  if (h.encoded) return images_per_chunk(1);
  int64_t bytes = h.kind == DataKind::kTable ? 4 : 1;
  for (int i = 1; i < h.images.rank(); ++i) bytes *= h.images[i];
  return images_per_chunk(bytes);
}

int64_t mask_rows_per_chunk(const DatasetHeader& h) {
  return images_per_chunk(h.encoded ? 1 : h.images[1] * h.images[2]);
}

namespace {

template <class T>
std::vector<uint64_t> write_list(Hdf5File& file, const std::string& name, StoredType type, const std::vector<T>& list) {
  const auto count = static_cast<int64_t>(list.size());
  ChunkWriter writer(file, name, type, {count}, tokens_per_chunk());
  writer.append(list.data(), count);
  return writer.finish();
}

}  // namespace

void write_labels(Hdf5File& file, const std::vector<int32_t>& labels, DatasetHeader& header) {
  header.label_hashes = write_list(file, "labels", StoredType::kInt32, labels);
}

void write_numbers(Hdf5File& file, const std::vector<double>& numbers, DatasetHeader& header, const DataSchema* like) {
  FeatureMoments moments;
  for (double value : numbers) moments.add(value);
  moments.settle();
  header.target_mean = like ? like->target_mean : moments.mean;
  header.target_std = like ? like->target_std : moments.scale();
  header.target_offset = moments.offset(header.target_mean, header.target_std);
  if (moments.beyond_doubles()) warn_of_lost_bits(file.path(), "the targets", moments.largest, header.target_std);
  std::vector<float> stored;
  for (double value : numbers) stored.push_back(static_cast<float>(value - header.target_offset));
  write_stored_numbers(file, stored, header);
}

void write_stored_numbers(Hdf5File& file, const std::vector<float>& numbers, DatasetHeader& header) {
  header.target = TargetKind::kNumbers;
  header.label_hashes = write_list(file, "targets", StoredType::kFloat32, numbers);
}

void write_boxes(Hdf5File& file, const std::vector<float>& boxes, const std::vector<int64_t>& ends, DatasetHeader& h) {
  ChunkWriter writer(file, "boxes", StoredType::kFloat32, {ends.back(), kBoxValues}, tokens_per_chunk());
  writer.append(boxes.data(), ends.back());
  h.label_hashes = writer.finish();
  h.target_end_hashes = write_ends(file, "box_ends", ends);
}

std::vector<uint64_t> write_ends(Hdf5File& file, const std::string& name, const std::vector<int64_t>& ends) {
  return write_list(file, name, StoredType::kInt64, ends);
}

DataSpec spec_of(const DatasetHeader& h, TensorSpec input, const std::string& unit) {
  DataSpec spec;
  const bool numbers = h.target == TargetKind::kNumbers;
  const Shape labels = h.target == TargetKind::kMasks ? Shape{input.shape[0], input.shape[1]} : Shape{};
  spec.tensors = {std::move(input)};
  if (numbers) spec.tensors.push_back({std::string(kTargets), DType::kFloat32, {}});
  else if (h.target != TargetKind::kBoxes) spec.tensors.push_back({std::string(kLabels), DType::kInt32, labels});
  spec.classes = numbers ? 1 : h.classes;
  spec.unit = unit;
  spec.target_mean = h.target_mean, spec.target_std = h.target_std;
  return spec;
}

void DatasetFile::write_target(int64_t row, void* to) const {
  const auto i = static_cast<size_t>(row);
  if (header.target == TargetKind::kNumbers)
    *static_cast<float*>(to) = static_cast<float>((numbers[i] - header.target_centre()) / header.target_std);
  else if (header.target == TargetKind::kLabels) *static_cast<int32_t*>(to) = labels[i];
}

int64_t sample_count(const DatasetHeader& h) {
  if (h.kind != DataKind::kTokens) return h.images[0];
  return h.records.count > 0 ? h.records.count / (h.records.paired ? 2 : 1) : h.tokens;
}

Range records_of(const DatasetHeader& h, Range samples) {
  const int64_t each = h.records.paired ? 2 : 1;
  return {samples.begin * each, samples.end * each};
}

std::shared_ptr<DatasetFile> open_dataset_file(const std::string& path, int64_t memory_bytes) {
  auto file = std::make_shared<const Hdf5File>(Hdf5File::open(path));
  auto out = std::make_shared<DatasetFile>();
  out->path = path;
  out->header = read_dataset_header(*file);
  if (out->header.kind == DataKind::kTokens) {
    out->rows = open_tokens(file, out->header, memory_bytes);
    open_records(file, memory_bytes, *out);
    if (out->header.records.labelled) out->labels = read_labels(stored_rows(file, "labels"), out->header);
  } else {
    open_labelled(file, memory_bytes, *out);
  }
  return out;
}

void visit_records(const DatasetFile& file, const std::function<void(Range tokens)>& use) {
  visit_records(file, {0, file.header.records.count}, use);
}

void visit_records(const DatasetFile& file, Range records, const std::function<void(Range tokens)>& use) {
  if (records.empty()) return;
  int64_t begin = 0;
  if (records.begin > 0)
    file.record_ends->visit({records.begin - 1, records.begin},
                            [&](Range, const uint8_t* bytes) { begin = *reinterpret_cast<const int64_t*>(bytes); });
  file.record_ends->visit(records, [&](Range rows, const uint8_t* bytes) {
    const auto* ends = reinterpret_cast<const int64_t*>(bytes);
    for (int64_t i = 0; i < rows.size(); begin = ends[i++]) {
      require(ends[i] > begin, ExitCode::kBadData, file.path, ": record ", rows.begin + i, " ends at token ", ends[i],
              ", but the one before it ends at ", begin);
      use({begin, ends[i]});
    }
  });
}

}  // namespace lockstep
