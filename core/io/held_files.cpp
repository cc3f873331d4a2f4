#include "core/io/held_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>

#include "core/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kMostHeld = 256;

std::atomic<int64_t> held_here{0};  // by this process, whose ranks may be threads

int64_t most_held_here() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 30)) / 4 : kMostHeld;
}

}  // namespace

std::shared_ptr<const HeldFiles> HeldFiles::open(int64_t count, const std::function<std::string(int64_t)>& path_of) {
  if (count < 0 || count > kMostHeld) return {};
  std::shared_ptr<HeldFiles> out(new HeldFiles(count));
  if ((held_here += count) > most_held_here()) return {};  // the destructor takes them off again
  for (int64_t i = 0; i < count; ++i) try {
      out->files_[static_cast<size_t>(i)].emplace(Hdf5File::open(path_of(i)));
    } catch (const Error&) {
      // Who reads it says what is wrong with it.
    }
  return out;
}

HeldFiles::~HeldFiles() { held_here -= static_cast<int64_t>(files_.size()); }

const Hdf5File* HeldFiles::file(int64_t number) const {
  const auto& file = files_[static_cast<size_t>(number)];
  return file ? &*file : nullptr;
}

bool HeldFiles::all() const {
  return std::all_of(files_.begin(), files_.end(), [](const auto& file) { return file.has_value(); });
}

}  // namespace lockstep
