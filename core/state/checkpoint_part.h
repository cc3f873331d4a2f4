// One HDF5 file of a checkpoint: the tensors, or stretches of them, of all ranks that write into it. Several ranks
// write at once, each its own bytes:
//   "NAME@OFFSET"  fp32 [n], contiguous: adjacent slices of a tensor are one dataset, whoever writes them; of a box
//                  "NAME[0:64, 33:67]@OFFSET", its elements in row-major order
//   "@hashes"      uint64 [2 b]: digest_of each block of kBlock elements of those datasets, by name and offset (high
//                  half, low half)
// Included by checkpoint.cpp and by who saves with several ranks.
#pragma once

#include <compare>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/partition.h"
#include "core/io/hdf5/hdf5_file.h"
#include "core/state/checkpoint.h"

namespace lockstep {

constexpr int64_t kBlock = 1 << 16;  // elements that have a hash: 256 KiB; counted from the begin of the dataset

inline int64_t blocks_of(const StoredSlice& s) { return ceil_div(s.count, kBlock); }

// The order of slices in a file and in a manifest: by name, box and offset.
std::strong_ordering place_order(const StoredSlice& a, const StoredSlice& b);
// Sorts so; slices of one place by their counts.
void sort_by_place(std::vector<StoredSlice>& slices);
inline bool of_one_region(const StoredSlice& a, const StoredSlice& b) {
  return a.name == b.name && a.region == b.region;
}

// "step-00000030/part-0000-of-0002.h5"
std::string part_path(const std::string& dir, int64_t part, int64_t files);
// Of a checkpoint whose directory is gone.
std::string retired_text(const std::string& dir);

// What the entries are in a checkpoint; without their hashes.
std::vector<StoredSlice> slices_of(const std::vector<StateEntry>& entries);

// Writes a file. Every writer has one of these. In this order, each step begun when all have done the one before: the
// first writer calls reserve(), all write() with what it returned, the first writer finish() with what these returned.
// Throws kStorage; kInternal where two slices hold the same element.
class PartWriter {
 public:
  // `writers`: the slices of each of them, the same at all.
  PartWriter(std::string path, int part, std::vector<std::vector<StoredSlice>> writers);

  // Makes the file, with room for all. Returns where each dataset lies, for the other writers.
  std::string reserve();
  // Writes this writer's entries, flushed to disk. `pace`: how fast. Throws kNumeric naming the first tensor that holds
  // a NaN or an infinity. Returns the hashes of its blocks, 16 bytes each; of a block that several writers share they
  // add up.
  std::string write(std::string_view places, const std::vector<StateEntry>& entries, WritePace* pace = nullptr) const;
  // Writes the hashes, seals the file and flushes it to disk. Returns what it holds.
  std::vector<StoredSlice> finish(const std::vector<std::string>& hashes);

 private:
  const StoredSlice& holder_of(const StoredSlice& slice) const;

  const std::string path_;
  const std::vector<std::vector<StoredSlice>> writers_;
  std::vector<StoredSlice> slices_;  // by name and offset
  int64_t blocks_ = 0;
  std::vector<int64_t> places_;  // of slices_ in the file, then of the hashes; bytes
};

// Reads slices; the file read last stays open, so go through them file by file where you can. Values are compared with
// the hashes of their blocks; in checkpoints without those, whole slices with theirs.
class PartReader {
 public:
  explicit PartReader(const Checkpoint& c) : checkpoint_(c) {}
  ~PartReader() { rest(); }
  PartReader(const PartReader&) = delete;
  PartReader& operator=(const PartReader&) = delete;

  // Elements [range) of the slice's region, all in `s`. Where `out` is null they are only checked.
  void read(const StoredSlice& s, IndexRange range, float* out);
  // Into an entry of the same region: its elements of that range, wherever they are. Copies to a GPU go on in the order
  // of the current stream.
  void read(const StoredSlice& s, IndexRange range, const StateEntry& e);
  // What `s` has of elements [range) of a region, into their places among these. Returns how many they are.
  int64_t read(const StoredSlice& s, const Region& region, IndexRange range, float* out);

 private:
  template <class Room, class Filled>
  void read_pieces(const StoredSlice& s, IndexRange range, const Room& room, const Filled& filled);
  void read_blocks(const StoredSlice& s, IndexRange range, float* to);
  void check_block(const StoredSlice& s, int64_t block, const float* values) const;
  void open(const StoredSlice& s);
  void read_hashes(const StoredSlice& s);
  void rest();
  std::string part_there(int64_t part) const;

  const Checkpoint& checkpoint_;
  std::unique_ptr<Hdf5File> opened_;
  const Hdf5File* file_ = nullptr;  // that one, or one that the checkpoint holds
  int64_t part_ = -1;
  const StoredSlice* slice_ = nullptr;  // whose blocks
  std::vector<Hash128> hashes_;         // these are of
  std::vector<float> block_;            // of which only a part is wanted
  std::vector<float> rows_;             // of a slice, with what lies between the wanted ones
};

}  // namespace lockstep
