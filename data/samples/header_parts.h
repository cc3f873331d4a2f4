// Parts of a dataset file's header, and what files of labelled samples (images, tables, records) hold beside their
// rows. Plain functions, for dataset_file.cpp; they throw ExitCode::kBadData naming the file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/samples/dataset_file.h"

namespace lockstep {

std::string rows_name(DataKind kind);      // the dataset that holds the rows: "tokens", "images" or "features"
std::string target_name(TargetKind kind);  // the dataset of targets: "labels", "masks", "targets" or "boxes"
// A dataset of one dimension that is not compressed.
Hdf5Info list_info(const Hdf5File& file, const std::string& name);
// The hash of each chunk of dataset `of`.
std::vector<uint64_t> read_hashes(const Hdf5File& file, const std::string& of);
// An attribute that says how many classes a dataset of `rows` rows has.
int64_t count_attribute(const Hdf5File& file, const std::string& key, int64_t rows);

// Says that 64 bits do not tell numbers of this magnitude apart to a thousandth of a standard deviation.
void warn_of_lost_bits(const std::string& path, const std::string& what, double largest, double deviation);

// Classes, their names, and the chunk hashes of targets; of what is read, of `samples` with a label each. `what`:
// "images".
void read_classes(const Hdf5File& file, int64_t samples, const std::string& what, DatasetHeader& header);
void write_classes(Hdf5File& file, const DatasetHeader& header);
// Of images, tables and records.
std::vector<int32_t> read_labels(RowSource labels, const DatasetHeader& header);

// Images and tables.
void read_labelled_header(const Hdf5File& file, DatasetHeader& header);
void write_labelled_header(Hdf5File& file, const DatasetHeader& header);
void hash_labelled(const DatasetHeader& header, Hasher128& hasher);  // their part of the identity
void open_labelled(std::shared_ptr<const Hdf5File> file, int64_t memory_bytes, DatasetFile& out);
// Rows and labels (int32) from elsewhere than where our own files hold them.
void open_labelled(RowSource rows, RowSource labels, int64_t memory_bytes, DatasetFile& out);

}  // namespace lockstep
