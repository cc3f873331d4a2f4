#include "core/io/hdf5/hdf5_checks.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/base/partition.h"

namespace lockstep::hdf5 {
namespace {

constexpr int kMaxDepth = 32;                       // of groups
constexpr int64_t kMaxElements = int64_t{1} << 48;  // of a dataset; times any element's size this fits an int64_t
constexpr int64_t kDeflateRatio = 1040;             // deflate packs no more than 1032 bytes into one

struct Link {
  std::string name;
  H5L_type_t type;
};

class Walk {
 public:
  Walk(int64_t file_bytes, const std::string& path) : file_bytes_(file_bytes), path_(path) {}

  void group(hid_t group, const std::string& prefix, int depth) {
    std::vector<Link> links;
    const auto collect = [](hid_t, const char* name, const H5L_info_t* info, void* data) -> herr_t {
      static_cast<std::vector<Link>*>(data)->push_back({name, info->type});
      return 0;
    };
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect, &links) < 0)
      unreadable(str("the names in group '/", prefix, "'"));
    for (const Link& link : links) {
      const std::string name = prefix + escaped(link.name, Lines::kEscape);
      refuse(link.type == H5L_TYPE_HARD, "'", name, "' is a link to another place or file");
      refuse(!link.name.empty() && link.name != "." && link.name.find('/') == link.name.npos, "'", name,
             "' is no proper name");
      const Id object(H5Oopen(group, link.name.c_str(), H5P_DEFAULT), H5Oclose);
      if (object < 0) unreadable(str("'", name, "'"));
      H5O_info_t about;
      if (H5Oget_info2(object, &about, H5O_INFO_BASIC) < 0) unreadable(str("'", name, "'"));
      refuse(seen_.insert(about.addr).second, "'", name, "' is a second name of something else in the file");
      refuse(about.type == H5O_TYPE_GROUP || about.type == H5O_TYPE_DATASET, "'", name,
             "' is neither a group nor a dataset");
      if (about.type == H5O_TYPE_DATASET) {
        dataset(object, str("dataset '", name, "'"));
      } else {
        refuse(depth < kMaxDepth, "'", name, "' lies deeper than ", kMaxDepth, " groups");
        this->group(object, name + "/", depth + 1);
      }
    }
  }

  void root(hid_t file) {
    H5O_info_t about;
    if (H5Oget_info2(file, &about, H5O_INFO_BASIC) < 0) unreadable("the root group");
    seen_.insert(about.addr);
    group(file, "", 0);
  }

 private:
  template <class... Parts>
  void refuse(bool holds, const Parts&... parts) const {
    require(holds, ExitCode::kBadData, path_, ": ", parts...,
            "; such a file is not opened: make it again with lockstep");
  }
  [[noreturn]] void unreadable(const std::string& what) const {
    const Reason why = reason();
    require(!why.memory, ExitCode::kDevice, path_, ": ", what, " cannot be read: out of memory");
    throw Error(ExitCode::kBadData, str(path_, ": ", what, " cannot be read (", why.innermost,
                                        "); the file is truncated or damaged: restore it or make it again"));
  }

  void dataset(hid_t dataset, const std::string& what) const {
    // The layout first: nothing else is asked of a dataset whose values lie elsewhere.
    const Id plist(H5Dget_create_plist(dataset), H5Pclose);
    if (plist < 0) unreadable(what);
    const H5D_layout_t layout = H5Pget_layout(plist);
    refuse(layout == H5D_CONTIGUOUS || layout == H5D_CHUNKED || layout == H5D_COMPACT, what,
           " is stored in other places or files (virtual layout)");
    refuse(H5Pget_external_count(plist) == 0, what, " is stored in other files (external storage)");
    const bool deflated = check_filters(plist, what);
    const Id space(H5Dget_space(dataset), H5Sclose), type(H5Dget_type(dataset), H5Tclose);
    if (space < 0 || type < 0) unreadable(what);
    const auto element = stored_type(type);
    refuse(element.has_value(), what, " has an element type that is not one of ours (little-endian numbers)");
    const int rank = H5Sget_simple_extent_ndims(space);
    refuse(rank >= 1 && rank <= Shape::kMaxRank, what, " has ", rank, " dimensions; 1 to ", Shape::kMaxRank,
           " are allowed");
    hsize_t extents[H5S_MAX_RANK];
    if (H5Sget_simple_extent_dims(space, extents, nullptr) < 0) unreadable(what);
    const int64_t bytes = product(extents, rank, what) * size_of(*element);
    const auto stored = static_cast<int64_t>(std::min<hsize_t>(H5Dget_storage_size(dataset), hsize_t{1} << 62));
    refuse(stored <= file_bytes_, what, " is said to take ", stored, " bytes of a file of ", file_bytes_);
    const int64_t most = deflated ? std::min(stored, kMaxElements) * kDeflateRatio : stored;
    refuse(bytes <= most, what, " announces ", bytes, " bytes of values, but only ", stored,
           " bytes are stored for it");
    if (layout != H5D_CHUNKED || bytes == 0) return;
    hsize_t chunk[H5S_MAX_RANK];
    if (H5Pget_chunk(plist, rank, chunk) != rank) unreadable(what);
    const int64_t chunk_bytes = product(chunk, rank, what) * size_of(*element);
    refuse(chunk_bytes > 0 && chunk_bytes <= most, what, " has chunks of ", chunk_bytes, " bytes, but only ", stored,
           " bytes are stored for it");
    // Chunks that are not there would be read as zeros.
    hsize_t there = 0;
    if (H5Dget_num_chunks(dataset, space, &there) < 0) unreadable(what);
    int64_t due = 1;
    for (int i = 0; i < rank; ++i) due *= ceil_div(static_cast<int64_t>(extents[i]), static_cast<int64_t>(chunk[i]));
    refuse(static_cast<int64_t>(there) == due, what, " has ", there, " of ", due, " chunks");
  }

  // Whether the dataset is deflated.
  bool check_filters(hid_t plist, const std::string& what) const {
    bool deflated = false;
    const int filters = H5Pget_nfilters(plist);
    refuse(filters >= 0 && filters <= 3, what, " has ", filters, " filters; shuffle, deflate and fletcher32 are known");
    for (int i = 0; i < filters; ++i) {
      unsigned flags = 0;
      size_t values = 0;
      const H5Z_filter_t filter =
          H5Pget_filter2(plist, static_cast<unsigned>(i), &flags, &values, nullptr, 0, nullptr, nullptr);
      refuse(filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32, what,
             " needs the HDF5 filter ", filter, "; shuffle, deflate and fletcher32 are known");
      refuse(!deflated || filter != H5Z_FILTER_DEFLATE, what, " is deflated twice");
      deflated |= filter == H5Z_FILTER_DEFLATE;
    }
    return deflated;
  }

  int64_t product(const hsize_t* extents, int rank, const std::string& what) const {
    int64_t elements = 1;
    for (int i = 0; i < rank; ++i) {
      refuse(extents[i] <= static_cast<hsize_t>(kMaxElements) &&
                 !__builtin_mul_overflow(elements, static_cast<int64_t>(extents[i]), &elements) &&
                 elements <= kMaxElements,
             what, " has an impossible size ", extents[i], " in dimension ", i);
    }
    return elements;
  }

  const int64_t file_bytes_;
  const std::string& path_;
  std::unordered_set<haddr_t> seen_;
};

}  // namespace

void check_contents(hid_t file, int64_t file_bytes, const std::string& path) { Walk(file_bytes, path).root(file); }

std::optional<StoredType> stored_type(hid_t type) {
  const auto size = static_cast<int64_t>(H5Tget_size(type));
  for (StoredType t : all_stored_types())
    if (size_of(t) == size && H5Tequal(type, file_type(t)) > 0) return t;
  return std::nullopt;
}

}  // namespace lockstep::hdf5
