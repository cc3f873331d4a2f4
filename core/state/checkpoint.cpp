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
#include "core/io/hdf5_file.h"
#include "core/io/held_files.h"
#include "core/io/pending_file.h"
#include "core/state/manifest.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPending = ".pending-";
constexpr const char* kName = "step-";
constexpr int64_t kPiece = 1 << 20;          // elements: 4 MiB
constexpr int64_t kLargestChunk = 64 << 20;  // bytes, of HDF5: it reads no less

std::string part_name(int64_t part, int64_t parts) {
  char name[64];
  snprintf(name, sizeof name, "part-%04d-of-%04d.h5", static_cast<int>(part), static_cast<int>(parts));
  return name;
}
std::string part_path(const Checkpoint& c, int64_t part) { return cat(c.dir, "/", part_name(part, c.info.ranks)); }
std::string retired_text(const std::string& dir) {
  return cat(dir, ": was removed while it was read, as a run does with those that checkpoint.keep_last leaves no room ",
             "for: repeat this command");
}
std::string dataset_name(const StoredSlice& s) { return cat(s.name, "@", s.offset); }

// Reads slices; the part file read last stays open, so go through them part by part where you can.
class PartReader {
 public:
  explicit PartReader(const Checkpoint& c) : checkpoint_(c) {}
  ~PartReader() { rest(); }

  // Elements [range) of the tensor, all in `s`. Where `out` is null they are only checked.
  void read(const StoredSlice& s, Range range, float* out) {
    if (out)
      return read_pieces(
          s, range, [&](Range r) { return out + (r.begin - range.begin); }, [](Range) {});
    std::vector<float> scratch(static_cast<size_t>(std::min(kPiece, range.size())));
    read_pieces(
        s, range, [&](Range) { return scratch.data(); }, [](Range) {});
  }

  // Into an entry's elements of that range, wherever they are. Copies to a GPU go on in the order of the current
  // stream.
  void read(const StoredSlice& s, Range range, const StateEntry& e) {
    if (e.data.device().in_host_memory() && e.data.dtype() == DType::kFloat32)
      return read(s, range, e.data.mutable_values<float>() + (range.begin - e.offset));
    Tensor pieces[2];
    Event copied[2];
    int turn = 0;
    auto room = [&](Range r) {
      turn ^= 1;
      copied[turn].synchronize();
      if (!pieces[turn]) {
        pieces[turn] = Tensor::unallocated({r.size()}, DType::kFloat32, host_memory_of(e.data.device()));
        pieces[turn].allocate();
      }
      return static_cast<float*>(pieces[turn].write());
    };
    read_pieces(s, range, room, [&](Range r) {
      e.set_values(r.begin - e.offset, pieces[turn].slice(0, 0, r.size()));
      copied[turn] = current_stream().record();
    });
  }

 private:
  // `room` says where the elements of a piece go; `filled`, that they are there.
  template <class Room, class Filled>
  void read_pieces(const StoredSlice& s, Range range, const Room& room, const Filled& filled) {
    open(s);
    if (range.empty()) return;
    const bool whole = range.size() == s.count;
    Hash128 hash;
    for (Range r{range.begin, std::min(range.begin + kPiece, range.end)}; !r.empty();
         r = {r.end, std::min(r.end + kPiece, range.end)}) {
      float* to = room(r);
      file_->read(dataset_name(s), StoredType::kFloat32, {r.begin - s.offset, r.end - s.offset}, to);
      if (whole) hash += digest_of(s.name, r.begin, to, r.size());
      filled(r);
    }
    require(!whole || hash == s.hash, ExitCode::kBadData, file_->path(), ": tensor ", s.name,
            " differs from its checksum; this checkpoint is damaged");
  }

  void open(const StoredSlice& s) {
    if (s.part != part_) {
      rest();
      file_ = checkpoint_.held ? checkpoint_.held->file(s.part) : nullptr;
      if (!file_) {
        opened_ = std::make_unique<Hdf5File>(Hdf5File::open(part_there(s.part)));
        file_ = opened_.get();
      }
      part_ = s.part;
    }
    // Before any memory or time is spent on it.
    require(s.count <= file_->bytes() / 4, ExitCode::kBadData, file_->path(), ": tensor ", s.name, " has ", s.count,
            " elements by the manifest, more than ", file_->bytes(),
            " bytes can hold: the file is truncated or damaged");
    const Hdf5Info info = file_->info(dataset_name(s));
    require(info.shape == Shape{s.count}, ExitCode::kBadData, file_->path(), ": tensor ", s.name, " has ",
            info.shape.numel(), " elements at ", s.offset, ", and ", s.count, " by the manifest");
    require(s.count == 0 || (info.checksum && info.chunk_rows <= kLargestChunk / 4), ExitCode::kBadData, file_->path(),
            ": tensor ", s.name, " is not stored in small chunks with checksums: not written by lockstep");
  }

  // Files that are held outlast this reader, and may be many.
  void rest() {
    if (file_ && file_ != opened_.get()) file_->forget_read();
  }

  // The path of a part, which is there.
  std::string part_there(int64_t part) const {
    const std::string path = part_path(checkpoint_, part);
    std::error_code error;
    if (fs::exists(path, error)) return path;
    require(!was_retired(checkpoint_.dir), ExitCode::kMissingInput, retired_text(checkpoint_.dir));
    throw Error(ExitCode::kBadData, cat(path, ": is missing; this is no whole checkpoint"));
  }

  const Checkpoint& checkpoint_;
  std::unique_ptr<Hdf5File> opened_;
  const Hdf5File* file_ = nullptr;  // that one, or one that the checkpoint holds
  int64_t part_ = -1;
};

std::vector<const StoredSlice*> by_part(const Checkpoint& c) {
  std::vector<const StoredSlice*> out;
  for (const StoredSlice& s : c.slices) out.push_back(&s);
  std::stable_sort(out.begin(), out.end(), [](auto* a, auto* b) { return a->part < b->part; });
  return out;
}

// The slices of one tensor.
std::pair<const StoredSlice*, const StoredSlice*> slices_of(const Checkpoint& c, const std::string& name) {
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
  const fs::path aside = dir.parent_path() / cat(kPending, "removed-", dir.filename().string());
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

// The steps of the `count` checkpoints up to `step` with the lowest validation loss. Reads their manifests.
std::set<int64_t> best_steps(const std::vector<std::pair<int64_t, std::string>>& all, int64_t step, int64_t count) {
  std::vector<std::pair<double, int64_t>> by_loss;
  for (const auto& [its_step, path] : all) {
    if (count <= 0 || its_step > step) break;
    try {
      if (const auto loss = open_checkpoint(path).info.validation.loss) by_loss.emplace_back(*loss, its_step);
    } catch (const Error&) {
      // Damaged: none of the best.
    }
  }
  std::sort(by_loss.begin(), by_loss.end());
  std::set<int64_t> out;
  for (const auto& [loss, its_step] : by_loss)
    if (static_cast<int64_t>(out.size()) < count) out.insert(its_step);
  return out;
}

std::string kind_of(const std::string& name) { return name.substr(0, name.find('/')); }

// Elements `at` onwards of a slice that is being saved; its values are in the cache already, since they are hashed.
void require_finite(const StateEntry& e, int64_t at, const float* values, int64_t n) {
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) finite &= std::isfinite(values[i]);
  if (finite) return;
  const int64_t i = std::find_if(values, values + n, [](float v) { return !std::isfinite(v); }) - values;
  throw Error(ExitCode::kNumeric, cat(e.name, " is not finite: element ", e.offset + at + i, " is ", values[i]));
}

}  // namespace

void ValidationRecord::add(int64_t step, double measured) {
  finite = std::isfinite(measured);
  loss = finite ? std::optional(measured) : std::nullopt;
  ++since_best;
  if (!finite || (best && measured >= *best)) return;
  best = measured;
  best_step = step;
  since_best = 0;
}

std::string checkpoint_name(int64_t step) {
  char name[32];
  snprintf(name, sizeof name, "%s%08lld", kName, static_cast<long long>(step));
  return name;
}

std::string pending_checkpoint(const std::string& checkpoints, int64_t step) {
  return cat(checkpoints, "/", kPending, checkpoint_name(step));
}

void begin_checkpoint(const std::string& pending) {
  std::error_code error;
  fs::remove_all(pending, error);
  fs::create_directories(fs::path(pending).parent_path(), error);
  const bool made = !error && fs::create_directory(pending, error);  // nothing that was there already, no link
  require(made, ExitCode::kStorage, pending, ": cannot be made: ", error ? error.message() : "its name is taken");
}

std::vector<StoredSlice> write_part(const std::string& pending, int part, int parts,
                                    const std::vector<StateEntry>& entries, const std::atomic<bool>* give_up) {
  const std::string path = cat(pending, "/", part_name(part, parts));
  std::vector<StoredSlice> out;
  Hdf5File file = Hdf5File::create(path);
  for (const StateEntry& e : entries) {
    StoredSlice s{e.name, e.shape, e.offset, e.data.numel(), part, {}};
    file.create_dataset(dataset_name(s), StoredType::kFloat32, {s.count});
    // Piece by piece: a reader of other HDF5 files in this process gets its turn in between.
    for_each_stretch(e, kPiece, [&](int64_t at, const float* values, int64_t n) {
      require(!give_up || !*give_up, ExitCode::kStorage, path, ": given up");
      require_finite(e, at, values, n);
      s.hash += digest_of(e.name, e.offset + at, values, n);
      file.write(dataset_name(s), StoredType::kFloat32, {at, at + n}, values);
    });
    out.push_back(std::move(s));
  }
  file.close();
  sync_file(path);
  return out;
}

void commit_checkpoint(const std::string& checkpoints, const CheckpointInfo& info,
                       const std::vector<StoredSlice>& slices, int parts) {
  trace_mark();
  std::vector<StoredSlice> arranged = slices;
  arrange_slices(arranged, parts, ExitCode::kInternal, "the state to be saved");
  const std::string pending = pending_checkpoint(checkpoints, info.step),
                    final = cat(checkpoints, "/", checkpoint_name(info.step));
  write_manifest(pending, info, arranged, parts);
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
  const std::set<int64_t> best = best_steps(all, step, r.keep_best);
  for (auto c = all.rbegin(); c != all.rend(); ++c) {
    if (c->first > step || ++newer <= r.keep_last || best.contains(c->first)) continue;
    if (r.keep_every <= 0 || c->first % r.keep_every != 0) remove_checkpoint(c->second);
  }
}

std::vector<std::string> set_aside_newer(const std::string& checkpoints, int64_t step) {
  std::vector<std::string> out;
  for (const auto& [newer, path] : list_steps(checkpoints)) {
    if (newer <= step) continue;
    const std::string aside = cat(checkpoints, "/damaged-", checkpoint_name(newer));
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

bool was_retired(const std::string& checkpoint) {
  std::error_code error;
  return fs::symlink_status(checkpoint, error).type() == fs::file_type::not_found;
}

std::string retired_for_text(const std::string& retired, const std::string& taken) {
  return cat(retired, " was retired by its run meanwhile; reading ", taken, " in its place");
}

Checkpoint hold_checkpoint(const std::string& dir) {
  Checkpoint c;
  try {
    c = open_checkpoint(dir);
  } catch (const Error& e) {
    require(e.code() == ExitCode::kMissingInput || !was_retired(dir), ExitCode::kMissingInput, retired_text(dir));
    throw;
  }
  c.held = HeldFiles::open(c.info.ranks, [&](int64_t part) { return part_path(c, part); });
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
  if (fs::exists(cat(dir, "/", kManifest), error)) return open(dir);
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
        log_warning(cat("passing over a checkpoint: ", e.what()));
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
    const auto [begin, end] = slices_of(c, name);
    if (begin == end) differences.push_back(cat(name, " ", all[0]->shape, " is not in the checkpoint"));
    else if (!(begin->shape == all[0]->shape))
      differences.push_back(cat(name, " is ", begin->shape, " in the checkpoint and ", all[0]->shape, " here"));
  }
  for (size_t i = 0; i < c.slices.size(); ++i) {
    const StoredSlice& s = c.slices[i];
    const bool first = i == 0 || c.slices[i - 1].name != s.name;
    if (first && kinds.count(kind_of(s.name)) && !wanted.count(s.name))
      differences.push_back(cat(s.name, " ", s.shape, " is only in the checkpoint"));
  }
  if (!differences.empty()) {
    std::string text;
    for (size_t i = 0; i < differences.size() && i < 5; ++i) text += cat(i ? "; " : "", differences[i]);
    if (differences.size() > 5) text += cat("; and ", static_cast<int64_t>(differences.size() - 5), " more");
    throw Error(ExitCode::kBadData, cat(c.dir, ": is of another model: ", text));
  }
  for (const StateEntry& e : entries)
    check(e.offset >= 0 && e.end() <= e.shape.numel(), "load: ", e.name, " ", e.shape, " has no elements [", e.offset,
          ", ", e.end(), ")");
  PartReader reader(c);
  for (const StoredSlice* s : by_part(c)) {
    const auto found = wanted.find(s->name);
    if (found == wanted.end()) continue;
    for (const StateEntry* e : found->second) {
      const Range r = intersect({e->offset, e->end()}, {s->offset, s->offset + s->count});
      if (!r.empty()) reader.read(*s, r, *e);
    }
  }
}

void read_elements(const Checkpoint& c, const std::string& name, Range range, float* out) {
  const auto [begin, end] = slices_of(c, name);
  check(begin != end && 0 <= range.begin && range.end <= begin->shape.numel(), "elements [", range.begin, ", ",
        range.end, ") of tensor ", name, " are not in ", c.dir);
  PartReader reader(c);
  for (const StoredSlice* s = begin; s != end; ++s) {
    const Range r = intersect(range, {s->offset, s->offset + s->count});
    if (!r.empty()) reader.read(*s, r, out + (r.begin - range.begin));
  }
}

void verify_checkpoint(const Checkpoint& c) { verify_checkpoint(c, 0, 1); }

void verify_checkpoint(const Checkpoint& c, int reader, int readers) {
  double all = 1, before = 0;
  for (const StoredSlice& s : c.slices) all += static_cast<double>(s.count);
  PartReader parts(c);
  for (const StoredSlice* s : by_part(c)) {
    const double middle = before + static_cast<double>(s->count) / 2;
    before += static_cast<double>(s->count);
    if (static_cast<int>(middle / all * readers) == reader) parts.read(*s, {s->offset, s->offset + s->count}, nullptr);
  }
}

Hash128 digest_of(const CheckpointInfo& i) {
  const bool scaled = i.loss_scale != 1 || i.good_steps != 0;
  std::string later;
  for (int64_t updates : i.later_updates) later += cat("updates of a later phase ", updates, "\n");
  return hash128(
      cat("step ", i.step, "\nepoch ", i.epoch, "\nposition ", i.position, "\nupdates ", i.updates, "\nskipped ",
          i.skipped, "\ndataset ", i.dataset, "\n", i.base.empty() ? "" : cat("base ", i.base, "\n"),
          scaled ? cat("loss scale ", i.loss_scale, ", ", i.good_steps, " steps\n") : "", later, i.math_text));
}

Hash128 digest_of(const Checkpoint& c) {
  Hash128 sum = digest_of(c.info);
  for (const StoredSlice& s : c.slices) sum += s.hash;
  return sum;
}

}  // namespace lockstep
