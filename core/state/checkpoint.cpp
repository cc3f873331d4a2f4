#include "core/state/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/io/held_files.h"
#include "core/io/pending_file.h"
#include "core/state/checkpoint_part.h"
#include "core/state/manifest.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPending = ".pending-";
constexpr const char* kName = "step-";

std::vector<const StoredSlice*> by_part(const Checkpoint& c) {
  std::vector<const StoredSlice*> out;
  for (const StoredSlice& s : c.slices) out.push_back(&s);
  std::stable_sort(out.begin(), out.end(), [](auto* a, auto* b) { return a->part < b->part; });
  return out;
}

// The slices of one tensor.
std::pair<const StoredSlice*, const StoredSlice*> slices_named(const Checkpoint& c, const std::string& name) {
  struct ByName {
    bool operator()(const StoredSlice& s, const std::string& n) const { return s.name < n; }
    bool operator()(const std::string& n, const StoredSlice& s) const { return n < s.name; }
  };
  const StoredSlice* begin = c.slices.data();
  return std::equal_range(begin, begin + c.slices.size(), name, ByName());
}

// Where a save or a removal is cut short, no directory with a checkpoint's name holds less than a checkpoint.
void remove_checkpoint(const fs::path& dir) {
  std::error_code error;
  const fs::path aside = dir.parent_path() / str(kPending, "removed-", dir.filename().string());
  fs::remove_all(aside, error);
  fs::rename(dir, aside, error);
  if (!error) fs::remove_all(aside, error);
}

// Checkpoints of a directory by step, oldest first.
std::vector<std::pair<int64_t, std::string>> list_steps(const std::string& checkpoints) {
  std::vector<std::pair<int64_t, std::string>> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kName, 0) != 0) continue;
    const std::string digits = name.substr(std::string_view(kName).size());
    if (digits.empty() || digits.size() > 18 || !std::all_of(digits.begin(), digits.end(), ::isdigit)) continue;
    out.emplace_back(std::stoll(digits), entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Elements [range) of a region of a tensor, from its slices [begin, end), of whatever regions.
void read_region(PartReader& reader, std::pair<const StoredSlice*, const StoredSlice*> slices, const Region& region,
                 IndexRange range, float* out, std::string_view where) {
  int64_t found = 0;
  for (const StoredSlice* s = slices.first; s != slices.second; ++s) found += reader.read(*s, region, range, out);
  check(found == range.size(), where, ": of elements [", range.begin, ", ", range.end, ") of ", slices.first->name, " ",
        to_text(region), " its slices hold ", found);
}

// The same into an entry, a piece after the other where its values are elsewhere than in host memory, or narrower.
void load_region(const Checkpoint& c, PartReader& reader, std::pair<const StoredSlice*, const StoredSlice*> slices,
                 const StateEntry& e) {
  constexpr int64_t kPiece = 1 << 20;  // elements, whole chunks
  if (e.data.device().in_host_memory() && e.data.dtype() == DType::kFloat32) {
    if (e.data.numel() == 0) return;
    return read_region(reader, slices, e.region, {e.offset, e.end()}, e.data.mutable_values<float>(), c.dir);
  }
  for (int64_t at = 0; at < e.data.numel(); at += kPiece) {
    std::vector<float> values(static_cast<size_t>(std::min(kPiece, e.data.numel() - at)));
    const auto n = static_cast<int64_t>(values.size());
    read_region(reader, slices, e.region, {e.offset + at, e.offset + at + n}, values.data(), c.dir);
    e.set_values(at, Tensor::of(std::move(values), {n}));
  }
}

std::string kind_of(const std::string& name) { return name.substr(0, name.find('/')); }

}  // namespace

void ValidationRecord::add(int64_t step, double its_loss, std::optional<double> its_value) {
  finite = std::isfinite(its_loss);
  loss = finite ? std::optional(its_loss) : std::nullopt;
  value = !metric.empty() && its_value && std::isfinite(*its_value) ? its_value : std::nullopt;
  const std::optional<double> now = measured();
  ++since_best;
  if (!now || (best && (highest ? *now <= *best : *now >= *best))) return;
  best = now;
  best_step = step;
  since_best = 0;
}

std::vector<std::string> best_checkpoints(const std::vector<std::string>& newest_first, size_t count, bool warns) {
  std::optional<ValidationRecord> newest;
  std::vector<std::pair<double, std::string>> by_score;  // the lower, the better
  for (const std::string& path : newest_first) try {
      const ValidationRecord v = open_checkpoint(path).info.validation;
      if (!newest) newest = v;
      const std::optional<double> value = v.measured();
      if (value && v.measures_as(*newest)) by_score.emplace_back(v.highest ? -*value : *value, path);
    } catch (const Error& e) {  // damaged: none of the best
      if (warns) log_warning(str("passing over a checkpoint: ", e.what()));
    }
  std::reverse(by_score.begin(), by_score.end());
  std::stable_sort(by_score.begin(), by_score.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(count, by_score.size()); ++i) out.push_back(by_score[i].second);
  return out;
}

std::string checkpoint_name(int64_t step) {
  char name[32];
  snprintf(name, sizeof name, "%s%08lld", kName, static_cast<long long>(step));
  return name;
}

std::string pending_checkpoint(const std::string& checkpoints, int64_t step) {
  return str(checkpoints, "/", kPending, checkpoint_name(step));
}

void begin_checkpoint(const std::string& pending) {
  std::error_code error;
  fs::remove_all(pending, error);
  fs::create_directories(fs::path(pending).parent_path(), error);
  const bool made = !error && fs::create_directory(pending, error);  // nothing that was there already, no link
  require(made, ExitCode::kStorage, pending, ": cannot be made: ", error ? error.message() : "its name is taken");
}

std::vector<StoredSlice> write_part(const std::string& pending, int part, int parts,
                                    const std::vector<StateEntry>& entries, WritePace* pace) {
  PartWriter file(part_path(pending, part, parts), part, {slices_of(entries)});
  return file.finish({file.write(file.reserve(), entries, pace)});
}

void commit_checkpoint(const std::string& checkpoints, const CheckpointInfo& info,
                       const std::vector<StoredSlice>& slices, int files) {
  trace_mark();
  std::vector<StoredSlice> arranged = slices;
  arrange_slices(arranged, files, ExitCode::kInternal, "the state to be saved");
  const std::string pending = pending_checkpoint(checkpoints, info.step),
                    final = str(checkpoints, "/", checkpoint_name(info.step));
  write_manifest(pending, info, arranged, files);
  put_in_place(pending, final);
}

void put_in_place(const std::string& pending, const std::string& final) {
  remove_checkpoint(final);  // of an earlier try that did not verify
  std::error_code error;
  fs::rename(pending, final, error);
  require(!error, ExitCode::kStorage, final, ": cannot be put in place: ", error.message());
  sync_folder_of(final);
}

void clean_checkpoints(const std::string& checkpoints) {
  std::error_code error;
  std::vector<fs::path> pending;
  for (const auto& entry : fs::directory_iterator(checkpoints, error))
    if (entry.path().filename().string().rfind(kPending, 0) == 0) pending.push_back(entry.path());
  for (const fs::path& path : pending) fs::remove_all(path, error);
}

void retire_checkpoints(const std::string& checkpoints, int64_t step, const Retention& r) {
  if (r.keep_last <= 0) return;
  int64_t newer = 0;
  const auto all = list_steps(checkpoints);
  std::vector<std::string> done;  // newest first
  for (auto c = all.rbegin(); c != all.rend(); ++c)
    if (c->first <= step) done.push_back(c->second);
  std::set<std::string> best;
  if (r.keep_best > 0) {
    const std::vector<std::string> paths = best_checkpoints(done, static_cast<size_t>(r.keep_best));
    best.insert(paths.begin(), paths.end());
  }
  for (auto c = all.rbegin(); c != all.rend(); ++c) {
    if (c->first > step || ++newer <= r.keep_last || best.contains(c->second)) continue;
    if (r.keep_every <= 0 || c->first % r.keep_every != 0) remove_checkpoint(c->second);
  }
}

std::vector<std::string> set_aside_newer(const std::string& checkpoints, int64_t step) {
  std::vector<std::string> out;
  for (const auto& [newer, path] : list_steps(checkpoints)) {
    if (newer <= step) continue;
    const std::string aside = str(checkpoints, "/damaged-", checkpoint_name(newer));
    std::error_code error;
    fs::remove_all(aside, error);
    fs::rename(path, aside, error);
    if (!error) out.push_back(aside);
  }
  return out;
}

std::vector<std::string> list_checkpoints(const std::string& run_dir) {
  std::vector<std::string> out;
  for (auto& [step, path] : list_steps(run_dir + "/checkpoints")) out.push_back(path);
  std::reverse(out.begin(), out.end());
  return out;
}

int64_t step_of_checkpoint(const std::string& path) { return std::stoll(path.substr(path.rfind('-') + 1)); }

bool has_checkpoint(const std::string& run_dir) { return !list_checkpoints(run_dir).empty(); }

bool has_checkpoint(const std::string& run_dir, int64_t step) {
  const auto all = list_steps(run_dir + "/checkpoints");
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.first == step; });
}

bool was_retired(const std::string& checkpoint) {
  std::error_code error;
  return fs::symlink_status(checkpoint, error).type() == fs::file_type::not_found;
}

std::string retired_for_text(const std::string& retired, const std::string& taken) {
  return str(retired, " was retired by its run meanwhile; reading ", taken, " in its place");
}

Checkpoint hold_checkpoint(const std::string& dir) {
  Checkpoint c;
  try {
    c = open_checkpoint(dir);
  } catch (const Error& e) {
    require(e.code() == ExitCode::kMissingInput || !was_retired(dir), ExitCode::kMissingInput, retired_text(dir));
    throw;
  }
  c.held = HeldFiles::open(c.files, [&](int64_t part) { return part_path(dir, part, c.files); });
  require(!c.held || c.held->all() || !was_retired(dir), ExitCode::kMissingInput, retired_text(dir));
  return c;
}

Checkpoint open_newest(const std::string& dir, bool verify) {
  std::error_code error;
  require(fs::is_directory(dir, error), ExitCode::kMissingInput, dir, ": there is no such directory");
  const auto open = [&](const std::string& path) {
    Checkpoint c = verify ? hold_checkpoint(path) : open_checkpoint(path);
    if (verify) verify_checkpoint(c);
    return c;
  };
  if (fs::exists(str(dir, "/", kManifest), error)) return open(dir);
  std::string retired;  // the first of those that were
  for (int rounds = 0; rounds < kMostRetired; ++rounds) {
    const auto all = list_checkpoints(dir);
    // A listing that is made while one takes another's place may show neither.
    require(!all.empty() || rounds == 0 || !retired.empty(), ExitCode::kMissingInput, dir, ": holds no checkpoint");
    std::string first_problem, gone;
    for (const std::string& path : all) {
      try {
        Checkpoint c = open(path);
        if (!retired.empty()) log_info(retired_for_text(retired, path));
        return c;
      } catch (const Error& e) {
        if (e.code() != ExitCode::kBadData && e.code() != ExitCode::kMissingInput) throw;
        if (was_retired(path)) {
          gone = path;
          break;
        }
        if (first_problem.empty()) first_problem = e.what();
        log_warning(str("passing over a checkpoint: ", e.what()));
      }
    }
    require(!gone.empty() || all.empty(), ExitCode::kBadData, dir, ": none of its ", all.size(),
            " checkpoints is whole; the newest: ", first_problem);
    if (retired.empty()) retired = gone;
  }
  throw Error(ExitCode::kMissingInput, retired_text(retired));
}

void load_entries(const Checkpoint& c, const std::vector<StateEntry>& entries) {
  std::map<std::string, std::vector<const StateEntry*>> wanted;
  std::set<std::string> kinds;
  for (const StateEntry& e : entries) {
    wanted[e.name].push_back(&e);
    kinds.insert(kind_of(e.name));
  }
  std::vector<std::string> differences;
  for (auto& [name, all] : wanted) {
    const auto [begin, end] = slices_named(c, name);
    if (begin == end) differences.push_back(str(name, " ", all[0]->region.shape, " is not in the checkpoint"));
    else if (!(begin->region.shape == all[0]->region.shape))
      differences.push_back(
          str(name, " is ", begin->region.shape, " in the checkpoint and ", all[0]->region.shape, " here"));
  }
  for (size_t i = 0; i < c.slices.size(); ++i) {
    const StoredSlice& s = c.slices[i];
    const bool first = i == 0 || c.slices[i - 1].name != s.name;
    if (first && kinds.count(kind_of(s.name)) && !wanted.count(s.name))
      differences.push_back(str(s.name, " ", s.region.shape, " is only in the checkpoint"));
  }
  if (!differences.empty()) {
    std::string text;
    for (size_t i = 0; i < differences.size() && i < 5; ++i) text += str(i ? "; " : "", differences[i]);
    if (differences.size() > 5) text += str("; and ", static_cast<int64_t>(differences.size() - 5), " more");
    throw Error(ExitCode::kBadData, str(c.dir, ": is of another model: ", text));
  }
  for (const StateEntry& e : entries)
    check(e.offset >= 0 && e.end() <= e.region.numel(), "load: ", e.name, " ", to_text(e.region), " of ",
          e.region.shape, " has no elements [", e.offset, ", ", e.end(), ")");
  PartReader reader(c);
  for (const StoredSlice* s : by_part(c)) {
    const auto found = wanted.find(s->name);
    if (found == wanted.end()) continue;
    for (const StateEntry* e : found->second) {
      if (!(e->region == s->region)) continue;
      const IndexRange r = intersect({e->offset, e->end()}, {s->offset, s->offset + s->count});
      if (!r.empty()) reader.read(*s, r, *e);
    }
  }
  for (const StateEntry& e : entries) {
    const auto slices = slices_named(c, e.name);
    const bool as_stored = std::any_of(slices.first, slices.second, [&](auto& s) { return s.region == e.region; });
    if (!as_stored) load_region(c, reader, slices, e);
  }
}

void read_elements(const Checkpoint& c, const std::string& name, IndexRange range, float* out) {
  const auto slices = slices_named(c, name);
  check(slices.first != slices.second && 0 <= range.begin && range.end <= slices.first->region.shape.numel(),
        "elements [", range.begin, ", ", range.end, ") of tensor ", name, " are not in ", c.dir);
  PartReader reader(c);
  if (!range.empty()) read_region(reader, slices, slices.first->region.shape, range, out, c.dir);
}

void verify_checkpoint(const Checkpoint& c) { verify_checkpoint(c, 0, 1); }

void verify_checkpoint(const Checkpoint& c, int reader, int readers) {
  double all = 0, before = 0;
  for (const StoredSlice& s : c.slices) all += static_cast<double>(s.count);
  // Where the share of a reader begins in a slice: at a block, or where there are none at one of its ends.
  const auto begin_in = [&](const StoredSlice& s, int of) -> int64_t {
    if (of == 0 || of == readers) return of == 0 ? 0 : s.count;
    const double at = all * of / readers - before, count = static_cast<double>(s.count);
    if (!c.has_blocks) return at > count / 2 ? s.count : 0;
    const auto inside = static_cast<int64_t>(std::clamp(at, 0.0, count));
    return std::min(round_up(inside, kBlock), s.count);
  };
  PartReader parts(c);
  for (const StoredSlice* s : by_part(c)) {
    const IndexRange mine{begin_in(*s, reader), begin_in(*s, reader + 1)};
    before += static_cast<double>(s->count);
    if (!mine.empty() || (s->count == 0 && reader == 0))
      parts.read(*s, {s->offset + mine.begin, s->offset + mine.end}, nullptr);
  }
}

Hash128 digest_of(const CheckpointInfo& i) {
  const bool scaled = i.loss_scale != 1 || i.good_steps != 0;
  std::string later;
  for (int64_t updates : i.later_updates) later += str("updates of a later phase ", updates, "\n");
  return hash128(
      str("step ", i.step, "\nepoch ", i.epoch, "\nposition ", i.position, "\nupdates ", i.updates, "\nskipped ",
          i.skipped, "\ndataset ", i.dataset, "\n", i.base.empty() ? "" : str("base ", i.base, "\n"),
          i.reference.empty() ? "" : str("reference ", i.reference, "\n"),
          scaled ? str("loss scale ", i.loss_scale, ", ", i.good_steps, " steps\n") : "", later, i.math_text));
}

Hash128 digest_of(const Checkpoint& c) {
  Hash128 sum = digest_of(c.info);
  for (size_t i = 0; i < c.slices.size(); ++i)
    if (i == 0 || c.slices[i - 1].name != c.slices[i].name) sum += digest_of(c, c.slices[i].name);
  return sum;
}

Hash128 digest_of(const Checkpoint& c, const std::string& tensor) {
  const auto slices = slices_named(c, tensor);
  Hash128 sum;
  if (slices.first == slices.second) return sum;
  if (slices.first->region.is_whole()) {
    for (const StoredSlice* s = slices.first; s != slices.second; ++s) sum += s->hash;
    return sum;
  }
  constexpr int64_t kPiece = 1 << 20;  // elements, whole chunks
  PartReader reader(c);
  const Shape& shape = slices.first->region.shape;
  std::vector<float> values;
  for (int64_t at = 0, all = shape.numel(); at < all; at += kPiece) {
    values.resize(static_cast<size_t>(std::min(kPiece, all - at)));
    const auto n = static_cast<int64_t>(values.size());
    read_region(reader, slices, shape, {at, at + n}, values.data(), c.dir);
    sum += digest_of(tensor, at, values.data(), n);
  }
  return sum;
}

}  // namespace lockstep
