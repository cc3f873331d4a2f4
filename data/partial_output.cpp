#include "data/partial_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "data/dataset_file.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr size_t kSpoolBlock = 1 << 20;
constexpr int64_t kCopiedAtOnce = 1 << 20;
constexpr int64_t kLargestJournal = int64_t{64} << 20;
constexpr int64_t kJournalVersion = 1;

// The first line of `there` that `here` does not have at its place.
std::string first_other_line(const std::string& there, const std::string& here) {
  for (size_t at = 0, end; at < there.size(); at = end + 1) {
    end = std::min(there.find('\n', at), there.size());
    if (here.compare(at, end + 1 - at, there, at, end + 1 - at) != 0) return there.substr(at, end - at);
  }
  return "fewer inputs";
}

}  // namespace

Spool::Spool(std::string path, int64_t size) : path_(std::move(path)), size_(size) {
  file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  require(file_ && ::ftruncate(file_.number(), size) == 0, ExitCode::kStorage, path_,
          ": cannot be made: ", std::strerror(errno));
}

Spool Spool::unnamed(const std::string& beside) {
  Spool out(temporary_name(beside, "spool"), 0);
  ::unlink(out.path_.c_str());
  return out;
}

void Spool::append(const void* bytes, size_t count) {
  pending_.append(static_cast<const char*>(bytes), count);
  if (pending_.size() >= kSpoolBlock) flush();
}

void Spool::flush() {
  require(write_all(file_, pending_), ExitCode::kStorage, path_, ": cannot be written: ", std::strerror(errno));
  size_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
}

void Spool::sync() {
  flush();
  require(::fdatasync(file_.number()) == 0 || errno == EINVAL, ExitCode::kStorage, path_,
          ": not flushed to disk: ", std::strerror(errno));
}

void Spool::read(int64_t offset, void* to, size_t count) const {
  char* out = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(file_.number(), out, count, offset);
    if (got < 0 && errno == EINTR) continue;
    require(got > 0, ExitCode::kStorage, path_,
            ": cannot be read back: ", got < 0 ? std::strerror(errno) : "it is shorter than what was written");
    out += got;
    offset += got;
    count -= static_cast<size_t>(got);
  }
}

PartialOutput::PartialOutput(const std::string& output, bool replace, std::string made_of)
    : output_(output), folder_(output + ".partial"), made_of_(std::move(made_of)) {
  PendingFile::check_place(output, replace);
  const bool made = ::mkdir(folder_.c_str(), 0700) == 0;
  const int error = errno;
  require(made || error == EEXIST,
          error == ENOSPC || error == EDQUOT || error == EIO ? ExitCode::kStorage : ExitCode::kOutputLocked, output,
          ": nothing can be written beside it: ", std::strerror(error));
  lock_ = Descriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  require(lock_ && ::fstat(lock_.number(), &about) == 0 && about.st_uid == ::geteuid(), ExitCode::kOutputLocked,
          folder_, ": is no folder of yours, and the output is made in it; remove it");
  require(::flock(lock_.number(), LOCK_EX | LOCK_NB) == 0, ExitCode::kOutputLocked, output,
          ": another process is making it, in ", folder_);
  if (!made) is_found_ = saved_ = read_journal();
  if (!is_found_) empty();
  // What an earlier process wrote of the dataset itself is of no use.
  std::error_code ignored;
  fs::remove(folder_ + "/dataset.h5", ignored);
  pending_ = std::make_unique<PendingFile>(output, replace, folder_ + "/dataset.h5");
}

PartialOutput::~PartialOutput() {
  if (saved_) log_warning(cat(folder_, ": holds what was done; the same command goes on with it. Or remove it"));
  else empty(), ::rmdir(folder_.c_str());
}

void PartialOutput::empty() {
  spools_.clear();
  std::error_code ignored;
  for (fs::directory_iterator at(folder_, ignored), end; at != end; at.increment(ignored)) {
    if (ignored) return;
    fs::remove_all(at->path(), ignored);
  }
}

// The journal is a JSON object on a line, and the hash of that line.
bool PartialOutput::read_journal() {
  const auto anew = [&](const std::string& why) {
    log_warning(cat(folder_, ": ", why, "; the import begins anew"));
    return false;
  };
  const std::string path = folder_ + "/journal";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return anew("is left of an import that cannot be continued");
  std::string text;
  try {
    text = InputFile(path).text(kLargestJournal);
  } catch (const Error& e) {
    return anew(e.what());
  }
  const size_t end = text.find('\n');
  const std::string line = text.substr(0, end);
  if (end == text.npos || text.substr(end + 1) != to_hex(hash128(line)) + "\n") return anew("its journal is damaged");
  const auto journal = parse_json_object(line);
  if (!journal || integer_of(*journal, "version") != kJournalVersion)
    return anew("its journal is that of another version of lockstep");
  const std::string there = text_of(*journal, "made_of");
  if (there != made_of_)
    return anew(cat("is left of an import of other inputs or with other options (\"", first_other_line(there, made_of_),
                    "\")"));
  const auto sizes = parse_json_object(json_text(*journal, "sizes", path));
  const auto state = parse_json_object(json_text(*journal, "state", path));
  if (!sizes || !state) return anew("its journal is damaged");
  std::map<std::string, int64_t> found;
  for (const auto& [name, value] : *sizes) {
    const auto* size = std::get_if<int64_t>(&value);
    const std::string file = folder_ + "/" + name;
    if (!size || fs::is_symlink(file, ignored) || static_cast<int64_t>(fs::file_size(file, ignored)) < *size || ignored)
      return anew(cat(name, " is shorter than its journal says"));
    found[name] = *size;
  }
  sizes_ = std::move(found);
  state_ = *state;
  log_info(cat(folder_, ": the import goes on with what was done before"));
  return true;
}

Spool& PartialOutput::spool(const std::string& name) {
  auto& out = spools_[name];
  const auto size = sizes_.find(name);
  if (!out) out = std::make_unique<Spool>(folder_ + "/" + name, size == sizes_.end() ? 0 : size->second);
  return *out;
}

void PartialOutput::save(const JsonObject& state) {
  if (made_of_.empty()) return;
  JsonObject sizes;
  for (auto& [name, spool] : spools_) {
    spool->sync();
    sizes.emplace_back(name, spool->size());
  }
  const std::string line = json_line({{"version", kJournalVersion},
                                      {"made_of", made_of_},
                                      {"sizes", JsonText{json_line(sizes)}},
                                      {"state", JsonText{json_line(state)}}});
  const std::string path = folder_ + "/journal", next = path + ".next";
  ::unlink(next.c_str());
  {
    const Descriptor file = create_new(next);
    require(file && write_all(file, line + "\n" + to_hex(hash128(line)) + "\n"), ExitCode::kStorage, next,
            ": cannot be written: ", std::strerror(errno));
  }
  sync_file(next);
  require(::rename(next.c_str(), path.c_str()) == 0, ExitCode::kStorage, path,
          ": cannot be replaced: ", std::strerror(errno));
  sync_folder_of(path);
  saved_ = true;
}

const std::string& PartialOutput::dataset() const { return pending_->temporary(); }

void PartialOutput::commit() {
  pending_->commit();
  saved_ = false;  // the folder is of no use any more
}

std::vector<uint64_t> copy_rows(Hdf5File& file, const std::string& name, StoredType type, const Shape& shape,
                                int64_t chunk_rows, Spool& spool, const ProgressCallback& progress) {
  spool.flush();
  ChunkWriter writer(file, name, type, shape, chunk_rows);
  const int64_t row_bytes = shape.numel() / std::max<int64_t>(1, shape[0]) * size_of(type);
  const int64_t total = shape[0] * row_bytes, step = std::max<int64_t>(1, kCopiedAtOnce / row_bytes);
  check(spool.size() == total, name, ": ", spool.size(), " bytes for ", shape);
  std::vector<uint8_t> bytes;
  for (int64_t at = 0; at < shape[0]; at += step) {
    const int64_t rows = std::min(step, shape[0] - at);
    bytes.resize(static_cast<size_t>(rows * row_bytes));
    spool.read(at * row_bytes, bytes.data(), bytes.size());
    writer.append(bytes.data(), rows);
    if (progress) progress((at + rows) * row_bytes, total);
  }
  return writer.finish();
}

std::string described_input(const std::string& path) {
  struct stat about {};
  require(::stat(path.c_str(), &about) == 0, ExitCode::kMissingInput, path, ": ", std::strerror(errno));
  return cat("input ", path, ", ", int64_t{about.st_size}, " bytes, changed at ", int64_t{about.st_mtim.tv_sec}, ".",
             int64_t{about.st_mtim.tv_nsec}, "\n");
}

}  // namespace lockstep
