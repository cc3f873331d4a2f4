// Saver: saves checkpoints while training goes on. It copies the rank's entries, from a GPU in the order of its stream,
// and a thread of its own writes the copy; the ranks' threads meet on a communicator of their own. One save at a time.
// Owned by the command that trains, one a rank; owns thread, communicator and copy, which stays for the next save: as
// much host memory as the rank's entries have.
#pragma once

#include <atomic>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/io/checkpoint.h"

namespace lockstep {

struct SaveReport {
  int64_t step = 0;
  double stall_ms = 0;  // that training stood still for it: the wait for the save before, and the copy
  double seconds = 0;   // from the copy until it was whole on disk
};

class Saver {
 public:
  // Collective. `elements`: what this rank's entries will have; memory for the copy is readied at once, beside
  // training, since the first touch of new memory costs more than the copy. 0: at the first save.
  Saver(Communicator& comm, std::string checkpoints, const Retention& retention, int64_t elements = 0);
  // Finishes a save under way, unless an error is on its way out: then it is given up, on all ranks. Its failure is
  // lost: call finish() first.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // All ranks call these at the same points. A save that failed is thrown on all ranks (fail_together.h) by the next
  // call that waits for it, once; it leaves no trace on disk, and the earlier checkpoints stay. Errors:
  // ExitCode::kStorage, kRankLost; kNumeric where the state holds a NaN or an infinity, naming the tensor and the step.
  // Waits for the save before; where that failed, throws and begins none. Otherwise copies `entries`, which later work
  // of the current stream may change, and begins to save them: together those of all ranks cover each tensor once.
  // `retires`: older checkpoints that the retention does not keep are removed once this one is whole.
  void start(const CheckpointInfo& info, const std::vector<StateEntry>& entries, bool retires = true);
  void finish();

  // The saves that were completed since the last call. Of this rank alone.
  std::vector<SaveReport> completed();

 private:
  void work();
  void save();
  void wait_for_all(const std::future<void>& written);
  void ready(int64_t elements);
  void reserve(int64_t elements);
  void copy(const std::vector<StateEntry>& entries);

  const std::unique_ptr<Communicator> comm_;
  const std::string checkpoints_;
  const Retention retention_;
  Device memory_;  // of the copy

  // The thread's while busy_, otherwise the caller's.
  CheckpointInfo info_;
  bool retires_ = true;
  Tensor buffer_;  // fp32 [n]
  std::vector<StateEntry> entries_;
  Event copied_;
  SaveReport report_;
  std::optional<Error> failure_;

  std::mutex mutex_;  // of the rest
  std::vector<SaveReport> completed_;
  std::condition_variable changed_;
  bool busy_ = false, ending_ = false;
  std::atomic<bool> give_up_{false};
  std::thread thread_;
};

}  // namespace lockstep
