// The part of MemoryRecovery that finds the newest state which earlier starts of the job left, on all machines
// together, and brings it to the ranks.
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
#include "core/state/checkpoint_part.h"
#include "core/state/manifest.h"
#include "launch/recovery/memory_recovery.h"
#include "launch/world/fail_together.h"
#include "launch/world/pieces.h"

namespace lockstep {
namespace {

bool needs(const StateEntry& e, const StoredSlice& s) {
  if (e.name != s.name || e.data.numel() == 0) return false;
  if (e.region == s.region) return !intersect({e.offset, e.end()}, {s.offset, s.offset + s.count}).empty();
  return intersect(e.region, s.region).numel() > 0;
}

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

}  // namespace lockstep
