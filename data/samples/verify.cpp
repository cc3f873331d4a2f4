#include "data/samples/verify.h"

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/samples/dataset_file.h"
#include "data/samples/sample_kind.h"

namespace lockstep {
namespace {

constexpr size_t kMostNamed = 16;  // damaged chunks in a line of text

struct Part {
  std::string name;
  const StoredRows* rows;
};

class Verification {
 public:
  Verification(DatasetCheck& out, const ProgressCallback& progress) : out_(out), progress_(progress) {}

  // Reads every chunk of all parts.
  void read(const std::vector<Part>& parts) {
    int64_t total = 0, done = 0;
    for (const Part& p : parts) total += p.rows->size() * p.rows->row_bytes();
    for (const Part& p : parts)
      for (int64_t chunk = 0; chunk < p.rows->chunks(); ++chunk) {
        const IndexRange rows = p.rows->rows_of(chunk);
        try {
          p.rows->visit(rows, [](IndexRange, const uint8_t*) {});
        } catch (const Error& e) {
          failed(e);
          out_.damaged.push_back(
              str("dataset '", p.name, "', chunk ", chunk, ", rows [", rows.begin, ", ", rows.end, ")"));
        }
        done += rows.size() * p.rows->row_bytes();
        ++out_.chunks;
        const double share = static_cast<double>(done) / static_cast<double>(total);
        if (progress_) progress_(static_cast<int64_t>(share * static_cast<double>(out_.file_bytes)), out_.file_bytes);
      }
  }
  // Goes on only where the file is wrong; not where it cannot be read, or the work was stopped.
  void failed(const Error& e) {
    if (e.code() != ExitCode::kBadData) throw e;
    if (out_.error.empty()) out_.error = e.what();
  }

 private:
  DatasetCheck& out_;
  const ProgressCallback& progress_;
};

// What is stored in chunks, of a file whose lists are damaged so that it does not open.
void read_each(const std::string& path, Verification& verification) {
  const auto file = std::make_shared<const Hdf5File>(Hdf5File::open(path));
  const DatasetHeader h = read_dataset_header(*file);
  std::vector<Part> parts;
  std::vector<std::unique_ptr<StoredRows>> rows;
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& hashes) {
    if (hashes.empty()) return;
    rows.push_back(std::make_unique<StoredRows>(stored_rows(file, name), hashes, 0, [](IndexRange, const uint8_t*) {}));
    parts.push_back({name, rows.back().get()});
  };
  const SampleKind& kind = sample_kind(h.kind);
  add(kind.words().rows, h.hashes);
  for (const StoredList& list : kind.lists(h)) add(list.name, *list.hashes);
  verification.read(parts);
}

}  // namespace

DatasetCheck verify_dataset(const std::string& path, const ProgressCallback& progress) {
  DatasetCheck out;
  std::error_code ignored;
  out.file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, ignored));
  Verification verification(out, progress);
  try {
    const auto file = open_dataset_file(path, 0);  // rows are read by chunk, each once
    out.identity = file->header.identity;
    const SampleKind& kind = sample_kind(file->header.kind);
    std::vector<Part> parts{{kind.words().rows, file->rows.get()}};
    for (const StoredList& list : kind.lists(file->header)) {
      const StoredRows* rows = file->by_chunk(list.name);
      if (rows) parts.push_back({list.name, rows});
      else out.chunks += static_cast<int64_t>(list.hashes->size());  // it was read whole
    }
    verification.read(parts);
    if (out.whole()) visit_records(*file, [](IndexRange) {});  // their order, across chunks
    return out;
  } catch (const Error& e) {
    verification.failed(e);
  }
  try {
    out.chunks = 0;
    read_each(path, verification);
  } catch (const Error& e) {
    verification.failed(e);
  }
  return out;
}

std::string to_text(const DatasetCheck& c, const std::string& path) {
  if (c.whole()) return str(path, ": whole, ", c.chunks, " chunks, identity ", c.identity);
  if (c.damaged.empty()) return c.error;
  std::string out = str(path, ": ", c.damaged.size(), " of ", c.chunks, " chunks are damaged: ");
  for (size_t i = 0; i < std::min(kMostNamed, c.damaged.size()); ++i) out += str(i ? "; " : "", c.damaged[i]);
  return out + (c.damaged.size() > kMostNamed ? "; ..." : "") + str(" (", c.error, ")");
}

std::string to_json(const DatasetCheck& c, const std::string& path) {
  return json_line({{"file", path},
                    {"whole", c.whole()},
                    {"chunks", c.chunks},
                    {"damaged", json_array(std::vector<JsonValue>(c.damaged.begin(), c.damaged.end()))},
                    {"error", c.error},
                    {"identity", c.whole() ? JsonValue(to_hex(c.identity)) : JsonValue(nullptr)}});
}

}  // namespace lockstep
