#include "data/store/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/base/system_call.h"

namespace lockstep {
namespace {

constexpr size_t kSpoolBlock = 1 << 20;
constexpr size_t kHashDigits = 32;

Descriptor open_spool(const std::string& path) {
  return Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
}

}  // namespace

void ChunkHashes::add(const void* bytes, size_t count) {
  for (const auto* at = static_cast<const char*>(bytes); count > 0;) {
    if (!last_) last_ = std::make_unique<Hasher128>();
    const size_t now = std::min(count, kChunk - filled_);
    last_->update(at, now);
    at += now, count -= now, filled_ += now;
    if (filled_ < kChunk) continue;
    whole_ += to_hex(last_->digest());
    last_.reset();
    filled_ = 0;
  }
}

std::string ChunkHashes::text() const { return last_ ? whole_ + to_hex(last_->digest()) : whole_; }

int64_t first_difference(const std::string& hashes, const std::string& others) {
  const auto end = std::mismatch(hashes.begin(), hashes.end(), others.begin(), others.end()).first;
  if (end == hashes.end() && hashes.size() == others.size()) return -1;
  return (end - hashes.begin()) / static_cast<int64_t>(kHashDigits) * static_cast<int64_t>(ChunkHashes::kChunk);
}

Spool::Spool(std::string path) : Spool(path, 0, "") {}

Spool::Spool(std::string path, int64_t size, const std::string& hashes)
    : path_(std::move(path)), file_(open_spool(path_)), size_(size) {
  require_done(file_ && ::ftruncate(file_.number(), size) == 0, ExitCode::kStorage, path_, ": cannot be made");
  std::vector<char> block(kSpoolBlock);
  for (int64_t at = 0; at < size; at += static_cast<int64_t>(block.size())) {
    block.resize(static_cast<size_t>(std::min<int64_t>(size - at, kSpoolBlock)));
    read(at, block.data(), block.size());
    hashes_.add(block.data(), block.size());
  }
  const int64_t damage = first_difference(hashes_.text(), hashes);
  require(damage < 0, ExitCode::kBadData, path_, ": its bytes from ", damage, " on are not those that were saved");
}

Spool Spool::unnamed(const std::string& beside) {
  std::string folder = std::filesystem::path(beside).parent_path().string();
  if (folder.empty()) folder = ".";
  Descriptor file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600));
  const std::string name = temporary_name(beside, "spool");
  if (file) return {name, std::move(file)};
  Spool out(name);  // some file systems have no files without names
  ::unlink(name.c_str());
  return out;
}

void Spool::append(const void* bytes, size_t count) {
  pending_.append(static_cast<const char*>(bytes), count);
  if (pending_.size() >= kSpoolBlock) flush();
}

void Spool::flush() {
  require_done(write_all(file_, pending_), ExitCode::kStorage, path_, ": cannot be written");
  hashes_.add(pending_.data(), pending_.size());
  size_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
}

void Spool::sync() {
  flush();
  require_done(::fdatasync(file_.number()) == 0 || errno == EINVAL, ExitCode::kStorage, path_, ": not flushed to disk");
}

void Spool::read(int64_t offset, void* to, size_t count) const {
  char* out = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(file_.number(), out, count, offset);
    if (got < 0 && errno == EINTR) continue;
    require_done(got >= 0, ExitCode::kStorage, path_, ": cannot be read back");
    require(got > 0, ExitCode::kStorage, path_, ": cannot be read back: it is shorter than what was written");
    out += got;
    offset += got;
    count -= static_cast<size_t>(got);
  }
}

void SpoolReader::next(void* to, size_t count) {
  spool_.read(at_, to, count);
  hashes_.add(to, count);
  at_ += static_cast<int64_t>(count);
}

void SpoolReader::finish() const {
  check(at_ == spool_.size(), spool_.path(), ": ", at_, " of ", spool_.size(), " bytes were read");
  const int64_t damage = first_difference(hashes_.text(), spool_.hashes());
  require(damage < 0, ExitCode::kBadData, spool_.path(), ": its bytes from ", damage,
          " on are not those that were written: the disk is damaged, or another program has changed them; give the "
          "same command again, which does that part anew");
}

}  // namespace lockstep
