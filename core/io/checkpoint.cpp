#include "core/io/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "core/base/log.h"
#include "core/io/hdf5_file.h"
#include "core/io/json.h"
#include "core/io/pending_file.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kPending = ".pending-";

std::string part_name(int64_t part, int64_t parts) {
  char name[64];
  snprintf(name, sizeof name, "part-%04d-of-%04d.h5", static_cast<int>(part), static_cast<int>(parts));
  return name;
}
std::string dataset_name(const StoredSlice& s) { return cat(s.name, "@", s.offset); }

std::string shape_text(const Shape& shape) {
  std::string out;
  for (int i = 0; i < shape.rank(); ++i) out += (i ? "x" : "") + std::to_string(shape[i]);
  return out;
}
Shape parse_shape(const std::string& text, std::string_view where) {
  Shape out;
  double elements = 1;
  std::istringstream in(text);
  std::string extent;
  while (std::getline(in, extent, 'x')) {
    const bool number = !extent.empty() && extent.size() < 16 && std::all_of(extent.begin(), extent.end(), ::isdigit);
    require(number && out.rank() < Shape::kMaxRank, ExitCode::kBadData, where, ": shape '", text, "' is none");
    out.push_back(std::stoll(extent));
    elements *= std::max(1.0, static_cast<double>(out.back()));
  }
  require(elements < 1e18, ExitCode::kBadData, where, ": shape '", text, "' is larger than any tensor");
  return out;
}
Hash128 parse_hash(const std::string& hex, std::string_view where) {
  const bool good = hex.size() == 32 && std::all_of(hex.begin(), hex.end(), ::isxdigit);
  require(good, ExitCode::kBadData, where, ": hash '", hex, "' is none");
  return {std::stoull(hex.substr(0, 16), nullptr, 16), std::stoull(hex.substr(16), nullptr, 16)};
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), ExitCode::kBadData, path, ": is missing; this is no whole checkpoint");
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Every slice of `name` that overlaps [begin, end) is read into `out`; returns the elements covered. Whole slices are
// checked.
int64_t read_range(const Checkpoint& c, const std::map<std::string, std::vector<const StoredSlice*>>& by_name,
                   const std::string& name, Range wanted, float* out) {
  int64_t covered = 0;
  auto found = by_name.find(name);
  if (found == by_name.end()) return 0;
  for (const StoredSlice* s : found->second) {
    const Range r = intersect(wanted, {s->offset, s->offset + s->count});
    if (r.empty()) continue;
    const std::string path = cat(c.dir, "/", part_name(s->part, c.info.ranks));
    Hdf5File file = Hdf5File::open(path);
    float* to = out + (r.begin - wanted.begin);
    file.read(dataset_name(*s), StoredType::kFloat32, {r.begin - s->offset, r.end - s->offset}, to);
    if (r.size() == s->count)
      require(digest_of(s->name, s->offset, to, s->count) == s->hash, ExitCode::kBadData, path, ": tensor ", s->name,
              " differs from its checksum; this checkpoint is damaged");
    covered += r.size();
  }
  return covered;
}

std::map<std::string, std::vector<const StoredSlice*>> slices_by_name(const Checkpoint& c) {
  std::map<std::string, std::vector<const StoredSlice*>> out;
  for (const StoredSlice& s : c.slices) out[s.name].push_back(&s);
  return out;
}

std::string kind_of(const std::string& name) { return name.substr(0, name.find('/')); }

}  // namespace

std::string checkpoint_name(int64_t step) {
  char name[32];
  snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

std::string pending_checkpoint(const std::string& checkpoints, int64_t step) {
  return cat(checkpoints, "/", kPending, checkpoint_name(step));
}

void begin_checkpoint(const std::string& pending) {
  std::error_code error;
  fs::remove_all(pending, error);
  fs::create_directories(pending, error);
  require(!error, ExitCode::kStorage, pending, ": cannot be made: ", error.message());
}

std::vector<StoredSlice> write_part(const std::string& pending, int part, int parts,
                                    const std::vector<StateEntry>& entries) {
  const std::string path = cat(pending, "/", part_name(part, parts));
  std::vector<StoredSlice> out;
  Hdf5File file = Hdf5File::create(path);
  for (const StateEntry& e : entries) {
    StoredSlice s{e.name, e.shape, e.offset, e.data.numel(), part, {}};
    const float* values = e.data.values<float>();
    s.hash = digest_of(e.name, e.offset, values, s.count);
    file.write_all(dataset_name(s), StoredType::kFloat32, {s.count}, values);
    out.push_back(std::move(s));
  }
  file.close();
  sync_file(path);
  return out;
}

std::string slices_text(const std::vector<StoredSlice>& slices) {
  std::vector<JsonObject> list;
  for (const StoredSlice& s : slices)
    list.push_back({{"name", s.name},
                    {"shape", shape_text(s.shape)},
                    {"offset", s.offset},
                    {"count", s.count},
                    {"part", s.part},
                    {"hash", to_hex(s.hash)}});
  return json_list(list);
}

std::vector<StoredSlice> parse_slices(std::string_view text, std::string_view where) {
  auto list = parse_json_list(text);
  require(list.has_value(), ExitCode::kBadData, where, ": its list of tensors is no JSON");
  std::vector<StoredSlice> out;
  for (const JsonObject& o : *list) {
    StoredSlice s;
    s.name = json_text(o, "name", where);
    s.shape = parse_shape(json_text(o, "shape", where), where);
    s.offset = json_int(o, "offset", where);
    s.count = json_int(o, "count", where);
    s.part = json_int(o, "part", where);
    s.hash = parse_hash(json_text(o, "hash", where), where);
    // A manifest that lies about sizes must not cost memory.
    require(s.offset >= 0 && s.count >= 0 && s.offset % 64 == 0 && s.offset <= s.shape.numel() &&
                s.count <= s.shape.numel() - s.offset,
            ExitCode::kBadData, where, ": tensor ", s.name, " of shape ", s.shape, " has a slice at ", s.offset, " of ",
            s.count, " elements");
    out.push_back(std::move(s));
  }
  return out;
}

void commit_checkpoint(const std::string& checkpoints, const CheckpointInfo& info,
                       const std::vector<StoredSlice>& slices, int parts) {
  const std::string pending = pending_checkpoint(checkpoints, info.step),
                    final = cat(checkpoints, "/", checkpoint_name(info.step));
  JsonObject head{{"format", std::string("lockstep checkpoint")},
                  {"version", kCheckpointVersion},
                  {"writer", info.writer},
                  {"step", info.step},
                  {"epoch", info.epoch},
                  {"position", info.position},
                  {"updates", info.updates},
                  {"skipped_in_row", info.skipped_in_row},
                  {"skipped", info.skipped},
                  {"dataset", info.dataset},
                  {"isa", info.isa},
                  {"ranks", static_cast<int64_t>(parts)},
                  {"math_text", info.math_text},
                  {"config", info.config},
                  {"vocabulary", info.vocabulary},
                  {"input", shape_text(info.input)},
                  {"classes", info.classes}};
  const std::string text = cat(json_line(head), "\n", slices_text(slices));
  const std::string path = cat(pending, "/", kManifest);
  {
    std::ofstream out(path, std::ios::binary);
    out << text << "{\"hash\":\"" << to_hex(hash128(text)) << "\"}\n";
    out.close();
    require(out.good(), ExitCode::kStorage, path, ": cannot be written; is the disk full?");
  }
  sync_file(path);
  sync_folder_of(path);
  std::error_code error;
  fs::remove_all(final, error);  // of an earlier try that did not verify
  fs::rename(pending, final, error);
  require(!error, ExitCode::kStorage, final, ": cannot be put in place: ", error.message());
  sync_folder_of(final);
}

void clean_checkpoints(const std::string& checkpoints, int64_t keep) {
  std::error_code error;
  std::vector<std::string> whole;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kPending, 0) == 0) fs::remove_all(entry.path(), error);
    if (name.rfind("step-", 0) == 0) whole.push_back(entry.path().string());
  }
  if (keep <= 0) return;
  std::sort(whole.begin(), whole.end());
  for (size_t i = 0; i + static_cast<size_t>(keep) < whole.size(); ++i) {
    // The manifest first: what is left of a removal cut short is no checkpoint.
    fs::remove(whole[i] + "/" + kManifest, error);
    fs::remove_all(whole[i], error);
  }
}

Checkpoint open_checkpoint(const std::string& dir) {
  std::error_code error;
  require(fs::is_directory(dir, error), ExitCode::kMissingInput, dir, ": there is no such checkpoint");
  const std::string path = cat(dir, "/", kManifest);
  const std::string text = read_text(path);
  // Three pieces: a line, a list, and the hash of both.
  const size_t list_at = text.find('\n'), hash_at = text.rfind("{\"hash\"");
  require(list_at != std::string::npos && hash_at != std::string::npos && list_at < hash_at, ExitCode::kBadData, path,
          ": is cut short or no manifest");
  auto tail = parse_json_object(std::string_view(text).substr(hash_at));
  auto head = parse_json_object(std::string_view(text).substr(0, list_at));
  require(head.has_value() && json_text(*head, "format", path) == "lockstep checkpoint", ExitCode::kBadData, path,
          ": is no manifest of a lockstep checkpoint");
  const int64_t version = json_int(*head, "version", path);
  require(version <= kCheckpointVersion, ExitCode::kBadData, path, ": format version ", version,
          ", written by lockstep ", json_text(*head, "writer", path), "; this program reads up to ", kCheckpointVersion,
          ": use a newer one");
  require(tail.has_value() &&
              parse_hash(json_text(*tail, "hash", path), path) == hash128(std::string_view(text).substr(0, hash_at)),
          ExitCode::kBadData, path, ": differs from its own hash; this checkpoint is damaged");
  Checkpoint c;
  c.dir = dir;
  CheckpointInfo& i = c.info;
  i.writer = json_text(*head, "writer", path);
  i.step = json_int(*head, "step", path);
  i.epoch = json_int(*head, "epoch", path);
  i.position = json_int(*head, "position", path);
  i.updates = json_int(*head, "updates", path);
  i.skipped_in_row = json_int(*head, "skipped_in_row", path);
  i.skipped = json_int(*head, "skipped", path);
  i.dataset = json_text(*head, "dataset", path);
  i.isa = json_text(*head, "isa", path);
  i.ranks = json_int(*head, "ranks", path);
  i.math_text = json_text(*head, "math_text", path);
  i.config = json_text(*head, "config", path);
  i.vocabulary = json_text(*head, "vocabulary", path);
  i.input = parse_shape(json_text(*head, "input", path), path);
  i.classes = json_int(*head, "classes", path);
  c.slices = parse_slices(std::string_view(text).substr(list_at + 1, hash_at - list_at - 1), path);
  return c;
}

namespace {
std::vector<std::string> checkpoints_of(const std::string& run_dir) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir + "/checkpoints", error))
    if (entry.path().filename().string().rfind("step-", 0) == 0) out.push_back(entry.path().string());
  std::sort(out.rbegin(), out.rend());
  return out;
}
}  // namespace

bool has_checkpoint(const std::string& run_dir) { return !checkpoints_of(run_dir).empty(); }

Checkpoint open_newest(const std::string& dir) {
  std::error_code error;
  require(fs::is_directory(dir, error), ExitCode::kMissingInput, dir, ": there is no such directory");
  if (fs::exists(cat(dir, "/", kManifest), error)) {
    Checkpoint c = open_checkpoint(dir);
    verify_checkpoint(c);
    return c;
  }
  const auto all = checkpoints_of(dir);
  require(!all.empty(), ExitCode::kMissingInput, dir, ": holds no checkpoint");
  std::string first_problem;
  for (const std::string& path : all) {
    try {
      Checkpoint c = open_checkpoint(path);
      verify_checkpoint(c);
      return c;
    } catch (const Error& e) {
      if (e.code() != ExitCode::kBadData && e.code() != ExitCode::kMissingInput) throw;
      if (first_problem.empty()) first_problem = e.what();
      log_warning(cat("passing over a checkpoint: ", e.what()));
    }
  }
  throw Error(ExitCode::kBadData, cat(dir, ": none of its ", static_cast<int64_t>(all.size()),
                                      " checkpoints is whole; the newest: ", first_problem));
}

void load_entries(const Checkpoint& c, const std::vector<StateEntry>& entries) {
  const auto by_name = slices_by_name(c);
  std::map<std::string, Shape> wanted;
  std::map<std::string, bool> kinds;
  for (const StateEntry& e : entries) wanted[e.name] = e.shape, kinds[kind_of(e.name)] = true;
  std::vector<std::string> differences;
  for (auto& [name, shape] : wanted) {
    auto found = by_name.find(name);
    if (found == by_name.end()) differences.push_back(cat(name, " ", shape, " is not in the checkpoint"));
    else if (!(found->second[0]->shape == shape))
      differences.push_back(cat(name, " is ", found->second[0]->shape, " in the checkpoint and ", shape, " here"));
  }
  for (auto& [name, slices] : by_name)
    if (kinds.count(kind_of(name)) && !wanted.count(name))
      differences.push_back(cat(name, " ", slices[0]->shape, " is only in the checkpoint"));
  if (!differences.empty()) {
    std::string text;
    for (size_t i = 0; i < differences.size() && i < 5; ++i) text += cat(i ? "; " : "", differences[i]);
    if (differences.size() > 5) text += cat("; and ", static_cast<int64_t>(differences.size() - 5), " more");
    throw Error(ExitCode::kBadData, cat(c.dir, ": is of another model: ", text));
  }
  for (const StateEntry& e : entries) {
    const int64_t covered = read_range(c, by_name, e.name, {e.offset, e.end()}, e.data.mutable_values<float>());
    require(covered == e.data.numel(), ExitCode::kBadData, c.dir, ": tensor ", e.name, ": ", covered, " of ",
            e.data.numel(), " elements are there");
  }
}

void verify_checkpoint(const Checkpoint& c) {
  const auto by_name = slices_by_name(c);
  std::vector<float> values;
  for (auto& [name, slices] : by_name) {
    int64_t total = 0;
    for (const StoredSlice* s : slices) {
      const std::string path = cat(c.dir, "/", part_name(s->part, c.info.ranks));
      const int64_t stored = Hdf5File::open(path).info(dataset_name(*s)).shape.numel();
      require(stored == s->count, ExitCode::kBadData, path, ": tensor ", name, " has ", stored, " elements at ",
              s->offset, ", and ", s->count, " by the manifest");
      values.resize(static_cast<size_t>(s->count));
      read_range(c, {{name, {s}}}, name, {s->offset, s->offset + s->count}, values.data());
      total += s->count;
    }
    require(total == slices[0]->shape.numel(), ExitCode::kBadData, c.dir, ": tensor ", name, ": ", total, " of ",
            slices[0]->shape.numel(), " elements are there");
  }
}

Hash128 digest_of(const CheckpointInfo& i) {
  return hash128(cat("step ", i.step, "\nepoch ", i.epoch, "\nposition ", i.position, "\nupdates ", i.updates,
                     "\nskipped ", i.skipped, "\ndataset ", i.dataset, "\n", i.math_text));
}

Hash128 digest_of(const Checkpoint& c) {
  Hash128 sum = digest_of(c.info);
  for (const StoredSlice& s : c.slices) sum += s.hash;
  return sum;
}

}  // namespace lockstep
