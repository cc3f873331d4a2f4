// Storage: the bytes that tensors view, and a version that counts writes. Bytes may be absent: not yet allocated, or
// released. Shared by its tensors; the thread that drops the last reference frees the block, in the order of its
// current stream.
#pragma once

#include <cstdint>
#include <memory>

#include "core/device/device.h"

namespace lockstep {

class Storage {
 public:
  // No bytes yet.
  Storage(Device device, int64_t bytes) : device_(device), bytes_(bytes) {}
  // Borrowed memory, kept alive by `owner`.
  Storage(Device device, int64_t bytes, void* data, std::shared_ptr<void> owner)
      : device_(device), bytes_(bytes), data_(data), owner_(std::move(owner)), borrowed_(true) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  const Device& device() const { return device_; }
  int64_t bytes() const { return bytes_; }
  bool allocated() const { return data_ != nullptr || bytes_ == 0; }
  void allocate();  // contents undefined; no effect if allocated
  void release();   // frees the bytes; the version stays, and reading throws until allocate()
  void* data() const { return data_; }

  uint64_t version() const { return version_; }
  void bump_version() { ++version_; }

  // In its scope, writes restore the contents from before a release() and do not change the version.
  class Refill {
   public:
    explicit Refill(Storage& storage) : storage_(storage), version_(storage.version_) {}
    ~Refill() { storage_.version_ = version_; }
    Refill(const Refill&) = delete;

   private:
    Storage& storage_;
    uint64_t version_;
  };

 private:
  Device device_;
  int64_t bytes_;
  void* data_ = nullptr;
  std::shared_ptr<void> owner_;
  bool borrowed_ = false;
  uint64_t version_ = 0;
};

}  // namespace lockstep
