// HDF5 files of other programs, read in place as a dataset of images or of a table. The hashes of their chunks are made
// at the first use and kept in a file beside them; later reads are checked by these, as those of our own files are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/images/image_layout.h"
#include "data/samples/dataset_file.h"

namespace lockstep {

// `samples` and `labels`: datasets within the file, such as "/train/x". Images are uint8 [n, height, width] or
// [n, height, width, channels], or as `layout` says (data/images/image_layout.h); features are numbers [n, features];
// labels are integers [n], from 0. Mean and std are those of all samples. Throws ExitCode::kMissingInput, kBadData
// (what Hdf5File::open refuses; another type or shape; a chunk that has changed since the first use), kConfig (no such
// dataset). Where nothing can be written beside the file, hashes are kept in `other_folder`, which is made where it is
// not there; empty: nowhere, so that they are made again at each start.
std::shared_ptr<DatasetFile> open_foreign_file(const std::string& path, const std::string& samples,
                                               const std::string& labels, int64_t memory_bytes,
                                               const std::string& other_folder = "",
                                               ImageLayout layout = ImageLayout::kByShape);
// "data/mine.h5.train-x.train-y.hashes"; in a folder of another "data-mine.h5.train-x.train-y.hashes". Where a name has
// - or . itself, so that others could be written alike, a hash of both names comes before ".hashes".
std::string hashes_path(const std::string& path, const std::string& samples, const std::string& labels,
                        const std::string& folder = "");

}  // namespace lockstep
