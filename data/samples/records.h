// The records of dataset files of text: their part of the header, and where each lies. Plain functions, for
// data/samples/kinds/text.cpp; they throw ExitCode::kBadData naming the file.
#pragma once

#include <memory>

#include "data/samples/dataset_file.h"

namespace lockstep {

RecordsHeader read_records_header(const Hdf5File& file, int64_t tokens);
void open_records(const std::shared_ptr<const Hdf5File>& file, int64_t memory_bytes, DatasetFile& out);

}  // namespace lockstep
