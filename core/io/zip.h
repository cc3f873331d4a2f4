// Zip archives, of the part of the format that NumPy uses: members one behind the other, stored or deflated, with the
// extensions for more than 4 GiB (zip64). The reader takes places and sizes from the central directory and refuses
// what another reader might understand in another way. Source: PKWARE's APPNOTE.TXT.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/plain_file.h"

namespace lockstep {

struct ZipMember {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  int64_t begin = 0;              // of its bytes in the file
  int64_t stored = 0, bytes = 0;  // in the file, and as they were put in
};

bool is_zip_file(const std::string& path);  // a regular file that begins as an archive does

// Owns the open file; of a deflated member, the state of its decompression. Used by one thread.
class ZipReader {
 public:
  // Throws ExitCode::kMissingInput, and kBadData, naming the member, for: bytes of no member or of several, other ways
  // of compression, encryption, names that occur twice, are empty, or hold slashes or control characters, local headers
  // that differ from the directory, and members of more than 64 MiB that expand to more than 500 times their size.
  explicit ZipReader(const std::string& path);
  ~ZipReader();
  ZipReader(ZipReader&&) noexcept;

  const std::string& path() const { return file_.path; }
  const std::vector<ZipMember>& members() const { return members_; }  // by place
  const ZipMember* find(std::string_view name) const;                 // null where there is none

  // Bytes [offset, offset + count) of a member. Those of a deflated one are decompressed from where the last reading of
  // it ended, or from its begin. Throws kBadData; a wrong checksum is found where a reading from the begin, of a stored
  // member in pieces that follow each other, arrives at the end for the first time.
  void read(const ZipMember& member, int64_t offset, void* to, int64_t count) const;

 private:
  struct Inflation;
  struct Sum {
    int64_t bytes = 0;  // of the member's begin that were read, whose checksum is
    uint32_t crc = 0;
  };
  void add_to_sum(const ZipMember& member, int64_t offset, const uint8_t* bytes, int64_t count) const;
  void read_directory();
  void require_local(ZipMember& member) const;

  InputFile file_;
  std::vector<ZipMember> members_;
  std::map<std::string, size_t, std::less<>> by_name_;
  mutable std::unique_ptr<Inflation> inflation_;  // of the deflated member read last
  mutable std::map<const ZipMember*, Sum> sums_;  // of stored members
};

// Writes an archive of stored members. It appears when it is complete, by PendingFile (core/io/pending_file.h), whose
// errors it throws.
class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path);
  ~ZipWriter();
  ZipWriter(ZipWriter&&) noexcept;

  void begin(const std::string& name, int64_t bytes);  // the next member; its bytes follow in pieces
  void write(const void* bytes, int64_t count);
  void commit();

 private:
  struct State;
  void end_member();
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
