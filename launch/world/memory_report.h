// Memory sizes: parsing and printing them, and the memory use of a step for `lockstep bench` and `lockstep plan`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/device/allocator.h"
#include "core/device/memory_peak.h"
#include "core/io/json.h"

namespace lockstep {

// "80GiB", "512MB", "1.5 GB", "1000". Throws ExitCode::kUsage naming `option`.
int64_t parse_bytes(std::string_view text, std::string_view option);
std::string bytes_text(int64_t bytes);  // "1.50 GiB"

// Allocator statistics of the current device; for a GPU including what the run keeps in host memory.
AllocatorStats stats_of_run();
void reset_peak_of_run();
// Adds the peak memory since reset_peak_of_run(), in bytes: peak_bytes (device_peak), the peak of each use, such as
// parameters_bytes, and wire_bytes, sent in a step.
void add_memory(JsonObject& line, const AllocatorStats& stats, int64_t wire_bytes);
// {"peak":bytes,"whom":"blocks.7","op":"matmul","backward":true,"shares":[{"use":"activations","whom":"blocks.0","bytes":
// 4096}, ...]}: shares below 1/5000 of the peak are added up by use, without a name.
JsonObject peak_json(const MemoryPeak& peak);
// The peak in bytes without memory that stays on the host, and without the kernels' scratch memory, which a plan cannot
// know.
int64_t device_peak(const AllocatorStats& stats);
// The peak resident memory of this process in bytes; 0 if the system does not say. Not from getrusage, whose value
// includes the process that started this one.
int64_t peak_resident_bytes();
int64_t resident_bytes();  // now
// The bytes that this process can still take without swapping: what the machine has (MemAvailable), or less where its
// control groups limit it; 0 if the system does not say.
int64_t available_memory();

}  // namespace lockstep
