#include "launch/artifacts/state_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/base/partition.h"
#include "core/base/system_call.h"
#include "core/base/trace.h"
#include "core/device/allocator.h"
#include "core/device/context.h"
#include "core/device/stream.h"
#include "core/state/checkpoint_part.h"
#include "core/state/manifest.h"
#include "launch/artifacts/state_copy.h"
#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

constexpr uint64_t kMagic = 0x314d454d53534b4cULL;  // with the version of the layout
constexpr int64_t kPage = 4096;
constexpr int64_t kAlignment = 16;      // elements
constexpr int64_t kTextRoom = 1 << 16;  // bytes that the text of a state may grow by

// What does not change from step to step, and may be long.
CheckpointInfo fixed_part(const CheckpointInfo& info) {
  CheckpointInfo out;
  out.math_text = info.math_text;
  out.config = info.config;
  out.vocabulary = info.vocabulary;
  out.data_schema = info.data_schema;
  return out;
}
bool same_fixed(const CheckpointInfo& a, const CheckpointInfo& b) {
  return a.math_text == b.math_text && a.config == b.config && a.vocabulary == b.vocabulary &&
         a.data_schema == b.data_schema;
}
CheckpointInfo changing_part(CheckpointInfo info) {
  info.math_text = info.config = info.vocabulary = info.data_schema = "";
  return info;
}

bool same_slice(const StoredSlice& a, const StoredSlice& b) {
  return of_one_region(a, b) && a.offset == b.offset && a.count == b.count;
}

}  // namespace

// Zeros are no state: steps count from 1 here.
struct StateMemory::Header {
  uint64_t magic;
  int64_t bytes;       // of the file
  int64_t slice_text;  // bytes
  int64_t text_room;   // of each state
  int64_t value_room;  // elements of each state
  int64_t tensors;
  struct State {
    std::atomic<int64_t> step_and_one;
    int64_t fixed_bytes, changing_bytes;
  } states[2];

  int64_t state_bytes() const { return text_room + value_room * static_cast<int64_t>(sizeof(float)); }
};

namespace {

struct Extents {
  std::string slices;
  int64_t first_state, text_room, value_room, bytes;

  Extents(const std::vector<StateEntry>& entries, const CheckpointInfo& info)
      : slices(slices_text(slices_of(entries))),
        first_state(kPage + round_up(static_cast<int64_t>(slices.size()), kPage)),
        text_room(round_up(static_cast<int64_t>(info_text(info).size()) + kTextRoom, kPage)),
        value_room(round_up(places_of(entries, kAlignment).back(), kPage / 4)),
        bytes(first_state + 2 * (text_room + value_room * static_cast<int64_t>(sizeof(float)))) {}
};

}  // namespace

int64_t StateMemory::bytes_of(const std::vector<StateEntry>& entries, const CheckpointInfo& info) {
  return Extents(entries, info).bytes;
}

StateMemory::StateMemory(const std::vector<StateEntry>& entries, int64_t tensors, const CheckpointInfo& info)
    : file_(::memfd_create("lockstep-state", MFD_CLOEXEC)) {
  static_assert(std::atomic<int64_t>::is_always_lock_free && sizeof(Header) <= kPage);
  const Extents e(entries, info);
  const std::string what = str("recovery.from: memory: ", e.bytes, " bytes of memory for the state of two steps");
  require_done(bool{file_}, ExitCode::kDevice, what);
  // The system itself would go on taking pages until it kills a process.
  const int64_t there = available_memory();
  require(there == 0 || e.bytes <= there, ExitCode::kDevice, what, ", and ", there, " are free");
  const int error = ::ftruncate(file_.number(), e.bytes) == 0 ? ::posix_fallocate(file_.number(), 0, e.bytes) : errno;
  require(error == 0, ExitCode::kDevice, what, ": ", std::strerror(error));
  map(e.bytes);
  Header& h = header();
  h.magic = kMagic;
  h.bytes = e.bytes;
  h.slice_text = static_cast<int64_t>(e.slices.size());
  h.text_room = e.text_room;
  h.value_room = e.value_room;
  h.tensors = tensors;
  std::memcpy(static_cast<char*>(memory_.get()) + kPage, e.slices.data(), e.slices.size());
  slices_ = slices_of(entries);
  find_places();
  count();
}

StateMemory::StateMemory(Descriptor file) : file_(std::move(file)) {
  struct stat about {};
  require_done(::fstat(file_.number(), &about) == 0, ExitCode::kBadData, "memory that holds a run's state");
  const int64_t bytes = about.st_size;
  require(bytes > kPage, ExitCode::kBadData, "memory that should hold a run's state has ", bytes, " bytes");
  map(bytes);
  const Header& h = header();
  const bool fits = h.magic == kMagic && h.bytes == bytes && h.slice_text >= 0 && h.slice_text <= bytes &&
                    h.text_room >= 0 && h.text_room <= bytes && h.value_room >= 0 && h.value_room <= bytes / 4 &&
                    kPage + round_up(h.slice_text, kPage) + 2 * h.state_bytes() == bytes;
  require(fits, ExitCode::kBadData, "memory of ", bytes, " bytes is not what this version of lockstep keeps state in");
  const std::string_view text(static_cast<const char*>(memory_.get()) + kPage, static_cast<size_t>(h.slice_text));
  slices_ = parse_slices(text, "state in memory");
  find_places();
  require(places_.back() <= h.value_room, ExitCode::kBadData, "state in memory: has no room for its slices");
}

StateMemory::~StateMemory() = default;

void StateMemory::map(int64_t bytes) {
  bytes_ = bytes;
  void* at = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file_.number(), 0);
  require_done(at != MAP_FAILED, ExitCode::kDevice, "recovery.from: memory: cannot map ", bytes, " bytes");
  memory_ = std::shared_ptr<void>(at, [bytes](void* data) { ::munmap(data, static_cast<size_t>(bytes)); });
}

void StateMemory::count() {
  void* at = take_from_library([this] { return memory_.get(); }, bytes_, {}, MemoryUse::kInHost);
  counted_ = std::shared_ptr<void>(at, [memory = memory_](void* data) { forget_bytes(data, {}); });
}

void StateMemory::find_places() {
  places_ = {0};
  for (const StoredSlice& s : slices_) places_.push_back(round_up(places_.back() + s.count, kAlignment));
}

StateMemory::Header& StateMemory::header() const { return *static_cast<Header*>(memory_.get()); }
int64_t StateMemory::tensors() const { return header().tensors; }

char* StateMemory::text_of(int place) const {
  const Header& h = header();
  return static_cast<char*>(memory_.get()) + kPage + round_up(h.slice_text, kPage) + place * h.state_bytes();
}
float* StateMemory::values_of(int place) const { return reinterpret_cast<float*>(text_of(place) + header().text_room); }

bool StateMemory::has_room_for(const std::vector<StateEntry>& entries, int64_t tensors,
                               const CheckpointInfo& info) const {
  const auto wanted = slices_of(entries);
  return tensors == header().tensors &&
         static_cast<int64_t>(info_text(info).size()) + kTextRoom / 2 <= header().text_room &&
         std::equal(wanted.begin(), wanted.end(), slices_.begin(), slices_.end(), same_slice);
}

void StateMemory::write(const std::vector<StateEntry>& entries, const CheckpointInfo& info) {
  trace_mark();
  Header& h = header();
  const auto step_in = [&](int place) { return h.states[place].step_and_one.load(std::memory_order_acquire); };
  const int place = step_in(0) <= step_in(1) ? 0 : 1;
  Header::State& state = h.states[place];
  state.step_and_one.store(0, std::memory_order_seq_cst);
  if (CheckpointInfo fixed = fixed_part(info); !same_fixed(fixed, fixed_)) {
    fixed_ = std::move(fixed);
    has_fixed_ = {};
  }
  if (!std::exchange(has_fixed_[static_cast<size_t>(place)], true)) {
    const std::string text = info_text(fixed_);
    state.fixed_bytes = std::min(static_cast<int64_t>(text.size()), h.text_room);
    std::memcpy(text_of(place), text.data(), static_cast<size_t>(state.fixed_bytes));
  }
  const std::string changing = info_text(changing_part(info));
  require(state.fixed_bytes + static_cast<int64_t>(changing.size()) <= h.text_room, ExitCode::kInternal,
          "state in memory: ", state.fixed_bytes + static_cast<int64_t>(changing.size()),
          " bytes of text in the room of ", h.text_room);
  std::memcpy(text_of(place) + state.fixed_bytes, changing.data(), changing.size());
  state.changing_bytes = static_cast<int64_t>(changing.size());
  const auto room = std::make_shared<Storage>(Device{}, h.value_room * static_cast<int64_t>(sizeof(float)),
                                              values_of(place), memory_);
  copy_state(entries, Tensor::view_of(room, 0, {h.value_room}, DType::kFloat32), places_);
  current_stream().synchronize();
  state.step_and_one.store(info.step + 1, std::memory_order_seq_cst);
}

void StateMemory::forget_after(int64_t step) {
  for (Header::State& s : header().states)
    if (s.step_and_one.load() - 1 > step) s.step_and_one.store(0);
}

std::vector<int64_t> StateMemory::steps() const {
  std::vector<int64_t> out;
  for (const Header::State& s : header().states)
    if (const int64_t step = s.step_and_one.load(std::memory_order_acquire); step > 0) out.push_back(step - 1);
  std::sort(out.begin(), out.end());
  return out;
}

int StateMemory::place_of(int64_t step) const {
  for (int place : {0, 1})
    if (header().states[place].step_and_one.load(std::memory_order_acquire) == step + 1) return place;
  return -1;
}

CheckpointInfo StateMemory::info(int64_t step) const {
  const int place = place_of(step);
  const std::string where = str("state in memory after step ", step);
  require(place >= 0, ExitCode::kBadData, where, ": is not whole");
  const Header& h = header();
  const Header::State& s = h.states[place];
  require(s.fixed_bytes >= 0 && s.changing_bytes >= 0 && s.fixed_bytes <= h.text_room &&
              s.changing_bytes <= h.text_room - s.fixed_bytes,
          ExitCode::kBadData, where, ": its text has no end");
  const std::string_view text(text_of(place), static_cast<size_t>(s.fixed_bytes + s.changing_bytes));
  const auto fixed_bytes = static_cast<size_t>(s.fixed_bytes);
  const CheckpointInfo fixed = parse_info(text.substr(0, fixed_bytes), where);
  CheckpointInfo out = parse_info(text.substr(fixed_bytes), where);
  require(out.step == step, ExitCode::kBadData, where, ": its text is of step ", out.step);
  out.math_text = fixed.math_text;
  out.config = fixed.config;
  out.vocabulary = fixed.vocabulary;
  out.data_schema = fixed.data_schema;
  return out;
}

std::vector<StoredSlice> StateMemory::slices(int64_t step) const {
  const int place = place_of(step);
  require(place >= 0, ExitCode::kBadData, "state in memory after step ", step, ": is not whole");
  std::vector<StoredSlice> out = slices_;
  for (size_t i = 0; i < out.size(); ++i) out[i].values = values_of(place) + places_[i];
  return out;
}

}  // namespace lockstep
