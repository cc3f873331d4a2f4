#include "core/io/numpy_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/io/zip.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kNpyMagic = "\x93NUMPY", kNpyEnding = ".npy";
constexpr int64_t kMostNpyHeader = 64 << 10;  // bytes
constexpr std::array<std::string_view, 11> kNumpyTypes = {"u1", "i1", "u2", "i2", "u4", "i4",
                                                          "u8", "i8", "f2", "f4", "f8"};
constexpr std::string_view kTruths = "b1";

// The text of a header, from the left: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, in which NumPy
// keeps the order.
struct NpyText {
  const std::string& place;
  std::string_view left;

  void expect(bool holds, std::string_view what) const {
    require(holds, ExitCode::kBadData, place, ": is no .npy array that can be read: ", what);
  }
  bool skip(std::string_view word) {
    while (left.starts_with(' ')) left.remove_prefix(1);
    const bool there = left.starts_with(word);
    if (there) left.remove_prefix(word.size());
    return there;
  }
  std::string type(NumpyArray& out, bool all) {
    expect(skip("{") && skip("'descr'") && skip(":") && skip("'") && left.size() > 4,
           "its header does not begin with a type");
    const char order = left[0];
    const std::string type(left.substr(1, 2));
    out.swapped = all && order == '>';
    expect(order == '<' || order == '|' || out.swapped, "its values are not little-endian");
    left.remove_prefix(3);
    const bool known =
        std::find(kNumpyTypes.begin(), kNumpyTypes.end(), type) != kNumpyTypes.end() || (all && type == kTruths);
    expect(known && skip("'"),
           str("type ", type, " is none of integers and floating-point numbers",
               type[0] == 'O' ? ": its elements are objects of Python; save an array of numbers" : ""));
    return type;
  }
  Shape shape(NumpyArray& array, bool all) {
    const bool told = skip(",") && skip("'fortran_order'") && skip(":");
    array.fortran = told && all && skip("True");
    expect(told && (array.fortran || skip("False")), "it is not in C order");
    expect(skip(",") && skip("'shape'") && skip(":") && skip("("), "its header has no shape");
    Shape out;
    while (!skip(")")) {
      while (left.starts_with(' ')) left.remove_prefix(1);
      int64_t extent = 0;
      const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), extent);
      expect(error == std::errc() && extent >= 0 && out.rank() < Shape::kMaxRank, "its shape is not valid");
      left.remove_prefix(static_cast<size_t>(end - left.data()));
      out.push_back(extent);
      expect(skip(",") || left.starts_with(')'), "its shape is not valid");
    }
    skip(",");
    expect(skip("}") && left.find_first_not_of(" \n") == left.npos, "its header has more than a shape");
    return out;
  }
};

// Bytes that follow from shape and type, or nothing where they overflow.
std::optional<int64_t> bytes_of_elements(const NumpyArray& a) {
  int64_t bytes = a.item;
  for (int64_t extent : a.shape)  // an overflow counts even where another extent is 0
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) return {};
  return a.shape.numel() == 0 ? 0 : bytes;
}

}  // namespace

struct NumpyFile::Source {
  explicit Source(const std::string& path) {
    if (is_zip_file(path)) archive.emplace(path);
    else file.emplace(path);
  }
  const ZipMember& member(const std::string& name) const {
    const ZipMember* m = archive->find(str(name, kNpyEnding));
    require(m != nullptr, ExitCode::kBadData, archive->path(), ": holds no array ", name);
    return *m;
  }
  int64_t size(const std::string& name) const { return file ? file->size : member(name).bytes; }
  void read(const std::string& name, int64_t offset, void* to, int64_t count) const {
    file ? file->read(offset, to, count) : archive->read(member(name), offset, to, count);
  }

  std::optional<InputFile> file;  // or
  std::optional<ZipReader> archive;
};

NumpyFile::NumpyFile(const std::string& path) : source_(std::make_unique<const Source>(path)) {
  if (source_->file) {
    names_.push_back("");
    return;
  }
  for (const ZipMember& m : source_->archive->members()) {
    require(m.name.ends_with(kNpyEnding), ExitCode::kBadData, path, ": member ", m.name,
            " is no array (.npy): no archive of NumPy");
    names_.push_back(m.name.substr(0, m.name.size() - kNpyEnding.size()));
  }
}
NumpyFile::~NumpyFile() = default;
NumpyFile::NumpyFile(NumpyFile&&) noexcept = default;

NumpyArray NumpyFile::array(const std::string& name, Forms forms) const {
  NumpyArray out;
  out.name = name;
  out.place = source_->file ? source_->file->path : str(source_->archive->path(), ": array ", name);
  NpyText text{out.place, {}};
  const int64_t size = source_->size(name);
  std::array<char, 12> head{};
  text.expect(size >= 12, "it is shorter than a header");
  source_->read(name, 0, head.data(), 12);
  text.expect(std::string_view(head.data(), 6) == kNpyMagic, "it does not begin with \\x93NUMPY");
  const int version = head[6];
  text.expect(version >= 1 && version <= 3, str("version ", version, " is not known"));
  const size_t length_bytes = version == 1 ? 2 : 4;
  int64_t length = 0;
  for (size_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<uint8_t>(head[8 + i]);
  const auto before = static_cast<int64_t>(8 + length_bytes);
  out.begin = before + length;
  text.expect(length <= kMostNpyHeader && out.begin <= size, str("its header has ", length, " bytes"));
  std::string header(static_cast<size_t>(length), '\0');
  source_->read(name, before, header.data(), length);
  text.left = header;
  out.type = text.type(out, forms == Forms::kAll);
  out.item = out.type[1] - '0';
  out.shape = text.shape(out, forms == Forms::kAll);
  text.expect(bytes_of_elements(out) == size - out.begin, str("its shape is ", out.shape, " of ", out.item,
                                                              " bytes each, but ", size - out.begin, " bytes follow"));
  return out;
}

void NumpyFile::read(const NumpyArray& a, IndexRange range, void* to) const {
  source_->read(a.name, a.begin + range.begin, to, range.size());
  auto* bytes = static_cast<uint8_t*>(to);
  for (int64_t at = 0; a.swapped && at < range.size(); at += a.item) std::reverse(bytes + at, bytes + at + a.item);
}

struct NpzWriter::State {
  ZipWriter zip;
};

NpzWriter::NpzWriter(const std::string& path) : state_(new State{ZipWriter(path)}) {}
NpzWriter::~NpzWriter() = default;

std::string numpy_head(std::string_view type, const Shape& shape) {
  std::string extents;
  for (int64_t extent : shape) extents += str(extents.empty() ? "" : ", ", extent);
  if (shape.rank() == 1) extents += ",";
  std::string header =
      str("{'descr': '", type == "u1" ? "|" : "<", type, "', 'fortran_order': False, 'shape': (", extents, "), }");
  header.resize(static_cast<size_t>(round_up(10 + static_cast<int64_t>(header.size()) + 1, 64) - 11), ' ');
  header += '\n';
  const auto length = narrow<uint16_t>(header.size());
  std::string out(kNpyMagic);
  out += {1, 0};  // the version
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  return out + header;
}

void NpzWriter::begin(const std::string& name, const Shape& shape) {
  const std::string head = numpy_head("f4", shape);
  state_->zip.begin(str(name, kNpyEnding), std::ssize(head) + shape.numel() * 4);
  state_->zip.write(head.data(), std::ssize(head));
}

void NpzWriter::write(const float* values, int64_t count) { state_->zip.write(values, count * 4); }
void NpzWriter::commit() { state_->zip.commit(); }

}  // namespace lockstep
