// LineReader: the lines of a text input, one at a time, in bounded memory. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/import/input_stream.h"

namespace lockstep {

class LineReader {
 public:
  static constexpr size_t kLongestLine = 64 << 20;  // bytes

  // `name`: for messages; empty: the path.
  explicit LineReader(const std::string& path, const std::string& name = {}) : input_(path, name) {}
  // The next line, without its end (LF or CR LF); it stays valid until the next call. Of a line longer than
  // kLongestLine nothing but its beginning is kept: too_long() is then true. False at the end.
  bool next(std::string_view& line);
  bool too_long() const { return too_long_; }
  int64_t number() const { return number_; }  // of that line, from 1
  std::string place() const;                  // "FILE:LINE", for messages
  const InputStream& input() const { return input_; }
  // Where the next line begins, in bytes of the text; and to go on there, where line `number` has ended.
  int64_t taken() const { return taken_; }
  void skip_to(int64_t byte, int64_t number);

 private:
  bool fill();

  InputStream input_;
  std::string block_, line_;
  size_t at_ = 0;
  int64_t number_ = 0, taken_ = 0;
  bool too_long_ = false;
};

}  // namespace lockstep
