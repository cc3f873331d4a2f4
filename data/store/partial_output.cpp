#include "data/store/partial_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>

#include "core/base/escape.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/system_call.h"
#include "data/store/chunk_writer.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kCopiedAtOnce = 1 << 20;
constexpr int64_t kLargestJournal = int64_t{64} << 20;
constexpr int64_t kJournalVersion = 2;  // 1: spools had no hashes

// What an import makes in its folder; the mark comes first and goes last.
constexpr const char* kMark = "lockstep-import";
constexpr const char* kSpools[] = {"tokens", "targets",        "record_ends", "label_names",
                                   "labels", "sample_weights", "images",      "masks"};
constexpr const char* kOtherFiles[] = {"journal", "journal.next", "dataset.h5", "dataset.h5.replaced"};

bool is_spool(const std::string& name) {
  return std::find(std::begin(kSpools), std::end(kSpools), name) != std::end(kSpools);
}
bool is_ours(const std::string& name) {
  return name == kMark || is_spool(name) ||
         std::find(std::begin(kOtherFiles), std::end(kOtherFiles), name) != std::end(kOtherFiles);
}

bool is_plain_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path, ignored));
}

// The journal is a JSON object on a line, and the hash of that line. Nothing where it is another file.
std::optional<std::string> journal_line(const std::string& path) {
  const std::string text = InputFile(path).text(kLargestJournal);
  const size_t end = text.find('\n');
  std::string line = text.substr(0, end);
  if (end == text.npos || text.substr(end + 1) != to_hex(hash128(line)) + "\n") return {};
  return line;
}

// The folders of earlier versions have no mark; a journal tells them.
bool has_journal(const std::string& path) {
  try {
    return is_plain_file(path) && journal_line(path);
  } catch (const Error&) {
    return false;
  }
}

// The first line of `there` that `here` does not have at its place.
std::string first_other_line(const std::string& there, const std::string& here) {
  for (size_t at = 0, end; at < there.size(); at = end + 1) {
    end = std::min(there.find('\n', at), there.size());
    if (here.compare(at, end + 1 - at, there, at, end + 1 - at) != 0) return there.substr(at, end - at);
  }
  return "fewer inputs";
}

}  // namespace

PartialOutput::PartialOutput(const std::string& output, bool replace, std::string made_of)
    : output_(output), folder_(output + ".partial"), made_of_(std::move(made_of)) {
  PendingFile::check_place(output, replace);
  take_folder();
  require_ours();
  if (const Descriptor mark = create_new(in_folder(kMark)); !mark)
    require_done(errno == EEXIST, ExitCode::kStorage, in_folder(kMark), ": cannot be made");
  is_found_ = saved_ = read_journal();
  if (!is_found_) empty();
  // What an earlier process wrote of the dataset itself is of no use.
  ::unlink(in_folder("dataset.h5").c_str());
  pending_ = std::make_unique<PendingFile>(output, replace, in_folder("dataset.h5"));
}

PartialOutput::~PartialOutput() {
  if (refused_) return;
  if (saved_) {
    log_warning(
        str(folder_, ": holds the unfinished output; give the same command again to continue, or remove the folder"));
    return;
  }
  empty();
  ::unlink(in_folder(kMark).c_str());
  if (::rmdir(folder_.c_str()) != 0)
    log_warning(str(folder_, ": stays, since it holds what is no part of the import, or cannot be removed"));
}

// Makes the folder, or takes the one that is there, and locks it. Another process may remove its own one meanwhile.
void PartialOutput::take_folder() {
  for (;;) {
    const bool made = ::mkdir(folder_.c_str(), 0700) == 0;
    const int error = made ? 0 : errno;
    require(made || error == EEXIST, is_storage_error(error) ? ExitCode::kStorage : ExitCode::kOutputLocked, output_,
            ": nothing can be written beside it: ", std::strerror(error));
    lock_ = Descriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!lock_ && errno == ENOENT) continue;
    struct stat about {
    }, named{};
    const int problem = lock_ ? 0 : errno;
    require(problem == 0, ExitCode::kOutputLocked, folder_, ": cannot be opened as a folder: ", std::strerror(problem),
            "; the output is made in a folder of this name: move it elsewhere");
    require(::fstat(lock_.number(), &about) == 0 && about.st_uid == ::geteuid(), ExitCode::kOutputLocked, folder_,
            ": belongs to another user, and the output is made in a folder of this name; choose another output");
    require(::flock(lock_.number(), LOCK_EX | LOCK_NB) == 0, ExitCode::kOutputLocked, output_,
            ": another process is making it, in ", folder_);
    if (::lstat(folder_.c_str(), &named) == 0 && named.st_ino == about.st_ino && named.st_dev == about.st_dev) return;
  }
}

void PartialOutput::require_ours() const {
  std::error_code error;
  std::string other;
  bool any = false;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    any = true;
    const std::string name = at->path().filename().string();
    if (!is_ours(name) || !is_plain_file(at->path().string())) other = name;
  }
  require(!error, ExitCode::kOutputLocked, folder_, ": cannot be read: ", error.message());
  const bool marked = !any || is_plain_file(in_folder(kMark)) || has_journal(in_folder("journal"));
  require(
      marked && other.empty(), ExitCode::kOutputLocked, folder_, ": ",
      other.empty() ? std::string("no import has made it") : str("holds ", escaped(other), ", which no import makes"),
      ", but the output is made in a folder of this name; move it elsewhere, or choose another output");
}

void PartialOutput::empty() {
  spools_.clear();
  for (const char* name : kOtherFiles) ::unlink(in_folder(name).c_str());
  for (const char* name : kSpools) ::unlink(in_folder(name).c_str());
}

bool PartialOutput::read_journal() {
  const auto anew = [&](const std::string& why) {
    log_warning(str(folder_, ": ", why, "; the import begins anew"));
    return false;
  };
  const std::string path = in_folder("journal");
  if (!is_plain_file(path)) {
    for (const char* name : kSpools)
      if (is_plain_file(in_folder(name))) return anew("is left of an import that cannot be continued");
    return false;
  }
  try {
    const auto line = journal_line(path);
    if (!line) return anew("its journal is damaged");
    const auto journal = parse_json_object(*line);
    if (!journal || integer_of(*journal, "version") != kJournalVersion)
      return anew("its journal is that of another version of lockstep");
    const std::string there = text_of(*journal, "made_of");
    if (there != made_of_)
      return anew(str("is left of an import of other inputs or with other options (\"",
                      first_other_line(there, made_of_), "\")"));
    const auto spools = parse_json_object(json_text(*journal, "spools", path));
    const auto state = parse_json_object(json_text(*journal, "state", path));
    if (!spools || !state) return anew("its journal is damaged");
    for (const auto& [name, value] : *spools) {
      const auto* text = std::get_if<JsonText>(&value);
      const auto about = text ? parse_json_object(text->text) : std::nullopt;
      const int64_t size = about ? integer_of(*about, "size", -1) : -1;
      if (!is_spool(name) || size < 0) return anew("its journal is damaged");
      std::error_code ignored;
      const std::string file = in_folder(name);
      if (!is_plain_file(file) || fs::file_size(file, ignored) < static_cast<uintmax_t>(size))
        return anew(str(name, " is shorter than its journal says"));
      spools_[name] = std::make_unique<Spool>(file, size, text_of(*about, "hashes"));
    }
    state_ = *state;
  } catch (const Error& e) {
    return anew(e.what());
  }
  log_info(str(folder_, ": the import goes on with what was done before"));
  return true;
}

int64_t PartialOutput::found_integer(const JsonObject& state, const std::string& key, int64_t least, int64_t most) {
  const JsonValue* value = find_member(state, key);
  const auto* number = value ? std::get_if<int64_t>(value) : nullptr;
  if (!number || *number < least || *number > most)
    refuse_found(str("says \"", key, "\": ", value ? json_text_of(*value).substr(0, 40) : "nothing",
                     ", which is no number from ", least, " to ", most));
  return *number;
}

void PartialOutput::refuse_found(const std::string& why) {
  refused_ = true;
  throw Error(ExitCode::kBadData,
              str(in_folder("journal"), ": ", why, ": it is damaged; remove the folder, and the import begins anew"));
}

Spool& PartialOutput::spool(const std::string& name) {
  check(is_spool(name), name, " is missing from kSpools");
  auto& out = spools_[name];
  if (!out) out = std::make_unique<Spool>(in_folder(name));
  return *out;
}

void PartialOutput::save(const JsonObject& state) {
  if (made_of_.empty()) return;
  JsonObject spools;
  for (auto& [name, spool] : spools_) {
    spool->sync();
    spools.emplace_back(name, JsonText{json_line({{"size", spool->size()}, {"hashes", spool->hashes()}})});
  }
  const std::string line = json_line({{"version", kJournalVersion},
                                      {"made_of", made_of_},
                                      {"spools", JsonText{json_line(spools)}},
                                      {"state", JsonText{json_line(state)}}});
  const std::string path = in_folder("journal"), next = path + ".next";
  ::unlink(next.c_str());
  {
    const Descriptor file = create_new(next);
    require_done(file && write_all(file, line + "\n" + to_hex(hash128(line)) + "\n"), ExitCode::kStorage, next,
                 ": cannot be written");
  }
  sync_file(next);
  require_done(::rename(next.c_str(), path.c_str()) == 0, ExitCode::kStorage, path, ": cannot be replaced");
  sync_folder_of(path);
  saved_ = true;
}

const std::string& PartialOutput::dataset() const { return pending_->temporary(); }

void PartialOutput::commit_all(const std::vector<PartialOutput*>& outputs) {
  std::vector<PendingFile*> files;
  for (PartialOutput* o : outputs) files.push_back(o->pending_.get());
  PendingFile::commit_all(files);
  for (PartialOutput* o : outputs) o->saved_ = false;  // the folder is of no use any more
}

std::vector<uint64_t> copy_rows(Hdf5File& file, const std::string& name, StoredType type, const Shape& shape,
                                int64_t chunk_rows, Spool& spool, const ProgressCallback& progress) {
  spool.flush();
  ChunkWriter writer(file, name, type, shape, chunk_rows);
  const int64_t row_bytes = shape.numel() / std::max<int64_t>(1, shape[0]) * size_of(type);
  const int64_t total = shape[0] * row_bytes, step = std::max<int64_t>(1, kCopiedAtOnce / row_bytes);
  check(spool.size() == total, name, ": ", spool.size(), " bytes for ", shape);
  SpoolReader reader(spool);
  std::vector<uint8_t> bytes;
  for (int64_t at = 0; at < shape[0]; at += step) {
    const int64_t rows = std::min(step, shape[0] - at);
    bytes.resize(static_cast<size_t>(rows * row_bytes));
    reader.next(bytes.data(), bytes.size());
    writer.append(bytes.data(), rows);
    if (progress) progress((at + rows) * row_bytes, total);
  }
  reader.finish();
  return writer.finish();
}

std::string described_input(const std::string& path) {
  struct stat about {};
  require_done(::stat(path.c_str(), &about) == 0, ExitCode::kMissingInput, path);
  return str("input ", path, ", ", int64_t{about.st_size}, " bytes, changed at ", int64_t{about.st_mtim.tv_sec}, ".",
             int64_t{about.st_mtim.tv_nsec}, "\n");
}

}  // namespace lockstep
