#include "data/import/tar_members.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/plain_file.h"

namespace lockstep {
namespace {

constexpr int64_t kTarBlock = 512;
constexpr size_t kTarBytesAtOnce = 32 << 10;  // what lies between two headers is passed over, not read

// What libarchive reads. Its functions are called from C, and so keep an exception until list() rethrows it.
class TarFeed {
 public:
  explicit TarFeed(const TarPlace& place) : place_(place), file_(place.path), block_(kTarBytesAtOnce) {}

  static la_ssize_t next(archive*, void* self, const void** bytes) { return static_cast<TarFeed*>(self)->give(bytes); }
  static la_int64_t pass_over(archive*, void* self, la_int64_t wanted) {
    auto& feed = *static_cast<TarFeed*>(self);
    const int64_t count = std::clamp<int64_t>(wanted, 0, feed.place_.size - feed.at_);
    feed.at_ += count;
    return count;
  }
  bool has_ended() const { return ended_; }  // libarchive asked for more than there is
  void rethrow() const {
    if (failed_) std::rethrow_exception(failed_);
  }
  // Throws where the archive's bytes from here on are not all zero.
  void require_zeros_from(int64_t at) {
    for (int64_t count; at < place_.size; at += count) {
      count = std::min<int64_t>(kTarBytesAtOnce, place_.size - at);
      file_.read(place_.begin + at, block_.data(), count);
      const auto end = block_.begin() + count;
      const auto other = std::find_if(block_.begin(), end, [](char c) { return c != 0; });
      require(other == end, ExitCode::kBadData, place_.name, ": has data after its end-of-archive marker, from byte ",
              at + (other - block_.begin()), " on; where several archives were joined, give each as a file of its own");
    }
  }

 private:
  la_ssize_t give(const void** bytes) {
    const int64_t count = std::min<int64_t>(kTarBytesAtOnce, place_.size - at_);
    ended_ = ended_ || count == 0;
    try {
      file_.read(place_.begin + at_, block_.data(), count);
    } catch (...) {
      failed_ = std::current_exception();
      return ARCHIVE_FATAL;
    }
    at_ += count;
    *bytes = block_.data();
    return count;
  }

  const TarPlace& place_;
  InputFile file_;
  std::vector<char> block_;
  int64_t at_ = 0;
  bool ended_ = false;
  std::exception_ptr failed_;
};

class TarList {
 public:
  explicit TarList(const TarPlace& place) : place_(place), feed_(place), archive_(::archive_read_new()) {
    check(archive_ != nullptr, "no memory for an archive");
    ::archive_read_support_format_tar(archive_.get());
    ::archive_read_set_skip_callback(archive_.get(), TarFeed::pass_over);
    const int opened = ::archive_read_open(archive_.get(), &feed_, nullptr, TarFeed::next, nullptr);
    feed_.rethrow();
    require(opened == ARCHIVE_OK, ExitCode::kBadData, place_.name, ": is no tar archive: ", why());
  }

  void run(const std::function<void(const TarMember&)>& found) {
    archive_entry* entry = nullptr;
    while (next(entry)) {
      const TarMember member = described(entry);
      if (::archive_entry_filetype(entry) == AE_IFREG) found(member);
      last_ = member.name;
    }
  }

 private:
  struct Free {
    void operator()(archive* a) const { ::archive_read_free(a); }
  };

  // The next header; false behind the last one.
  bool next(archive_entry*& entry) {
    const int result = ::archive_read_next_header(archive_.get(), &entry);
    feed_.rethrow();
    const std::string behind = last_.empty() ? "" : str(" behind the member '", last_, "'");
    const int64_t at = ::archive_filter_bytes(archive_.get(), 0);
    if (result == ARCHIVE_EOF) {
      require(!feed_.has_ended(), ExitCode::kBadData, place_.name, ": is truncated: it ends at byte ", place_.size,
              behind, " without the mark of a tar archive's end; fetch it again");
      feed_.require_zeros_from(at / kTarBlock * kTarBlock);
      return false;
    }
    // Names stay the bytes that they are; libarchive says that it could not make the locale's characters of them.
    const bool name_alone = result == ARCHIVE_WARN && why().find("converted") != std::string::npos;
    if (result == ARCHIVE_OK || name_alone) return true;
    throw Error(ExitCode::kBadData, str(place_.name, ": is damaged or truncated at byte ", at, behind, ": ", why()));
  }

  // Refuses what is neither a file nor a folder.
  TarMember described(archive_entry* entry) const {
    const char* name = ::archive_entry_pathname(entry);
    const int64_t header = ::archive_read_header_position(archive_.get());
    require(name != nullptr && *name != 0, ExitCode::kBadData, place_.name, ": the member at byte ", header,
            " has no name");
    const auto type = ::archive_entry_filetype(entry);
    const bool link = ::archive_entry_hardlink(entry) != nullptr || type == AE_IFLNK;
    require(!link && (type == AE_IFREG || type == AE_IFDIR), ExitCode::kBadData, place_.name, ": the member '", name,
            "' at byte ", header, " is a ", link ? "link" : "device or the like",
            ", not a file with bytes of its own (`tar --dereference --hard-dereference` stores the files)");
    require(::archive_entry_sparse_count(entry) == 0, ExitCode::kBadData, place_.name, ": the member '", name,
            "' at byte ", header, " is stored as a sparse file; make the archive without --sparse");
    TarMember out{name, place_.begin + ::archive_filter_bytes(archive_.get(), 0), ::archive_entry_size(entry)};
    require(out.size >= 0 && out.begin - place_.begin <= place_.size - out.size, ExitCode::kBadData, place_.name,
            ": is truncated: the member '", name, "' at byte ", header, " has ", out.size, " bytes, but the archive ",
            "ends at byte ", place_.size, "; fetch it again");
    return out;
  }

  std::string why() const {
    const char* text = ::archive_error_string(archive_.get());
    return text ? text : "for no stated reason";
  }

  const TarPlace& place_;
  TarFeed feed_;
  std::unique_ptr<archive, Free> archive_;
  std::string last_;  // the member before
};

}  // namespace

void list_tar(const TarPlace& archive, const std::function<void(const TarMember&)>& found) {
  TarList(archive).run(found);
}

}  // namespace lockstep
