#include "launch/recovery/memory_recovery.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/base/flight_recorder.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/device/context.h"
#include "core/state/checkpoint_part.h"
#include "core/state/manifest.h"
#include "launch/training/guards/chaos.h"
#include "launch/world/fail_together.h"
#include "launch/world/memory_report.h"
#include "optim/copies_beside.h"

namespace lockstep {
namespace {

constexpr double kHolderStarts = 10, kHolderStartsAgain = 2;  // seconds until a holder answers

constexpr std::string_view kCopy = " copy";  // ends the name of a share that belongs to a rank of another machine

std::string name_of(int64_t generation, int rank, std::string_view end = {}) { return str(generation, "/", rank, end); }

// Tensors that have elements.
int64_t count_tensors(const std::vector<StateEntry>& state) {
  std::set<std::string> names;
  for (const StateEntry& e : state)
    if (e.region.shape.numel() > 0) names.insert(e.name);
  return static_cast<int64_t>(names.size());
}

// Of a rank's share: the newest state, the one that is being written, the one that is being saved; and the last one
// that is on other machines, and the one that is being sent there.
int places_of(const Settings& settings, bool mirrors) {
  return 2 + (settings.checkpoint.while_training() ? 1 : 0) + (mirrors ? 2 : 0);
}
constexpr int kPlacesOfCopy = 2;

StateMemory::Content content_of(const std::vector<StateEntry>& share, const Trainer& trainer) {
  return {slices_of(share), count_tensors(trainer.state()), StateMemory::text_room_of(trainer.info())};
}

// Is it as an update on the host leaves it, and where?
bool is_plain(const StateEntry& e) {
  return !e.scales && e.data.dtype() == DType::kFloat32 && e.data.device() == Device{} && e.data.is_contiguous();
}
const float* values_of(const StateEntry& e) { return static_cast<const float*>(e.data.read()); }

}  // namespace

MemoryRecovery::MemoryRecovery(const Settings& settings, Communicator& comm, Trainer& trainer)
    : settings_(settings),
      comm_(comm),
      trainer_(trainer),
      generation_(attempt_of_job()),
      every_(settings.recovery.every),
      copies_(std::make_unique<CopiesBeside>()) {
  fail_together(comm_, [&] {
    std::vector<std::string> names = memory_holder_names();
    if (const int planted = planted_machine_ranks(); planted > 0)
      for (std::string& name : names) name += str("-", comm_.rank() / planted);
    require(!names.empty(), ExitCode::kConfig, settings_.config.place("recovery.from"),
            ": memory that outlives the ranks is held for those that `lockstep launch` starts; start the run by that, "
            "or set recovery.from: disk");
    holder_ = HeldMemory::connect(names, kHolderStarts);
    holder_names_ = std::move(names);
  });
  const std::vector<std::string> ids = all_gather_text(comm_, holder_->id(), kLabel);
  std::map<std::string, int> numbers;
  for (const std::string& id : ids)
    holder_of_.push_back(numbers.emplace(id, static_cast<int>(numbers.size())).first->second);
}

int64_t MemoryRecovery::generation_of(const std::string& name) { return std::atoll(name.c_str()); }

MemoryRecovery::~MemoryRecovery() { trainer_.set_copies(nullptr); }

bool MemoryRecovery::leads_machine() const {
  const int mine = holder_of_[static_cast<size_t>(comm_.rank())];
  return std::find(holder_of_.begin(), holder_of_.end(), mine) - holder_of_.begin() == comm_.rank();
}

std::vector<StateEntry> MemoryRecovery::entries() const { return trainer_.entries_of_machine(holder_of_); }

int64_t MemoryRecovery::bytes_of(const Settings& settings, const Trainer& trainer, const std::vector<int>& machine_of) {
  const int machines = 1 + *std::max_element(machine_of.begin(), machine_of.end());
  const bool mirrors = settings.recovery.mirror_every > 0 && machines > 1 && trainer.replicas(machine_of).machines == 1;
  const StateMemory::Content content = content_of(trainer.entries_of_machine(machine_of), trainer);
  return content.bytes(places_of(settings, mirrors)) + (mirrors ? content.bytes(kPlacesOfCopy) : 0);
}

bool MemoryRecovery::saves_from_memory(const Settings& settings, const Trainer& trainer,
                                       const std::vector<int>& machine_of) {
  return settings.checkpoint.while_training() && trainer.replicas(machine_of).even;
}

// Is there room for what all ranks of a machine need together? On every machine; the same on every rank.
bool MemoryRecovery::fits(int64_t needed) const {
  const int64_t there = available_memory();
  const auto all = all_gather_values(comm_, there == 0 || needed <= there ? 1 : 0, kLabel);
  return std::find(all.begin(), all.end(), 0) == all.end();
}

// The sum over the ranks of this machine.
int64_t MemoryRecovery::of_machine(int64_t bytes) const {
  const std::vector<int64_t> all = all_gather_values(comm_, bytes, kLabel);
  int64_t out = 0;
  for (size_t r = 0; r < all.size(); ++r)
    if (holder_of_[r] == holder_of_[static_cast<size_t>(comm_.rank())]) out += all[r];
  return out;
}

void MemoryRecovery::require_memory(int64_t needed) const {
  fail_together(comm_, [&] {
    const int64_t there = available_memory();
    require(there == 0 || needed <= there, ExitCode::kDevice, settings_.config.place("recovery.from"),
            ": the state of the last steps takes ", bytes_text(needed), " of the memory of ", host_name(), ", where ",
            bytes_text(there), " are free; use more machines, or set recovery.from: disk");
  });
}

// Who keeps a copy of each rank's share: of those that have no replica on another machine.
std::vector<int> MemoryRecovery::keepers() const {
  std::vector<int> out = StateMirror::keepers(holder_of_);
  const bool alone = settings_.recovery.mirror_every > 0 && trainer_.replicas(holder_of_).machines == 1;
  const std::vector<int64_t> needed = all_gather_values(comm_, alone ? 1 : 0, kLabel);
  for (size_t r = 0; r < out.size(); ++r)
    if (needed[r] == 0) out[r] = -1;
  return out;
}

// What an earlier start left that can be gone on with: the newest such, best one with the state after `step`.
std::optional<StateMemory> MemoryRecovery::take_earlier(const StateMemory::Content& content, int places, bool copy,
                                                        int64_t step) {
  const auto rank = [&](const auto& one) { return std::pair(one.second.has(step), generation_of(one.first)); };
  auto best = earlier_.end();
  for (auto e = earlier_.begin(); e != earlier_.end() && !content.slices.empty(); ++e)
    if (e->first.ends_with(kCopy) == copy && e->second.has_room_for(content, places) &&
        (!copy || e->second.content().text_room == content.text_room) &&
        (best == earlier_.end() || rank(*e) > rank(*best)))
      best = e;
  if (best == earlier_.end()) return {};
  std::optional<StateMemory> out = std::move(best->second);
  if (damaged_.contains({best->first, step})) out->forget(step);
  earlier_.erase(best);
  out->count();
  return out;
}

void MemoryRecovery::put_all() {
  for (const auto& [name, file] : put_) holder_->put(name, file);
}

void MemoryRecovery::begin(const CheckpointInfo& info) {
  trace_mark();
  const std::vector<StateEntry> share = entries();
  StateMemory::Content content = content_of(share, trainer_);
  std::vector<std::string> names;
  for (const auto& [name, memory] : earlier_) names.push_back(name);
  const std::vector<int> keeper_of = keepers();
  const bool mirrors = std::any_of(keeper_of.begin(), keeper_of.end(), [](int keeper) { return keeper >= 0; });
  const int places = places_of(settings_, mirrors);
  memory_ = take_earlier(content, places, false, info.step);
  int64_t bytes = memory_ ? 0 : content.bytes(places);
  if (memory_) content = memory_->content();
  std::vector<std::pair<int, StateMemory::Content>> kept;  // of whose share this rank keeps a copy
  if (mirrors) {
    const JsonObject line{{"tensors", content.tensors},
                          {"text_room", content.text_room},
                          {"slices", JsonText{slices_text(content.slices)}}};
    const auto all = all_gather_text(comm_, json_line(line), kLabel);
    for (size_t r = 0; r < all.size(); ++r) {
      if (keeper_of[r] != comm_.rank()) continue;
      const JsonObject o = parse_json_object(all[r]).value_or(JsonObject{});
      kept.emplace_back(static_cast<int>(r),
                        StateMemory::Content{parse_slices(json_text(o, "slices", kLabel), kLabel),
                                             json_int(o, "tensors", kLabel), json_int(o, "text_room", kLabel)});
    }
  }
  std::vector<std::optional<StateMemory>> copies;
  for (const auto& [rank, its] : kept) {
    copies.push_back(take_earlier(its, kPlacesOfCopy, true, info.step));
    if (!copies.back()) bytes += its.bytes(kPlacesOfCopy);
  }
  earlier_.clear();
  if (const int64_t needed = of_machine(bytes); !fits(needed)) {
    drop_earlier(std::exchange(names, {}));
    require_memory(needed);
  }
  std::vector<StateMirror::Guest> guests;
  fail_together(comm_, [&] {
    if (!memory_) memory_.emplace(content, places);
    if (const Device device = current_device(); device.type == DeviceType::kCuda && !memory_->pin_for(device))
      log_warning(str("rank ", comm_.rank(), ": the memory for the state of the last steps cannot be pinned on ",
                      host_name(), ": copies from the GPU block the host"));
    memory_->forget_after(info.step);
    if (!memory_->has(info.step)) memory_->write(share, info);
    put_.emplace_back(name_of(generation_, comm_.rank()), memory_->read_only());
    for (size_t i = 0; i < kept.size(); ++i) {
      if (!copies[i]) copies[i].emplace(kept[i].second, kPlacesOfCopy);
      copies[i]->forget_after(info.step);
      put_.emplace_back(name_of(generation_, kept[i].first, kCopy), copies[i]->read_only());
      guests.push_back({kept[i].first, std::move(*copies[i])});
    }
    put_all();
  });
  if (mirrors) {
    mirror_ = std::make_unique<StateMirror>(comm_, keeper_of, *memory_, std::move(guests));
    mirror_->start(info.step);
    mirror_->finish();
  }
  drop_earlier(names);  // this state is whole on all machines
  trainer_.set_copies(copies_.get());
}

// What earlier starts of the job left, whose memory is then free.
void MemoryRecovery::drop_earlier(const std::vector<std::string>& names) {
  fail_together(comm_, [&] {
    if (!leads_machine()) return;
    for (const std::string& name : names)
      if (generation_of(name) != generation_) holder_->drop(name);
  });
}

void MemoryRecovery::before_update(int64_t step) {
  if (!after(step) || begun_ == step || current_stream().mode() != Stream::Mode::kInline) return;
  share_ = entries();
  const std::vector<float*> to = memory_->begin_write(share_);
  std::vector<CopiesBeside::Copy> copies;
  for (size_t i = 0; i < share_.size(); ++i)
    if (is_plain(share_[i])) copies.push_back({values_of(share_[i]), share_[i].data.numel(), to[i]});
  copies_->begin(std::move(copies));
  begun_ = step;
}

void MemoryRecovery::write(const CheckpointInfo& info) {
  FlightPhase phase("state to memory");
  if (holder_->lost()) hand_over();
  if (begun_ != info.step) {
    memory_->write(entries(), info);
  } else {
    std::vector<bool> written;
    for (const StateEntry& e : share_) written.push_back(is_plain(e) && copies_->has(values_of(e), e.data.numel()));
    memory_->end_write(share_, written, info);
  }
  copies_->end();
  begun_ = -1;
  if (mirrors_after(info.step)) mirror_->start(info.step);
}

std::optional<MemoryRecovery::Kept> MemoryRecovery::keep_to_save(int64_t step) {
  if (!saves_from_memory(settings_, trainer_, holder_of_) || !memory_->has(step)) return {};
  const Trainer::Replicas r = trainer_.replicas(holder_of_);
  Kept out;
  out.held = memory_->keep(step);
  std::vector<StateEntry> all;
  for (const StoredSlice& s : memory_->slices(step)) all.push_back({s.name, s.region, s.offset, memory_->values(s)});
  out.entries = cut_for_rank(all, r.machine, r.machines);
  return out;
}

// To a holder that was started in the place of one that ended. What this rank has written is still here.
void MemoryRecovery::hand_over() {
  try {
    holder_ = HeldMemory::connect(holder_names_, says_lost_ ? 0 : kHolderStartsAgain);
    put_all();
    log_info(str("rank ", comm_.rank(), ": the process that holds the state in memory on ", host_name(),
                 " had ended; another one has it now"));
    says_lost_ = false;
  } catch (const Error& e) {
    if (!std::exchange(says_lost_, true))
      log_warning(str(e.what(), "; until it is there again, a failure goes back to the last checkpoint on disk"));
  }
}

}  // namespace lockstep
