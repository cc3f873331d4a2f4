#include "launch/checkpoints/machine_parts.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <sstream>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/io/files.h"
#include "core/io/pending_file.h"
#include "core/state/checkpoint_part.h"
#include "core/state/manifest.h"
#include "launch/checkpoints/checkpoint_mirror.h"
#include "launch/checkpoints/open_whole.h"
#include "launch/records/run_dir.h"
#include "launch/world/fail_together.h"
#include "launch/world/pieces.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLabel = "checkpoint of several machines";
constexpr int64_t kPiece = int64_t(16) << 20;  // bytes of a file that are read, sent and written at a time

std::string folder_of(const std::string& run_dir, int64_t step) {
  return str(RunPaths{run_dir}.checkpoints(), "/", checkpoint_name(step));
}

std::string manifest_text(const std::string& checkpoint) {
  constexpr int64_t kMost = int64_t(1) << 30;
  return InputFile(str(checkpoint, "/", kManifest)).text(kMost);
}

const FoundParts* found_of(const std::vector<FoundParts>& found, const SpreadCheckpoint& c) {
  const auto at = std::find_if(found.begin(), found.end(),
                               [&](const FoundParts& f) { return f.step == c.step && f.manifest == c.manifest; });
  return at == found.end() ? nullptr : &*at;
}

std::string text_of(const std::vector<FoundParts>& found) {
  std::string out;
  for (const FoundParts& f : found) {
    out += str(f.step, " ", to_hex(f.manifest), " ");
    for (const bool there : f.there) out += there ? '1' : '0';
    out += "\n";
  }
  return out;
}

std::vector<FoundParts> parse(const std::string& text) {
  std::vector<FoundParts> out;
  std::istringstream in(text);
  std::string hash, there;
  for (FoundParts f; in >> f.step >> hash >> there;) {
    f.manifest = parse_hash(hash, kLabel);
    f.there.clear();
    for (const char c : there) f.there.push_back(c == '1');
    out.push_back(f);
  }
  return out;
}

// A file that rank `from` has under one path and rank `to` gets under another, which is new there. By pieces, after
// each of which all ranks meet, so that none waits for long and an error of either is every rank's at once. Collective.
void move_file(Communicator& comm, int from, const std::string& path_from, int to, const std::string& path_to) {
  std::optional<InputFile> file;
  Descriptor copy;
  fail_together(
      comm,
      [&] {
        if (comm.rank() == from) file.emplace(path_from);
        if (comm.rank() != to) return;
        copy = create_new(path_to);
        if (!copy) fail_write(path_to, errno);
      },
      kLabel);
  const int64_t size = all_gather_values(comm, file ? file->size : 0, kLabel)[static_cast<size_t>(from)];
  for (int64_t at = 0; at < size; at += kPiece) {
    const int64_t n = std::min(kPiece, size - at);
    const bool takes_part = comm.rank() == from || comm.rank() == to;
    Tensor piece = Tensor::unallocated({ceil_div(n, size_of(DType::kFloat32))}, DType::kFloat32, Device{});
    fail_together(
        comm,
        [&] {
          if (takes_part) piece.allocate();
          if (comm.rank() == from) file->read(at, piece.write(), n);
        },
        kLabel);
    if (comm.rank() == from) send_in_pieces(comm, piece, to, kLabel);
    if (comm.rank() == to) receive_in_pieces(comm, piece, from, kLabel);
    fail_together(
        comm,
        [&] {
          if (comm.rank() != to) return;
          const std::string_view bytes(static_cast<const char*>(piece.read()), static_cast<size_t>(n));
          if (!write_all(copy, bytes)) fail_write(path_to, errno);
          if (at + n == size) sync_file(path_to);
        },
        kLabel);
  }
}

struct Machines {
  std::vector<int> leaders;                    // one a machine
  std::vector<std::vector<FoundParts>> found;  // of each
  int rank_of(size_t machine) const { return leaders[machine]; }
};

Machines look(Communicator& comm, const std::string& run_dir) {
  Machines out;
  const std::vector<int> leader_of = machine_leaders(comm);
  std::string mine;
  fail_together(comm, [&] {
    if (leader_of[static_cast<size_t>(comm.rank())] == comm.rank()) mine = text_of(find_parts(run_dir));
  });
  const auto all = all_gather_text(comm, mine, kLabel);
  for (size_t r = 0; r < all.size(); ++r) {
    if (leader_of[r] != static_cast<int>(r)) continue;
    out.leaders.push_back(static_cast<int>(r));
    out.found.push_back(parse(all[r]));
  }
  return out;
}

// ": step 40 lacks part 2 of 4" of the newest checkpoint that is there in part.
std::string newest_lacks(const std::vector<std::vector<FoundParts>>& found) {
  const FoundParts* newest = nullptr;
  for (const auto& of_directory : found)
    for (const FoundParts& f : of_directory)
      if (!newest || f.step > newest->step) newest = &f;
  if (!newest) return {};
  for (size_t p = 0; p < newest->there.size(); ++p) {
    const bool there = std::any_of(found.begin(), found.end(), [&](const std::vector<FoundParts>& of_directory) {
      return has_part(of_directory, {newest->step, newest->manifest, {}}, p);
    });
    if (!there) return str(": that of step ", newest->step, " lacks part ", p + 1, " of ", newest->there.size());
  }
  return {};
}

// A name for a part that is brought into a folder that has its name already; a start of the run removes what is left.
std::string brought_name(const std::string& run_dir) {
  return str(pending_checkpoint(RunPaths{run_dir}.checkpoints(), 0), "-brought-", random_digits());
}

// Machine `to` gets what it lacks of it. Collective.
void bring(Communicator& comm, const Machines& machines, const std::string& run_dir, const SpreadCheckpoint& c,
           size_t to) {
  const std::vector<FoundParts>& here = machines.found[to];
  const bool has_folder = has_manifest(here, c);
  const std::string final = folder_of(run_dir, c.step),
                    pending = pending_checkpoint(RunPaths{run_dir}.checkpoints(), c.step);
  const auto parts = static_cast<int64_t>(c.holder.size());
  const int receiver = machines.rank_of(to);
  const auto on_receiver = [&](const std::function<void()>& action) {
    fail_together(
        comm,
        [&] {
          if (comm.rank() == receiver) action();
        },
        kLabel);
  };
  const auto move = [&](size_t holder, const std::string& name) {
    const std::string path = has_folder ? brought_name(run_dir) : str(pending, "/", name);
    move_file(comm, machines.rank_of(holder), str(final, "/", name), receiver, path);
    if (has_folder) on_receiver([&] { sync_and_rename(path, str(final, "/", name)); });
  };
  if (!has_folder) on_receiver([&] { begin_checkpoint(pending); });
  for (int64_t p = 0; p < parts; ++p)
    if (const auto part = static_cast<size_t>(p); !has_part(here, c, part))
      move(c.holder[part], fs::path(part_path(final, p, parts)).filename().string());
  if (has_folder) return;
  move(c.holder[0], kManifest);
  on_receiver([&] { put_in_place(pending, final); });
}

}  // namespace

std::vector<int> machine_leaders(Communicator& comm) {
  const auto names = all_gather_text(comm, machine_name(), kLabel);
  std::vector<int> out;
  for (const std::string& name : names)
    out.push_back(static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin()));
  return out;
}

std::vector<FoundParts> find_parts(const std::string& run_dir) {
  std::vector<FoundParts> out;
  for (const std::string& path : list_checkpoints(run_dir)) try {
      const std::string manifest = manifest_text(path);
      FoundParts f{step_of_checkpoint(path), hash128(manifest.data(), manifest.size()), {}};
      const int64_t files = open_checkpoint(path).files;
      std::error_code error;
      for (int64_t p = 0; p < files; ++p) f.there.push_back(fs::exists(part_path(path, p, files), error));
      out.push_back(std::move(f));
    } catch (const Error& e) {
      log_warning(str("passing over a checkpoint: ", e.what()));
    }
  return out;
}

std::vector<SpreadCheckpoint> whole_together(const std::vector<std::vector<FoundParts>>& found, int64_t at_most) {
  constexpr size_t kNowhere = std::numeric_limits<size_t>::max();
  std::vector<SpreadCheckpoint> all;
  for (size_t d = 0; d < found.size(); ++d)
    for (const FoundParts& f : found[d]) {
      auto at = std::find_if(all.begin(), all.end(), [&](const SpreadCheckpoint& c) {
        return c.step == f.step && c.manifest == f.manifest && c.holder.size() == f.there.size();
      });
      if (at == all.end())
        at = all.insert(all.end(), {f.step, f.manifest, std::vector<size_t>(f.there.size(), kNowhere)});
      for (size_t p = 0; p < f.there.size(); ++p)
        if (f.there[p] && at->holder[p] == kNowhere) at->holder[p] = d;
    }
  std::erase_if(all, [&](const SpreadCheckpoint& c) {
    return c.step > at_most || c.holder.empty() ||
           std::find(c.holder.begin(), c.holder.end(), kNowhere) != c.holder.end();
  });
  // Of several with one step, as where a step was done again elsewhere, the one that the first directory has most of.
  const auto of_first = [](const SpreadCheckpoint& c) {
    return std::count(c.holder.begin(), c.holder.end(), size_t{0});
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](auto& a, auto& b) { return a.step != b.step ? a.step > b.step : of_first(a) > of_first(b); });
  all.erase(std::unique(all.begin(), all.end(), [](auto& a, auto& b) { return a.step == b.step; }), all.end());
  return all;
}

bool has_manifest(const std::vector<FoundParts>& found, const SpreadCheckpoint& c) {
  return found_of(found, c) != nullptr;
}

bool has_part(const std::vector<FoundParts>& found, const SpreadCheckpoint& c, size_t part) {
  const FoundParts* f = found_of(found, c);
  return f && part < f->there.size() && f->there[part];
}

std::optional<Checkpoint> newest_of_machines(Communicator& comm, const std::string& run_dir, int64_t at_most) {
  const Machines machines = look(comm, run_dir);
  const auto whole = whole_together(machines.found, at_most);
  std::string first_problem;
  for (const SpreadCheckpoint& c : whole) {
    for (size_t m = 0; m < machines.leaders.size(); ++m) bring(comm, machines, run_dir, c, m);
    try {
      return newest_whole(comm, folder_of(run_dir, c.step));
    } catch (const Error& e) {  // on all ranks
      if (e.code() != ExitCode::kBadData) throw;
      for (const std::string& said : all_gather_text(comm, e.is_secondary() ? "" : e.what(), kLabel))
        if (!said.empty() && comm.rank() == 0) log_warning(str("passing over a checkpoint: ", said));
    }
  }
  const bool some = std::any_of(machines.found.begin(), machines.found.end(), [&](auto& of_machine) {
    return std::any_of(of_machine.begin(), of_machine.end(), [&](auto& f) { return f.step <= at_most; });
  });
  if (!some) return {};
  if (comm.rank() != 0) throw Error::secondary(ExitCode::kBadData);
  throw Error(ExitCode::kBadData,
              whole.empty() ? str(run_dir, ": the machines of this job together hold no whole checkpoint",
                                  newest_lacks(machines.found),
                                  "; start on the machines that wrote it, or copy its files to one of these machines")
                            : str(run_dir, ": none of its ", whole.size(), " checkpoints is whole"));
}

namespace {

// The checkpoints of a directory, with their files open, so that they can be read whatever becomes of their names.
struct OpenParts {
  std::vector<FoundParts> found;
  std::vector<std::string> manifests;                        // of each of `found`
  std::vector<std::vector<std::optional<InputFile>>> files;  // of each, by part: what is whole
};

// The file of a part, compared with its hashes. Throws kMissingInput where there is none, kBadData.
InputFile open_part(const Checkpoint& c, int64_t part) {
  const std::string path = part_path(c.dir, part, c.files);
  InputFile file(path);
  std::error_code error;
  require(!fs::is_symlink(path, error), ExitCode::kBadData, path, ": is a link, not a regular file");
  Checkpoint alone = c;
  std::erase_if(alone.slices, [&](const StoredSlice& s) { return s.part != part; });
  verify_checkpoint(alone);
  return file;
}

// Adds the checkpoint; returns false where its run has retired it meanwhile.
bool add_parts(const std::string& path, OpenParts& out) {
  try {
    const std::string manifest = manifest_text(path);
    const Checkpoint c = hold_checkpoint(path);
    FoundParts found{step_of_checkpoint(path), hash128(manifest.data(), manifest.size()), {}};
    std::vector<std::optional<InputFile>> files;
    for (int64_t part = 0; part < c.files; ++part) {
      files.emplace_back();
      try {
        files.back().emplace(open_part(c, part));
      } catch (const Error& e) {
        if (was_retired(path)) return false;
        if (e.code() != ExitCode::kBadData && e.code() != ExitCode::kMissingInput) throw;
        if (e.code() == ExitCode::kBadData) log_warning(str("passing over a part: ", e.what()));
      }
      found.there.push_back(files.back().has_value());
    }
    out.found.push_back(std::move(found));
    out.manifests.push_back(manifest);
    out.files.push_back(std::move(files));
  } catch (const Error& e) {
    if (was_retired(path)) return false;
    log_warning(str("passing over a checkpoint: ", e.what()));
  }
  return true;
}

OpenParts open_parts(const std::string& run_dir) {
  for (int round = 0;; ++round) {
    OpenParts out;
    bool retired = false;
    for (const std::string& path : list_checkpoints(run_dir)) retired |= !add_parts(path, out);
    if (!out.found.empty() || !retired || round == kMostRetired) return out;
  }
}

}  // namespace

void collect_checkpoints(const std::string& run_dir, const std::vector<std::string>& others) {
  std::vector<std::string> dirs{run_dir};
  dirs.insert(dirs.end(), others.begin(), others.end());
  std::vector<OpenParts> open;
  std::vector<std::vector<FoundParts>> found;
  for (const std::string& dir : dirs) {
    std::error_code error;
    require(dir == run_dir || fs::is_directory(dir, error), ExitCode::kMissingInput, dir,
            ": there is no such directory");
    open.push_back(open_parts(dir));
    found.push_back(open.back().found);
  }
  const auto whole = whole_together(found, std::numeric_limits<int64_t>::max());
  require(!whole.empty(), ExitCode::kBadData, "these directories have no checkpoint whole together",
          newest_lacks(found));
  const auto number_in = [&](size_t dir, const SpreadCheckpoint& c) {
    return static_cast<size_t>(found_of(found[dir], c) - found[dir].data());
  };
  for (const SpreadCheckpoint& c : whole) {
    const bool has_folder = has_manifest(found[0], c);
    const std::string final = folder_of(run_dir, c.step),
                      pending = pending_checkpoint(RunPaths{run_dir}.checkpoints(), c.step);
    if (!has_folder) begin_checkpoint(pending);
    const auto parts = static_cast<int64_t>(c.holder.size());
    for (int64_t p = 0; p < parts; ++p) {
      const auto part = static_cast<size_t>(p);
      if (has_part(found[0], c, part)) continue;
      const size_t holder = c.holder[part];
      const std::string name = part_path(has_folder ? final : pending, p, parts);
      const std::string path = has_folder ? brought_name(run_dir) : name;
      copy_to_new(*open[holder].files[number_in(holder, c)][part], path);
      if (has_folder) sync_and_rename(path, name);
    }
    if (has_folder) continue;
    replace_file(str(pending, "/", kManifest), open[c.holder[0]].manifests[number_in(c.holder[0], c)]);
    put_in_place(pending, final);
  }
  for (const std::string& from : others) bring_back_records(from, run_dir);
}

void collect_checkpoints(Communicator& comm, const std::string& run_dir) {
  const Machines machines = look(comm, run_dir);
  for (const SpreadCheckpoint& c : whole_together(machines.found, std::numeric_limits<int64_t>::max()))
    bring(comm, machines, run_dir, c, 0);
}

}  // namespace lockstep
