#include "launch/recovery/state_memory.h"

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
#include "core/device/backend.h"
#include "core/device/context.h"
#include "core/device/stream.h"
#include "core/state/checkpoint_part.h"
#include "core/state/manifest.h"
#include "launch/checkpoints/state_copy.h"
#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

constexpr uint64_t kMagic = 0x324d454d53534b4cULL;  // with the version of the layout
constexpr int64_t kPage = 4096;
constexpr int64_t kAlignment = 16;      // elements
constexpr int64_t kTextRoom = 1 << 16;  // bytes that the text of a state may grow by
constexpr int64_t kHashed = 1 << 18;    // elements that a thread hashes at a time

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

struct Lengths {  // of the two texts of a state, before them
  int64_t fixed = 0, changing = 0;
};

std::vector<int64_t> places_of_slices(const std::vector<StoredSlice>& slices) {
  std::vector<int64_t> out{0};
  for (const StoredSlice& s : slices) out.push_back(round_up(out.back() + s.count, kAlignment));
  return out;
}
int64_t value_room_of(const std::vector<StoredSlice>& slices) {
  return round_up(places_of_slices(slices).back(), kPage / static_cast<int64_t>(sizeof(float)));
}
int64_t hash_room_of(int64_t slices) { return round_up((slices + 1) * static_cast<int64_t>(sizeof(Hash128)), kPage); }

// The file once more, with another way of access.
Descriptor opened_again(const Descriptor& file, int access) {
  return Descriptor(::open(str("/proc/self/fd/", file.number()).c_str(), access | O_CLOEXEC));
}

}  // namespace

struct StateMemory::Header {
  uint64_t magic;
  int64_t bytes;       // of the file
  int64_t slice_text;  // bytes
  int64_t hash_room;   // of each place
  int64_t text_room;   // of each place
  int64_t value_room;  // elements of each place
  int64_t tensors;
  int64_t places;
  Hash128 hash;                                    // of all above, and of the slices' text
  std::atomic<int64_t> step_and_one[kMostPlaces];  // zeros are no state

  int64_t state_bytes() const { return hash_room + text_room + value_room * static_cast<int64_t>(sizeof(float)); }
  Hash128 hash_of(std::string_view slices) const { return hash128(this, offsetof(Header, hash)) + hash128(slices, 1); }
};

int64_t StateMemory::text_room_of(const CheckpointInfo& info) {
  return round_up(static_cast<int64_t>(sizeof(Lengths) + info_text(info).size()) + kTextRoom, kTextRoom);
}

int64_t StateMemory::Content::bytes(int places) const {
  return kPage + round_up(static_cast<int64_t>(slices_text(slices).size()), kPage) +
         places * (hash_room_of(static_cast<int64_t>(slices.size())) + text_room +
                   value_room_of(slices) * static_cast<int64_t>(sizeof(float)));
}

StateMemory::StateMemory(const Content& content, int places)
    : file_(::memfd_create("lockstep-state", MFD_CLOEXEC | MFD_ALLOW_SEALING)), content_(content) {
  static_assert(std::atomic<int64_t>::is_always_lock_free && sizeof(Header) <= kPage);
  check(places >= 2 && places <= kMostPlaces, "state in memory: ", places, " places");
  const int64_t bytes = content.bytes(places);
  const std::string what =
      str("recovery.from: memory: ", bytes, " bytes of memory for the state of ", places, " steps");
  require_done(bool{file_}, ExitCode::kDevice, what);
  // The system itself would go on taking pages until it kills a process.
  const int64_t there = available_memory();
  require(there == 0 || bytes <= there, ExitCode::kDevice, what, ", and ", there, " are free");
  int error = ::ftruncate(file_.number(), bytes) == 0 ? EINTR : errno;
  while (error == EINTR) error = ::posix_fallocate(file_.number(), 0, bytes);  // a signal cuts it short
  require(error == 0, ExitCode::kDevice, what, ": ", std::strerror(error));
  // The size is final: a reader never meets a page that is gone. (A seal against writing would bind the ranks that go
  // on with this memory, too: others are kept out by its mode.)
  require_done(::fchmod(file_.number(), 0600) == 0 &&
                   ::fcntl(file_.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0,
               ExitCode::kDevice, what);
  map(bytes);
  const std::string text = slices_text(content.slices);
  Header& h = header();
  h.magic = kMagic;
  h.bytes = bytes;
  h.slice_text = static_cast<int64_t>(text.size());
  h.hash_room = hash_room_of(static_cast<int64_t>(content.slices.size()));
  h.text_room = content.text_room;
  h.value_room = value_room_of(content.slices);
  h.tensors = content.tensors;
  h.places = places;
  h.hash = h.hash_of(text);
  std::memcpy(static_cast<char*>(memory_.get()) + kPage, text.data(), text.size());
  find_places();
  count();
}

StateMemory::StateMemory(const Descriptor& file) : file_(opened_again(file, O_RDWR)) {
  struct stat about {};
  require_done(file_ && ::fstat(file_.number(), &about) == 0, ExitCode::kBadData, "memory that holds a run's state");
  const int64_t bytes = about.st_size;
  const int seals = ::fcntl(file_.number(), F_GET_SEALS);
  require(about.st_uid == ::geteuid() && seals >= 0 && (seals & F_SEAL_SHRINK) != 0, ExitCode::kBadData,
          "memory that should hold a run's state was not made by this user's lockstep");
  require(bytes > kPage, ExitCode::kBadData, "memory that should hold a run's state has ", bytes, " bytes");
  map(bytes);
  const Header& h = header();
  const bool fits = h.magic == kMagic && h.bytes == bytes && h.slice_text >= 0 && h.slice_text <= bytes &&
                    h.hash_room >= 0 && h.hash_room <= bytes && h.text_room >= static_cast<int64_t>(sizeof(Lengths)) &&
                    h.text_room <= bytes && h.value_room >= 0 && h.value_room <= bytes / 4 && h.places >= 2 &&
                    h.places <= kMostPlaces &&
                    kPage + round_up(h.slice_text, kPage) + h.places * h.state_bytes() == bytes;
  require(fits, ExitCode::kBadData, "memory of ", bytes, " bytes is not what this version of lockstep keeps state in");
  const std::string_view text(static_cast<const char*>(memory_.get()) + kPage, static_cast<size_t>(h.slice_text));
  require(h.hash == h.hash_of(text), ExitCode::kBadData, "memory of ", bytes,
          " bytes has changed since a rank wrote its header");
  content_ = {parse_slices(text, "state in memory"), h.tensors, h.text_room};
  find_places();
  require(places_.back() <= h.value_room && hash_room_of(static_cast<int64_t>(content_.slices.size())) == h.hash_room,
          ExitCode::kBadData, "state in memory: has no room for its slices");
}

StateMemory::~StateMemory() = default;

void StateMemory::map(int64_t bytes) {
  bytes_ = bytes;
  void* at = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file_.number(), 0);
  require_done(at != MAP_FAILED, ExitCode::kDevice, "recovery.from: memory: cannot map ", bytes, " bytes");
  memory_ = std::shared_ptr<void>(at, [bytes](void* data) { ::munmap(data, static_cast<size_t>(bytes)); });
}

bool StateMemory::pin_for(const Device& device) {
  if (device.type != DeviceType::kCuda || !device_backend().pin(device.index, memory_.get(), bytes_)) return false;
  pinned_ = std::shared_ptr<void>(
      memory_.get(), [memory = memory_, index = device.index](void* data) { device_backend().unpin(index, data); });
  return true;
}

void StateMemory::count() {
  void* at = take_from_library([this] { return memory_.get(); }, bytes_, {}, MemoryUse::kInHost);
  counted_ = std::shared_ptr<void>(at, [memory = memory_](void* data) { forget_bytes(data, {}); });
}

void StateMemory::find_places() {
  places_ = places_of_slices(content_.slices);
  kept_ = std::make_shared<std::array<std::atomic<int>, kMostPlaces>>();
}

StateMemory::Header& StateMemory::header() const { return *static_cast<Header*>(memory_.get()); }

Hash128* StateMemory::hashes_of(int place) const {
  const Header& h = header();
  return reinterpret_cast<Hash128*>(static_cast<char*>(memory_.get()) + kPage + round_up(h.slice_text, kPage) +
                                    place * h.state_bytes());
}
char* StateMemory::text_of(int place) const { return reinterpret_cast<char*>(hashes_of(place)) + header().hash_room; }
float* StateMemory::values_of(int place) const { return reinterpret_cast<float*>(text_of(place) + header().text_room); }
Tensor StateMemory::view(void* from, int64_t elements) const {
  const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
  return Tensor::view_of(std::make_shared<Storage>(Device{}, bytes, from, memory_), 0, {elements}, DType::kFloat32);
}

bool StateMemory::has_room_for(const Content& content, int places) const {
  const Header& h = header();
  return content.tensors == h.tensors && content.text_room <= h.text_room && places == h.places &&
         std::equal(content.slices.begin(), content.slices.end(), content_.slices.begin(), content_.slices.end(),
                    same_slice);
}

int64_t StateMemory::step_in(int place) const {
  return header().step_and_one[place].load(std::memory_order_acquire) - 1;
}

int StateMemory::place_of(int64_t step) const {
  for (int place = 0; step >= 0 && place < header().places; ++place)
    if (step_in(place) == step) return place;
  return -1;
}

// Never that of the newest state.
int StateMemory::place_to_write() const {
  int newest = 0, oldest = -1;
  for (int place = 1; place < header().places; ++place)
    if (step_in(place) > step_in(newest)) newest = place;
  for (int place = 0; place < header().places; ++place)
    if ((place != newest || step_in(place) < 0) && (*kept_)[static_cast<size_t>(place)] == 0 &&
        (oldest < 0 || step_in(place) < step_in(oldest)))
      oldest = place;
  check(oldest >= 0, "state in memory: each of its ", header().places, " places is kept");
  return oldest;
}

std::shared_ptr<const void> StateMemory::keep(int64_t step) {
  const int place = place_of(step);
  check(place >= 0, "state in memory: there is none after step ", step, " to be kept");
  ++(*kept_)[static_cast<size_t>(place)];
  return {memory_.get(),
          [memory = memory_, kept = kept_, place](const void*) { --(*kept)[static_cast<size_t>(place)]; }};
}

void StateMemory::write(const std::vector<StateEntry>& entries, const CheckpointInfo& info) {
  begin_write(entries);
  end_write(entries, std::vector<bool>(entries.size()), info);
}

std::vector<float*> StateMemory::begin_write(const std::vector<StateEntry>& entries) {
  if (written_to_ < 0) written_to_ = place_to_write();
  header().step_and_one[written_to_].store(0, std::memory_order_seq_cst);
  std::vector<float*> out;
  for (size_t i = 0; i < entries.size(); ++i) out.push_back(values_of(written_to_) + places_[i]);
  return out;
}

void StateMemory::end_write(const std::vector<StateEntry>& entries, const std::vector<bool>& written,
                            const CheckpointInfo& info) {
  trace_mark();
  Header& h = header();
  check(written_to_ >= 0, "state in memory: end_write() without begin_write()");
  const int place = std::exchange(written_to_, -1);
  if (CheckpointInfo fixed = fixed_part(info); !same_fixed(fixed, fixed_)) {
    fixed_ = std::move(fixed);
    has_fixed_ = {};
  }
  char* texts = text_of(place) + sizeof(Lengths);
  const int64_t room = h.text_room - static_cast<int64_t>(sizeof(Lengths));
  Lengths lengths;
  std::memcpy(&lengths, text_of(place), sizeof lengths);
  if (!std::exchange(has_fixed_[static_cast<size_t>(place)], true)) {
    const std::string text = info_text(fixed_);
    lengths.fixed = static_cast<int64_t>(text.size());
    std::memcpy(texts, text.data(), static_cast<size_t>(std::min(lengths.fixed, room)));
  }
  const std::string changing = info_text(changing_part(info));
  lengths.changing = static_cast<int64_t>(changing.size());
  require(lengths.fixed + lengths.changing <= room, ExitCode::kInternal,
          "state in memory: ", lengths.fixed + lengths.changing, " bytes of text in the room of ", room);
  std::memcpy(texts + lengths.fixed, changing.data(), changing.size());
  std::memcpy(text_of(place), &lengths, sizeof lengths);
  std::vector<StateEntry> left;
  std::vector<int64_t> their_places;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (written[i]) continue;
    left.push_back(entries[i]);
    their_places.push_back(places_[i]);
  }
  copy_state(left, view(values_of(place), h.value_room), their_places);
  current_stream().synchronize();
  seal(place, info.step);
  h.step_and_one[place].store(info.step + 1, std::memory_order_seq_cst);
}

// A slice's hash is the sum of those of its stretches, by their numbers.
std::vector<Hash128> StateMemory::hashes_of_slices(int place) const {
  const TraceOp op("hash_state");
  const size_t slices = content_.slices.size();
  std::vector<int64_t> first{0};  // of each slice's stretches
  for (const StoredSlice& s : content_.slices) first.push_back(first.back() + (s.count + kHashed - 1) / kHashed);
  std::vector<Hash128> stretches(static_cast<size_t>(first.back()));
  auto hash = [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const auto slice = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), k) - first.begin() - 1);
      const int64_t number = k - first[slice], at = number * kHashed;
      const int64_t count = std::min(kHashed, content_.slices[slice].count - at);
      stretches[static_cast<size_t>(k)] =
          hash128(values_of(place) + places_[slice] + at, static_cast<size_t>(count) * sizeof(float),
                  static_cast<uint64_t>(number));
    }
  };
  Stream& now = current_stream();
  if (now.mode() == Stream::Mode::kInline)
    now.enqueue([&](Parallel& parallel) { parallel.run(first.back(), 1, hash); });
  else hash(0, first.back());
  std::vector<Hash128> out(slices);
  for (size_t i = 0; i < slices; ++i)
    for (int64_t k = first[i]; k < first[i + 1]; ++k) out[i] += stretches[static_cast<size_t>(k)];
  return out;
}

// Of the step, the texts and the slices' hashes.
Hash128 StateMemory::hash_of_place(int place, int64_t step) const {
  return hash128(hashes_of(place) + 1, content_.slices.size() * sizeof(Hash128), static_cast<uint64_t>(step)) +
         hash128(text_of(place), static_cast<size_t>(header().text_room), 1);
}

void StateMemory::seal(int place, int64_t step) {
  const std::vector<Hash128> hashes = hashes_of_slices(place);
  std::copy(hashes.begin(), hashes.end(), hashes_of(place) + 1);
  *hashes_of(place) = hash_of_place(place, step);
}

std::vector<size_t> StateMemory::damaged(int64_t step) const {
  const int place = place_of(step);
  check(place >= 0, "state in memory: there is none after step ", step, " to be compared with its hashes");
  const std::vector<Hash128> found = hashes_of_slices(place);
  const bool whole = *hashes_of(place) == hash_of_place(place, step);
  std::vector<size_t> out;
  for (size_t i = 0; i < found.size(); ++i)
    if (!whole || found[i] != hashes_of(place)[i + 1]) out.push_back(i);
  return out;
}

Tensor StateMemory::bytes_of(int64_t step) const {
  const int place = place_of(step);
  check(place >= 0, "state in memory: there is none after step ", step, " to be copied");
  return view(hashes_of(place), header().state_bytes() / static_cast<int64_t>(sizeof(float)));
}

Tensor StateMemory::begin_copy() {
  copied_to_ = place_to_write();
  header().step_and_one[copied_to_].store(0, std::memory_order_seq_cst);
  return view(hashes_of(copied_to_), header().state_bytes() / static_cast<int64_t>(sizeof(float)));
}

void StateMemory::end_copy(int64_t step) {
  header().step_and_one[std::exchange(copied_to_, -1)].store(step + 1, std::memory_order_seq_cst);
}

void StateMemory::forget_after(int64_t step) {
  for (int place = 0; place < header().places; ++place)
    if (step_in(place) > step) header().step_and_one[place].store(0);
}

void StateMemory::forget(int64_t step) {
  if (const int place = place_of(step); place >= 0) header().step_and_one[place].store(0);
}

Descriptor StateMemory::read_only() const {
  Descriptor out = opened_again(file_, O_RDONLY);
  require_done(bool{out}, ExitCode::kDevice, "recovery.from: memory: cannot open its memory for reading");
  return out;
}

std::vector<int64_t> StateMemory::steps() const {
  std::vector<int64_t> out;
  for (int place = 0; place < header().places; ++place)
    if (const int64_t step = step_in(place); step >= 0) out.push_back(step);
  std::sort(out.begin(), out.end());
  return out;
}

Tensor StateMemory::values(const StoredSlice& s) const { return view(const_cast<float*>(s.values), s.count); }

CheckpointInfo StateMemory::info(int64_t step) const {
  const int place = place_of(step);
  const std::string where = str("state in memory after step ", step);
  require(place >= 0, ExitCode::kBadData, where, ": is not whole");
  const int64_t room = header().text_room - static_cast<int64_t>(sizeof(Lengths));
  Lengths lengths;
  std::memcpy(&lengths, text_of(place), sizeof lengths);
  require(
      lengths.fixed >= 0 && lengths.changing >= 0 && lengths.fixed <= room && lengths.changing <= room - lengths.fixed,
      ExitCode::kBadData, where, ": its text has no end");
  const auto fixed_bytes = static_cast<size_t>(lengths.fixed);
  const std::string_view text(text_of(place) + sizeof(Lengths), fixed_bytes + static_cast<size_t>(lengths.changing));
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
  std::vector<StoredSlice> out = content_.slices;
  for (size_t i = 0; i < out.size(); ++i) out[i].values = values_of(place) + places_[i];
  return out;
}

}  // namespace lockstep
