// Dataset files in HDF5 (data/FORMAT.md): reading and checking the header, and writing chunks with their hashes.
// DatasetHeader is a plain value; a ChunkWriter borrows its file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/base/shape.h"
#include "core/io/hdf5/hdf5_file.h"
#include "data/images/resize.h"
#include "data/samples/data_kind.h"
#include "data/samples/dataset.h"
#include "data/store/chunk_writer.h"
#include "data/store/ragged_ends.h"
#include "data/store/stored_rows.h"
#include "data/text/vocabulary.h"

namespace lockstep {

struct DataSchema;

constexpr int64_t kDatasetVersion = 1;
// The most labels or token ids that a file may declare, unless it stores more images or tokens than that: memory is
// allocated for each.
constexpr int64_t kMostClasses = 1 << 21;
constexpr int64_t kMostMaskClasses = 255;  // of 8 bits, one value is left for pixels that are no targets
constexpr int64_t kMostFeatures = 4096;    // of a table: attributes with a number for each have at most 64 KiB
// Of a bounding box: the class, x and y of the middle, width and height, in parts of the image's width and height.
constexpr int64_t kBoxValues = 5;

// The records (texts, documents) of a dataset of tokens.
struct RecordsHeader {
  int64_t count = 0;                    // 0: the file says nothing of records
  std::vector<uint64_t> end_hashes;     // XXH3-64 of each chunk of /record_ends
  std::vector<uint64_t> target_hashes;  // of /targets; empty: every token is a target
  bool labelled = false;                // each has a label: /labels, classes, class_names
  bool paired = false;                  // they are pairs: one that was chosen, then one that was rejected
};

struct DatasetHeader {
  DataKind kind = DataKind::kTokens;
  std::vector<uint64_t> hashes;  // XXH3-64 of each chunk of the rows
  Hash128 identity;
  // Tokens.
  int64_t tokens = 0;
  int64_t vocabulary_size = 0;
  std::unique_ptr<Vocabulary> vocabulary;  // null at level "ids"
  RecordsHeader records;
  // Images and tables; classes and labels also of records.
  Shape images;          // [count, height, width, channels]; height and width are 0 where `encoded`
  bool encoded = false;  // images are PNG or JPEG files, one behind the other, each with a size of its own
  RaggedEnds files;      // encoded: where each image's bytes lie
  std::vector<std::string> class_names;  // may be empty; no part of the identity
  std::string columns;                   // tables: what the features are, as JSON (data/FORMAT.md); may be empty
  int64_t classes = 0;
  std::vector<double> mean, stddev;  // per channel, of values scaled to [0, 1]; per feature
  // Tables: what was subtracted from each feature before it was rounded to 32 bits, so that large numbers of little
  // spread, such as timestamps, keep their differences; empty: nothing.
  std::vector<double> offset;
  TargetKind target = TargetKind::kLabels;
  std::vector<uint64_t> label_hashes;      // of /labels, /masks, /targets or /boxes
  int64_t ignored = -1;                    // of masks: the value of pixels that are no targets; -1: there is none
  RaggedEnds target_parts;                 // where each image's mask lies, of encoded ones, or each image's boxes
  double target_mean = 0, target_std = 1;  // of numbers
  double target_offset = 0;                // likewise
  std::vector<uint64_t> weight_hashes;     // of /sample_weights, also of labelled records; empty: all weigh 1

  std::string level() const { return vocabulary ? std::string(to_text(vocabulary->level())) : "ids"; }
  Hash128 computed_identity() const;
  double offset_of(size_t feature) const { return offset.empty() ? 0.0 : offset[feature]; }
  // A stored number, less this, is its distance from the mean.
  double centre(size_t feature) const { return mean[feature] - offset_of(feature); }
  double target_centre() const { return target_mean - target_offset; }
};

// Throws ExitCode::kBadData if the file is not a dataset of lockstep or has another version, or if its header or hashes
// are damaged.
DatasetHeader read_dataset_header(const Hdf5File& file);
// Sets header.identity.
void write_dataset_header(Hdf5File& file, DatasetHeader& header);

// The smallest unsigned type that holds the ids of a vocabulary.
StoredType token_type(int64_t vocabulary_size);
int64_t tokens_per_chunk();
int64_t images_per_chunk(int64_t image_bytes);
int64_t rows_per_chunk(const DatasetHeader& header);  // of /tokens, /images or /features, in a file of many
int64_t mask_rows_per_chunk(const DatasetHeader& header);

// Write /labels, /targets, /boxes or ends of files, with the hashes of the chunks. Of numbers the header gets mean and
// deviation, which are those of `like` where that is given, and the offset.
void write_labels(Hdf5File& file, const std::vector<int32_t>& labels, DatasetHeader& header);
void write_numbers(Hdf5File& file, const std::vector<double>& numbers, DatasetHeader& header,
                   const DataSchema* like = nullptr);
void write_stored_numbers(Hdf5File& file, const std::vector<float>& numbers, DatasetHeader& header);  // less the offset
// Rows of kBoxValues numbers; `ends`: of each image's, in rows.
void write_boxes(Hdf5File& file, const std::vector<float>& boxes, const std::vector<int64_t>& ends,
                 DatasetHeader& header);
std::vector<uint64_t> write_ends(Hdf5File& file, const std::string& name, const std::vector<int64_t>& ends);
// Write /sample_weights, one for each sample; nothing where there are none or all of them are 1.
void write_weights(Hdf5File& file, const std::vector<float>& weights, DatasetHeader& header);
template <class T>
std::vector<uint64_t> write_list(Hdf5File& file, const std::string& name, StoredType type, const std::vector<T>& list) {
  const auto count = static_cast<int64_t>(list.size());
  ChunkWriter writer(file, name, type, {count}, tokens_per_chunk());
  writer.append(list.data(), count);
  return writer.finish();
}

// An open dataset file whose header was checked. Rows are checked as they are read; an error names the index and value
// of a token or label that is out of range.
struct DatasetFile {
  std::string path;
  DatasetHeader header;
  std::unique_ptr<StoredRows> rows;   // /tokens, /images or /features
  std::vector<int32_t> labels;        // of images, tables and labelled records, where these are the targets
  std::vector<float> numbers;         // of images and tables, likewise
  std::vector<float> boxes;           // of images, likewise, [boxes, kBoxValues]
  std::vector<float> weights;         // of images, tables and labelled records; empty: all weigh 1
  std::unique_ptr<StoredRows> masks;  // of images, likewise
  // Tokens with records: the end of each record, int64; and a byte for each token, 1 for a target, null where every
  // token is one.
  std::unique_ptr<StoredRows> record_ends, targets;
  // Where the samples are fitted to other data (data/samples/schema.h:fit_to), else empty: of a table, the stored
  // feature that each of the header's features is, -1 for one that is 0 in all rows; of text, the id that each stored
  // id stands for.
  std::vector<int64_t> feature_of;
  std::vector<int32_t> token_of;

  // The dataset of this name, of those beside the rows that are read by chunk; null: it was read whole, or is not
  // there.
  const StoredRows* by_chunk(const std::string& name) const;

  float weight_of(int64_t sample) const { return weights.empty() ? 1.0f : weights[static_cast<size_t>(sample)]; }
  // An image's boxes, [boxes, kBoxValues].
  std::span<const float> boxes_of(int64_t image) const;

  // Calls use(pixels, height, width) with the bytes [height, width, channels] of an image.
  template <class Use>
  void visit_image(int64_t index, Use use) const {
    if (header.encoded) {
      const ByteImage image = decoded(index);
      return use(image.bytes.data(), image.height, image.width);
    }
    rows->visit({index, index + 1},
                [&](IndexRange, const uint8_t* pixels) { use(pixels, header.images[1], header.images[2]); });
  }
  // The file that an encoded image is stored as, and its pixels. Throw ExitCode::kBadData naming file and image.
  std::string encoded_file(int64_t index) const;
  ByteImage decoded(int64_t index) const;
  // The mask of an image of this size, [height, width]: a class, or header.ignored. Throws likewise.
  std::vector<uint8_t> mask(int64_t index, int64_t height, int64_t width) const;
};
// Calls use(tokens) for each record, or each of `records`, in order, with the range of its tokens. Throws
// ExitCode::kBadData where records do not follow each other.
void visit_records(const DatasetFile& file, const std::function<void(IndexRange tokens)>& use);
void visit_records(const DatasetFile& file, IndexRange records, const std::function<void(IndexRange tokens)>& use);
std::shared_ptr<DatasetFile> open_dataset_file(const std::string& path, int64_t memory_bytes);
// Samples as a dataset counts them: records, pairs of them, tokens of text without records, images or rows of a table.
int64_t sample_count(const DatasetHeader& header);
// The records that some samples of a file with records are.
IndexRange records_of(const DatasetHeader& header, IndexRange samples);
// The same for the first `samples` of a file, as if it held no others: the header and its identity are those of the
// file that lockstep would have written for them. Throws ExitCode::kBadData where there are fewer.
std::shared_ptr<DatasetFile> open_first_samples(const std::string& path, int64_t memory_bytes, int64_t samples);

}  // namespace lockstep
