#include "core/io/hdf5/hdf5_chunks.h"

#include <cstring>

#include "core/io/file_seal.h"

namespace lockstep::hdf5 {
namespace {

constexpr hsize_t kFewChunks = 1024;

// Some releases of HDF5 count the addresses of chunks from the end of the user block, later ones from the begin of the
// file. A file in memory with one chunk tells: the bytes to add. -1 where it does not.
int64_t find_address_base() {
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose), creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_fapl_core(access, 1 << 20, false);  // all of its memory at once
  H5Pset_userblock(creation, kSealBytes);
  const Id file(H5Fcreate("memory", H5F_ACC_TRUNC, creation, access), H5Fclose);
  const uint64_t pattern[4] = {0x6c6f636b73746570, 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb};
  const hsize_t count = 4;
  const Id space(H5Screate_simple(1, &count, nullptr), H5Sclose), plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_chunk(plist, 1, &count);
  const Id dataset(H5Dcreate2(file, "x", H5T_STD_U64LE, space, H5P_DEFAULT, plist, H5P_DEFAULT), H5Dclose);
  if (dataset < 0 || H5Dwrite(dataset, H5T_STD_U64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, pattern) < 0 ||
      H5Fflush(file, H5F_SCOPE_LOCAL) < 0)
    return -1;
  void* memory = nullptr;
  haddr_t address = 0;
  hsize_t size = 0;
  unsigned mask = 0;
  if (H5Fget_vfd_handle(file, access, &memory) < 0 ||
      H5Dget_chunk_info(dataset, space, 0, nullptr, &mask, &address, &size) < 0)
    return -1;
  const char* begin = *static_cast<char**>(memory) + address;
  for (const int64_t base : {int64_t{0}, kSealBytes})
    if (std::memcmp(begin + base, pattern, sizeof pattern) == 0) return base;
  return -1;
}

class Chunks {
 public:
  Chunks(hid_t dataset, hid_t space, int64_t base, std::vector<IndexRange>& out)
      : dataset_(dataset), space_(space), base_(base), out_(out) {}

  // Finding a chunk by its index takes time with that index, so chunks [first, last] of one size that follow each other
  // in the file are found by their ends.
  bool add_equal(hsize_t first, const IndexRange& at_first, hsize_t last, const IndexRange& at_last) {
    if (at_last.begin - at_first.begin == static_cast<int64_t>(last - first) * at_first.size()) {
      out_.push_back({at_first.begin, at_last.end});
      return true;
    }
    IndexRange at_middle, at_next;
    const hsize_t middle = first + (last - first) / 2;
    if (last - first == 1) {
      out_.push_back(at_first);
      out_.push_back(at_last);
      return true;
    }
    return find(middle, at_middle) && find(middle + 1, at_next) && add_equal(first, at_first, middle, at_middle) &&
           add_equal(middle + 1, at_next, last, at_last);
  }

  bool add_each(hsize_t count) {
    for (hsize_t i = 0; i < count; ++i) {
      out_.emplace_back();
      if (!find(i, out_.back())) return false;
    }
    return true;
  }

  bool find(hsize_t index, IndexRange& at) const {
    haddr_t address = 0;
    hsize_t size = 0;
    unsigned mask = 0;
    if (H5Dget_chunk_info(dataset_, space_, index, nullptr, &mask, &address, &size) < 0) return false;
    at.begin = static_cast<int64_t>(address) + base_;
    at.end = at.begin + static_cast<int64_t>(size);
    return address != HADDR_UNDEF;
  }

 private:
  const hid_t dataset_, space_;
  const int64_t base_;
  std::vector<IndexRange>& out_;
};

}  // namespace

bool add_chunks(hid_t dataset, std::vector<IndexRange>& out) {
  const Id plist(H5Dget_create_plist(dataset), H5Pclose);
  if (plist < 0) return false;
  if (H5Pget_layout(plist) != H5D_CHUNKED) return true;  // an empty dataset: there is nothing
  static const int64_t base = find_address_base();
  const Id space(H5Dget_space(dataset), H5Sclose);
  hsize_t count = 0;
  if (base < 0 || H5Dget_num_chunks(dataset, space, &count) < 0) return false;
  if (count == 0) return true;
  const bool deflated = H5Pget_nfilters(plist) > 1;
  Chunks chunks(dataset, space, base, out);
  if (deflated) return count > kFewChunks || chunks.add_each(count);  // sizes differ; many are hashed with the rest
  IndexRange first, last;
  return chunks.find(0, first) && chunks.find(count - 1, last) && chunks.add_equal(0, first, count - 1, last);
}

}  // namespace lockstep::hdf5
