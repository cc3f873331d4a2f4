// Arrays of numbers as NumPy saves them: one in a .npy file, several in a .npz archive. NumpyFile owns the open file
// and reads headers when an array is asked for. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/partition.h"
#include "core/base/shape.h"

namespace lockstep {

struct NumpyArray {
  std::string name;      // in an archive: without ".npy"; empty for that of a .npy file
  std::string type;      // kind and bytes of an element: "f4", "u1"
  Shape shape;           // [] for a scalar
  int64_t item = 0;      // bytes of an element
  bool swapped = false;  // the file is big-endian
  bool fortran = false;  // the first index counts fastest
  int64_t begin = 0;     // of the elements in the file, or in the archive's member
  std::string place;     // for messages: "x.npz: array w"
};

class NumpyFile {
 public:
  // A file that begins as a zip archive does is one (core/io/zip.h says what is refused). Throws
  // ExitCode::kMissingInput and kBadData.
  explicit NumpyFile(const std::string& path);
  ~NumpyFile();
  NumpyFile(NumpyFile&&) noexcept;

  // Those in an archive, by place; one empty name of a .npy file.
  const std::vector<std::string>& names() const { return names_; }

  // Throws kBadData where it is not there, its elements are no integers and no floating-point numbers, it has more than
  // Shape::kMaxRank dimensions, or its size does not follow from its shape; with kPlain also where it is not
  // little-endian or not in C order, or its elements are truths ("b1").
  enum class Forms : uint8_t { kPlain, kAll };
  NumpyArray array(const std::string& name, Forms forms = Forms::kPlain) const;

  // Bytes [range) of its elements, whole ones, little-endian, in the order of the file. In a compressed archive a
  // reading that begins where the last one ended costs least.
  void read(const NumpyArray& array, IndexRange range, void* to) const;

 private:
  struct Source;
  std::unique_ptr<const Source> source_;
  std::vector<std::string> names_;
};

// What stands in a .npy file before the elements, which follow in C order, little-endian. `type`: kind and bytes of an
// element, "f4".
std::string numpy_head(std::string_view type, const Shape& shape);

// Writes an archive of uncompressed fp32 arrays, as numpy.savez does; it appears when it is complete, by PendingFile
// (core/io/pending_file.h), whose errors it throws.
class NpzWriter {
 public:
  explicit NpzWriter(const std::string& path);
  ~NpzWriter();

  void begin(const std::string& name, const Shape& shape);  // the next array; its elements follow in pieces
  void write(const float* values, int64_t count);
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
