#include "core/state/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "core/base/escape.h"
#include "core/base/plain_file.h"
#include "core/base/state_chunk.h"
#include "core/io/json.h"
#include "core/io/pending_file.h"
#include "core/state/checkpoint_part.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kLargestManifest = int64_t{1} << 30;  // bytes, of any run; most are far below:
constexpr int64_t kManifestBase = 64 << 20;             // configuration, vocabulary and the like
constexpr int64_t kVersionOfBlocks = 5;                 // from which on blocks of tensors have hashes
constexpr int64_t kMostPhases = 64;                     // of a step
constexpr int64_t kLargestCount = int64_t{1} << 48;     // of steps, samples, epochs: sums and products of them fit

std::string updates_key(size_t phase) { return str("updates_of_phase_", phase); }

std::string shape_text(const Shape& shape) {
  std::string out;
  for (int i = 0; i < shape.rank(); ++i) out += (i ? "x" : "") + std::to_string(shape[i]);
  return out;
}
Shape parse_shape(const std::string& text, std::string_view where) {
  Shape out;
  double elements = 1;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('x', at), text.size());
    int64_t extent = -1;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, extent);
    const bool number = error == std::errc() && stop == text.data() + end && extent >= 0 && end - at < 16;
    require(number && out.rank() < Shape::kMaxRank && end + 1 != text.size(), ExitCode::kBadData, where, ": shape '",
            text, "' is none");
    out.push_back(extent);
    elements *= std::max(1.0, static_cast<double>(extent));
    at = end + 1;
  }
  require(elements < 1e18, ExitCode::kBadData, where, ": shape '", text, "' is larger than any tensor");
  return out;
}
Region parse_region(const JsonObject& o, const std::string& name, std::string_view where) {
  const Shape shape = parse_shape(json_text(o, "shape", where), where);
  if (!find_member(o, "begin") && !find_member(o, "extent")) return shape;
  const Shape begin = parse_shape(json_text(o, "begin", where), where),
              extent = parse_shape(json_text(o, "extent", where), where);
  require(is_box_of(shape, begin, extent), ExitCode::kBadData, where, ": tensor ", name, ": a box from ", begin,
          " of extent ", extent, " is not within the shape ", shape);
  return {shape, begin, extent};
}
// A manifest grows with the tensors in the files beside it: each slice takes more bytes there than its line here. So
// a small checkpoint cannot ask for the memory and time of a large one.
int64_t largest_manifest(const std::string& dir) {
  int64_t stored = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error))
    if (const auto size = entry.file_size(error); !error && entry.path().extension() == ".h5")
      stored = std::min(stored + static_cast<int64_t>(std::min<uintmax_t>(size, kLargestManifest)), kLargestManifest);
  return std::min(kManifestBase + 4 * stored, kLargestManifest);
}

std::string read_manifest(const std::string& dir) {
  const std::string path = str(dir, "/", kManifest);
  std::error_code error;
  require(fs::exists(path, error), ExitCode::kBadData, path, ": is missing; this is no whole checkpoint");
  const InputFile file(path);
  const int64_t most = largest_manifest(dir);
  require(file.size <= most, ExitCode::kBadData, path, ": has ", file.size, " bytes; with the files beside it, it has ",
          most, " at most");
  return file.text(most);
}

std::string manifest_end(std::string_view text) { return str("{\"hash\":\"", to_hex(hash128(text)), "\"}\n"); }

// A text that messages show: one line without control characters.
std::string line_of(const JsonObject& object, std::string_view key, std::string_view where) {
  const std::string& text = json_text(object, key, where);
  require(escaped(text, Lines::kEscape) == text, ExitCode::kBadData, where, ": \"", key,
          "\" holds control characters: '", escaped(text, Lines::kEscape), "'");
  return text;
}

// Do the regions of a tensor cover it once? They are of one shape, and no two of them are the same. Their number is
// bounded since each is compared with all.
void require_cover(const std::string& name, const std::vector<const Region*>& regions, ExitCode code,
                   std::string_view where) {
  constexpr size_t kMostRegions = 1024;
  require(regions.size() <= kMostRegions, code, where, ": tensor ", name, " is cut into ", regions.size(),
          " boxes; at most ", kMostRegions, " are possible");
  const auto text = [&](const Region& r) { return str(name, " ", to_text(r), " of ", r.shape); };
  int64_t held = 0;
  for (size_t i = 0; i < regions.size(); ++i) {
    held += regions[i]->numel();
    for (size_t k = 0; k < i; ++k)
      if (const Region both = intersect(*regions[k], *regions[i]); both.numel() > 0)
        throw Error(code, str(where, ": tensor ", text(both), " is in two slices, of ", to_text(*regions[k]), " and ",
                              to_text(*regions[i])));
  }
  const int64_t all = regions[0]->shape.numel();
  if (held == all) return;
  std::string there;
  for (size_t i = 0; i < regions.size() && i < 4; ++i) there += str(i ? ", " : "", to_text(*regions[i]));
  throw Error(code, str(where, ": tensor ", name, " ", regions[0]->shape, ": ", all - held, " of its ", all,
                        " elements are in no slice; there are ", there, regions.size() > 4 ? " and others" : ""));
}

// The regions of slices [first, end), which are of one tensor and follow each other in each region.
void require_whole(const std::vector<StoredSlice>& slices, size_t first, size_t end, ExitCode code,
                   std::string_view where) {
  std::vector<const Region*> regions;
  for (size_t i = first; i < end; ++i)
    if (i == first || !of_one_region(slices[i - 1], slices[i])) regions.push_back(&slices[i].region);
  if (regions.size() != 1 || !regions[0]->is_whole()) require_cover(slices[first].name, regions, code, where);
}

}  // namespace

Hash128 parse_hash(const std::string& hex, std::string_view where) {
  const bool good = hex.size() == 32 && std::all_of(hex.begin(), hex.end(), ::isxdigit);
  require(good, ExitCode::kBadData, where, ": hash '", hex, "' is none");
  return {std::stoull(hex.substr(0, 16), nullptr, 16), std::stoull(hex.substr(16), nullptr, 16)};
}

void arrange_slices(std::vector<StoredSlice>& slices, int64_t files, ExitCode code, std::string_view where) {
  sort_by_place(slices);
  std::vector<int64_t> blocks(static_cast<size_t>(files));
  size_t first = 0;  // of the tensor's slices
  for (size_t i = 0; i < slices.size(); ++i) {
    StoredSlice& s = slices[i];
    const bool is_last = i + 1 == slices.size() || slices[i + 1].name != s.name;
    const StoredSlice* before = i > 0 && of_one_region(slices[i - 1], s) ? &slices[i - 1] : nullptr;
    const StoredSlice* after = i + 1 < slices.size() && of_one_region(slices[i + 1], s) ? &slices[i + 1] : nullptr;
    const auto name = [&] { return name_of_region(s.name, s.region); };
    require(s.part >= 0 && s.part < files, code, where, ": tensor ", s.name, " has a slice in part ", s.part,
            "; parts are 0 to ", files - 1);
    require(is_last || slices[i + 1].region.shape == s.region.shape, code, where, ": tensor ", s.name,
            " has the shapes ", s.region.shape, " and ", is_last ? s.region.shape : slices[i + 1].region.shape);
    const int64_t from = before ? before->offset + before->count : 0;
    require(s.offset >= from, code, where, ": tensor ", name(), ": elements ", s.offset, " to ", from,
            " are in two slices");
    require(s.offset == from, code, where, ": tensor ", name(), ": elements ", from, " to ", s.offset,
            " are in no slice");
    require(after || s.offset + s.count == s.region.numel(), code, where, ": tensor ", name(), ": elements ",
            s.offset + s.count, " to ", s.region.numel(), " are in no slice");
    if (is_last) require_whole(slices, std::exchange(first, i + 1), i + 1, code, where);
    int64_t& next = blocks[static_cast<size_t>(s.part)];
    s.first_block = next;
    next = std::min(next + blocks_of(s), kLargestCount);
  }
}

std::string slices_text(const std::vector<StoredSlice>& slices) {
  std::vector<JsonObject> list;
  for (const StoredSlice& s : slices) {
    JsonObject line{{"name", s.name}, {"shape", shape_text(s.region.shape)}};
    if (!s.region.is_whole()) line.emplace_back("begin", shape_text(s.region.begin));
    if (!s.region.is_whole()) line.emplace_back("extent", shape_text(s.region.extent));
    line.insert(line.end(), {{"offset", s.offset}, {"count", s.count}, {"part", s.part}, {"hash", to_hex(s.hash)}});
    list.push_back(std::move(line));
  }
  return json_list(list);
}

std::vector<StoredSlice> parse_slices(std::string_view text, std::string_view where) {
  std::vector<StoredSlice> out;
  const bool list = visit_json_list(text, [&](JsonObject&& o) {
    StoredSlice s;
    s.name = json_text(o, "name", where);
    require(escaped(s.name, Lines::kEscape) == s.name, ExitCode::kBadData, where, ": a tensor is called '",
            escaped(s.name, Lines::kEscape), "', which no parameter is");
    s.region = parse_region(o, s.name, where);
    s.offset = json_int(o, "offset", where);
    s.count = json_int(o, "count", where);
    s.part = json_int(o, "part", where);
    s.hash = parse_hash(json_text(o, "hash", where), where);
    // A manifest that lies about sizes must not cost memory.
    require(s.offset >= 0 && s.count >= 0 && s.offset % kStateChunk == 0 && s.offset <= s.region.numel() &&
                s.count <= s.region.numel() - s.offset,
            ExitCode::kBadData, where, ": tensor ", name_of_region(s.name, s.region), " of shape ", s.region.shape,
            " has a slice at ", s.offset, " of ", s.count, " elements");
    out.push_back(std::move(s));
  });
  require(list, ExitCode::kBadData, where, ": its list of tensors is no JSON");
  return out;
}

namespace {

JsonObject head_of(const CheckpointInfo& info, int64_t version, int64_t files) {
  JsonObject head{{"format", std::string("lockstep checkpoint")},
                  {"version", version},
                  {"writer", info.writer},
                  {"step", info.step},
                  {"epoch", info.epoch},
                  {"position", info.position},
                  {"updates", info.updates},
                  {"skipped_in_row", info.skipped_in_row},
                  {"skipped", info.skipped},
                  {"loss_scale", info.loss_scale},
                  {"good_steps", info.good_steps},
                  {"validation_finite", info.validation.finite},
                  {"dataset", info.dataset},
                  {"isa", info.isa},
                  {"ranks", info.ranks},
                  {"files", files},
                  {"layout", info.layout},
                  {"math_text", info.math_text},
                  {"config", info.config},
                  {"vocabulary", info.vocabulary},
                  {"input", shape_text(info.input)},
                  {"classes", info.classes}};
  if (info.samples > 0) head.emplace_back("dataset_samples", info.samples);
  if (!info.data_schema.empty()) head.emplace_back("data", JsonText{info.data_schema});
  if (info.tokens > 0) head.emplace_back("tokens", info.tokens);
  if (!info.base.empty()) head.emplace_back("base", info.base);
  if (!info.reference.empty()) head.emplace_back("reference", info.reference);
  const ValidationRecord& v = info.validation;
  if (v.loss) head.emplace_back("validation_loss", *v.loss);
  if (!v.metric.empty()) head.emplace_back("best_by", v.metric);
  if (v.highest) head.emplace_back("best_is_highest", v.highest);
  if (!v.texts.empty()) head.emplace_back("task_texts", v.texts);
  if (v.value) head.emplace_back("validation_value", *v.value);
  if (v.best) head.emplace_back(v.metric.empty() ? "best_validation_loss" : "best_validation_value", *v.best);
  if (v.best) head.emplace_back("best_validation_step", v.best_step);
  if (v.since_best > 0) head.emplace_back("evaluations_since_best", v.since_best);
  if (!info.later_updates.empty()) head.emplace_back("phases", static_cast<int64_t>(1 + info.later_updates.size()));
  for (size_t i = 0; i < info.later_updates.size(); ++i) head.emplace_back(updates_key(i + 1), info.later_updates[i]);
  return head;
}

}  // namespace

void write_manifest(const std::string& pending, const CheckpointInfo& info, const std::vector<StoredSlice>& slices,
                    int files) {
  const bool boxes = std::any_of(slices.begin(), slices.end(), [](auto& s) { return !s.region.is_whole(); });
  const JsonObject head = head_of(info, boxes ? kVersionOfBoxes : kCheckpointVersion, files);
  const std::string text = str(json_line(head), "\n", slices_text(slices));
  const std::string path = str(pending, "/", kManifest);
  {
    const Descriptor file = create_new(path);
    require(file && write_all(file, text) && write_all(file, manifest_end(text)), ExitCode::kStorage, path,
            ": cannot be written; is the disk full?");
  }
  sync_file(path);
  sync_folder_of(path);
}

namespace {

// A manifest is a line, a list, and the hash of both, which is checked before anything is made of them.
struct ManifestText {
  JsonObject head;
  std::string_view list;  // of the manifest
  int64_t version = 0;
};

ManifestText checked_text(const std::string& manifest, const std::string& path) {
  const size_t hash_at = manifest.size() - std::min(manifest.size(), manifest_end("").size());
  const std::string_view text = std::string_view(manifest).substr(0, hash_at);
  const size_t list_at = text.find('\n');
  require(list_at != text.npos && manifest.compare(hash_at, 9, "{\"hash\":\"") == 0, ExitCode::kBadData, path,
          ": is cut short or no manifest");
  require(manifest.compare(hash_at, manifest.npos, manifest_end(text)) == 0, ExitCode::kBadData, path,
          ": differs from its own hash; this checkpoint is damaged");
  auto head = parse_json_object(text.substr(0, list_at));
  require(head.has_value() && json_text(*head, "format", path) == "lockstep checkpoint", ExitCode::kBadData, path,
          ": is no manifest of a lockstep checkpoint");
  const int64_t version = json_int(*head, "version", path);
  require(version >= 1, ExitCode::kBadData, path, ": there is no format version ", version);
  require(version <= kVersionOfBoxes, ExitCode::kBadData, path, ": format version ", version, ", written by lockstep ",
          line_of(*head, "writer", path), "; this program reads up to ", kVersionOfBoxes, ": use a newer one");
  return {std::move(*head), text.substr(list_at + 1), version};
}

// Older ones lack it, and so do those of runs without validation.
ValidationRecord read_validation(const JsonObject& head, const std::string& path) {
  ValidationRecord v;
  v.finite = json_bool(head, "validation_finite").value_or(true);
  if (find_member(head, "validation_loss")) v.loss = json_number(head, "validation_loss", path);
  if (find_member(head, "best_by")) v.metric = line_of(head, "best_by", path);
  v.highest = json_bool(head, "best_is_highest").value_or(false);
  if (find_member(head, "task_texts")) v.texts = json_text(head, "task_texts", path);
  if (find_member(head, "validation_value")) v.value = json_number(head, "validation_value", path);
  const char* best = v.metric.empty() ? "best_validation_loss" : "best_validation_value";
  if (find_member(head, best)) {
    v.best = json_number(head, best, path);
    v.best_step = json_int(head, "best_validation_step", path);
  }
  if (find_member(head, "evaluations_since_best")) v.since_best = json_int(head, "evaluations_since_best", path);
  return v;
}

std::vector<int64_t> read_later_updates(const JsonObject& head, const std::string& path) {
  std::vector<int64_t> out;
  if (!find_member(head, "phases")) return out;
  const int64_t phases = json_int(head, "phases", path);
  require(phases >= 1 && phases <= kMostPhases, ExitCode::kBadData, path, ": a step of ", phases, " phases");
  for (size_t k = 1; k < static_cast<size_t>(phases); ++k) {
    out.push_back(json_int(head, updates_key(k), path));
    require(out.back() >= 0 && out.back() <= kLargestCount, ExitCode::kBadData, path, ": \"", updates_key(k), "\" is ",
            out.back(), "; a number in [0, 2^48] was expected");
  }
  return out;
}

void check_counts(const CheckpointInfo& i, int64_t files, const std::string& path) {
  const ValidationRecord& v = i.validation;
  for (const auto& [key, count] :
       {std::pair("step", i.step), std::pair("epoch", i.epoch), std::pair("position", i.position),
        std::pair("updates", i.updates), std::pair("skipped", i.skipped), std::pair("skipped_in_row", i.skipped_in_row),
        std::pair("good_steps", i.good_steps), std::pair("best_validation_step", v.best_step),
        std::pair("evaluations_since_best", v.since_best), std::pair("classes", i.classes),
        std::pair("dataset_samples", i.samples), std::pair("tokens", i.tokens)})
    require(count >= 0 && count <= kLargestCount, ExitCode::kBadData, path, ": \"", key, "\" is ", count,
            "; a number in [0, 2^48] was expected");
  require(i.loss_scale > 0 && std::isfinite(i.loss_scale) && i.ranks >= 1 && i.ranks <= 1 << 20, ExitCode::kBadData,
          path, ": \"loss_scale\" is ", i.loss_scale, " and \"ranks\" ", i.ranks, ", which is impossible");
  require(files >= 1 && files <= 1 << 20, ExitCode::kBadData, path, ": \"files\" is ", files,
          "; a number in [1, 2^20] was expected");
}

// Of a manifest whose format is version `version`; `files` becomes the number of its files.
CheckpointInfo read_info(const JsonObject& head, int64_t version, const std::string& path, int64_t& files) {
  CheckpointInfo i;
  i.writer = line_of(head, "writer", path);
  i.step = json_int(head, "step", path);
  i.epoch = json_int(head, "epoch", path);
  i.position = json_int(head, "position", path);
  i.updates = json_int(head, "updates", path);
  i.skipped_in_row = json_int(head, "skipped_in_row", path);
  i.skipped = json_int(head, "skipped", path);
  i.dataset = line_of(head, "dataset", path);
  i.isa = line_of(head, "isa", path);
  i.ranks = json_int(head, "ranks", path);
  files = version >= kVersionOfBlocks ? json_int(head, "files", path) : i.ranks;
  if (version >= 2) {
    i.loss_scale = json_number(head, "loss_scale", path);
    i.good_steps = json_int(head, "good_steps", path);
    i.layout = line_of(head, "layout", path);
  }
  i.validation = read_validation(head, path);
  if (find_member(head, "dataset_samples")) i.samples = json_int(head, "dataset_samples", path);
  i.later_updates = read_later_updates(head, path);
  if (find_member(head, "base")) i.base = to_hex(parse_hash(json_text(head, "base", path), path));
  if (find_member(head, "reference")) i.reference = to_hex(parse_hash(json_text(head, "reference", path), path));
  i.math_text = json_text(head, "math_text", path);
  i.config = json_text(head, "config", path);
  i.vocabulary = json_text(head, "vocabulary", path);
  i.data_schema = text_of(head, "data");
  i.input = parse_shape(json_text(head, "input", path), path);
  i.classes = json_int(head, "classes", path);
  if (find_member(head, "tokens")) i.tokens = json_int(head, "tokens", path);
  check_counts(i, files, path);
  // Version 1 had one key for what is checkpoint.keep_last now.
  if (const size_t at = i.config.find("\n  keep: "); version == 1 && at != i.config.npos)
    i.config.replace(at, 9, "\n  keep_last: ");
  return i;
}

}  // namespace

std::string info_text(const CheckpointInfo& info) { return json_line(head_of(info, kVersionOfBoxes, 1)); }

CheckpointInfo parse_info(std::string_view text, const std::string& where) {
  const auto head = parse_json_object(text);
  require(head.has_value(), ExitCode::kBadData, where, ": what it says of the run is no JSON");
  int64_t files = 0;
  return read_info(*head, kVersionOfBoxes, where, files);
}

Checkpoint open_checkpoint(const std::string& dir) {
  std::error_code error;
  require(fs::is_directory(dir, error), ExitCode::kMissingInput, dir, ": there is no such checkpoint");
  const std::string path = str(dir, "/", kManifest);
  const std::string manifest = read_manifest(dir);
  const auto [head, list, version] = checked_text(manifest, path);
  Checkpoint c;
  c.dir = dir;
  c.has_blocks = version >= kVersionOfBlocks;
  c.info = read_info(head, version, path, c.files);
  c.slices = parse_slices(list, path);
  for (const StoredSlice& s : c.slices)
    require(s.region.is_whole() || version >= kVersionOfBoxes, ExitCode::kBadData, path, ": tensor ", s.name,
            " is in boxes, which version ", version, " has none of");
  arrange_slices(c.slices, c.files, ExitCode::kBadData, path);
  return c;
}

}  // namespace lockstep
