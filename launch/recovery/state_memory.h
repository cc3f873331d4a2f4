// StateMemory: a share of a run's state after each of its last steps, in a file in memory that outlives the process:
// whoever holds its descriptor keeps it (launch/recovery/held_memory.h). One process writes it, into the place of the
// oldest state, which counts no more until the newer one is whole; so a process that ends at any time leaves one whole
// state at least. Every state has hashes (XXH3, 128 bits), written with it and compared by damaged(). The file has mode
// 0600, so that only processes of this user open it, and a sealed size. Owned by who writes or reads; a value that can
// be moved.
//   header     what is here, its hash, and for each place the step after which its state is; none while it is not whole
//   slices     of the share, as slices_text
//   places     each: the hash of its step, texts and hashes; a hash for each slice; what the run needs beside its
//              tensors, as two lines of info_text (what never changes, what does) behind their lengths; then the
//              slices' values, fp32
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/base/plain_file.h"
#include "core/device/device.h"
#include "core/state/checkpoint.h"

namespace lockstep {

class StateMemory {
 public:
  // What is in a file: `slices` of a state that has `tensors` tensors in all, and `text_room` bytes for what the run
  // needs beside them, as text_room_of() says.
  struct Content {
    std::vector<StoredSlice> slices;
    int64_t tensors = 0, text_room = 0;

    int64_t bytes(int places) const;
  };
  static constexpr int kMostPlaces = 6;
  static int64_t text_room_of(const CheckpointInfo& info);

  // Room for so many states, at least 2, reserved at once. Throws ExitCode::kDevice where there is not so much memory.
  StateMemory(const Content& content, int places);
  // What another process of this user wrote; `file` may be read_only(). Throws kBadData where it is none of these
  // files, belongs to another user or is damaged in what never changes, kDevice where it cannot be mapped.
  explicit StateMemory(const Descriptor& file);
  StateMemory(StateMemory&&) noexcept = default;
  StateMemory& operator=(StateMemory&&) noexcept = default;
  ~StateMemory();

  // Makes the entries' values, which are the slices', the state after info.step, in the place of the oldest one that is
  // not kept. Returns when it is whole.
  void write(const std::vector<StateEntry>& entries, const CheckpointInfo& info);
  // The same in two parts: begins, and says where each entry's values belong; what has been written there until the
  // second is not copied.
  std::vector<float*> begin_write(const std::vector<StateEntry>& entries);
  void end_write(const std::vector<StateEntry>& entries, const std::vector<bool>& written, const CheckpointInfo& info);
  // States after a later step count no more.
  void forget_after(int64_t step);
  void forget(int64_t step);  // nor does the one after this step
  // Is this what is here, with so many places?
  bool has_room_for(const Content& content, int places) const;
  // The state after a step that is whole stays where it is as long as this is held. From any thread.
  std::shared_ptr<const void> keep(int64_t step);
  bool has(int64_t step) const { return place_of(step) >= 0; }
  // The same state in another file of this content: what has to be copied, of a state that is whole, and where to; then
  // that state is whole there. One copy at a time.
  Tensor bytes_of(int64_t step) const;
  Tensor begin_copy();
  void end_copy(int64_t step);
  // Copies from this GPU then go on beside the host, which waits for them once. False where the system refuses that,
  // and on CPUs. Once, before the first state is written.
  bool pin_for(const Device& device);
  void count();  // in the census, as this process's; whoever makes one counts it

  std::vector<int64_t> steps() const;  // of the states that are whole, ascending
  const Content& content() const { return content_; }
  const Descriptor& file() const { return file_; }
  // The file for others, who read it: whoever gets it can write into it only as this user.
  Descriptor read_only() const;
  // Of the state after a step that is whole. The values stay where they are as long as memory() is held.
  CheckpointInfo info(int64_t step) const;
  std::vector<StoredSlice> slices(int64_t step) const;  // with where their values are
  // The slices whose values are not those that were written: all of them where the texts or the step are not. By all
  // threads of the current stream.
  std::vector<size_t> damaged(int64_t step) const;
  Tensor values(const StoredSlice& slice) const;  // of such a one, where they are
  std::shared_ptr<const void> memory() const { return memory_; }

 private:
  struct Header;
  Header& header() const;
  int64_t step_in(int place) const;  // -1: no whole state
  int place_of(int64_t step) const;  // -1: it is not here
  int place_to_write() const;
  Hash128* hashes_of(int place) const;  // of the place, then of each slice
  Hash128 hash_of_place(int place, int64_t step) const;
  std::vector<Hash128> hashes_of_slices(int place) const;
  void seal(int place, int64_t step);
  char* text_of(int place) const;
  float* values_of(int place) const;
  Tensor view(void* from, int64_t elements) const;
  void map(int64_t bytes);
  void find_places();

  Descriptor file_;
  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
  Content content_;
  std::vector<int64_t> places_;                   // of the slices among the values, and the end of all
  CheckpointInfo fixed_;                          // what never changes from step to step, and
  std::array<bool, kMostPlaces> has_fixed_ = {};  // whether this process wrote it in each place
  std::shared_ptr<std::array<std::atomic<int>, kMostPlaces>> kept_;  // how often
  int copied_to_ = -1, written_to_ = -1;
  std::shared_ptr<void> counted_, pinned_;
};

}  // namespace lockstep
