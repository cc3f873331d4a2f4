#include "core/io/hdf5/hdf5_file.h"

#include <algorithm>
#include <map>

#include "core/base/caught.h"
#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "core/io/file_seal.h"
#include "core/io/hdf5/hdf5_checks.h"
#include "core/io/hdf5/hdf5_chunks.h"
#include "core/io/hdf5/hdf5_handles.h"

namespace lockstep {

using hdf5::Door;
using hdf5::file_type;
using hdf5::Id;

namespace {

constexpr int64_t kAutomaticChunkBytes = 256 << 10;
constexpr hsize_t kMetadataBlock = 32 << 10;  // metadata lie together, so that chunks do, too, and few ranges name all
constexpr size_t kOpenDatasets = 4;  // each keeps up to 1 MiB of chunks: a file of thousands must not keep them all

}  // namespace

struct Hdf5File::State {
  std::string path;
  bool writing = false, reserved = false;
  int64_t file_bytes = 0;  // of a file that is read
  Id file;
  std::vector<std::string> created;    // datasets with values
  std::map<std::string, Id> datasets;  // last used ones, so that reading by piece does not look names up each time

  void need_open() const {
    check(file >= 0, "HDF5 file ", path, " is used after close()");
    hdf5::require_room(path);
  }
  // What went wrong in a call for `what`, from HDF5's stack.
  [[noreturn]] void fail(const std::string& what) const {
    hdf5::Reason why = hdf5::reason();
    require(!why.memory, ExitCode::kDevice, path, ": ", what, ": out of memory in HDF5 (", why.innermost, "); ",
            host_memory_text());
    if (writing)
      throw Error(ExitCode::kStorage, str(path, ": ", what, ": not written (", why.innermost,
                                          "); free space or choose another disk, then run again"));
    if (why.checksum)
      throw Error(ExitCode::kBadData,
                  str(path, ": ", what, ": checksum differs: its bytes changed after they were written; ",
                      "restore the file or make it again"));
    throw Error(ExitCode::kBadData, str(path, ": ", what, ": cannot be read (", why.innermost,
                                        "); the file is truncated or damaged: restore it or make it again"));
  }
  template <class T>
  T expect(T result, const std::string& what) const {
    if (result < 0) fail(what);
    return result;
  }
  hid_t dataset(const std::string& name) {
    if (auto it = datasets.find(name); it != datasets.end()) return it->second;
    Id id(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
    if (id < 0) {
      if (H5Lexists(file, name.c_str(), H5P_DEFAULT) > 0) fail(str("dataset '", name, "'"));
      throw Error(ExitCode::kBadData, str(path, ": holds no dataset '", name, "'"));
    }
    return remember(name, std::move(id));
  }
  hid_t remember(const std::string& name, Id id) {
    if (datasets.size() >= kOpenDatasets && !close_datasets()) fail("a dataset, when it was closed");
    return datasets.emplace(name, std::move(id)).first->second;
  }
  bool close_datasets() {
    bool closed = true;
    for (auto& [_, id] : datasets) closed &= id.close();
    datasets.clear();
    return closed;
  }
  void create(const std::string& name, StoredType type, const Shape& shape, hid_t plist) {
    hsize_t extents[Shape::kMaxRank];
    for (int i = 0; i < shape.rank(); ++i) extents[i] = static_cast<hsize_t>(shape[i]);
    const Id space(H5Screate_simple(shape.rank(), extents, nullptr), H5Sclose),
        links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(plist, false);
    Id id(H5Dcreate2(file, name.c_str(), file_type(type), space, links, plist, H5P_DEFAULT), H5Dclose);
    expect(hid_t{id}, str("dataset '", name, "'"));
    remember(name, std::move(id));
  }
  hid_t object(const std::string& name) { return name.empty() ? hid_t{file} : dataset(name); }
  Hdf5Info info(const std::string& name) {
    std::string what = str("dataset '", name, "'");
    hid_t d = dataset(name);
    Id space(H5Dget_space(d), H5Sclose), type(H5Dget_type(d), H5Tclose), plist(H5Dget_create_plist(d), H5Pclose);
    if (space < 0 || type < 0 || plist < 0) fail(what);
    hsize_t extents[H5S_MAX_RANK];
    int rank = expect(H5Sget_simple_extent_dims(space, extents, nullptr), what);
    require(rank >= 1 && rank <= Shape::kMaxRank, ExitCode::kBadData, path, ": ", what, " has ", rank,
            " dimensions; 1 to ", Shape::kMaxRank, " are allowed");
    Hdf5Info out;
    int64_t elements = 1;
    for (int i = 0; i < rank; ++i) {
      require(extents[i] < (hsize_t{1} << 48) &&
                  !__builtin_mul_overflow(elements, static_cast<int64_t>(extents[i]), &elements),
              ExitCode::kBadData, path, ": ", what, " has an impossible size ", extents[i], " in dimension ", i);
      out.shape.push_back(static_cast<int64_t>(extents[i]));
    }
    const auto known = hdf5::stored_type(type);
    require(known.has_value(), ExitCode::kBadData, path, ": ", what,
            " has an element type that is not one of ours (little-endian numbers)");
    out.type = *known;
    if (H5Pget_layout(plist) == H5D_CHUNKED) {
      hsize_t chunk[H5S_MAX_RANK];
      expect(H5Pget_chunk(plist, rank, chunk), what);
      out.chunk_rows = static_cast<int64_t>(chunk[0]);
    }
    int filters = H5Pget_nfilters(plist);
    for (int i = 0; i < filters; ++i) {
      unsigned flags;
      size_t values = 0;
      const H5Z_filter_t filter = H5Pget_filter2(plist, i, &flags, &values, nullptr, 0, nullptr, nullptr);
      out.checksum |= filter == H5Z_FILTER_FLETCHER32;
      out.deflated |= filter == H5Z_FILTER_DEFLATE;
    }
    return out;
  }
  // The memory and file spaces of a range of rows; checks type and range.
  void select(const std::string& name, StoredType type, IndexRange rows, Id& memory, Id& in_file) {
    Hdf5Info have = info(name);
    require(have.type == type, ExitCode::kBadData, path, ": dataset '", name, "' holds ", have.type, ", not ", type);
    // A contract while writing; while reading the size comes from the file.
    require(0 <= rows.begin && rows.begin <= rows.end && rows.end <= have.shape[0],
            writing ? ExitCode::kInternal : ExitCode::kBadData, path, ": dataset '", name, "' has ", have.shape[0],
            " rows, not [", rows.begin, ", ", rows.end, ")");
    hsize_t start[Shape::kMaxRank] = {}, count[Shape::kMaxRank] = {};
    for (int i = 0; i < have.shape.rank(); ++i) count[i] = static_cast<hsize_t>(have.shape[i]);
    start[0] = static_cast<hsize_t>(rows.begin);
    count[0] = static_cast<hsize_t>(rows.size());
    memory = Id(H5Screate_simple(have.shape.rank(), count, nullptr), H5Sclose);
    in_file = Id(H5Dget_space(dataset(name)), H5Sclose);
    std::string what = str("dataset '", name, "'");
    if (memory < 0 || in_file < 0) fail(what);
    expect(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, start, nullptr, count, nullptr), what);
  }
  static std::string attribute_name(const std::string& object, const std::string& key) {
    return object.empty() ? str("attribute '", key, "'") : str("attribute '", key, "' of dataset '", object, "'");
  }
  void set_attribute(const std::string& object_name, const std::string& key, hid_t type, const hsize_t* count,
                     const void* value) {
    need_open();
    std::string what = attribute_name(object_name, key);
    hid_t owner = object(object_name);
    if (H5Aexists(owner, key.c_str()) > 0) expect(H5Adelete(owner, key.c_str()), what);
    Id space(count ? H5Screate_simple(1, count, nullptr) : H5Screate(H5S_SCALAR), H5Sclose);
    Id attribute(H5Acreate2(owner, key.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    expect(hid_t{attribute}, what);
    expect(H5Awrite(attribute, type, value), what);
  }
  Id open_attribute(const std::string& object_name, const std::string& key, H5T_class_t wanted, int64_t& count) {
    need_open();
    std::string what = attribute_name(object_name, key);
    hid_t owner = object(object_name);
    require(expect(H5Aexists(owner, key.c_str()), what) > 0, ExitCode::kBadData, path, ": lacks ", what);
    Id attribute(H5Aopen(owner, key.c_str(), H5P_DEFAULT), H5Aclose);
    if (attribute < 0) fail(what);
    Id type(H5Aget_type(attribute), H5Tclose), space(H5Aget_space(attribute), H5Sclose);
    if (type < 0 || space < 0) fail(what);
    count = H5Sget_simple_extent_npoints(space);
    const bool sized = writing || wanted == H5T_STRING ||
                       (H5Tget_size(type) <= 8 && count <= file_bytes / static_cast<int64_t>(H5Tget_size(type)));
    require(H5Tget_class(type) == wanted && count >= 0 && count <= (1 << 20) && sized, ExitCode::kBadData, path, ": ",
            what, " is not ",
            wanted == H5T_INTEGER ? "a whole number"
            : wanted == H5T_FLOAT ? "a number"
                                  : "text");
    return attribute;
  }
};

Hdf5File::Hdf5File(std::unique_ptr<State> state) : state_(std::move(state)) {}
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&& o) noexcept {
  std::swap(state_, o.state_);
  return *this;
}

Hdf5File::~Hdf5File() {
  if (!state_) return;
  Door door;
  state_.reset();
}

Hdf5File Hdf5File::create(const std::string& path) {
  Door door(&path);
  auto state = std::make_unique<State>();
  state->path = path;
  state->writing = true;
  Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose), creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_userblock(creation, kSealBytes);
  H5Pset_obj_track_times(creation, false);  // equal contents give equal files
  H5Pset_meta_block_size(access, kMetadataBlock);
  // In this format metadata carries checksums too.
  H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  H5Pset_file_locking(access, false, true);  // nobody else knows the name, or it is locked already
  state->file = Id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose);
  if (state->file < 0) state->fail("cannot be created");
  return Hdf5File(std::move(state));
}

Hdf5File Hdf5File::open(const std::string& path) {
  // The plain call first: its errno says more than HDF5 does, and what it opened is what HDF5 gets, whatever the path
  // leads to by then.
  const InputFile input(path);
  require(input.size > 0, ExitCode::kBadData, path, ": is empty, not an HDF5 file");
  if (!check_seal(input))
    log_warning_once(str(path,
                         ": has no hash of its structure, so an older version of lockstep or another program wrote it; "
                         "damage to it may crash the HDF5 library. Import or save it again with this version"));
  const std::string opened = str("/proc/self/fd/", input.descriptor.number());
  Door door(&path);
  auto state = std::make_unique<State>();
  state->path = path;
  state->file_bytes = input.size;
  Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_sec2(access);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  H5Pset_file_locking(access, false, true);  // readers share; some file systems refuse locks
  state->file = Id(H5Fopen(opened.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  if (state->file < 0) state->fail("the file");
  hdf5::check_contents(state->file, state->file_bytes, path);
  return Hdf5File(std::move(state));
}

const std::string& Hdf5File::path() const { return state_->path; }
int64_t Hdf5File::bytes() const { return state_->file_bytes; }
void Hdf5File::forget_read() const {
  Door door;
  state_->close_datasets();
}

void Hdf5File::close() {
  Door door;
  State& s = *state_;
  s.need_open();
  if (s.writing && H5Fflush(s.file, H5F_SCOPE_LOCAL) < 0) s.fail("the file, at its end");
  std::vector<IndexRange> chunks;
  for (const std::string& name : s.created)
    if (!hdf5::add_chunks(s.dataset(name), chunks)) s.fail("the file, at its end");
  const bool closed = s.close_datasets();
  if (!s.file.close() || !closed) s.fail("the file, at its end");
  if (s.writing && !s.reserved) seal_file(s.path, std::move(chunks));
}

void Hdf5File::create_dataset(const std::string& name, StoredType type, const Shape& shape, const Hdf5Layout& layout) {
  Door door;
  State& s = *state_;
  s.need_open();
  check(s.writing, s.path, " is open for reading");
  check(shape.rank() >= 1, "dataset '", name, "' needs at least one dimension");
  hsize_t chunk[Shape::kMaxRank];
  int64_t row_bytes = size_of(type);
  for (int i = 0; i < shape.rank(); ++i) {
    chunk[i] = static_cast<hsize_t>(shape[i]);
    if (i > 0) row_bytes *= shape[i];
  }
  const Id plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  if (shape.numel() > 0) {
    int64_t rows = layout.chunk_rows > 0 ? layout.chunk_rows : std::max<int64_t>(1, kAutomaticChunkBytes / row_bytes);
    chunk[0] = static_cast<hsize_t>(std::min(rows, shape[0]));
    s.expect(H5Pset_chunk(plist, shape.rank(), chunk), str("dataset '", name, "'"));
    if (layout.deflate > 0) {
      H5Pset_shuffle(plist);
      s.expect(H5Pset_deflate(plist, static_cast<unsigned>(layout.deflate)), str("dataset '", name, "'"));
    }
    if (layout.checksum) H5Pset_fletcher32(plist);  // last, so that it covers what lies on disk
  }
  s.create(name, type, shape, plist);
  if (shape.numel() > 0) s.created.push_back(name);
}

IndexRange Hdf5File::reserve_dataset(const std::string& name, StoredType type, const Shape& shape) {
  Door door;
  State& s = *state_;
  s.need_open();
  check(s.writing && shape.numel() > 0, "nothing can be reserved for dataset '", name, "' in ", s.path);
  const Id plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(plist, H5D_CONTIGUOUS);
  H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
  s.create(name, type, shape, plist);
  s.reserved = true;
  const haddr_t begin = H5Dget_offset(s.dataset(name));
  if (begin == HADDR_UNDEF) s.fail(str("dataset '", name, "'"));
  return {static_cast<int64_t>(begin), static_cast<int64_t>(begin) + shape.numel() * size_of(type)};
}

void Hdf5File::write(const std::string& name, StoredType type, IndexRange rows, const void* data) {
  Door door;
  State& s = *state_;
  s.need_open();
  check(s.writing, s.path, " is open for reading");
  if (rows.empty()) return;
  Id memory, in_file, element = file_type(type);
  s.select(name, type, rows, memory, in_file);
  s.expect(H5Dwrite(s.dataset(name), element, memory, in_file, H5P_DEFAULT, data), str("dataset '", name, "'"));
}

void Hdf5File::write_all(const std::string& name, StoredType type, const Shape& shape, const void* data,
                         const Hdf5Layout& layout) {
  create_dataset(name, type, shape, layout);
  if (shape.numel() > 0) write(name, type, {0, shape[0]}, data);
}

bool Hdf5File::has(const std::string& name) const {
  Door door;
  state_->need_open();
  for (size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1))
    if (H5Lexists(state_->file, name.substr(0, slash).c_str(), H5P_DEFAULT) <= 0) return false;
  return !name.empty() && H5Lexists(state_->file, name.c_str(), H5P_DEFAULT) > 0;
}

std::vector<std::string> Hdf5File::list() const {
  Door door;
  state_->need_open();
  std::vector<std::string> names;
  herr_t result = H5Ovisit(
      state_->file, H5_INDEX_NAME, H5_ITER_INC,
      [](hid_t, const char* name, const H5O_info_t* info, void* data) -> herr_t {
        if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(data)->push_back(name);
        return 0;
      },
      &names);
  state_->expect(result, "list of datasets");
  std::sort(names.begin(), names.end());
  return names;
}

Hdf5Info Hdf5File::info(const std::string& name) const {
  Door door;
  state_->need_open();
  return state_->info(name);
}

void Hdf5File::read(const std::string& name, StoredType type, IndexRange rows, void* data) const {
  Door door;
  State& s = *state_;
  s.need_open();
  Id memory, in_file, element = file_type(type);
  s.select(name, type, rows, memory, in_file);
  if (rows.empty()) return;
  if (H5Dread(s.dataset(name), element, memory, in_file, H5P_DEFAULT, data) < 0)
    s.fail(str("dataset '", name, "', rows [", rows.begin, ", ", rows.end, ")"));
}

void Hdf5File::set_attribute(const std::string& object, const std::string& key, int64_t value) {
  Door door;
  state_->set_attribute(object, key, H5T_STD_I64LE, nullptr, &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& key, double value) {
  Door door;
  state_->set_attribute(object, key, H5T_IEEE_F64LE, nullptr, &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& key, const std::string& value) {
  Door door;
  Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, std::max<size_t>(1, value.size()));  // fixed length: HDF5 knows no length of zero
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  state_->set_attribute(object, key, type, nullptr, value.c_str());
}

void Hdf5File::set_attribute(const std::string& object, const std::string& key, const std::vector<double>& values) {
  Door door;
  hsize_t count = values.size();
  state_->set_attribute(object, key, H5T_IEEE_F64LE, &count, values.data());
}

bool Hdf5File::has_attribute(const std::string& object, const std::string& key) const {
  Door door;
  state_->need_open();
  return H5Aexists(state_->object(object), key.c_str()) > 0;
}

int64_t Hdf5File::int_attribute(const std::string& object, const std::string& key) const {
  Door door;
  int64_t count = 0, value = 0;
  Id attribute = state_->open_attribute(object, key, H5T_INTEGER, count);
  require(count == 1, ExitCode::kBadData, state_->path, ": attribute '", key, "' is a list, not one number");
  state_->expect(H5Aread(attribute, H5T_NATIVE_INT64, &value), State::attribute_name(object, key));
  return value;
}

double Hdf5File::double_attribute(const std::string& object, const std::string& key) const {
  auto values = doubles_attribute(object, key);
  require(values.size() == 1, ExitCode::kBadData, path(), ": attribute '", key, "' is a list, not one number");
  return values[0];
}

std::vector<double> Hdf5File::doubles_attribute(const std::string& object, const std::string& key) const {
  Door door;
  int64_t count = 0;
  Id attribute = state_->open_attribute(object, key, H5T_FLOAT, count);
  std::vector<double> values(static_cast<size_t>(count));
  if (count > 0)
    state_->expect(H5Aread(attribute, H5T_NATIVE_DOUBLE, values.data()), State::attribute_name(object, key));
  return values;
}

std::string Hdf5File::string_attribute(const std::string& object, const std::string& key) const {
  Door door;
  std::string what = State::attribute_name(object, key);
  int64_t count = 0;
  Id attribute = state_->open_attribute(object, key, H5T_STRING, count);
  require(count == 1, ExitCode::kBadData, path(), ": ", what, " is a list, not one text");
  Id type(H5Aget_type(attribute), H5Tclose);
  // The library copies such a text with the length that its heap says, into memory of the length that the attribute
  // says.
  require(H5Tis_variable_str(type) == 0, ExitCode::kBadData, path(), ": ", what,
          " is a text of variable length; write it with a fixed one (with h5py: numpy.bytes_(text))");
  size_t size = H5Tget_size(type);
  require(size <= (1 << 20) && (state_->writing || static_cast<int64_t>(size) <= state_->file_bytes),
          ExitCode::kBadData, path(), ": ", what, " is impossibly long");
  std::string out(size, '\0');
  state_->expect(H5Aread(attribute, type, out.data()), what);
  out.resize(std::min(out.find('\0'), out.size()));
  require(escaped(out, Lines::kEscape) == out, ExitCode::kBadData, path(), ": ", what, " holds control characters: '",
          escaped(out, Lines::kEscape), "'");
  return out;
}

}  // namespace lockstep
