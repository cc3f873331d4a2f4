#include "core/io/file_seal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/base/hash.h"
#include "core/base/system_call.h"

namespace lockstep {
namespace {

constexpr uint64_t kVersion = 1;
constexpr size_t kMostRanges = 253;
constexpr int64_t kReadBytes = 256 << 10;  // bytes read at a time

// The block as it lies in the file, little-endian.
struct Block {
  std::array<char, 8> magic = {'l', 'o', 'c', 'k', 's', 't', 'e', 'p'};
  uint32_t version = kVersion, count = 0;  // of ranges
  Hash128 hash;                            // of this block with zeros here, then of all bytes in no range
  int64_t file_bytes = 0;
  uint64_t zero = 0;
  std::array<IndexRange, kMostRanges> ranges = {};  // sorted, apart from each other
};
static_assert(sizeof(Block) == kSealBytes && std::endian::native == std::endian::little);

Hash128 hash_of(const InputFile& file, Block block) {
  block.hash = {};
  Hasher128 hasher;
  hasher.update(&block, sizeof block);
  std::vector<char> piece(static_cast<size_t>(kReadBytes));
  int64_t at = kSealBytes;
  for (size_t i = 0; i <= block.count; ++i) {
    const int64_t end = i < block.count ? block.ranges[i].begin : block.file_bytes;
    for (int64_t n = 0; at < end; at += n) {
      n = std::min(kReadBytes, end - at);
      file.read(at, piece.data(), n);
      hasher.update(piece.data(), static_cast<size_t>(n));
    }
    if (i < block.count) at = block.ranges[i].end;
  }
  return hasher.digest();
}

bool write_block(const std::string& path, const Block& block) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  return file && write_all(file, {reinterpret_cast<const char*>(&block), sizeof block});
}

constexpr std::string_view kHdf5 = "\x89HDF\r\n\x1a\n";

// Whether HDF5 begins behind a block of another program's, as in files of MATLAB: where the library looks for it, at
// 512 bytes and at each double of that. Behind kSealBytes it is a file of ours, whose seal is damaged.
bool has_other_block(const InputFile& file) {
  std::array<char, kHdf5.size()> begin;
  for (int64_t at = 512; at <= file.size - static_cast<int64_t>(begin.size()); at *= 2) {
    file.read(at, begin.data(), static_cast<int64_t>(begin.size()));
    if (std::string_view(begin.data(), begin.size()) == kHdf5) return at != kSealBytes;
  }
  return false;
}

}  // namespace

void seal_file(const std::string& path, std::vector<IndexRange> chunks) {
  std::sort(chunks.begin(), chunks.end(), [](const IndexRange& a, const IndexRange& b) { return a.begin < b.begin; });
  std::vector<IndexRange> joined;
  for (const IndexRange& r : chunks) {
    if (!joined.empty() && r.begin <= joined.back().end) joined.back().end = std::max(joined.back().end, r.end);
    else joined.push_back(r);
  }
  // The largest ones: to hash a small chunk as well costs little.
  if (joined.size() > kMostRanges) {
    const auto last = joined.begin() + kMostRanges;
    std::nth_element(joined.begin(), last, joined.end(),
                     [](const IndexRange& a, const IndexRange& b) { return a.size() > b.size(); });
    joined.erase(last, joined.end());
    std::sort(joined.begin(), joined.end(), [](const IndexRange& a, const IndexRange& b) { return a.begin < b.begin; });
  }
  Block block;
  check(joined.empty() || joined[0].begin >= kSealBytes, path, ": a chunk lies in the seal's block");
  block.count = static_cast<uint32_t>(joined.size());
  std::copy(joined.begin(), joined.end(), block.ranges.begin());
  try {
    const InputFile file(path);
    block.file_bytes = file.size;
    block.hash = hash_of(file, block);
  } catch (const Error& e) {
    throw Error(ExitCode::kStorage, str(path, ": cannot be read back after it was written: ", e.what()));
  }
  require_done(write_block(path, block), ExitCode::kStorage, path, ": its hash cannot be written");
}

bool check_seal(const InputFile& file) {
  Block block;
  const auto magic = block.magic;
  file.read(0, &block, std::min(file.size, kSealBytes));
  const std::string_view begin(block.magic.data(), block.magic.size());
  if (file.size >= 8 &&
      (begin == kHdf5 || (begin != std::string_view(magic.data(), magic.size()) && has_other_block(file))))
    return false;
  require(file.size >= 8 && block.magic == magic, ExitCode::kBadData, file.path, ": is not an HDF5 file");
  require(file.size >= kSealBytes, ExitCode::kBadData, file.path, ": is truncated to ", file.size, " bytes");
  require(block.version == kVersion, ExitCode::kBadData, file.path, ": has a seal of version ", block.version,
          "; this program knows version ", kVersion, ": the file is damaged, or a newer program wrote it");
  require(file.size >= block.file_bytes, ExitCode::kBadData, file.path, ": is truncated: it has ", file.size, " of ",
          block.file_bytes, " bytes; restore the file or make it again");
  int64_t at = kSealBytes;
  bool good = file.size == block.file_bytes && block.count <= kMostRanges && block.zero == 0;
  for (size_t i = 0; good && i < block.count; ++i) {
    const IndexRange r = block.ranges[i];
    good = at <= r.begin && r.begin < r.end && r.end <= block.file_bytes;
    at = r.end;
  }
  require(
      good && hash_of(file, block) == block.hash, ExitCode::kBadData, file.path,
      ": differs from its own hash: bytes outside its values changed after it was written; restore the file or make "
      "it again");
  return true;
}

}  // namespace lockstep
