// Saver: saves checkpoints while training continues. It copies the rank's state entries (from a GPU in stream order),
// and a separate thread writes the copy; the saver threads of all ranks synchronise on a separate communicator. The
// ranks of a machine write into one file. One save at a time. Owned by the train command, one per rank; owns the
// thread, the communicator and the buffer of the copy, which is kept for the next save and takes as much host memory as
// the rank's entries.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/io/write_pace.h"
#include "core/state/checkpoint.h"

namespace lockstep {

struct SaveReport {
  int64_t step = 0;
  double stall_ms = 0;  // that training waited: for the previous save, and for the copy, until this one was complete
  double seconds = 0;   // from the copy until the checkpoint was complete on disk
};

struct SaverOptions {
  Retention retention = {};
  // The total number of elements of this rank's entries. The buffer is then allocated and touched immediately, on the
  // saver's thread, since the first access to new memory takes longer than the copy. 0: allocate at the first save.
  int64_t elements = 0;
  // Called on the saver's thread: before this rank writes its slices of the step, where what it throws is an error of
  // that write; once the checkpoint is whole.
  std::function<void(int64_t step)> before_write = {};
  std::function<void(int64_t step, bool retires)> saved = {};
  // The ranks that give the same write into one file; empty: those of one machine.
  std::string machine = {};
  // By each machine, of its disk. 0: as fast as that takes it.
  double bytes_per_s = 0;
  // The folder of checkpoints is one of each machine's own: each has the manifest and the file of its ranks there.
  bool per_machine = false;
};

class Saver {
 public:
  // Collective.
  Saver(Communicator& comm, std::string checkpoints, SaverOptions options = {});
  // Waits for a save in progress, or abandons it on all ranks if an exception is being thrown. A failure of that save
  // is not reported; call finish() before.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // All ranks call start() and finish() at the same points. The error of a failed save is thrown once, on all ranks
  // (fail_together.h), by the next call that waits for it; a failed save leaves no files, and earlier checkpoints stay.
  // Errors: ExitCode::kStorage, kRankLost; kNumeric if the state contains a NaN or an infinity, naming the tensor and
  // the step. start() waits for the previous save; if that failed, it throws and starts none. Otherwise it starts to
  // save `entries`, which together with those of all ranks cover each tensor once. What the current stream queues may
  // change them once it has copied them; a stream that queues nothing calls let_change() before. With `held` they lie
  // where nothing changes them as long as that is held, and are not copied. `retires`: remove older checkpoints that
  // the retention does not keep, once this one is complete.
  void start(const CheckpointInfo& info, const std::vector<StateEntry>& entries, bool retires = true,
             std::shared_ptr<const void> held = {});
  void hurry() { pace_.hurry(); }  // from now on no limit holds
  void let_change();               // waits until the entries of the last start() are copied
  void finish();

  // This rank's saves that were completed since the last call.
  std::vector<SaveReport> completed();

 private:
  void work();
  void save();
  std::vector<std::string> write(const std::string& pending, const std::vector<std::string>& said, bool leads,
                                 int& files);
  std::vector<std::string> together(const std::function<std::string()>& mine);
  void ready(int64_t elements);
  void reserve(int64_t elements);
  void copy(const std::vector<StateEntry>& entries);
  void copy_beside();

  const std::unique_ptr<Communicator> comm_;
  const std::string checkpoints_;
  const SaverOptions options_;
  Device memory_;  // of buffer_

  // Used by the saver's thread while busy_ is set, otherwise by the caller.
  CheckpointInfo info_;
  bool retires_ = true;
  Tensor buffer_;  // fp32 [n]
  std::vector<StateEntry> entries_;
  std::vector<StateEntry> live_;  // what the saver's thread has to copy into these
  std::shared_ptr<const void> held_;
  Event copied_;
  SaveReport report_;
  std::optional<Error> failure_;

  std::mutex mutex_;  // guards the following members
  std::vector<SaveReport> completed_;
  std::condition_variable changed_;
  bool busy_ = false, ending_ = false, copies_ = false;
  WritePace pace_;
  std::thread thread_;
};

}  // namespace lockstep
