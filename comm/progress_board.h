// ProgressBoard: shared memory in which the ranks of one host post their calls. It lets a rank report the last call of
// a rank that is missing, detects calls that differ without an exchange of messages, lets ranks wait for each other,
// and delivers an abort to ranks that are blocked. Each rank maps it; the system frees it when the last rank unmaps it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"

namespace lockstep {

// "its process 1234 is stopped, by SIGSTOP or a debugger"; empty if it is not stopped, or is not a process of this
// host.
std::string stopped_text(int64_t process);

class ProgressBoard {
 public:
  // `name` begins with "/"; its file lies in the folder that kSharedFolder names, or in /dev/shm
  // (comm/mpi/mpi_launch.h). Both return null if the host has no shared memory left; without a board errors say less,
  // and ranks exchange by messages.
  static std::unique_ptr<ProgressBoard> create(const std::string& name, int ranks);
  static std::unique_ptr<ProgressBoard> open(const std::string& name, int ranks);
  static void unlink(const std::string& name);  // to be called once all ranks have opened it
  ~ProgressBoard();
  ProgressBoard(const ProgressBoard&) = delete;
  ProgressBoard& operator=(const ProgressBoard&) = delete;

  // `place`: index of the rank among the communicator's ranks on this host. Each place has one writer; texts are
  // truncated to fit.
  void post(int place, int64_t number, const std::string& call);
  void enter(int place);  // stores the id of the calling process
  void leave(int place);
  int64_t number(int place) const;  // of the newest collective that it reached
  std::string last(int place) const;
  bool left(int place) const;
  std::string stopped(int place) const;  // stopped_text() of its process

  // A rank's call `number`, for comparison by the other ranks. Kept until kMarks calls later.
  struct Mark {
    uint64_t fingerprint = 0, balance = 0;  // comm/call.h
    std::string details;                    // truncated to fit
    const void* place = nullptr;            // of what it lets others read, an address of its process
  };
  static constexpr int64_t kMarks = 64;
  void mark(int place, int64_t number, const Mark& mark);
  std::optional<Mark> mark_of(
      int place, int64_t number) const;  // nullopt if that rank has not reached `number`, or has overwritten it

  // The meetings of the ranks of a communicator that are on this host: a rank arrives at one after the other, and waits
  // until all ranks have arrived as often as it has.
  void arrive(int place);
  bool all_arrived(int place, int ranks) const;  // as often as the rank at `place`
  // Returns once all have, or a little later than `patience`.
  void wait_for_arrivals(int place, int ranks, std::chrono::milliseconds patience) const;

  void abort(const Error& why);  // the first one counts; its text is cut to fit
  std::optional<Error> aborted() const;

 private:
  struct Shared;
  struct Entry;
  ProgressBoard(void* memory, size_t bytes);
  Entry& at(int place) const;

  void* memory_;
  size_t bytes_;
};

}  // namespace lockstep
