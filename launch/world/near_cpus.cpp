#include "launch/world/near_cpus.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

#include "core/device/backend.h"

namespace lockstep {
namespace {

// "0-3,8,10-11"; nothing where it is not such a list.
std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    int first = -1, last = -1;
    const char* const end = part.data() + part.size();
    const char* next = std::from_chars(part.data(), end, first).ptr;
    if (next == end) last = first;
    else if (*next == '-') next = std::from_chars(next + 1, end, last).ptr;
    if (next != end || first < 0 || last < first || last >= CPU_SETSIZE) return {};
    for (int cpu = first; cpu <= last; ++cpu) out.push_back(cpu);
  }
  return out;
}

}  // namespace

std::vector<int> cpus_near(const std::string& bus, const std::string& system) {
  std::string address = bus, list;
  std::transform(address.begin(), address.end(), address.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  std::ifstream(system + "/bus/pci/devices/" + address + "/local_cpulist") >> list;
  return parse_cpu_list(list);
}

WithCpusNear::WithCpusNear(const std::vector<int>& cpus) {
  cpu_set_t mine, near;
  CPU_ZERO(&near);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0 || CPU_COUNT(&mine) < sysconf(_SC_NPROCESSORS_ONLN)) return;
  for (const int cpu : cpus)
    if (CPU_ISSET(cpu, &mine)) CPU_SET(cpu, &near);
  if (CPU_COUNT(&near) > 0 && sched_setaffinity(0, sizeof near, &near) == 0) before_ = mine;
}

WithCpusNear::WithCpusNear(const Device& device)
    : WithCpusNear(device.type == DeviceType::kCuda ? cpus_near(device_backend().properties(device.index).bus)
                                                    : std::vector<int>()) {}

WithCpusNear::~WithCpusNear() {
  if (before_) (void)sched_setaffinity(0, sizeof *before_, &*before_);
}

}  // namespace lockstep
