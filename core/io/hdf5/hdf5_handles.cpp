#include "core/io/hdf5/hdf5_handles.h"

#include <bit>
#include <string_view>

#include "core/base/caught.h"

namespace lockstep {

namespace hdf5 {
namespace {

// A file takes less: its cache of metadata, a chunk, and what is between them. But other threads take memory meanwhile.
constexpr size_t kRoom = 64 << 20;

static_assert(std::endian::native == std::endian::little, "stored types are little-endian");

std::mutex& door_mutex() {
  static std::mutex m;
  return m;
}

// IEEE half and bfloat16, which HDF5 has no name for; h5py shows the first as float16.
hid_t small_float(hid_t base, size_t sign, size_t exponent_at, size_t exponent_bits, size_t mantissa_bits,
                  size_t bias) {
  hid_t type = H5Tcopy(base);
  H5Tset_fields(type, sign, exponent_at, exponent_bits, 0, mantissa_bits);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, bias);
  return type;
}

}  // namespace

void require_room(const std::string& path) {
  require(has_address_space(kRoom), ExitCode::kDevice, path, ": out of memory: HDF5 wants ", kRoom >> 20,
          " MiB for a file; ", host_memory_text());
}

Door::Door(const std::string* path) : lock_(door_mutex()) {
  if (path) require_room(*path);
  // Without its exit handler HDF5 does not touch half-written files when a process ends after a full disk.
  static const bool once = (H5dont_atexit(), H5open(), true);
  static_cast<void>(once);
  H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLget_loading_state(&plugins_);
  H5PLset_loading_state(0);
}
Door::~Door() {
  H5PLset_loading_state(plugins_);
  H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_);
}

Reason reason() {
  Reason out;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* e, void* data) -> herr_t {
        auto& r = *static_cast<Reason*>(data);
        std::string_view text = e->desc ? e->desc : "";
        if (n == 0) r.innermost = text;
        // Chunks say "Fletcher32", metadata "checksum".
        if (text.find("letcher32") != text.npos || text.find("checksum") != text.npos) r.checksum = true;
        r.memory |= text.find("memory allocation") != text.npos || text.find("memory reallocation") != text.npos;
        return 0;
      },
      &out);
  out.memory &= !has_address_space(kRoom);
  // HDF5 adds descriptor, buffer address and time of day: noise here.
  std::string& text = out.innermost;
  if (auto at = text.find("error message = '"); at != text.npos) {
    text = text.substr(at + 17);
    text = text.substr(0, text.find('\''));
  }
  if (text.empty()) text = "no reason given";
  return out;
}

Id file_type(StoredType type) {
  switch (type) {
    case StoredType::kFloat32: return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
    case StoredType::kBFloat16: return {small_float(H5T_IEEE_F32LE, 15, 7, 8, 7, 127), H5Tclose};
    case StoredType::kFloat16: return {small_float(H5T_IEEE_F32LE, 15, 10, 5, 10, 15), H5Tclose};
    case StoredType::kFloat64: return {H5Tcopy(H5T_IEEE_F64LE), H5Tclose};
    case StoredType::kInt64: return {H5Tcopy(H5T_STD_I64LE), H5Tclose};
    case StoredType::kInt32: return {H5Tcopy(H5T_STD_I32LE), H5Tclose};
    case StoredType::kUInt8: return {H5Tcopy(H5T_STD_U8LE), H5Tclose};
    case StoredType::kUInt16: return {H5Tcopy(H5T_STD_U16LE), H5Tclose};
    case StoredType::kUInt32: return {H5Tcopy(H5T_STD_U32LE), H5Tclose};
    case StoredType::kUInt64: return {H5Tcopy(H5T_STD_U64LE), H5Tclose};
  }
  return {};
}

}  // namespace hdf5

namespace {

struct TypeRow {
  StoredType type;
  std::string_view name;
  int64_t size;
};
constexpr TypeRow kTypes[] = {  // in the order of StoredType
    {StoredType::kFloat32, "fp32", 4}, {StoredType::kBFloat16, "bf16", 2}, {StoredType::kFloat16, "fp16", 2},
    {StoredType::kFloat64, "fp64", 8}, {StoredType::kInt64, "int64", 8},   {StoredType::kInt32, "int32", 4},
    {StoredType::kUInt8, "uint8", 1},  {StoredType::kUInt16, "uint16", 2}, {StoredType::kUInt32, "uint32", 4},
    {StoredType::kUInt64, "uint64", 8}};
const TypeRow& row_of(StoredType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

StoredType stored_as(DType type) {
  switch (type) {
    case DType::kFloat32: return StoredType::kFloat32;
    case DType::kBFloat16: return StoredType::kBFloat16;
    case DType::kFloat16: return StoredType::kFloat16;
    case DType::kFloat64: return StoredType::kFloat64;
    case DType::kInt64: return StoredType::kInt64;
    case DType::kInt32: return StoredType::kInt32;
    case DType::kUInt8: return StoredType::kUInt8;
    case DType::kNf4:
    case DType::kInt8: break;
  }
  return StoredType::kUInt8;
}

int64_t size_of(StoredType type) { return row_of(type).size; }
std::string_view to_text(StoredType type) { return row_of(type).name; }

std::string hdf5_version() {
  hdf5::Door door;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return str(major, ".", minor, ".", release);
}

const std::vector<StoredType>& all_stored_types() {
  static const std::vector<StoredType> all = [] {
    std::vector<StoredType> types;
    for (const TypeRow& row : kTypes) types.push_back(row.type);
    return types;
  }();
  return all;
}

}  // namespace lockstep
