// Optional shared objects of lockstep (CUDA, NCCL), which are loaded at their first use, so that a program that does
// not need them starts without them. Each is searched for once per process and never unloaded.
#pragma once

#include <mutex>
#include <string>

#include "core/base/error.h"

namespace lockstep {

// A symbol of a shared object beside the program, in ../lib, or on the loader's path. Null, and `why` set, if it cannot
// be loaded.
void* library_symbol(const std::string& library, const char* symbol, std::string* why);

// An object that is opened at its first use. Thread-safe.
template <class T>
class OpenedOnce {
 public:
  // open(why) returns the object, or null with the reason in `why`, or throws Error with it.
  using Open = T*(std::string& why);

  // Null, with the reason in `why`, if it could not be opened.
  T* find(Open open, std::string* why) {
    std::lock_guard lock(mutex_);
    if (!found_ && !searched_) {
      searched_ = true;
      try {
        found_ = open(missing_);
      } catch (const Error& error) {
        missing_ = error.what();
      }
    }
    if (!found_ && why) *why = missing_;
    return found_;
  }
  // Throws ExitCode::kDevice if it could not be opened.
  T& get(Open open) {
    std::string why;
    T* found = find(open, &why);
    require(found != nullptr, ExitCode::kDevice, why);
    return *found;
  }
  void set(T* other) {
    std::lock_guard lock(mutex_);
    found_ = other;
  }

 private:
  std::mutex mutex_;
  T* found_ = nullptr;
  bool searched_ = false;
  std::string missing_;
};

}  // namespace lockstep
