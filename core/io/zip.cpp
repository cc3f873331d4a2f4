#include "core/io/zip.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>

#include "core/base/system_call.h"
#include "core/io/deflate.h"
#include "core/io/pending_file.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int64_t kLongestDirectory = 100'000'000;  // bytes
constexpr int64_t kMostExpansion = 500, kAlwaysAllowed = int64_t{64} << 20;
constexpr uint16_t kStored = 0, kDeflated = 8, kEncrypted = 1, kSizesBehind = 8, kKnownFlags = 0x0806;
constexpr uint16_t kWithZip64 = 45, kZip64 = 1, kFirstOf1980 = 0x21;
constexpr uint32_t kInZip64 = 0xffffffff;  // where a number does not fit

#pragma pack(push, 1)
struct Common {  // of both headers of a member
  uint16_t needed, flags, method, time, date;
  uint32_t crc, stored, bytes;
  uint16_t name, extra;  // their lengths; they follow the header
};
struct LocalHeader {
  static constexpr uint32_t kMagic = 0x04034b50;
  uint32_t magic;
  Common common;
};
struct CentralHeader {
  static constexpr uint32_t kMagic = 0x02014b50;
  uint32_t magic;
  uint16_t made_by;
  Common common;
  uint16_t comment, disk, internal;
  uint32_t external, begin;
};
struct End64 {
  static constexpr uint32_t kMagic = 0x06064b50;
  uint32_t magic;
  uint64_t length;  // from here on
  uint16_t made_by, needed;
  uint32_t disk, directory_disk;
  uint64_t members_here, members, directory_bytes, directory_begin;
};
struct Locator {
  static constexpr uint32_t kMagic = 0x07064b50;
  uint32_t magic, disk;
  uint64_t begin;  // of End64
  uint32_t disks;
};
struct End {
  static constexpr uint32_t kMagic = 0x06054b50;
  uint32_t magic;
  uint16_t disk, directory_disk, members_here, members;
  uint32_t directory_bytes, directory_begin;
  uint16_t comment;
};
struct Extra64 {  // as it is written
  uint16_t id = kZip64, length = 0;
  uint64_t bytes = 0, stored = 0, begin = 0;
};
#pragma pack(pop)

template <class T>
constexpr auto kSize = static_cast<int64_t>(sizeof(T));

// Takes a T off the front of `bytes`, or returns false.
template <class T>
bool take(std::string_view& bytes, T& out) {
  if (bytes.size() < sizeof out) return false;
  std::memcpy(&out, bytes.data(), sizeof out);
  bytes.remove_prefix(sizeof out);
  return true;
}

// Replaces the numbers that do not fit into 32 bits by those of the extra field, in the order that the format gives.
bool widen(std::string_view extra, std::initializer_list<uint64_t*> numbers) {
  while (!extra.empty()) {
    uint16_t id = 0, length = 0;
    if (!take(extra, id) || !take(extra, length) || length > extra.size()) return false;
    std::string_view body = extra.substr(0, length);
    extra.remove_prefix(length);
    if (id != kZip64) continue;
    for (uint64_t* number : numbers)
      if (*number == kInZip64 && !take(body, *number)) return false;
  }
  return true;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || c == '\x7f' || static_cast<uint8_t>(c) < 0x20;
  });
}

struct Directory {
  int64_t begin = 0, bytes = 0, members = 0;
};

Directory find_directory(const InputFile& file) {
  const auto expect = [&](bool holds, std::string_view what) {
    require(holds, ExitCode::kBadData, file.path, ": ", what, ": no zip archive, or a truncated or damaged one");
  };
  End end;
  expect(file.size >= kSize<End>, "is shorter than the end of an archive");
  file.read(file.size - kSize<End>, &end, kSize<End>);
  expect(end.magic == End::kMagic && end.comment == 0, "does not end as an archive without comment does");
  uint64_t begin = end.directory_begin, bytes = end.directory_bytes, members = end.members;
  int64_t tail = file.size - kSize<End>;
  bool one_disk = end.disk == 0 && end.directory_disk == 0 && end.members == end.members_here;
  Locator locator = {};
  if (tail >= kSize<Locator> + kSize<End64>) file.read(tail - kSize<Locator>, &locator, kSize<Locator>);
  if (locator.magic == Locator::kMagic) {
    tail -= kSize<Locator> + kSize<End64>;
    End64 end64;
    file.read(tail, &end64, kSize<End64>);
    expect(end64.magic == End64::kMagic && locator.begin == static_cast<uint64_t>(tail) &&
               end64.length == sizeof end64 - 12,
           "has no ZIP64 end record where its locator points");
    one_disk = end64.disk == 0 && end64.directory_disk == 0 && end64.members == end64.members_here;
    const auto agrees = [](uint64_t small, uint64_t none, uint64_t large) { return small == none || small == large; };
    expect(agrees(end.members, 0xffff, end64.members) && agrees(bytes, kInZip64, end64.directory_bytes) &&
               agrees(begin, kInZip64, end64.directory_begin),
           "has two ends that differ");
    begin = end64.directory_begin, bytes = end64.directory_bytes, members = end64.members;
  }
  const auto room = static_cast<uint64_t>(tail);
  expect(one_disk && begin <= room && bytes == room - begin && members <= bytes / sizeof(CentralHeader),
         "has no directory of its members before its end");
  require(bytes <= static_cast<uint64_t>(kLongestDirectory), ExitCode::kBadData, file.path, ": its directory has ",
          bytes, " bytes, more than ", kLongestDirectory);
  return {static_cast<int64_t>(begin), static_cast<int64_t>(bytes), static_cast<int64_t>(members)};
}

}  // namespace

bool is_zip_file(const std::string& path) {
  const InputFile file(path);
  uint32_t magic = 0;
  if (file.size < kSize<End>) return false;
  file.read(0, &magic, sizeof magic);
  return magic == LocalHeader::kMagic || magic == End::kMagic;
}

struct ZipReader::Inflation {
  explicit Inflation(const ZipMember& m) : member(&m), decoder(deflate_decoder()), stored(256 << 10) {}

  // The next bytes, of which there are that many.
  void next(const InputFile& file, uint8_t* to, int64_t count) {
    while (count > 0) {
      const int64_t got = step(file, to, count);
      to += got;
      count -= got;
    }
    if (made == member->bytes && !ended) {
      uint8_t more = 0;
      while (!ended) require_sound(file, step(file, &more, 1) == 0, "it expands beyond its size");
    }
    if (ended) {
      require_sound(file, made == member->bytes && taken == member->stored, "it does not have its size");
      require_sound(file, crc == member->crc, "its checksum differs");
    }
  }

  int64_t step(const InputFile& file, uint8_t* to, int64_t room) {
    require_sound(file, !ended, "it is shorter than its size");
    if (at == end) {
      at = 0;
      end = static_cast<size_t>(std::min(static_cast<int64_t>(stored.size()), member->stored - taken));
      file.read(member->begin + taken, stored.data(), static_cast<int64_t>(end));
    }
    Decompressor::Step step;
    try {
      step = decoder->run(stored.data() + at, end - at, to, static_cast<size_t>(room));
    } catch (const Error& e) {
      require_sound(file, false, e.what());
    }
    require_sound(file, step.taken + step.made > 0 || step.ended, "it is truncated");
    at += step.taken;
    taken += static_cast<int64_t>(step.taken);
    made += static_cast<int64_t>(step.made);
    crc = crc32(to, step.made, crc);
    ended = step.ended;
    return static_cast<int64_t>(step.made);
  }

  void require_sound(const InputFile& file, bool holds, std::string_view what) const {
    require(holds, ExitCode::kBadData, file.path, ": member ", member->name,
            ": its compressed data is damaged: ", what);
  }

  const ZipMember* member;
  std::unique_ptr<Decompressor> decoder;
  std::vector<uint8_t> stored;
  size_t at = 0, end = 0;       // of what is left in `stored`
  int64_t taken = 0, made = 0;  // bytes so far
  uint32_t crc = 0;             // of those made
  bool ended = false;
};

ZipReader::ZipReader(const std::string& path) : file_(path) { read_directory(); }
ZipReader::~ZipReader() = default;
ZipReader::ZipReader(ZipReader&&) noexcept = default;

void ZipReader::read_directory() {
  const Directory directory = find_directory(file_);
  std::string text(static_cast<size_t>(directory.bytes), '\0');
  file_.read(directory.begin, text.data(), directory.bytes);
  std::string_view left = text;
  for (int64_t i = 0; i < directory.members; ++i) {
    CentralHeader h;
    const bool whole = take(left, h) && h.magic == CentralHeader::kMagic &&
                       left.size() >= size_t{h.common.name} + h.common.extra + h.comment;
    require(whole, ExitCode::kBadData, path(), ": its directory of members is damaged at member ", i);
    ZipMember m;
    m.name = left.substr(0, h.common.name);
    require(is_plain_name(m.name), ExitCode::kBadData, path(), ": member ", i,
            " has an empty name, or one with slashes or control characters: no archive of NumPy (one of PyTorch?)");
    const auto expect = [&](bool holds, const std::string& what) {
      require(holds, ExitCode::kBadData, path(), ": member ", m.name, ": ", what);
    };
    expect((h.common.flags & kEncrypted) == 0, "is encrypted");
    expect((h.common.flags & kSizesBehind) == 0, "has its size behind its data, as what is written to a pipe");
    expect((h.common.flags & ~kKnownFlags) == 0, str("has flags that are not known: ", h.common.flags));
    expect(h.common.method == kStored || h.common.method == kDeflated,
           str("is compressed by method ", h.common.method, ", and stored and deflated ones are read"));
    uint64_t stored = h.common.stored, bytes = h.common.bytes, begin = h.begin;
    const bool widened = widen(left.substr(h.common.name, h.common.extra), {&bytes, &stored, &begin});
    const auto size = static_cast<uint64_t>(file_.size);
    expect(widened && h.disk == 0 && begin < size && stored < size, "is not in the file");
    m.deflated = h.common.method == kDeflated;
    expect(m.deflated || bytes == stored, str("is stored in ", stored, " bytes, but has ", bytes));
    expect(bytes <= kAlwaysAllowed || bytes / kMostExpansion <= stored,
           str("expands to more than ", kMostExpansion,
               " times its size, as decompression bombs do; if that is meant, ", "save it uncompressed (numpy.savez)"));
    m.crc = h.common.crc;
    m.begin = static_cast<int64_t>(begin);
    m.stored = static_cast<int64_t>(stored);
    m.bytes = static_cast<int64_t>(bytes);
    left.remove_prefix(size_t{h.common.name} + h.common.extra + h.comment);
    members_.push_back(std::move(m));
  }
  require(left.empty(), ExitCode::kBadData, path(), ": its directory has more members than it says");
  std::sort(members_.begin(), members_.end(), [](const ZipMember& a, const ZipMember& b) { return a.begin < b.begin; });
  int64_t at = 0;
  for (ZipMember& m : members_) {
    require(m.begin == at, ExitCode::kBadData, path(), ": member ", m.name, " begins at byte ", m.begin,
            ", but those before it end at ", at, ": members must follow each other without gap or overlap");
    require_local(m);
    at = m.begin + m.stored;
    require(by_name_.emplace(m.name, by_name_.size()).second, ExitCode::kBadData, path(), ": member ", m.name,
            " is there twice");
  }
  require(at == directory.begin, ExitCode::kBadData, path(), ": its members end at byte ", at,
          ", its directory begins at ", directory.begin);
}

// Compares the local header, and moves `begin` behind it.
void ZipReader::require_local(ZipMember& m) const {
  LocalHeader h;
  file_.read(m.begin, &h, kSize<LocalHeader>);
  std::string behind(size_t{h.common.name} + h.common.extra, '\0');
  file_.read(m.begin + kSize<LocalHeader>, behind.data(), static_cast<int64_t>(behind.size()));
  uint64_t stored = h.common.stored, bytes = h.common.bytes;
  const bool widened = widen(std::string_view(behind).substr(h.common.name), {&bytes, &stored});
  require(widened && h.magic == LocalHeader::kMagic && (h.common.flags & ~kKnownFlags) == 0 &&
              h.common.method == (m.deflated ? kDeflated : kStored) && h.common.crc == m.crc &&
              behind.compare(0, h.common.name, m.name) == 0 && stored == static_cast<uint64_t>(m.stored) &&
              bytes == static_cast<uint64_t>(m.bytes),
          ExitCode::kBadData, path(), ": member ", m.name, ": the header before it is not that of the directory");
  m.begin += kSize<LocalHeader> + static_cast<int64_t>(behind.size());
}

const ZipMember* ZipReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &members_[found->second];
}

void ZipReader::read(const ZipMember& m, int64_t offset, void* to, int64_t count) const {
  check(0 <= offset && 0 <= count && count <= m.bytes - offset, "bytes [", offset, ", ", offset + count,
        ") of a member of ", m.bytes);
  if (!m.deflated) {
    file_.read(m.begin + offset, to, count);
    return add_to_sum(m, offset, static_cast<const uint8_t*>(to), count);
  }
  if (!inflation_ || inflation_->member != &m || inflation_->made > offset) inflation_ = std::make_unique<Inflation>(m);
  std::vector<uint8_t> skipped;
  while (inflation_->made < offset) {
    skipped.resize(static_cast<size_t>(std::min<int64_t>(offset - inflation_->made, 256 << 10)));
    inflation_->next(file_, skipped.data(), static_cast<int64_t>(skipped.size()));
  }
  inflation_->next(file_, static_cast<uint8_t*>(to), count);
}

void ZipReader::add_to_sum(const ZipMember& m, int64_t offset, const uint8_t* bytes, int64_t count) const {
  Sum& sum = sums_[&m];
  const int64_t known = sum.bytes - offset;  // of these bytes
  if (known < 0 || known >= count) return;
  sum.crc = crc32(bytes + known, static_cast<size_t>(count - known), sum.crc);
  sum.bytes = offset + count;
  require(sum.bytes < m.bytes || sum.crc == m.crc, ExitCode::kBadData, path(), ": member ", m.name,
          ": is damaged: its checksum differs from the archive's; fetch or save the file again");
}

struct ZipWriter::State {
  explicit State(const std::string& path) : pending(path, false) {
    file.open(pending.temporary(), std::ios::binary | std::ios::in | std::ios::out);
  }
  void require_good() const {
    require_done(file.good(), ExitCode::kStorage, pending.temporary(), ": cannot be written");
  }
  void put(const void* bytes, size_t size) {
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
    require_good();
    at += static_cast<int64_t>(size);
  }

  PendingFile pending;
  std::fstream file;
  int64_t at = 0;                  // bytes written
  std::vector<ZipMember> members;  // `begin` is that of the local header; `stored` counts up to `bytes`
};

namespace {

Common common_of(const ZipMember& m, int64_t extra) {
  return {kWithZip64,
          0,
          kStored,
          0,
          kFirstOf1980,
          m.crc,
          kInZip64,
          kInZip64,
          narrow<uint16_t>(m.name.size()),
          narrow<uint16_t>(extra)};
}

}  // namespace

ZipWriter::ZipWriter(const std::string& path) : state_(std::make_unique<State>(path)) {}
ZipWriter::~ZipWriter() = default;
ZipWriter::ZipWriter(ZipWriter&&) noexcept = default;

void ZipWriter::begin(const std::string& name, int64_t bytes) {
  check(is_plain_name(name), "no name of a member: ", name);
  end_member();
  ZipMember m;
  m.name = name;
  m.begin = state_->at;
  m.bytes = bytes;
  const Extra64 extra{kZip64, 16, static_cast<uint64_t>(bytes), static_cast<uint64_t>(bytes), 0};
  const LocalHeader header{LocalHeader::kMagic, common_of(m, 20)};
  state_->put(&header, sizeof header);
  state_->put(name.data(), name.size());
  state_->put(&extra, 20);
  state_->members.push_back(std::move(m));
}

void ZipWriter::write(const void* bytes, int64_t count) {
  check(!state_->members.empty(), "bytes of no member");
  ZipMember& m = state_->members.back();
  check(count <= m.bytes - m.stored, "more bytes of ", m.name, " than ", m.bytes);
  state_->put(bytes, static_cast<size_t>(count));
  m.crc = crc32(bytes, static_cast<size_t>(count), m.crc);
  m.stored += count;
}

// Its checksum is known now: the header is written again.
void ZipWriter::end_member() {
  State& s = *state_;
  if (s.members.empty()) return;
  const ZipMember& m = s.members.back();
  check(m.stored == m.bytes, "bytes are missing from ", m.name);
  const LocalHeader header{LocalHeader::kMagic, common_of(m, 20)};
  s.file.seekp(m.begin);
  s.file.write(reinterpret_cast<const char*>(&header), sizeof header);
  s.file.seekp(s.at);
  s.require_good();
}

void ZipWriter::commit() {
  end_member();
  State& s = *state_;
  const auto begin = static_cast<uint64_t>(s.at);
  for (const ZipMember& m : s.members) {
    const auto bytes = static_cast<uint64_t>(m.bytes);
    const Extra64 extra{kZip64, 24, bytes, bytes, static_cast<uint64_t>(m.begin)};
    const CentralHeader header{CentralHeader::kMagic, kWithZip64, common_of(m, kSize<Extra64>), 0, 0, 0, 0, kInZip64};
    s.put(&header, sizeof header);
    s.put(m.name.data(), m.name.size());
    s.put(&extra, sizeof extra);
  }
  const uint64_t end = static_cast<uint64_t>(s.at), members = s.members.size();
  const End64 end64{End64::kMagic, sizeof end64 - 12, kWithZip64,  kWithZip64, 0, 0,
                    members,       members,           end - begin, begin};
  const Locator locator{Locator::kMagic, 0, end, 1};
  const End last{End::kMagic, 0, 0, 0xffff, 0xffff, kInZip64, kInZip64, 0};
  s.put(&end64, sizeof end64);
  s.put(&locator, sizeof locator);
  s.put(&last, sizeof last);
  s.file.close();
  s.require_good();
  s.pending.commit();
}

}  // namespace lockstep
