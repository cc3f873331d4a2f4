#include "launch/training/guards/recheck.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <sstream>

#include "comm/machine_grid.h"
#include "core/base/host.h"
#include "core/state/manifest.h"
#include "core/state/state.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// Processors may differ in sign and payload of a NaN, and nothing is said of those.
Hash128 hash_of_block(const float* values, int64_t count) {
  int64_t nans = 0;
  for (int64_t i = 0; i < count; ++i) nans += values[i] != values[i];
  const auto bytes = static_cast<size_t>(count) * sizeof(float);
  if (nans == 0) return hash128(values, bytes);
  std::vector<float> alike(values, values + count);
  for (float& v : alike)
    if (v != v) v = std::numeric_limits<float>::quiet_NaN();
  return hash128(alike.data(), bytes);
}

Tensor in_host_memory(const Tensor& t) {
  return t.device().in_host_memory() ? t : raw::to_device(t, host_memory_of(t.device()));
}

// A stretch of one tensor of a micro-batch's gradients.
struct Stretch {
  std::string name;
  int64_t first = 0;  // element
  std::vector<float> values;
};

std::string value_text(float v) {
  std::ostringstream out;
  out.precision(std::numeric_limits<float>::max_digits10);
  out << v;
  return out.str();
}

}  // namespace

void GradientHashes::add(const std::string& name, const Tensor& gradient) {
  const Tensor values = in_host_memory(gradient);
  const int64_t n = values.numel();
  Gradient& one = tensors_.emplace_back();
  one.name = name;
  one.blocks.resize(static_cast<size_t>(ceil_div(n, kBlock)));
  if (n == 0) return;
  const auto* data = static_cast<const float*>(values.read());
  current_stream().synchronize();
  auto hash = [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t at = b * kBlock, count = std::min(kBlock, n - at);
      one.blocks[static_cast<size_t>(b)] = hash_of_block(data + at, count);
    }
  };
  std::optional<Stream> host;  // a GPU's stream runs nothing on the host
  if (current_stream().device_queue()) host.emplace(Device{}, Stream::Mode::kInline, available_cores());
  Stream& hashing = host ? *host : current_stream();
  hashing.enqueue([&](Parallel& p) { p.run(static_cast<int64_t>(one.blocks.size()), 4, hash); });
  hashing.synchronize();
}

Hash128 GradientHashes::sum() const {
  Hash128 out;
  for (const Gradient& t : tensors_)
    for (size_t b = 0; b < t.blocks.size(); ++b)
      out += hash128(&t.blocks[b], sizeof(Hash128), hash64(t.name, static_cast<uint64_t>(b)));
  return out;
}

std::string GradientHashes::text() const {
  std::string out;
  for (const Gradient& t : tensors_) {
    out += t.name + "\n";
    for (const Hash128& h : t.blocks) out += to_hex(h);
    out += "\n";
  }
  return out;
}

GradientHashes GradientHashes::of_text(const std::string& text) {
  GradientHashes out;
  std::istringstream in(text);
  for (std::string name, blocks; std::getline(in, name) && std::getline(in, blocks);) {
    Gradient& one = out.tensors_.emplace_back();
    one.name = name;
    for (size_t at = 0; at + 32 <= blocks.size(); at += 32)
      one.blocks.push_back(parse_hash(blocks.substr(at, 32), "recheck"));
  }
  return out;
}

std::optional<std::pair<std::string, int64_t>> GradientHashes::first_difference(const GradientHashes& other) const {
  for (const Gradient& mine : tensors_) {
    const auto theirs = std::find_if(other.tensors_.begin(), other.tensors_.end(),
                                     [&](const Gradient& t) { return t.name == mine.name; });
    if (theirs == other.tensors_.end()) continue;
    for (size_t b = 0; b < std::min(mine.blocks.size(), theirs->blocks.size()); ++b)
      if (!(mine.blocks[b] == theirs->blocks[b])) return std::pair(mine.name, static_cast<int64_t>(b) * kBlock);
  }
  return {};
}

Recheck::Recheck(const Axis& ranks, MicroSchedule schedule, int64_t every)
    : ranks_(ranks), schedule_(schedule), every_(every), shifts_(ranks.size - 1) {
  check(ranks.size > 1, "a recheck of one rank");
  // At this distance or more, both ways, every rank checks one of another machine.
  const MachineGrid grid = MachineGrid::of(ranks.comm().machines());
  if (grid.machines == 1) return;
  nearest_ = grid.ranks;
  shifts_ = ranks.size - 2 * grid.ranks + 1;
}

int Recheck::shift(int64_t step) const { return nearest_ + static_cast<int>(step / every_ % shifts_); }

Recheck::Turn Recheck::turn_of(int64_t step, int64_t micro_count, int rank) const {
  const auto of = [&](int owner) {
    const std::vector<int64_t> all = micro_batches_of(schedule_, micro_count, owner, ranks_.size);
    return all.empty() ? -1 : all[static_cast<size_t>(step / every_) % all.size()];
  };
  // Every rank computes one, also where the one that it checks has none.
  const int64_t theirs = of(owner_of(step, rank));
  return {std::max<int64_t>(theirs, 0), of(rank)};
}

std::vector<int> Recheck::owners(int64_t step) const {
  std::vector<int> out;
  for (int r = 0; r < ranks_.size; ++r) out.push_back(owner_of(step, r));
  return out;
}

void Recheck::compare(int64_t step, int64_t micro_count, const Results& gradients, const Results* sums, bool last) {
  compare(step, micro_count, Kind::kGradients, gradients);
  if (sums) compare(step, micro_count, Kind::kSums, *sums);
  if (last) good_ = step;
}

void Recheck::compare(int64_t step, int64_t micro_count, Kind kind, const Results& results) {
  const auto all = all_gather_text(ranks_.comm(), to_hex(results.own.sum()) + to_hex(results.checked.sum()), "recheck");
  for (int checker = 0; checker < ranks_.size; ++checker) {
    const int owner = owner_of(step, checker);
    const int64_t micro = turn_of(step, micro_count, owner).watched;
    if (micro < 0 && kind == Kind::kGradients) continue;
    const std::string_view first = all[static_cast<size_t>(owner)], second = all[static_cast<size_t>(checker)];
    if (first.substr(0, 32) == second.substr(32)) continue;
    report(step, owner, checker, micro, kind, results);
  }
}

// Every rank computes that once more: what most of them find is right.
void Recheck::report(int64_t step, int owner, int checker, int64_t micro, Kind kind, const Results& results) {
  failed_ = true;
  Communicator& comm = ranks_.comm();
  const int me = ranks_.index, size = ranks_.size;
  const bool involved = me == owner || me == checker, sums = kind == Kind::kSums;
  const GradientHashes& first = me == owner ? results.own : results.checked;
  const int64_t which = sums ? owner : micro;
  GradientHashes second;
  results.again(which, [&](const std::string& name, const Tensor& t) { second.add(name, t); });
  const auto votes = all_gather_text(comm, to_hex(second.sum()) + (involved ? to_hex(first.sum()) : ""), "recheck");
  const auto vote = [&](int r) { return votes[static_cast<size_t>(r)].substr(0, 32); };
  int judge = -1;  // the first of most ranks that agree
  for (int r = 0; r < size && judge < 0; ++r) {
    int agree = 0;
    for (int q = 0; q < size; ++q) agree += vote(q) == vote(r);
    if (2 * agree > size) judge = r;
  }
  const std::string what =
      sums ? str("step ", step, ": the part of rank ", owner) : str("step ", step, ": micro-batch ", micro);
  const std::string_view of_what = sums ? "sums of gradients" : "gradients";
  const std::string last = good_ >= 0 ? str("the last step that was found good is ", good_)
                                      : std::string("no earlier step was checked since the run was resumed");
  if (judge < 0) {
    if (me != owner) throw Error::secondary(ExitCode::kRanksDisagree);
    throw Error(ExitCode::kRanksDisagree,
                str(what, " has other ", of_what, " on rank ", owner, " than on rank ", checker,
                    ", and no majority says which are right; ", last,
                    ". One of their processors computes wrongly: test them with `lockstep doctor`"));
  }
  const auto is_wrong = [&](int r) {
    const std::string& text = votes[static_cast<size_t>(r)];
    return vote(r) != vote(judge) || (text.size() > 32 && text.substr(32) != vote(judge));
  };
  int wrong = 0;
  while (wrong < size - 1 && !is_wrong(wrong)) ++wrong;
  const bool again_wrong = vote(wrong) != vote(judge);
  // Where it was wrong, in hashes of the judge; then, if the fault comes again, in values.
  const std::string right = broadcast_text(comm, me == judge ? second.text() : "", judge, "recheck");
  Stretch place;
  if (me == wrong)
    if (const auto at = (again_wrong ? second : first).first_difference(GradientHashes::of_text(right)))
      place = {at->first, at->second, {}};
  const std::string said = broadcast_text(comm, me == wrong ? str(place.first, " ", place.name) : "", wrong, "recheck");
  place.first = std::stoll(said);
  place.name = said.substr(said.find(' ') + 1);
  std::string values;
  if (again_wrong && !place.name.empty()) {
    results.again(which, [&](const std::string& name, const Tensor& t) {
      if (name != place.name) return;
      const Tensor flat = t.flatten();
      place.values =
          flat.slice(0, place.first, std::min(flat.numel(), place.first + GradientHashes::kBlock)).to_vector<float>();
    });
    const size_t bytes = place.values.size() * sizeof(float);
    const std::string theirs = broadcast_text(
        comm, me == judge ? std::string_view(reinterpret_cast<const char*>(place.values.data()), bytes) : "", judge,
        "recheck");
    for (size_t i = 0; me == wrong && theirs.size() == bytes && i < place.values.size() && values.empty(); ++i) {
      float good = 0;
      std::memcpy(&good, theirs.data() + i * sizeof good, sizeof good);
      if (std::memcmp(&good, &place.values[i], sizeof good) != 0)
        values = str(", first in element ", place.first + static_cast<int64_t>(i), ": ", value_text(place.values[i]),
                     " in place of ", value_text(good));
    }
  }
  if (me != wrong) throw Error::secondary(ExitCode::kRanksDisagree);
  miscomputes_ = again_wrong;
  if (values.empty() && !place.name.empty())
    values = str(" in a block of up to ", GradientHashes::kBlock, " elements from ", place.first, " on",
                 again_wrong ? "" : "; computed again it was right, so the fault comes and goes");
  throw Error(ExitCode::kRanksDisagree,
              str(what, ": rank ", wrong, " on ", host_name(), " computes other ", of_what,
                  " than the other ranks, in ", place.name.empty() ? "a tensor that is not known" : place.name, values,
                  "; ", last, ". Its processor or memory is at fault: take the machine out",
                  good_ >= 0 ? str(", then go on from a checkpoint of step ", good_, " or before") : std::string()));
}

}  // namespace lockstep
