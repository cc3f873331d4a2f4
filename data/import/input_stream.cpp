#include "data/import/input_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/system_call.h"

namespace lockstep {
namespace {

constexpr size_t kStoredBytes = 256 << 10;
// Text and tables rarely expand to more than 20 times their size; gzip cannot beyond 1032 times, Zstandard has no
// bound.
constexpr int64_t kMostExpansion = 500, kAlwaysAllowed = int64_t{64} << 20;

bool begins_with(const uint8_t* bytes, size_t size, std::initializer_list<uint8_t> magic) {
  return size >= magic.size() && std::equal(magic.begin(), magic.end(), bytes);
}

}  // namespace

InputStream::InputStream(const std::string& path, const std::string& name)
    : name_(!name.empty() ? name
            : path == "-" ? "standard input"
                          : path) {
  if (path == "-") {
    descriptor_ = Descriptor(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
    require_done(bool{descriptor_}, ExitCode::kMissingInput, name_);
    struct stat about {};
    if (::fstat(descriptor_.number(), &about) == 0 && S_ISREG(about.st_mode)) size_ = about.st_size;
  } else {
    InputFile file(path);
    size_ = file.size;
    descriptor_ = std::move(file.descriptor);
  }
  stored_.resize(kStoredBytes);
  while (end_ < 4) {
    const size_t before = end_;
    if (fill() == before) break;
  }
  if (begins_with(stored_.data(), end_, {0x1F, 0x8B})) {
    decoder_ = gzip_decoder();
    format_ = "gzip";
  } else if (begins_with(stored_.data(), end_, {0x28, 0xB5, 0x2F, 0xFD})) {
    decoder_ = zstd_decoder();
    format_ = "Zstandard";
    require(decoder_ != nullptr, ExitCode::kBadData, name_,
            ": is compressed by Zstandard, which this build does not read (package libzstd-dev); decompress it first, "
            "as in `zstd -dc FILE.zst | lockstep data import ... - OUTPUT.h5`");
  }
}

InputStream::~InputStream() = default;

size_t InputStream::fill() {
  if (begin_ == end_) begin_ = end_ = 0;
  ssize_t got;
  do got = ::read(descriptor_.number(), stored_.data() + end_, stored_.size() - end_);
  while (got < 0 && errno == EINTR);
  require_done(got >= 0, ExitCode::kBadData, name_, ": cannot be read");
  end_ += static_cast<size_t>(got);
  return end_;
}

size_t InputStream::read(void* to, size_t room) {
  const size_t got = next(static_cast<uint8_t*>(to), room);
  hasher_.update(to, got);
  return got;
}

size_t InputStream::next(uint8_t* out, size_t room) {
  while (room > 0) {
    if (begin_ == end_ && fill() == 0) {
      require(!decoder_ || between_, ExitCode::kBadData, name_, ": ", format_, " data is truncated: it ends after ",
              taken_, " bytes; fetch the file again");
      return 0;
    }
    const uint8_t* from = stored_.data() + begin_;
    if (!decoder_) {
      const size_t count = std::min(room, end_ - begin_);
      std::memcpy(out, from, count);
      begin_ += count;
      taken_ += static_cast<int64_t>(count);
      return count;
    }
    Decompressor::Step step;
    try {
      step = decoder_->run(from, end_ - begin_, out, room);
    } catch (const Error& e) {
      throw e.with_message(str(name_, ": ", format_, " data is damaged after ", taken_, " bytes (", e.what(),
                               "); fetch the file again"));
    }
    require(step.taken + step.made > 0, ExitCode::kBadData, name_, ": ", format_, " data cannot be decoded at byte ",
            taken_);
    begin_ += step.taken;
    taken_ += static_cast<int64_t>(step.taken);
    made_ += static_cast<int64_t>(step.made);
    between_ = step.ended;
    require(made_ <= kAlwaysAllowed || made_ / kMostExpansion <= taken_, ExitCode::kBadData, name_, ": its ", format_,
            " data expands to more than ", kMostExpansion,
            " times its size, as decompression bombs do; decompress it "
            "yourself if that is meant");
    if (step.made > 0) return step.made;
  }
  return 0;
}

void InputStream::skip(int64_t bytes) {
  if (bytes == 0) return;
  if (!decoder_ && size_ > 0 && bytes <= size_ - taken_ &&
      ::lseek(descriptor_.number(), taken_ + bytes, SEEK_SET) >= 0) {
    taken_ += bytes;
    begin_ = end_ = 0;
    return;
  }
  std::vector<uint8_t> dropped(kStoredBytes);
  while (bytes > 0) {
    const size_t got = read(dropped.data(), static_cast<size_t>(std::min<int64_t>(bytes, kStoredBytes)));
    require(got > 0, ExitCode::kBadData, name_, ": ends before the place where its import is to go on");
    bytes -= static_cast<int64_t>(got);
  }
}

}  // namespace lockstep
