#include "launch/training/memory_recovery.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "core/base/flight_recorder.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/device/context.h"
#include "core/state/checkpoint_part.h"
#include "core/state/manifest.h"
#include "launch/training/chaos.h"
#include "launch/world/fail_together.h"
#include "launch/world/memory_report.h"
#include "launch/world/pieces.h"
#include "optim/copies_beside.h"

namespace lockstep {
namespace {

constexpr double kHolderStarts = 10, kHolderStartsAgain = 2;  // seconds until a holder answers
constexpr const char* kLabel = "state in memory";

constexpr std::string_view kCopy = " copy";  // ends the name of a share that belongs to a rank of another machine

std::string name_of(int64_t generation, int rank, std::string_view end = {}) { return str(generation, "/", rank, end); }
int64_t generation_of(const std::string& name) { return std::atoll(name.c_str()); }

// Tensors that have elements.
int64_t count_tensors(const std::vector<StateEntry>& state) {
  std::set<std::string> names;
  for (const StateEntry& e : state)
    if (e.region.shape.numel() > 0) names.insert(e.name);
  return static_cast<int64_t>(names.size());
}

bool needs(const StateEntry& e, const StoredSlice& s) {
  if (e.name != s.name || e.data.numel() == 0) return false;
  if (e.region == s.region) return !intersect({e.offset, e.end()}, {s.offset, s.offset + s.count}).empty();
  return intersect(e.region, s.region).numel() > 0;
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

// What a checkpoint in memory points into.
struct Memories {
  std::set<std::shared_ptr<const void>> mapped;
  std::vector<Tensor> received;
};

}  // namespace

// What one rank of an earlier start of the job left.
struct MemoryRecovery::Share {
  int64_t generation = 0;  // the number of that start
  int owner = 0;           // the first rank of the machine that has it
  std::vector<int64_t> steps;
  int64_t tensors = 0;
  std::vector<StoredSlice> slices;
  const StateMemory* memory = nullptr;  // null: on another machine
  std::string name;
  std::map<int64_t, std::set<size_t>> damaged;  // by step: slices whose values have changed

  bool has(int64_t step) const { return std::find(steps.begin(), steps.end(), step) != steps.end(); }
  // A state whose texts have changed has no slice that is good.
  bool has_good_texts(int64_t step) const {
    const auto bad = damaged.find(step);
    return bad == damaged.end() || bad->second.size() < slices.size();
  }
};

// A stretch of the state, and whose it is.
struct MemoryRecovery::Found {
  StoredSlice slice;
  size_t share = 0, number = 0;  // of the share, the slice that has it
};

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

MemoryRecovery::~MemoryRecovery() { trainer_.set_copies(nullptr); }

bool MemoryRecovery::leads_machine() const {
  const int mine = holder_of_[static_cast<size_t>(comm_.rank())];
  return std::find(holder_of_.begin(), holder_of_.end(), mine) - holder_of_.begin() == comm_.rank();
}

// Those that all machines have, in the same order on every rank.
std::vector<MemoryRecovery::Share> MemoryRecovery::gather_shares(int64_t at_most) {
  std::vector<JsonObject> mine;
  fail_together(comm_, [&] {
    for (auto& [name, file] : holder_->all()) try {
        StateMemory& memory = earlier_.emplace_back(name, StateMemory(file)).second;
        if (!leads_machine()) continue;
        memory.forget_after(at_most);
        JsonObject line{{"name", name}, {"tensors", memory.content().tensors}};
        const std::vector<int64_t> steps = memory.steps();
        for (size_t i = 0; i < steps.size(); ++i) line.emplace_back(str("step_", i), steps[i]);
        line.emplace_back("slices", JsonText{slices_text(memory.content().slices)});
        mine.push_back(std::move(line));
      } catch (const Error& e) {
        log_warning(str("passing over state in memory on ", host_name(), ": ", e.what()));
      }
  });
  const auto texts = all_gather_text(comm_, mine.empty() ? std::string() : json_list(mine), kLabel);
  std::vector<Share> out;
  const int here = holder_of_[static_cast<size_t>(comm_.rank())];
  for (size_t r = 0; r < texts.size(); ++r) {
    if (texts[r].empty()) continue;
    const bool read = visit_json_list(texts[r], [&](JsonObject&& o) {
      Share s;
      s.name = json_text(o, "name", kLabel);
      s.generation = generation_of(s.name);
      s.owner = static_cast<int>(r);
      s.tensors = json_int(o, "tensors", kLabel);
      for (int i = 0; i < StateMemory::kMostPlaces; ++i)
        if (const int64_t step = integer_of(o, str("step_", i), -1); step >= 0) s.steps.push_back(step);
      s.slices = parse_slices(json_text(o, "slices", kLabel), kLabel);
      if (holder_of_[r] == here)
        for (const auto& [name, memory] : earlier_)
          if (name == s.name) s.memory = &memory;
      out.push_back(std::move(s));
    });
    check(read, kLabel, ": what rank ", static_cast<int64_t>(r), " says of it is no list");
  }
  return out;
}

// The ranks of a machine divide its shares among them. The same on every rank.
void MemoryRecovery::compare_with_hashes(std::vector<Share>& shares, int64_t generation, int64_t step) {
  const int here = holder_of_[static_cast<size_t>(comm_.rank())];
  const auto before = holder_of_.begin() + comm_.rank();
  const auto ranks = static_cast<size_t>(std::count(holder_of_.begin(), holder_of_.end(), here)),
             mine = static_cast<size_t>(std::count(holder_of_.begin(), before, here));
  std::string found;
  size_t turn = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const Share& s = shares[i];
    if (!s.memory || s.generation != generation || !s.has(step) || turn++ % ranks != mine) continue;
    for (size_t slice : s.memory->damaged(step)) found += str(i, " ", slice, " ");
  }
  const std::vector<std::string> all = all_gather_text(comm_, found, kLabel);
  for (size_t r = 0; r < all.size(); ++r) {
    std::istringstream list(all[r]);
    for (Place at; list >> at.first >> at.second;) {
      Share& s = shares[at.first];
      s.damaged[step].insert(at.second);
      damaged_.emplace(s.name, step);
      if (static_cast<int>(r) == comm_.rank())
        log_warning(str("the state in memory after step ", step, ": ", s.slices[at.second].name, " has changed on ",
                        host_name(), " since it was written (its hash differs): passed over; the memory of that ",
                        "machine may be faulty"));
    }
  }
}

// The state after a step, each element once and from this machine where that has it; nothing where it is not whole.
std::optional<std::vector<MemoryRecovery::Found>> MemoryRecovery::cover(const std::vector<Share>& shares,
                                                                        int64_t generation, int64_t step) {
  std::vector<Found> all;
  int64_t tensors = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const Share& s = shares[i];
    if (s.generation != generation || !s.has(step)) continue;
    tensors = std::max(tensors, s.tensors);
    const auto bad = s.damaged.find(step);
    for (size_t k = 0; k < s.slices.size(); ++k)
      if (bad == s.damaged.end() || !bad->second.contains(k)) all.push_back({s.slices[k], i, k});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Found& a, const Found& b) { return place_order(a.slice, b.slice) < 0; });
  std::vector<Found> out;
  std::vector<StoredSlice> arranged;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && of_one_region(all[begin].slice, all[end].slice)) ++end;
    const int64_t elements = all[begin].slice.region.numel();
    for (int64_t at = 0; at < elements;) {
      const Found* best = nullptr;
      const auto end_of = [](const Found& f) { return f.slice.offset + f.slice.count; };
      const auto here = [&](const Found& f) { return shares[f.share].memory != nullptr; };
      for (size_t i = begin; i < end && all[i].slice.offset <= at; ++i)
        if (end_of(all[i]) > at && (!best || (here(all[i]) && !here(*best)) ||
                                    (here(all[i]) == here(*best) && end_of(all[i]) > end_of(*best))))
          best = &all[i];
      if (!best) return {};
      out.push_back(*best);
      StoredSlice& piece = out.back().slice;
      piece.count = end_of(*best) - at;
      piece.offset = at;
      piece.part = 0;
      at += piece.count;
      arranged.push_back(piece);
    }
  }
  std::set<std::string> names;
  for (const Found& f : out) names.insert(f.slice.name);
  if (static_cast<int64_t>(names.size()) != tensors || tensors == 0) return {};
  try {
    arrange_slices(arranged, 1, ExitCode::kBadData, kLabel);
  } catch (const Error&) {
    return {};
  }
  return out;
}

std::optional<Checkpoint> MemoryRecovery::newest(int64_t at_most, int64_t recorded) {
  trace_mark();
  FlightPhase phase("look for state in memory");
  std::vector<Share> shares = gather_shares(at_most);
  std::set<std::tuple<bool, int64_t, int64_t>> states;  // whether it is recorded, step, generation
  for (const Share& s : shares)
    for (int64_t step : s.steps)
      if (step <= at_most) states.emplace(step <= recorded, step, s.generation);
  // Whether a state is whole does not depend on the rank, which pieces are taken does.
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    const auto [is_recorded, step, generation] = *state;
    if (!cover(shares, generation, step)) continue;
    compare_with_hashes(shares, generation, step);
    const auto found = cover(shares, generation, step);
    if (!found) continue;
    const int64_t newest = std::get<1>(*states.rbegin());
    if (comm_.rank() == 0 && step < newest - 1)
      log_warning(str("the state in memory after step ", newest,
                      " is not whole on the machines that are left: going on from that after step ", step));
    return opened(shares, step, *found);
  }
  if (comm_.rank() == 0 && !states.empty())
    log_warning(str("the state in memory after step ", std::get<1>(*states.rbegin()),
                    " is not whole on the machines that are left: going on from disk"));
  return {};
}

Checkpoint MemoryRecovery::opened(const std::vector<Share>& shares, int64_t step, const std::vector<Found>& found) {
  Checkpoint c;
  c.dir = str("the state in memory after step ", step);
  // Every rank asks the same share for what there is beside tensors.
  const int64_t generation = shares[found[0].share].generation;
  const auto asked = std::find_if(shares.begin(), shares.end(), [&](const Share& s) {
    return s.generation == generation && s.has(step) && s.has_good_texts(step);
  });
  std::string text;
  fail_together(comm_, [&] {
    if (comm_.rank() == asked->owner) text = info_text(asked->memory->info(step));
  });
  c.info = parse_info(broadcast_text(comm_, text, asked->owner, kLabel), c.dir);
  auto memories = std::make_shared<Memories>();
  const std::vector<StateEntry> state = trainer_.state();
  Wanted wanted;
  std::map<size_t, std::vector<StoredSlice>> here;  // this machine's shares, with where their values are
  for (const Found& f : found) {
    StoredSlice piece = f.slice;
    const Share& share = shares[f.share];
    if (share.memory) {
      if (!here.contains(f.share)) here[f.share] = share.memory->slices(step);
      const StoredSlice& whole = here[f.share][f.number];
      piece.values = whole.values + (piece.offset - whole.offset);
      memories->mapped.insert(share.memory->memory());
    } else if (std::any_of(state.begin(), state.end(), [&](const StateEntry& e) { return needs(e, piece); })) {
      wanted[{f.share, f.number}].push_back(c.slices.size());
    }
    c.slices.push_back(std::move(piece));
  }
  for (auto& [place, values] : fetch(shares, step, wanted)) {
    for (size_t piece : wanted.at(place))
      c.slices[piece].values = static_cast<const float*>(values.read()) +
                               (c.slices[piece].offset - shares[place.first].slices[place.second].offset);
    memories->received.push_back(std::move(values));
  }
  arrange_slices(c.slices, 1, ExitCode::kInternal, c.dir);
  c.memory = memories;
  return c;
}

// What each rank wants of other machines is sent by the first rank there, in the order of the ranks that want it.
std::map<MemoryRecovery::Place, Tensor> MemoryRecovery::fetch(const std::vector<Share>& shares, int64_t step,
                                                              const Wanted& wanted) {
  std::map<Place, Tensor> out;
  std::map<size_t, std::vector<StoredSlice>> here;
  std::string asks;
  for (const auto& [place, pieces] : wanted) asks += str(place.first, " ", place.second, " ");
  const auto asked_by = all_gather_text(comm_, asks, kLabel);
  for (size_t r = 0; r < asked_by.size(); ++r) {
    std::istringstream list(asked_by[r]);
    for (Place at; list >> at.first >> at.second;) {
      const Share& s = shares[at.first];
      if (comm_.rank() == s.owner) {
        if (!here.contains(at.first)) here[at.first] = s.memory->slices(step);
        send_in_pieces(comm_, s.memory->values(here[at.first][at.second]), static_cast<int>(r), kLabel);
      } else if (comm_.rank() == static_cast<int>(r)) {
        Tensor values = Tensor::unallocated({s.slices[at.second].count}, DType::kFloat32, Device{});
        values.allocate();
        receive_in_pieces(comm_, values, s.owner, kLabel);
        out.emplace(at, std::move(values));
      }
    }
  }
  return out;
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
