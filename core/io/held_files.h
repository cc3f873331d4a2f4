// HDF5 files that a reader keeps open, so that they stay readable where their names are removed meanwhile. Owns them.
// (Opened by the number of a descriptor, HDF5 takes no file whose name is gone.)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/io/hdf5/hdf5_file.h"

namespace lockstep {

class HeldFiles {
 public:
  // Opens those of the `count` files that can be opened. Null where they are more than 256, or all that are held in
  // this process would be more than a quarter of what it may open.
  static std::shared_ptr<const HeldFiles> open(int64_t count, const std::function<std::string(int64_t)>& path_of);
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;
  ~HeldFiles();

  const Hdf5File* file(int64_t number) const;  // null: it could not be opened
  bool all() const;                            // are open

 private:
  explicit HeldFiles(int64_t count) : files_(static_cast<size_t>(count)) {}
  std::vector<std::optional<Hdf5File>> files_;
};

}  // namespace lockstep
