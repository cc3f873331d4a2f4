#include "data/samples/dataset_file.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/samples/header_parts.h"
#include "data/samples/sample_kind.h"

namespace lockstep {
namespace {

constexpr const char* kFormat = "lockstep-data";
constexpr int64_t kTokensPerChunk = 64 << 10;
constexpr int64_t kImageChunkBytes = 128 << 10;

// What the attribute `kind` may say.
std::string all_stored_names() {
  std::string out;
  for (const SampleKind* kind : sample_kinds())
    for (const std::string& name : kind->stored_names()) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

Hash128 DatasetHeader::computed_identity() const {
  Hasher128 hasher;
  sample_kind(kind).hash(*this, hasher);
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
  const std::string stored = file.string_attribute("", "kind");
  const size_t number = kind_of_stored(stored);
  require(number < sample_kinds().size(), ExitCode::kBadData, path, ": kind '", stored, "' is none of ",
          all_stored_names());
  h.kind = static_cast<DataKind>(number);
  const SampleKind& kind = sample_kind(h.kind);
  h.hashes = read_hashes(file, kind.words().rows);
  kind.read_header(file, stored, h);
  h.identity = h.computed_identity();
  const std::string identity = file.string_attribute("", "identity");
  require(identity == to_hex(h.identity), ExitCode::kBadData, path, ": its identity is ", identity,
          ", but its header gives ", h.identity, ": header or chunk hashes were changed; import the data again");
  return h;
}

void write_dataset_header(Hdf5File& file, DatasetHeader& h) {
  const SampleKind& kind = sample_kind(h.kind);
  file.set_attribute("", "format", std::string(kFormat));
  file.set_attribute("", "version", kDatasetVersion);
  file.set_attribute("", "kind", kind.stored_name(h));
  write_hashes(file, kind.words().rows, h.hashes);
  kind.write_header(file, h);
  h.identity = h.computed_identity();
  file.set_attribute("", "identity", to_hex(h.identity));
}

int64_t tokens_per_chunk() { return kTokensPerChunk; }
int64_t images_per_chunk(int64_t image_bytes) { return std::max<int64_t>(1, kImageChunkBytes / image_bytes); }
int64_t rows_per_chunk(const DatasetHeader& h) { return sample_kind(h.kind).rows_per_chunk(h); }
int64_t sample_count(const DatasetHeader& h) { return sample_kind(h.kind).samples(h); }

std::vector<uint64_t> write_ends(Hdf5File& file, const std::string& name, const std::vector<int64_t>& ends) {
  return write_list(file, name, StoredType::kInt64, ends);
}

const StoredRows* DatasetFile::by_chunk(const std::string& name) const {
  for (const auto* rows : {&record_ends, &targets, &masks})
    if (*rows && (*rows)->name() == name) return rows->get();
  return nullptr;
}

namespace {

// What makes a dataset of a file of another kind, by its name; empty where none is known.
std::string import_of(const std::string& path) {
  struct Import {
    std::string_view ending, words, of_run;
  };
  constexpr std::string_view kLike = "; --like RUN reads it as that run's data",
                             kIds = "; --vocabulary RUN gives it that run's ids";
  static constexpr Import kImports[] = {{".csv", "csv FILE OUT --label COLUMN", kLike},
                                        {".tsv", "csv FILE OUT --label COLUMN", kLike},
                                        {".parquet", "parquet FILE OUT --label COLUMN", kLike},
                                        {".npy", "npy FILE LABELS OUT", kLike},
                                        {".npz", "npy FILE OUT", kLike},
                                        {".txt", "text FILE OUT", kIds},
                                        {".json", "json FILE OUT", ""},
                                        {".jsonl", "json FILE OUT", ""},
                                        {".ndjson", "json FILE OUT", ""}};
  for (const Import& each : kImports) {
    if (!path.ends_with(each.ending)) continue;
    std::string out(each.words);
    out.replace(out.find("FILE"), 4, path);
    out.replace(out.find("OUT"), 3, path.substr(0, path.size() - each.ending.size()) + ".h5");
    return str(": import it first, `lockstep data import ", out, "`", each.of_run);
  }
  return "";
}

Hdf5File open_hdf5(const std::string& path) {
  try {
    return Hdf5File::open(path);
  } catch (const Error& e) {
    const std::string import = e.code() == ExitCode::kBadData ? import_of(path) : "";
    if (import.empty()) throw;
    throw e.with_message(e.what() + import);
  }
}

}  // namespace

std::shared_ptr<DatasetFile> open_dataset_file(const std::string& path, int64_t memory_bytes) {
  const auto file = std::make_shared<const Hdf5File>(open_hdf5(path));
  auto out = std::make_shared<DatasetFile>();
  out->path = path;
  out->header = read_dataset_header(*file);
  sample_kind(out->header.kind).open(file, memory_bytes, *out);
  return out;
}

std::shared_ptr<DatasetFile> open_first_samples(const std::string& path, int64_t memory_bytes, int64_t samples) {
  auto file = open_dataset_file(path, memory_bytes);
  const int64_t there = sample_count(file->header);
  require(samples > 0 && samples <= there, ExitCode::kBadData, path, ": has ", there, " samples, not ", samples);
  sample_kind(file->header.kind).cut(*file, samples);
  file->header.identity = file->header.computed_identity();
  return file;
}

}  // namespace lockstep
