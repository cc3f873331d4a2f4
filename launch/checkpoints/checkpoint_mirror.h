// CheckpointMirror: brings a run's checkpoints to a second folder (checkpoint.mirror), beside training: each whole or
// absent there, with the run's metrics and configuration, so that this folder is one that every command reads. Each
// rank has a thread for it; these synchronise on a communicator of their own, and those that have files bring them.
// Owned by RunSaves.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/base/plain_file.h"
#include "core/io/write_pace.h"
#include "core/state/checkpoint.h"

namespace lockstep {

struct MirrorOptions {
  std::string from, to;  // run directories
  Retention retention;
  double bytes_per_s = 0;  // of this rank; 0: as fast as the disk takes it
  bool brings = false;     // has this rank files to bring: all parts of rank 0's folder, or those of its machine's own
};

class CheckpointMirror {
 public:
  // Collective.
  CheckpointMirror(Communicator& comm, MirrorOptions options);
  // Waits for what is being brought, or abandons it on all ranks if an exception is being thrown.
  ~CheckpointMirror();
  CheckpointMirror(const CheckpointMirror&) = delete;
  CheckpointMirror& operator=(const CheckpointMirror&) = delete;

  // The checkpoint of that step is whole: it will be there, unless a newer one comes before its turn. Its files are
  // held, so it may be retired meanwhile. `retires`: the mirror then removes those that the retention does not keep.
  // Called by all ranks for the same steps in the same order, by any thread.
  void add(int64_t step, bool retires = true);
  void hurry() { pace_.hurry(); }  // from now on no limit holds
  void finish();                   // waits until all that was added is there, and brings the records, or gives up
  // What went wrong since the last call, on the rank where it did; the checkpoints stay where they are.
  struct Problem {
    int64_t step = 0;
    std::string text;
  };
  std::vector<Problem> problems();

 private:
  struct Held {
    int64_t step = 0;
    bool retires = true;
    std::vector<std::pair<std::string, InputFile>> files;  // of a checkpoint, by name; the manifest last
    std::vector<std::string> problems;
  };
  Held hold(int64_t step, bool retires) const;
  void work();
  void bring(const Held& one);
  void copy_records();

  const std::unique_ptr<Communicator> comm_;
  const MirrorOptions options_;
  WritePace pace_;

  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  std::deque<Held> waiting_;
  std::vector<Problem> problems_;
  bool busy_ = false, ending_ = false, stopped_ = false;
  std::thread thread_;
};

// The records of a run that went on elsewhere: where the mirror's metrics have later steps than the run directory's, or
// that has none, the mirror's records take the place of these, which are kept under names that end with .set-aside.
void bring_back_records(const std::string& mirror, const std::string& run_dir);

}  // namespace lockstep
