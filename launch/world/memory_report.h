// Bytes in words and figures: sizes on the command line, and what a step takes, for `lockstep bench` and `plan` alike.
// Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/device/allocator.h"
#include "core/io/json.h"

namespace lockstep {

// "80GiB", "512MB", "1.5 GB", "1000". Throws ExitCode::kUsage naming `option`.
int64_t parse_bytes(std::string_view text, std::string_view option);
std::string bytes_text(int64_t bytes);  // "1.50 GiB"

// Of the current device; on a GPU, with what it keeps in host memory.
AllocatorStats stats_of_run();
void reset_peak_of_run();
// The most that was in use since reset_peak_bytes: peak_bytes (device_peak), and of each use by itself, such as
// parameters_bytes; then wire_bytes of a step.
void add_memory(JsonObject& line, const AllocatorStats& stats, int64_t wire_bytes);
// Without what stays in host memory, and without the kernels' scratch, which no plan can know.
int64_t device_peak(const AllocatorStats& stats);
// The most host memory that this process has had since it began; 0 where the system does not say. What getrusage says
// counts the process that started this one, too.
int64_t peak_resident_bytes();

}  // namespace lockstep
