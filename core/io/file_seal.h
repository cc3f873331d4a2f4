// The seal of an HDF5 file that lockstep wrote: a hash of every byte outside the chunks, in a block before HDF5's own
// data (a "user block", which HDF5 skips). It is compared before libhdf5 parses anything, since libhdf5 may read beyond
// its memory where metadata are damaged; chunks have checksums of their own, and a checkpoint's tensors, which count as
// chunks here, hashes. data/FORMAT.md has the layout.
#pragma once

#include <string>
#include <vector>

#include "core/base/partition.h"
#include "core/base/plain_file.h"

namespace lockstep {

constexpr int64_t kSealBytes = 4096;  // a size that HDF5 allows: a power of two from 512 on

// Seals a closed file that begins with kSealBytes bytes for it. `chunks`: where chunks lie, in bytes from the file's
// begin, in any order. Bytes that are named in none are covered by the hash. Throws ExitCode::kStorage.
void seal_file(const std::string& path, std::vector<IndexRange> chunks);

// True where the file has a seal and it holds; false where an HDF5 file begins at once, or behind a block of another
// size: one of an older version or of another program. Throws ExitCode::kBadData for damage and for what is no HDF5
// file.
bool check_seal(const InputFile& file);

}  // namespace lockstep
