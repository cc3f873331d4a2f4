#include "launch/training/memory_check.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/flight_recorder.h"
#include "core/base/host.h"
#include "launch/training/sentinel.h"

namespace lockstep {
namespace {

std::vector<StateEntry> blocks_of(const std::vector<StateEntry>& state) {
  constexpr int64_t kElements = 1 << 16;
  std::vector<StateEntry> out;
  for (const StateEntry& e : state)
    for (int64_t at = 0; at < e.data.numel(); at += kElements)
      out.push_back(e.part(at, std::min(at + kElements, e.data.numel())));
  return out;
}

}  // namespace

void MemoryCheck::take(int64_t step, const std::vector<StateEntry>& state) {
  const FlightPhase phase("verify memory");
  step_ = step;
  hashes_ = digests_of(blocks_of(state));
}

void MemoryCheck::compare(int rank, const std::vector<StateEntry>& state) {
  if (step_ < 0) return;
  const FlightPhase phase("verify memory");
  const std::vector<StateEntry> blocks = blocks_of(state);
  const std::vector<Hash128> now = digests_of(blocks);
  const std::vector<Hash128>& before = hashes_;
  check(now.size() == before.size(), "verify.memory: the state has other slices than after step ", step_);
  const auto [a, b] = std::mismatch(before.begin(), before.end(), now.begin());
  if (a == before.end()) {
    good_ = step_;
    return;
  }
  failed_ = true;
  const auto differing = std::inner_product(before.begin(), before.end(), now.begin(), int64_t{0}, std::plus<>(),
                                            [](const Hash128& x, const Hash128& y) { return x == y ? 0 : 1; });
  const StateEntry& e = blocks[static_cast<size_t>(a - before.begin())];
  throw Error(ExitCode::kRanksDisagree,
              str("rank ", rank, " on ", host_name(), ": ", name_of_region(e.name, e.region),
                  " has changed in its memory after step ", step_, " though nothing wrote it, in elements [", e.offset,
                  ", ", e.end(), ")", differing > 1 ? str(" and in ", differing - 1, " other blocks of its state") : "",
                  ": the memory of that machine is at fault, or a program wrote where it must not (verify.memory)",
                  good_ >= 0 ? str("; the state after step ", good_, " was good") : ""));
}

void MemoryCheck::end() {
  hashes_.clear();
  step_ = -1;
}

}  // namespace lockstep
