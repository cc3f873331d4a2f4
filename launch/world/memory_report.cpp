#include "launch/world/memory_report.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "core/base/error.h"
#include "core/device/context.h"

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

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

namespace {

// The number behind `word` in a file such as memory.stat; with an empty word its first one; -1 where there is none.
int64_t number_in(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  std::string name, value;
  if (word.empty()) file >> value;
  while (!word.empty() && file >> name >> value && name != word) value.clear();
  return value.empty() || !std::isdigit(static_cast<unsigned char>(value[0])) ? -1 : std::atoll(value.c_str());
}

// What the control groups of this process (version 2) leave it, each of them; -1: they limit nothing.
int64_t left_by_groups() {
  int64_t left = -1;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::/")) continue;
    for (std::string group = "/sys/fs/cgroup" + line.substr(3); group.size() > 14; group.resize(group.rfind('/'))) {
      const int64_t most = number_in(group + "/memory.max", ""), now = number_in(group + "/memory.current", "");
      if (most < 0 || now < 0) continue;
      const int64_t cached = std::max<int64_t>(0, number_in(group + "/memory.stat", "inactive_file"));
      const int64_t here = std::max<int64_t>(1, most - now + cached);
      left = left < 0 ? here : std::min(left, here);
    }
  }
  return left;
}

}  // namespace

int64_t available_memory() {
  int64_t there = 0;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) there = std::strtoll(line.c_str() + 13, nullptr, 10) * 1024;
  const int64_t left = left_by_groups();
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
