// EventWriter: writes scalars, histograms, texts and pictures by tag and step to a TensorBoard event file. Owned by an
// observer of the run, on rank 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/append_file.h"
#include "core/io/histogram.h"

namespace lockstep {

class EventWriter {
 public:
  // Creates a new file in `dir` (created if absent), named after time, host and process as TensorBoard requires.
  // `first_step` > 0: a resumed run; TensorBoard then ignores the events of earlier files from that step on.
  explicit EventWriter(const std::string& dir, int64_t first_step = 0);

  // Appends one event with these values, as fp32. It is dropped if the disk is full.
  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);

  struct Distribution {
    std::string tag;
    const Histogram& counts;
    double sum = 0, squares = 0, largest = 0;  // the largest by absolute value
  };
  void histograms(int64_t step, const std::vector<Distribution>& values);
  void text(int64_t step, const std::string& tag, std::string_view markdown);
  void picture(int64_t step, const std::string& tag, std::string_view png, int64_t height, int64_t width);

  const std::string& path() const { return file_->path(); }
  int64_t dropped() const { return file_->dropped(); }

 private:
  void append(int64_t step, const std::string& summary);

  std::unique_ptr<AppendFile> file_;
};

// A record of an event file: length, checksum of the length, `bytes`, checksum of the bytes (little-endian; checksums
// are masked CRC-32C).
std::string event_record(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep
