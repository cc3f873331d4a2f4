#include "launch/world/memory_report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "core/base/error.h"
#include "core/device/context.h"
#include "launch/world/control_group.h"

namespace lockstep {

int64_t parse_bytes(std::string_view text, std::string_view option) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  std::string_view unit = std::string_view(end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (end != copy.c_str() && std::isfinite(number) && number >= 0)
    for (auto& [name, factor] : kUnits)
      if (unit == name && number * factor < 0x1p62) return static_cast<int64_t>(number * factor);
  throw Error(ExitCode::kUsage, str("--", option, " ", text, ": is not a size; write it as 80GiB or 512MB"));
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char out[32];
  std::snprintf(out, sizeof out,
                unit == 0 || value >= 100 ? "%.0f %s"
                : value >= 10             ? "%.1f %s"
                                          : "%.2f %s",
                value, kUnits[unit]);
  return out;
}

AllocatorStats stats_of_run() {
  const Device here = current_device();
  AllocatorStats stats = allocator_stats(here);
  if (here.type != DeviceType::kCuda) return stats;
  const AllocatorStats host = allocator_stats(host_memory_of(here));
  constexpr auto kUse = static_cast<size_t>(MemoryUse::kInHost);
  stats.by_use[kUse] += host.by_use[kUse];
  stats.bytes_in_use += host.by_use[kUse];
  stats.peak_by_use[kUse] += host.peak_by_use[kUse];
  stats.peak_bytes += host.peak_by_use[kUse];
  return stats;
}

void reset_peak_of_run() {
  const Device here = current_device();
  reset_peak_bytes(here);
  if (here.type == DeviceType::kCuda) reset_peak_bytes(host_memory_of(here));
}

JsonObject peak_json(const MemoryPeak& peak) {
  constexpr int64_t kLeast = 5000;
  std::vector<JsonObject> shares;
  BytesByUse rest{};
  const auto add = [&](MemoryUse use, const std::string& whom, int64_t bytes) {
    shares.push_back({{"use", std::string(to_text(use))}, {"whom", whom}, {"bytes", bytes}});
  };
  for (const MemoryShare& s : peak.shares) {
    if (s.bytes * kLeast >= peak.bytes && !s.whom.empty()) add(s.use, s.whom, s.bytes);
    else rest[static_cast<size_t>(s.use)] += s.bytes;
  }
  for (size_t use = 0; use < rest.size(); ++use)
    if (rest[use] > 0) add(static_cast<MemoryUse>(use), "", rest[use]);
  return {{"peak", peak.bytes},
          {"whom", peak.whom},
          {"op", peak.op},
          {"backward", peak.backward},
          {"shares", json_array(shares)}};
}

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");  // pages: all, resident
  int64_t all = 0, resident = 0;
  return file >> all >> resident ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

int64_t available_memory() {
  int64_t there = 0;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) there = std::strtoll(line.c_str() + 13, nullptr, 10) * 1024;
  const int64_t left = memory_left(memory_group(::getpid()));
  return there > 0 && left > 0 ? std::min(there, left) : std::max<int64_t>({there, left, 0});
}

int64_t device_peak(const AllocatorStats& stats) {
  return stats.peak_bytes - stats.peak_of(MemoryUse::kScratch) - stats.peak_of(MemoryUse::kInHost);
}

void add_memory(JsonObject& line, const AllocatorStats& stats, int64_t wire_bytes) {
  line.emplace_back("peak_bytes", device_peak(stats));
  for (int i = 0; i < kMemoryUses; ++i)
    if (const auto use = static_cast<MemoryUse>(i); use != MemoryUse::kScratch)
      line.emplace_back(str(use, "_bytes"), stats.peak_of(use));
  line.emplace_back("wire_bytes", wire_bytes);
}

}  // namespace lockstep
