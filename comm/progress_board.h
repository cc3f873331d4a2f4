// ProgressBoard: shared memory in which the ranks of one host post what they call, so that whoever misses a rank can
// say what it did last, calls that differ are seen where no message compares them, and an abort reaches ranks that no
// message reaches. Each rank maps it; the system frees it with the last of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"

namespace lockstep {

// "its process 1234 is stopped, by SIGSTOP or a debugger"; empty where it is not, or is no process of this host.
std::string stopped_text(int64_t process);

class ProgressBoard {
 public:
  // Null where the host has no shared memory to give: a board only makes errors better.
  static std::unique_ptr<ProgressBoard> create(const std::string& name, int ranks);
  static std::unique_ptr<ProgressBoard> open(const std::string& name, int ranks);
  static void unlink(const std::string& name);  // once all have opened it
  ~ProgressBoard();
  ProgressBoard(const ProgressBoard&) = delete;
  ProgressBoard& operator=(const ProgressBoard&) = delete;

  // `place` counts this host's ranks of the communicator. One writer each; texts are cut to fit.
  void post(int place, int64_t number, const std::string& call);
  void enter(int place);  // remembers the calling process
  void leave(int place);
  int64_t number(int place) const;  // collectives arrived at
  std::string last(int place) const;
  bool left(int place) const;
  std::string stopped(int place) const;  // stopped_text of the process there

  // What a rank calls at `number`, for the others to compare. Kept until kMarks calls later.
  struct Mark {
    uint64_t fingerprint = 0, balance = 0;  // comm/call.h
    std::string details;                    // cut to fit
  };
  static constexpr int64_t kMarks = 64;
  void mark(int place, int64_t number, const Mark& mark);
  std::optional<Mark> mark_of(int place, int64_t number) const;  // nothing where that rank is not so far, or long past

  void abort(ExitCode code, const std::string& why);  // the first one counts
  std::optional<Error> aborted() const;

 private:
  struct Shared;
  struct Place;
  ProgressBoard(void* memory, size_t bytes);
  Place& at(int place) const;

  void* memory_;
  size_t bytes_;
};

}  // namespace lockstep
