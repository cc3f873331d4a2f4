// TensorBoard event files: scalars by tag and step, readable by TensorBoard itself.
// Owned by the trainer of rank 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/artifacts/append_file.h"

namespace lockstep {

class EventWriter {
 public:
  // A new file in `dir` (made where absent), named after time, host and process as TensorBoard wants. `first_step` > 0:
  // this is a resumed run, and TensorBoard drops what earlier files hold from that step on.
  explicit EventWriter(const std::string& dir, int64_t first_step = 0);

  // One event with these values, as fp32. A full disk drops it.
  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);

  const std::string& path() const { return file_->path(); }
  int64_t dropped() const { return file_->dropped(); }

 private:
  std::unique_ptr<AppendFile> file_;
};

// The length, its checksum, the bytes, their checksum (little-endian; checksums are masked CRC-32C).
std::string event_record(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep
