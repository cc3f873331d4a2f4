// Where the chunks of a dataset lie in its file. Included by hdf5_file.cpp alone.
#pragma once

#include <vector>

#include "core/base/partition.h"
#include "core/io/hdf5/hdf5_handles.h"

namespace lockstep::hdf5 {

// Adds the bytes [begin, end) of the file that the chunks of `dataset` take, neighbours joined. All values must have
// been written and flushed. False where HDF5 does not say.
bool add_chunks(hid_t dataset, std::vector<IndexRange>& out);

}  // namespace lockstep::hdf5
