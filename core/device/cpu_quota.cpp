#include "core/device/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <limits>

namespace lockstep {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

double quotient(double quota, double period) { return quota > 0 && period > 0 ? quota / period : kNoQuota; }

// Of version 2, "50000 100000" or "max 100000".
double quota_of_two(const std::string& group) {
  std::ifstream file(group + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max") return kNoQuota;
  return quotient(std::strtod(quota.c_str(), nullptr), period);
}

double quota_of_one(const std::string& group) {
  std::ifstream quota_file(group + "/cpu.cfs_quota_us"), period_file(group + "/cpu.cfs_period_us");
  double quota = -1, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period)) return kNoQuota;
  return quotient(quota, period);  // -1: no limit
}

// Of the group at `path` and those above it, as far as they can be seen.
template <class QuotaOf>
double least_quota(const std::string& root, std::string path, const QuotaOf& quota_of) {
  double least = kNoQuota;
  for (;;) {
    least = std::min(least, quota_of(root + path));
    if (path.empty() || path == "/") return least;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

double cpu_quota(const std::string& membership, const std::string& root) {
  double least = kNoQuota;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "0::/a/b" of version 2, "4:cpu,cpuacct:/a/b" of version 1
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",",
                      path = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, least_quota(root, path, quota_of_two));
    else if (controllers.find(",cpu,") != controllers.npos)
      for (const char* folder : {"/cpu", "/cpu,cpuacct"})
        least = std::min(least, least_quota(root + folder, path, quota_of_one));
  }
  return least;
}

}  // namespace lockstep
