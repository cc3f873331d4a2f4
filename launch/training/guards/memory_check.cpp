#include "launch/training/guards/memory_check.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/base/flight_recorder.h"
#include "core/base/host.h"
#include "core/base/partition.h"
#include "core/device/stream.h"
#include "launch/training/guards/sentinel.h"

namespace lockstep {
namespace {

constexpr int64_t kElements = 1 << 16;  // of a block: 256 KiB

size_t bytes_of(const Tensor& t) { return static_cast<size_t>(t.numel() * size_of(t.dtype())); }

}  // namespace

// Hashes stay where the state has the same slices as before, which it has until it is loaded anew.
void MemoryCheck::lay_out(const std::vector<StateEntry>& state) {
  std::vector<Block> blocks;
  std::unordered_map<const void*, size_t> first;
  for (const StateEntry& e : state) {
    if (e.data.numel() == 0) continue;
    first[e.data.read()] = blocks.size();
    for (int64_t at = 0; at < e.data.numel(); at += kElements)
      blocks.push_back({e.part(at, std::min(at + kElements, e.data.numel())), {}, false, false});
  }
  if (first == first_ && blocks.size() == blocks_.size()) return;
  check(!has_taken(), "verify.memory: the state has other slices than after step ", step_);
  blocks_ = std::move(blocks);
  first_ = std::move(first);
}

MemoryCheck::Values MemoryCheck::blocks_of(const std::vector<Part>& parts) {
  Values out;
  for (const Part& part : parts) {
    const auto at = first_.find(part.slice);
    check(at != first_.end() && part.begin % kElements == 0, "verify.memory: an update of what is not state");
    size_t block = at->second + static_cast<size_t>(part.begin / kElements);
    for (int64_t i = 0, n = part.now.data.numel(); i < n; i += kElements)
      out.emplace_back(&blocks_[block++], part.now.part(i, std::min(i + kElements, n)));
  }
  return out;
}

// Of their bytes: of codes and their scales, not of the values that these stand for.
std::vector<Hash128> MemoryCheck::hashes_of(const Values& blocks) {
  std::vector<Hash128> out(blocks.size());
  auto hash = [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const auto& [data, scales] = std::tie(blocks[i].second.data, blocks[i].second.scales);
      if (!data.device().in_host_memory()) continue;
      out[i] = hash128(data.read(), bytes_of(data));
      if (scales) out[i] += hash128(scales.read(), bytes_of(scales), 1);
    }
  };
  Stream& stream = current_stream();
  const auto n = static_cast<int64_t>(blocks.size());
  if (!stream.device_queue()) stream.enqueue([&](Parallel& p) { p.run(n, 1, hash); }, {"hash_state"});
  stream.synchronize();
  if (stream.device_queue()) hash(0, n);
  for (size_t i = 0; i < blocks.size(); ++i)
    if (!blocks[i].second.data.device().in_host_memory()) out[i] = digests_of({blocks[i].second})[0];
  return out;
}

void MemoryCheck::compare(Values blocks, const std::string& since) {
  std::erase_if(blocks, [](const auto& b) { return !b.first->known; });
  const std::vector<Hash128> now = hashes_of(blocks);
  const Block* first = nullptr;
  int64_t others = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (now[i] == blocks[i].first->hash) continue;
    if (!first) first = blocks[i].first;
    else ++others;
  }
  if (!first) return;
  failed_ = true;
  const StateEntry& e = first->values;
  throw Error(ExitCode::kRanksDisagree,
              str("rank ", rank_, " on ", host_name(), ": ", name_of_region(e.name, e.region),
                  " has changed in its memory ", since, " though nothing wrote it, in elements [", e.offset, ", ",
                  e.end(), ")", others > 0 ? str(" and in ", others, " other blocks of its state") : "",
                  ": the memory of that machine is at fault, or a program wrote where it must not (verify.memory)",
                  good_ >= 0 ? str("; the state after step ", good_, " was good") : ""));
}

void MemoryCheck::compare(const std::vector<StateEntry>& state) {
  if (!has_taken()) return;
  const FlightPhase phase("verify memory");
  lay_out(state);
  Values all;
  for (Block& b : blocks_) all.emplace_back(&b, b.values);
  compare(std::move(all), str("after step ", step_));
  good_ = step_;
}

void MemoryCheck::begin_update(int64_t step, const std::vector<StateEntry>& state) {
  lay_out(state);
  updating_ = step;
}

void MemoryCheck::before_update(const std::vector<Part>& parts) {
  const FlightPhase phase("verify memory");
  compare(blocks_of(parts), str("before the update of step ", updating_));
}

void MemoryCheck::after_update(const std::vector<Part>& parts) {
  const FlightPhase phase("verify memory");
  const Values blocks = blocks_of(parts);
  const bool due = is_due(updating_);
  const std::vector<Hash128> hashes = due ? hashes_of(blocks) : std::vector<Hash128>(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].first->hash = hashes[i];
    blocks[i].first->known = blocks[i].first->written = due;
  }
}

void MemoryCheck::end_update() {
  step_ = -1;
  for (Block& b : blocks_) b.known = b.written;
}

void MemoryCheck::take(int64_t step, const std::vector<StateEntry>& state) {
  const FlightPhase phase("verify memory");
  lay_out(state);
  Values rest;
  for (Block& b : blocks_)
    if (!std::exchange(b.written, false)) rest.emplace_back(&b, b.values);
  const std::vector<Hash128> hashes = hashes_of(rest);
  for (size_t i = 0; i < rest.size(); ++i) rest[i].first->hash = hashes[i], rest[i].first->known = true;
  step_ = step;
}

}  // namespace lockstep
