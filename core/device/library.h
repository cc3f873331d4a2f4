// What lies in shared objects of our own and is opened when it is first asked for, so that a program without it starts
// at no cost: the search, and its one answer. One of each a process, never closed.
#pragma once

#include <mutex>
#include <string>

#include "core/base/error.h"

namespace lockstep {

// A symbol of a shared object that lies beside the program, or in ../lib, or where the loader looks. Null, and `why`,
// where it cannot be opened.
void* library_symbol(const std::string& library, const char* symbol, std::string* why);

// Asked for once; any thread may.
template <class T>
class OpenedOnce {
 public:
  // open(why): gives it, or null and why not, or throws Error with that.
  using Open = T*(std::string& why);

  // Null, and `why` in words, where there is none.
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
  // Throws ExitCode::kDevice where there is none.
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
