// Parts of dataset files that several kinds of samples and targets have: lists, hashes of chunks, texts, classes. Plain
// functions, for data/samples and data/import; they throw ExitCode::kBadData naming the file.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "data/samples/dataset_file.h"
#include "data/store/ragged_ends.h"

namespace lockstep {

// A dataset of one dimension that is not compressed: lists that are read at once must not be, as a few compressed bytes
// could expand to any amount of memory.
Hdf5Info list_info(const Hdf5File& file, const std::string& name);
// The same of `count` values, one for each of the file's `what`, such as "images".
void require_list(const Hdf5File& file, const std::string& name, StoredType type, int64_t count,
                  const std::string& what);
// The hash of each chunk of dataset `of`.
std::vector<uint64_t> read_hashes(const Hdf5File& file, const std::string& of);
void write_hashes(Hdf5File& file, const std::string& of, const std::vector<uint64_t>& hashes);
// An attribute that says how many classes a dataset of `rows` rows has.
int64_t count_attribute(const Hdf5File& file, const std::string& key, int64_t rows);

// Says that 64 bits do not tell numbers of this magnitude apart to a thousandth of a standard deviation.
void warn_of_lost_bits(const std::string& path, const std::string& what, double largest, double deviation);
// The same of 32 bits, in files of before offsets were stored.
void warn_of_old_numbers(const std::string& path, const std::string& what, double centre, double deviation);
// Whether (byte / 255 - mean) / stddev is a finite float for every byte.
bool normalises(double mean, double stddev);

std::string read_text(const Hdf5File& file, const std::string& name);
void write_text(Hdf5File& file, const std::string& name, const std::string& text);  // nothing where it is empty

// The names of so many classes; none where the file has none.
std::vector<std::string> read_class_names(const Hdf5File& file, int64_t classes);
// Classes, their names, and the chunk hashes of targets; of what is read, of `samples` with a label each. `what`:
// "images".
void read_classes(const Hdf5File& file, int64_t samples, const std::string& what, DatasetHeader& header);
void write_classes(Hdf5File& file, const DatasetHeader& header);
// Of images, tables and records; `sample`: "image".
std::vector<int32_t> read_labels(RowSource labels, const DatasetHeader& header, const std::string& sample);

// The weights of samples (kSampleWeights), where a file has them: their part of the header, and the values, finite and
// not negative. `samples`, `sample`: "images", "image".
void read_weights_header(const Hdf5File& file, int64_t count, const std::string& samples, DatasetHeader& header);
void write_weights_header(Hdf5File& file, const DatasetHeader& header);
void open_weights(const std::shared_ptr<const Hdf5File>& file, const std::string& sample, DatasetFile& out);
void cut_weights(DatasetFile& file, int64_t samples);

// A list that is read as a whole, checked chunk by chunk.
template <class T>
std::vector<T> read_list(RowSource source, const std::vector<uint64_t>& hashes, StoredRows::Check check) {
  StoredRows rows(std::move(source), hashes, int64_t{1} << 62, std::move(check));
  std::vector<T> out(static_cast<size_t>(rows.size()));
  rows.visit({0, rows.size()}, [&](IndexRange piece, const uint8_t* bytes) {
    std::memcpy(out.data() + piece.begin, bytes, static_cast<size_t>(piece.size()) * sizeof(T));
  });
  return out;
}
// `sample`: what lies in `bytes` bytes, one behind the other, such as "image".
std::vector<int64_t> read_ends(std::shared_ptr<const Hdf5File> file, const std::string& name,
                               const std::vector<uint64_t>& hashes, int64_t bytes, const std::string& sample);
std::string bytes_in(const StoredRows& rows, IndexRange range);

// The hashes of the chunks that the first `count` rows are written in, where they are all that there is: those that are
// stored already, where a chunk is one of the file's, and others computed.
std::vector<uint64_t> hashes_of_first(const StoredRows& rows, const std::vector<uint64_t>& stored, int64_t count,
                                      int64_t chunk_rows);
// The same of a list in memory, whose rows have `width` values.
template <class T>
std::vector<uint64_t> hashes_of_list(const std::vector<T>& list, int64_t width = 1) {
  std::vector<uint64_t> out;
  const auto step = static_cast<size_t>(std::min(tokens_per_chunk() * width, static_cast<int64_t>(list.size())));
  for (size_t at = 0; at < list.size(); at += step)
    out.push_back(hash64(list.data() + at, std::min(step, list.size() - at) * sizeof(T)));
  return out;
}
// Opens images or rows of a table, and labels (int32), from elsewhere than where our own files hold them.
void open_labelled(RowSource rows, RowSource labels, int64_t memory_bytes, DatasetFile& out);

void cut_labels(DatasetFile& file, int64_t samples);
void cut_ends(RaggedEnds& ends, int64_t samples);
// The number that a sample's label has in a file that is made of this one; `numbers`: as of SampleWriter::append.
int32_t label_of(const DatasetFile& file, int64_t sample, const std::vector<int32_t>& numbers);

}  // namespace lockstep
