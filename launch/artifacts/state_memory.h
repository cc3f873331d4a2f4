// StateMemory: a share of a run's state after each of its last two steps, in a file in memory that outlives the
// process: whoever holds its descriptor keeps it (launch/world/held_memory.h). One process writes it, into the place of
// the older state, which counts no more until the newer one is whole; so a process that ends at any time leaves one
// whole state at least. Owned by who writes or reads; a value that can be moved.
//   header     what is here, and for each of the two states the step after which it is; -1: not whole
//   slices     of the share, as slices_text
//   2 states   each: what the run needs beside its tensors, as two lines of info_text (what never changes, what does),
//              then the slices' values, fp32
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/plain_file.h"
#include "core/state/checkpoint.h"

namespace lockstep {

class StateMemory {
 public:
  // Room for two states of these entries, reserved at once. `tensors`: how many the whole state has. Throws
  // ExitCode::kDevice where there is not so much memory.
  StateMemory(const std::vector<StateEntry>& entries, int64_t tensors, const CheckpointInfo& info);
  // What another process wrote. Throws kBadData where it is none of these files, kDevice where it cannot be mapped.
  explicit StateMemory(Descriptor file);
  StateMemory(StateMemory&&) noexcept = default;
  StateMemory& operator=(StateMemory&&) noexcept = default;
  ~StateMemory();

  // The bytes of such a file.
  static int64_t bytes_of(const std::vector<StateEntry>& entries, const CheckpointInfo& info);

  // Makes the entries' values the state after info.step, in the place of the older one. Returns when it is whole.
  void write(const std::vector<StateEntry>& entries, const CheckpointInfo& info);
  // States after a later step count no more.
  void forget_after(int64_t step);
  // Can write() put these entries here?
  bool has_room_for(const std::vector<StateEntry>& entries, int64_t tensors, const CheckpointInfo& info) const;
  void count();  // in the census, as this process's; whoever makes one counts it

  std::vector<int64_t> steps() const;  // of the states that are whole, ascending
  int64_t tensors() const;
  const std::vector<StoredSlice>& slices() const { return slices_; }
  const Descriptor& file() const { return file_; }
  // Of the state after a step that is whole. The values stay where they are as long as memory() is held.
  CheckpointInfo info(int64_t step) const;
  std::vector<StoredSlice> slices(int64_t step) const;  // with where their values are
  std::shared_ptr<const void> memory() const { return memory_; }

 private:
  struct Header;
  Header& header() const;
  int place_of(int64_t step) const;  // -1: it is not here
  char* text_of(int place) const;
  float* values_of(int place) const;
  void map(int64_t bytes);
  void find_places();

  Descriptor file_;
  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
  std::vector<StoredSlice> slices_;
  std::vector<int64_t> places_;         // of the slices among the values, and the end of all
  CheckpointInfo fixed_;                // what never changes from step to step, and
  std::array<bool, 2> has_fixed_ = {};  // whether this process wrote it for each state
  std::shared_ptr<void> counted_;
};

}  // namespace lockstep
