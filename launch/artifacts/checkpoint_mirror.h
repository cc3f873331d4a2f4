// CheckpointMirror: brings a run's checkpoints to a second folder (checkpoint.mirror), beside training: each whole or
// absent there, with the run's metrics and configuration, so that this folder is one that every command reads. A thread
// of each rank that has files to bring; those of all ranks synchronise on a communicator of their own. Owned by
// RunSaves.
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
  // held, so it may be retired meanwhile. Called by all ranks for the same steps in the same order, by any thread.
  void add(int64_t step);
  void finish();  // waits until all that was added is there

  // What went wrong since the last call, on the rank where it did; the checkpoints stay where they are.
  std::vector<std::string> problems();

 private:
  struct Held {
    int64_t step = 0;
    std::vector<std::pair<std::string, InputFile>> files;  // of a checkpoint, by name; the manifest last
    std::vector<std::string> problems;
  };
  Held hold(int64_t step) const;
  void work();
  void bring(const Held& one);
  void copy_records();

  const std::unique_ptr<Communicator> comm_;
  const MirrorOptions options_;
  WritePace pace_;

  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  std::deque<Held> waiting_;
  std::vector<std::string> problems_;
  bool busy_ = false, ending_ = false;
  std::thread thread_;
};

// What a run directory lacks that its mirror has: the records of a run that goes on elsewhere. Nothing where it has
// metrics of its own.
void bring_back_records(const std::string& mirror, const std::string& run_dir);

}  // namespace lockstep
