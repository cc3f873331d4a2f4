#include "core/state/checkpoint_part.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "core/base/plain_file.h"
#include "core/base/system_call.h"
#include "core/io/file_seal.h"
#include "core/io/held_files.h"
#include "core/io/pending_file.h"
#include "core/io/write_pace.h"

namespace lockstep {
namespace {

constexpr const char* kHashes = "@hashes";
constexpr int64_t kHashed = 1 << 18;  // elements that are hashed, then written: they stay in the processor's cache
constexpr int64_t kRead = 1 << 20;    // elements that are read at once: 4 MiB; whole blocks
constexpr int64_t kLargestChunk = 64 << 20;  // bytes, of HDF5: it reads no less

std::string hashed_name(const StoredSlice& s) { return name_of_region(s.name, s.region); }
std::string dataset_name(const StoredSlice& s) { return str(hashed_name(s), "@", s.offset); }

// Elements `at` onwards of a slice that is being saved; its values are in the cache already, since they are hashed.
void require_finite(const StateEntry& e, int64_t at, const float* values, int64_t n) {
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) finite &= std::isfinite(values[i]);
  if (finite) return;
  const int64_t i = std::find_if(values, values + n, [](float v) { return !std::isfinite(v); }) - values;
  throw Error(ExitCode::kNumeric, str(e.name, " is not finite: element ", e.offset + at + i, " is ", values[i]));
}

Descriptor open_to_write(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  require_done(static_cast<bool>(file), ExitCode::kStorage, path, ": cannot be opened to write into it");
  return file;
}

void write_at(const Descriptor& file, const std::string& path, std::string_view what, int64_t place, const void* from,
              int64_t bytes) {
  const auto* data = static_cast<const char*>(from);
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n = ::pwrite(file.number(), data + done, static_cast<size_t>(bytes - done), place + done);
    if (n < 0 && errno == EINTR) continue;
    require_done(n > 0, ExitCode::kStorage, path, ": ", what,
                 ": not written; free space or choose another disk, then run again");
    done += n;
  }
}

void flush(const Descriptor& file, const std::string& path) {
  require_done(::fsync(file.number()) == 0, ExitCode::kStorage, path, ": not flushed to disk");
}

// The blocks of a dataset that hold elements of `slice`.
IndexRange blocks_with(const StoredSlice& dataset, const StoredSlice& slice) {
  const int64_t begin = slice.offset - dataset.offset;
  return {begin / kBlock, slice.count == 0 ? begin / kBlock : ceil_div(begin + slice.count, kBlock)};
}

// Adjacent slices become one.
std::vector<StoredSlice> joined(const std::vector<std::vector<StoredSlice>>& writers, int part) {
  std::vector<StoredSlice> all, out;
  for (const auto& slices : writers) all.insert(all.end(), slices.begin(), slices.end());
  sort_by_place(all);
  int64_t blocks = 0;
  for (StoredSlice& s : all) {
    const bool follows = !out.empty() && of_one_region(out.back(), s);
    check(!follows || s.offset >= out.back().offset + out.back().count, "the state to be saved: tensor ",
          hashed_name(s), ": elements from ", s.offset, " on are in two slices");
    if (follows && s.offset == out.back().offset + out.back().count) {
      out.back().count += s.count;
      continue;
    }
    s.part = part;
    out.push_back(std::move(s));
  }
  for (StoredSlice& s : out) {
    s.first_block = blocks;
    blocks += blocks_of(s);
  }
  return out;
}

}  // namespace

std::strong_ordering place_order(const StoredSlice& a, const StoredSlice& b) {
  const auto compare = [](const Shape& l, const Shape& r) {
    return std::lexicographical_compare_three_way(l.begin(), l.end(), r.begin(), r.end());
  };
  std::strong_ordering order = a.name <=> b.name;
  if (order == 0) order = compare(a.region.begin, b.region.begin);
  if (order == 0) order = compare(a.region.extent, b.region.extent);
  return order == 0 ? a.offset <=> b.offset : order;
}

void sort_by_place(std::vector<StoredSlice>& slices) {
  std::sort(slices.begin(), slices.end(), [](const StoredSlice& a, const StoredSlice& b) {
    const std::strong_ordering order = place_order(a, b);
    return order == 0 ? a.count < b.count : order < 0;
  });
}

std::string part_path(const std::string& dir, int64_t part, int64_t files) {
  char name[64];
  snprintf(name, sizeof name, "part-%04d-of-%04d.h5", static_cast<int>(part), static_cast<int>(files));
  return str(dir, "/", name);
}

std::string retired_text(const std::string& dir) {
  return str(dir, ": was removed by its run while it was read (a run keeps checkpoint.keep_last of them): repeat this ",
             "command");
}

std::vector<StoredSlice> slices_of(const std::vector<StateEntry>& entries) {
  std::vector<StoredSlice> out;
  for (const StateEntry& e : entries) out.push_back({e.name, e.region, e.offset, e.data.numel(), 0, {}, 0});
  return out;
}

PartWriter::PartWriter(std::string path, int part, std::vector<std::vector<StoredSlice>> writers)
    : path_(std::move(path)), writers_(std::move(writers)), slices_(joined(writers_, part)) {
  for (const StoredSlice& s : slices_) blocks_ += blocks_of(s);
}

const StoredSlice& PartWriter::holder_of(const StoredSlice& slice) const {
  const auto after = std::upper_bound(slices_.begin(), slices_.end(), slice,
                                      [](const auto& a, const auto& b) { return place_order(a, b) < 0; });
  check(after != slices_.begin() && of_one_region(after[-1], slice) &&
            slice.offset + slice.count <= after[-1].offset + after[-1].count,
        "tensor ", hashed_name(slice), " has a slice at ", slice.offset, " that was not announced");
  return after[-1];
}

std::string PartWriter::reserve() {
  Hdf5File file = Hdf5File::create(path_);
  for (const StoredSlice& s : slices_) {
    if (s.count > 0) places_.push_back(file.reserve_dataset(dataset_name(s), StoredType::kFloat32, {s.count}).begin);
    else file.create_dataset(dataset_name(s), StoredType::kFloat32, {0}), places_.push_back(0);
  }
  places_.push_back(blocks_ > 0 ? file.reserve_dataset(kHashes, StoredType::kUInt64, {2 * blocks_}).begin : 0);
  file.close();
  std::string out;
  for (int64_t place : places_) out += str(place, " ");
  return out;
}

std::string PartWriter::write(std::string_view places, const std::vector<StateEntry>& entries, WritePace* pace) const {
  std::istringstream in{std::string(places)};
  std::vector<int64_t> place_of(slices_.size(), -1);
  for (int64_t& place : place_of) in >> place;
  check(!in.fail(), path_, ": the places of its tensors are not known");
  const Descriptor file = open_to_write(path_);
  std::vector<Hash128> hashes;
  for (const StateEntry& e : entries) {
    const StoredSlice mine{e.name, e.region, e.offset, e.data.numel(), 0, {}, 0}, &whole = holder_of(mine);
    const std::string name = hashed_name(mine);
    const int64_t place = place_of[static_cast<size_t>(&whole - slices_.data())], begin = e.offset - whole.offset;
    const IndexRange blocks = blocks_with(whole, mine);
    const size_t first = hashes.size();
    hashes.resize(first + static_cast<size_t>(blocks.size()));
    for_each_stretch(e, kHashed, [&](int64_t at, const float* values, int64_t n) {
      if (pace) pace->wait(n * 4, path_);
      require_finite(e, at, values, n);
      for (int64_t i = begin + at, next; i < begin + at + n; i = next) {
        next = std::min((i / kBlock + 1) * kBlock, begin + at + n);
        hashes[first + static_cast<size_t>(i / kBlock - blocks.begin)] +=
            digest_of(name, whole.offset + i, values + (i - begin - at), next - i);
      }
      write_at(file, path_, str("tensor ", e.name), place + (begin + at) * 4, values, n * 4);
    });
  }
  flush(file, path_);
  return {reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(Hash128)};
}

std::vector<StoredSlice> PartWriter::finish(const std::vector<std::string>& hashes) {
  std::vector<Hash128> all(static_cast<size_t>(blocks_));
  for (size_t w = 0; w < writers_.size(); ++w) {
    size_t at = 0;
    for (const StoredSlice& s : writers_[w]) {
      const StoredSlice& whole = holder_of(s);
      const IndexRange blocks = blocks_with(whole, s);
      for (int64_t b = blocks.begin; b < blocks.end; ++b) {
        Hash128 one;
        check(at + sizeof one <= hashes[w].size(), path_, ": hashes of writer ", w, " are missing");
        std::memcpy(&one, hashes[w].data() + at, sizeof one);
        all[static_cast<size_t>(whole.first_block + b)] += one;
        at += sizeof one;
      }
    }
    check(at == hashes[w].size(), path_, ": writer ", w, " has too many hashes");
  }
  std::vector<IndexRange> values;
  for (size_t i = 0; i < slices_.size(); ++i) {
    StoredSlice& s = slices_[i];
    s.hash = {};
    for (int64_t b = 0; b < blocks_of(s); ++b) s.hash += all[static_cast<size_t>(s.first_block + b)];
    if (s.count > 0) values.push_back({places_[i], places_[i] + s.count * 4});
  }
  static_assert(sizeof(Hash128) == 16 && offsetof(Hash128, low) == 8);
  if (blocks_ > 0) write_at(open_to_write(path_), path_, kHashes, places_.back(), all.data(), blocks_ * 16);
  seal_file(path_, std::move(values));
  sync_file(path_);
  return slices_;
}

// `room` says where the elements of a piece go; `filled`, that they are there.
template <class Room, class Filled>
void PartReader::read_pieces(const StoredSlice& s, IndexRange range, const Room& room, const Filled& filled) {
  if (checkpoint_.memory) {
    check(s.values || range.empty(), checkpoint_.dir, ": tensor ", s.name, " is in the memory of another machine");
    for (IndexRange r{range.begin, range.begin}; r.end < range.end;) {
      r = {r.end, std::min(r.end + kRead, range.end)};
      std::memcpy(room(r), s.values + (r.begin - s.offset), static_cast<size_t>(r.size()) * sizeof(float));
      filled(r);
    }
    return;
  }
  open(s);
  const bool whole = range.size() == s.count;
  Hash128 hash;
  for (IndexRange r{range.begin, range.begin}; r.end < range.end;) {
    const int64_t block = (r.end - s.offset) / kBlock;
    r = {r.end, std::min(s.offset + block * kBlock + kRead, range.end)};
    float* to = room(r);
    if (checkpoint_.has_blocks) {
      read_blocks(s, {r.begin - s.offset, r.end - s.offset}, to);
    } else {
      file_->read(dataset_name(s), StoredType::kFloat32, {r.begin - s.offset, r.end - s.offset}, to);
      if (whole) hash += digest_of(hashed_name(s), r.begin, to, r.size());
    }
    filled(r);
  }
  require(checkpoint_.has_blocks || range.empty() || !whole || hash == s.hash, ExitCode::kBadData, file_->path(),
          ": tensor ", s.name, " differs from its checksum; this checkpoint is damaged");
}

void PartReader::read(const StoredSlice& s, IndexRange range, float* out) {
  if (out)
    return read_pieces(
        s, range, [&](IndexRange r) { return out + (r.begin - range.begin); }, [](IndexRange) {});
  std::vector<float> scratch(static_cast<size_t>(std::min(kRead, range.size())));
  read_pieces(
      s, range, [&](IndexRange) { return scratch.data(); }, [](IndexRange) {});
}

void PartReader::read(const StoredSlice& s, IndexRange range, const StateEntry& e) {
  if (e.data.device().in_host_memory() && e.data.dtype() == DType::kFloat32)
    return read(s, range, e.data.mutable_values<float>() + (range.begin - e.offset));
  Tensor pieces[2];
  Event copied[2];
  int turn = 0;
  auto room = [&](IndexRange) {
    turn ^= 1;
    copied[turn].synchronize();
    if (!pieces[turn]) {
      const int64_t most = std::min(kRead, range.size());
      pieces[turn] = Tensor::unallocated({most}, DType::kFloat32, host_memory_of(e.data.device()));
      pieces[turn].allocate();
    }
    return static_cast<float*>(pieces[turn].write());
  };
  read_pieces(s, range, room, [&](IndexRange r) {
    e.set_values(r.begin - e.offset, pieces[turn].slice(0, 0, r.size()));
    copied[turn] = current_stream().record();
  });
}

// Wanted runs that lie near each other in the slice are read at once, with what is between them.
int64_t PartReader::read(const StoredSlice& s, const Region& region, IndexRange range, float* out) {
  const IndexRange stored{s.offset, s.offset + s.count};
  if (s.region == region) {
    const IndexRange r = intersect(stored, range);
    if (!r.empty()) read(s, r, out + (r.begin - range.begin));
    return std::max<int64_t>(r.size(), 0);
  }
  struct Run {
    int64_t at, to, n;  // in the slice's region, in `out`
  };
  constexpr size_t kMostRuns = 1 << 16;
  std::vector<Run> runs;
  int64_t read_in_all = 0;
  const auto flush_runs = [&] {
    if (runs.empty()) return;
    const IndexRange all{runs.front().at, runs.back().at + runs.back().n};
    rows_.resize(static_cast<size_t>(std::max(kRead, all.size())));
    read(s, all, rows_.data());
    for (const Run& r : runs) std::copy_n(rows_.data() + (r.at - all.begin), r.n, out + r.to);
    runs.clear();
  };
  const auto take = [&](int64_t at, int64_t in_region, int64_t n) {
    const int64_t to = in_region - range.begin;
    read_in_all += n;
    if (n >= kRead) return read(s, {at, at + n}, out + to);
    const bool near = runs.empty() || (at - (runs.back().at + runs.back().n) < kBlock &&
                                       at + n - runs.front().at <= kRead && runs.size() < kMostRuns);
    if (!near) flush_runs();
    runs.push_back({at, to, n});
  };
  for_each_common_run(s.region, stored, region, range, take);
  flush_runs();
  return read_in_all;
}

// `range` counts from the slice's first element. Of a block that is wanted in part the whole is read.
void PartReader::read_blocks(const StoredSlice& s, IndexRange range, float* to) {
  const auto read_part_of = [&](int64_t block) {
    const IndexRange all{block * kBlock, std::min((block + 1) * kBlock, s.count)}, wanted = intersect(all, range);
    block_.resize(static_cast<size_t>(kBlock));
    file_->read(dataset_name(s), StoredType::kFloat32, all, block_.data());
    check_block(s, block, block_.data());
    std::memcpy(to + (wanted.begin - range.begin), block_.data() + (wanted.begin - all.begin),
                static_cast<size_t>(wanted.size()) * sizeof(float));
  };
  const int64_t first = ceil_div(range.begin, kBlock), end = range.end == s.count ? blocks_of(s) : range.end / kBlock;
  const IndexRange whole{first * kBlock, std::min(end * kBlock, s.count)};
  for (int64_t b = range.begin / kBlock; b < first && b * kBlock < range.end; ++b) read_part_of(b);
  if (!whole.empty()) {
    float* at = to + (whole.begin - range.begin);
    file_->read(dataset_name(s), StoredType::kFloat32, whole, at);
    for (int64_t b = first; b < end; ++b) check_block(s, b, at + (b - first) * kBlock);
  }
  if (end >= first && end * kBlock < range.end) read_part_of(end);
}

void PartReader::check_block(const StoredSlice& s, int64_t block, const float* values) const {
  const int64_t from = s.offset + block * kBlock, n = std::min(kBlock, s.count - block * kBlock);
  require(digest_of(hashed_name(s), from, values, n) == hashes_[static_cast<size_t>(block)], ExitCode::kBadData,
          file_->path(), ": tensor ", hashed_name(s), " differs from its checksum in elements [", from, ", ", from + n,
          "); this checkpoint is damaged");
}

void PartReader::open(const StoredSlice& s) {
  if (s.part != part_) {
    rest();
    file_ = checkpoint_.held ? checkpoint_.held->file(s.part) : nullptr;
    if (!file_) {
      opened_ = std::make_unique<Hdf5File>(Hdf5File::open(part_there(s.part)));
      file_ = opened_.get();
    }
    part_ = s.part;
    slice_ = nullptr;
  }
  if (slice_ == &s) return;
  // Before any memory or time is spent on it.
  require(s.count <= file_->bytes() / 4, ExitCode::kBadData, file_->path(), ": tensor ", s.name, " has ", s.count,
          " elements by the manifest, more than ", file_->bytes(), " bytes can hold: the file is truncated or damaged");
  const Hdf5Info info = file_->info(dataset_name(s));
  require(info.shape == Shape{s.count}, ExitCode::kBadData, file_->path(), ": tensor ", s.name, " has ",
          info.shape.numel(), " elements at ", s.offset, ", and ", s.count, " by the manifest");
  const bool ours =
      checkpoint_.has_blocks ? info.chunk_rows == 0 : info.checksum && info.chunk_rows <= kLargestChunk / 4;
  require(s.count == 0 || ours, ExitCode::kBadData, file_->path(), ": tensor ", s.name,
          checkpoint_.has_blocks ? " is stored in chunks" : " is not stored in small chunks with checksums",
          ": not written by lockstep");
  if (checkpoint_.has_blocks) read_hashes(s);
  slice_ = &s;
}

void PartReader::read_hashes(const StoredSlice& s) {
  hashes_.resize(static_cast<size_t>(blocks_of(s)));
  if (s.count > 0)
    file_->read(kHashes, StoredType::kUInt64, {2 * s.first_block, 2 * (s.first_block + blocks_of(s))}, hashes_.data());
  Hash128 sum;
  for (const Hash128& h : hashes_) sum += h;
  require(sum == s.hash, ExitCode::kBadData, file_->path(), ": the hashes of tensor ", s.name,
          " differ from its checksum in the manifest; this checkpoint is damaged");
}

// Files that are held outlast this reader, and may be many.
void PartReader::rest() {
  if (file_ && file_ != opened_.get()) file_->forget_read();
}

// The path of a part, which is there.
std::string PartReader::part_there(int64_t part) const {
  const std::string path = part_path(checkpoint_.dir, part, checkpoint_.files);
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  require(!was_retired(checkpoint_.dir), ExitCode::kMissingInput, retired_text(checkpoint_.dir));
  throw Error(ExitCode::kBadData, str(path, ": is missing; this is no whole checkpoint"));
}

}  // namespace lockstep
