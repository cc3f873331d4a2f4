// Imports of token ids that other programs wrote: llm.c's files, and Megatron-LM's indexed datasets.
#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/partition.h"
#include "core/base/plain_file.h"
#include "data/import/import.h"
#include "data/import/input_stream.h"
#include "data/samples/dataset_file.h"
#include "data/samples/text/token_writer.h"
#include "data/store/same_pass.h"

namespace lockstep {
namespace {

constexpr int64_t kIdsAtOnce = 1 << 18;

// What the ids of a file are handed to, some at a time, in order.
struct TokenSink {
  std::function<void(const std::vector<int32_t>& ids)> add;
  std::function<void()> end_record;         // also after a record without tokens
  std::function<void(int64_t bytes)> done;  // since the last call, for progress
};

template <class T>
void widen_to(const std::vector<uint8_t>& bytes, std::vector<int64_t>& ids) {
  ids.resize(bytes.size() / sizeof(T));
  for (size_t i = 0; i < ids.size(); ++i) {
    T id;
    std::memcpy(&id, bytes.data() + i * sizeof(T), sizeof(T));
    ids[i] = static_cast<int64_t>(id);
  }
}

enum class IdType : uint8_t { kUInt8 = 1, kInt16 = 3, kInt32 = 4, kInt64 = 5, kUInt16 = 8, kUInt32 = 100 };

int64_t bytes_of(IdType type) {
  switch (type) {
    case IdType::kUInt8: return 1;
    case IdType::kInt16:
    case IdType::kUInt16: return 2;
    case IdType::kInt64: return 8;
    default: return 4;
  }
}

// Ids [begin, end) of a file that holds them from byte `offset` on.
class IdReader {
 public:
  IdReader(const InputFile& file, IdType type) : file_(file), type_(type) {}
  const std::vector<int32_t>& read(int64_t offset, IndexRange ids) {
    const int64_t width = bytes_of(type_);
    bytes_.resize(static_cast<size_t>(ids.size() * width));
    file_.read(offset + ids.begin * width, bytes_.data(), static_cast<int64_t>(bytes_.size()));
    switch (type_) {
      case IdType::kUInt8: widen_to<uint8_t>(bytes_, wide_); break;
      case IdType::kInt16: widen_to<int16_t>(bytes_, wide_); break;
      case IdType::kUInt16: widen_to<uint16_t>(bytes_, wide_); break;
      case IdType::kInt32: widen_to<int32_t>(bytes_, wide_); break;
      case IdType::kUInt32: widen_to<uint32_t>(bytes_, wide_); break;
      case IdType::kInt64: widen_to<int64_t>(bytes_, wide_); break;
    }
    for (size_t i = 0; i < wide_.size(); ++i)
      require(wide_[i] >= 0 && wide_[i] <= INT32_MAX, ExitCode::kBadData, file_.path, ": the token at byte ",
              offset + (ids.begin + static_cast<int64_t>(i)) * width, " is ", wide_[i], ", which is no id");
    ids_.assign(wide_.begin(), wide_.end());
    return ids_;
  }

 private:
  const InputFile& file_;
  IdType type_;
  std::vector<uint8_t> bytes_;
  std::vector<int64_t> wide_;
  std::vector<int32_t> ids_;
};

// llm.c: 256 int32 (magic, version, count), then the ids.
void visit_llmc(const std::string& path, int64_t document_token, const TokenSink& sink) {
  constexpr int64_t kHeader = 1024;
  const InputFile file(path);
  int32_t head[3] = {};
  require(file.size >= kHeader, ExitCode::kBadData, path, ": is no file of llm.c: it has ", file.size,
          " bytes, fewer than its header");
  file.read(0, head, sizeof head);
  const bool narrow_ids = head[0] == 20240520, wide_ids = head[0] == 20240801;
  require(narrow_ids || wide_ids, ExitCode::kBadData, path, ": is no file of llm.c: its magic number is ", head[0],
          ", not 20240520 or 20240801");
  require(head[1] == (narrow_ids ? 1 : 7), ExitCode::kBadData, path, ": has version ", head[1], " of llm.c's format; ",
          narrow_ids ? 1 : 7, " is supported");
  const int64_t count = head[2], width = narrow_ids ? 2 : 4;
  require(count > 0 && file.size == kHeader + count * width, ExitCode::kBadData, path, ": its header says ", count,
          " tokens of ", width, " bytes, but it has ", file.size - kHeader, " bytes of them");
  IdReader reader(file, narrow_ids ? IdType::kUInt16 : IdType::kUInt32);
  bool any = false;  // tokens of the current document
  for (int64_t at = 0; at < count; at += kIdsAtOnce) {
    const std::vector<int32_t>& ids = reader.read(kHeader, {at, std::min(count, at + kIdsAtOnce)});
    auto begin = ids.begin();
    while (begin != ids.end()) {
      if (document_token >= 0 && *begin == document_token && any) sink.end_record();
      const auto end = document_token < 0 ? ids.end() : std::find(begin + 1, ids.end(), document_token);
      sink.add({begin, end});
      any = true;
      begin = end;
    }
    sink.done(static_cast<int64_t>(ids.size()) * width);
  }
  if (document_token >= 0) sink.end_record();
}

// A list of numbers in a file, read some at a time, for access in ascending order.
template <class T>
class IndexColumn {
 public:
  IndexColumn(const InputFile& file, int64_t offset, int64_t count) : file_(file), offset_(offset), count_(count) {}
  int64_t at(int64_t i) {
    if (i < begin_ || i >= begin_ + static_cast<int64_t>(values_.size())) {
      begin_ = i;
      values_.resize(static_cast<size_t>(std::min<int64_t>(count_ - i, 1 << 16)));
      file_.read(offset_ + i * static_cast<int64_t>(sizeof(T)), values_.data(),
                 static_cast<int64_t>(values_.size() * sizeof(T)));
    }
    return static_cast<int64_t>(values_[static_cast<size_t>(i - begin_)]);
  }

 private:
  const InputFile& file_;
  int64_t offset_, count_, begin_ = 0;
  std::vector<T> values_;
};

// PREFIX.idx says where in PREFIX.bin the sequences lie, and which sequences each document has.
struct MegatronPaths {
  std::string index, ids;
};
MegatronPaths megatron_paths(const std::string& path) {
  const bool named = path.ends_with(".idx") || path.ends_with(".bin");
  const std::string prefix = named ? path.substr(0, path.size() - 4) : path;
  return {prefix + ".idx", prefix + ".bin"};
}

void visit_megatron(const std::string& path, const TokenSink& sink) {
  constexpr int64_t kHeader = 34;
  const MegatronPaths paths = megatron_paths(path);
  const InputFile index(paths.index), file(paths.ids);
  const auto refuse = [&](bool is, const auto&... what) {
    require(!is, ExitCode::kBadData, paths.index, ": ", what...);
  };
  uint8_t head[kHeader] = {};
  index.read(0, head, std::min(index.size, kHeader));
  refuse(index.size < kHeader || std::memcmp(head, "MMIDIDX\0\0", 9) != 0, "is no index of Megatron-LM");
  uint64_t version = 0;
  int64_t sequences = 0, documents = 0;
  std::memcpy(&version, head + 9, 8);
  refuse(version != 1, "has version ", version, " of the format; 1 is supported");
  const auto type = static_cast<IdType>(head[17]);
  refuse(type != IdType::kUInt8 && type != IdType::kInt16 && type != IdType::kInt32 && type != IdType::kInt64 &&
             type != IdType::kUInt16,
         "holds tokens of type ", int{head[17]}, "; integers (1, 3, 4, 5, 8) are supported");
  std::memcpy(&sequences, head + 18, 8);
  std::memcpy(&documents, head + 26, 8);
  // Compared as quotients: a product of lying counts could overflow.
  const int64_t room = index.size - kHeader;
  refuse(sequences <= 0 || sequences > room / 12 || documents < 2 || documents > (room - 12 * sequences) / 8,
         "its header says ", sequences, " sequences and ", documents, " ends of documents, which its ", index.size,
         " bytes cannot hold");
  IndexColumn<int32_t> lengths(index, kHeader, sequences);
  IndexColumn<int64_t> places(index, kHeader + 4 * sequences, sequences),
      ends(index, kHeader + 12 * sequences, documents);
  const int64_t width = bytes_of(type);
  refuse(ends.at(0) != 0, "its first document begins with sequence ", ends.at(0), ", not 0");
  IdReader reader(file, type);
  int64_t sequence = 0, left = file.size / width;
  for (int64_t document = 1; document < documents; ++document) {
    const int64_t end = ends.at(document);
    refuse(end < sequence || end > sequences, "document ", document - 1, " ends with sequence ", end, ", not within [",
           sequence, ", ", sequences, "]");
    for (; sequence < end; ++sequence) {
      const int64_t length = lengths.at(sequence), place = places.at(sequence);
      refuse(length < 0 || place < 0 || place % width != 0 || place > file.size || length > (file.size - place) / width,
             "sequence ", sequence, " has ", length, " tokens from byte ", place, " on, beyond the ", file.size,
             " bytes of ", paths.ids);
      refuse(length > left, "its sequences overlap: they have more tokens than ", paths.ids);
      left -= length;
      for (int64_t at = 0; at < length; at += kIdsAtOnce)
        sink.add(reader.read(place, {at, std::min(length, at + kIdsAtOnce)}));
      sink.done(length * width);
    }
    sink.end_record();
  }
  refuse(sequence != sequences, "its documents have ", sequence, " of ", sequences, " sequences");
}

using Visit = std::function<void(const std::string& path, const TokenSink& sink)>;

// In two passes where nobody says how large the vocabulary is.
void import_ids(const std::vector<std::string>& inputs, int64_t bytes, const std::string& output,
                const TokenFileOptions& tokens, const ImportOptions& options, const Visit& visit) {
  require(!inputs.empty(), ExitCode::kUsage, "no tokens to import: name at least one file");
  int64_t size = options.vocabulary ? options.vocabulary->size() : tokens.vocabulary_size;
  int64_t done = 0, total = 0;
  const int passes = size == 0 ? 2 : 1;
  total = bytes * passes;
  const auto count = [&](int64_t more) {
    done += more;
    if (options.progress) options.progress(std::min(done, total), total);
  };
  std::vector<Hash128> hashes;  // of each input's ids, as the first pass read them
  for (const std::string& path : passes == 2 ? inputs : std::vector<std::string>()) {
    Hasher128 hasher;
    visit(path, {[&](const auto& ids) {
                   hasher.update(ids.data(), ids.size() * sizeof ids[0]);
                   if (!ids.empty()) size = std::max<int64_t>(size, 1 + *std::max_element(ids.begin(), ids.end()));
                 },
                 [] {}, count});
    hashes.push_back(hasher.digest());
  }
  require(size > 0, ExitCode::kBadData, inputs[0], ": holds no token");
  TokenWriter writer(output, options.force,
                     options.vocabulary ? std::make_unique<Vocabulary>(*options.vocabulary) : nullptr, size);
  int64_t begin = 0;  // of the current record
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& path = inputs[i];
    Hasher128 hasher;
    visit(path, {[&](const auto& ids) {
                   hasher.update(ids.data(), ids.size() * sizeof ids[0]);
                   const auto beyond = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id >= size; });
                   require(beyond == ids.end(), ExitCode::kBadData, path, ": token ",
                           writer.tokens() + (beyond - ids.begin()), " of the output is ",
                           beyond == ids.end() ? 0 : *beyond, ", beyond the vocabulary of ", size);
                   writer.add(ids);
                 },
                 [&] {
                   if (writer.tokens() > begin) writer.end_record();
                   begin = writer.tokens();
                 },
                 count});
    require_same_pass(hashes.empty() || hasher.digest() == hashes[i], path);
  }
  require(writer.tokens() > 0, ExitCode::kBadData, inputs[0], ": holds no token");
  require(size <= std::max(kMostClasses, writer.tokens()), ExitCode::kBadData, inputs[0], ": has a vocabulary of ",
          size, " ids; a dataset of ", writer.tokens(), " tokens may have ", std::max(kMostClasses, writer.tokens()));
  writer.finish();
}

}  // namespace

void import_llmc(const std::vector<std::string>& inputs, const std::string& output, const TokenFileOptions& tokens,
                 const ImportOptions& options) {
  int64_t bytes = 0;
  for (const std::string& path : inputs) bytes += InputFile(path).size;
  import_ids(inputs, bytes, output, tokens, options,
             [&](const auto& path, const auto& sink) { visit_llmc(path, tokens.document_token, sink); });
}

void import_megatron(const std::vector<std::string>& inputs, const std::string& output, const TokenFileOptions& tokens,
                     const ImportOptions& options) {
  int64_t bytes = 0;
  for (const std::string& path : inputs) bytes += InputFile(megatron_paths(path).ids).size;
  import_ids(inputs, bytes, output, tokens, options, visit_megatron);
}

}  // namespace lockstep
