// The members of tar archives: ustar, pax and GNU's long names. The only door to libarchive, which nothing is extracted
// by: a member is a name and a place in the archive. Where the library was absent when building, tar_absent.cpp stands
// in. Plain values and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

// Where an archive lies, uncompressed.
struct TarPlace {
  std::string name;             // for messages
  std::string path;             // of the file that holds it
  int64_t begin = 0, size = 0;  // of its bytes there
};

struct TarMember {
  std::string name;             // as the archive has it, of any bytes but zero
  int64_t begin = 0, size = 0;  // of its bytes in TarPlace::path
};

// Calls `found` for each regular file in the archive, in its order; folders are passed over. Throws ExitCode::kBadData
// naming the archive, the member and the byte: for what is no tar archive, is damaged, ends before its mark of the end
// or has other bytes behind it, and for links, devices and sparse files; kDevice where this build reads no tar.
void list_tar(const TarPlace& archive, const std::function<void(const TarMember&)>& found);

}  // namespace lockstep
