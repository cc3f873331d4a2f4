// Handles of HDF5's C API: the process-wide lock, RAII ids, error text and element types. The only include of hdf5.h.
// Included by hdf5_file.cpp and the parts beside it (core/io/hdf5_*.cpp) alone.
#pragma once

#define H5_USE_110_API  // newer libraries keep the calls of 1.10, which Debian 12 and Ubuntu 24.04 carry
#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

#include "core/io/hdf5/hdf5_file.h"

namespace lockstep::hdf5 {

// A lock: one thread at a time calls HDF5. In its scope HDF5 prints no errors and loads no plugins, as a file must not
// choose code to run; both settings are restored for the sake of user programs that use HDF5 themselves.
class Door {
 public:
  // `path`: of a file that is about to be opened, for require_room.
  explicit Door(const std::string* path = nullptr);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
  H5E_auto2_t printer_ = nullptr;
  void* printer_data_ = nullptr;
  unsigned plugins_ = 0;
};

// HDF5 may crash when memory runs out. Throws ExitCode::kDevice where less is left than opening a file may take.
void require_room(const std::string& path);

class Id {
 public:
  using Close = herr_t (*)(hid_t);
  Id() = default;
  Id(hid_t id, Close close) : id_(id), close_(close) {}
  Id(Id&& o) noexcept : id_(std::exchange(o.id_, -1)), close_(o.close_) {}
  Id& operator=(Id&& o) noexcept {
    std::swap(id_, o.id_);
    std::swap(close_, o.close_);
    return *this;
  }
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  // Closes now and says whether that worked; the handle is gone either way.
  bool close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }
  operator hid_t() const { return id_; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// The innermost reason of HDF5's error stack, and what kind of error it is.
struct Reason {
  std::string innermost;
  bool checksum = false;
  bool memory = false;  // there is none left, and not only less than the impossible size that a damaged file asked for
};

// Of the calling thread's last failed call.
Reason reason();

// The type as it lies in a file and in memory.
Id file_type(StoredType type);

}  // namespace lockstep::hdf5
