// What an HDF5 file may hold before anything in it is read: the strict way of opening. Included by hdf5_file.cpp alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/io/hdf5/hdf5_handles.h"

namespace lockstep::hdf5 {

// Walks every link of the open file (of `file_bytes` bytes, called `path` in messages) and throws ExitCode::kBadData
// where it finds
// - a link that is not a hard link, or a second name of the same object: soft, external and user-defined links lead to
//   other places and other files;
// - an object that is neither a group nor a dataset;
// - a dataset whose values lie outside the file (external storage, virtual layout), that needs a filter other than
//   fletcher32, shuffle and deflate, whose elements are of no StoredType, or that has other than 1 to Shape::kMaxRank
//   dimensions;
// - a dataset that announces more values, or larger chunks, than the bytes stored for it can hold.
// Nothing is allocated by what the file announces.
void check_contents(hid_t file, int64_t file_bytes, const std::string& path);

// The StoredType that equals an HDF5 type.
std::optional<StoredType> stored_type(hid_t type);

}  // namespace lockstep::hdf5
