#include "launch/training/guards/memory_advice.h"

#include <algorithm>
#include <vector>

#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

using Ways = std::vector<std::string>;

void shard(Ways& ways, const Settings& s, int ranks, ShardLevel level) {
  if (s.parallel.level >= level) return;
  ways.push_back(str(ranks > 1 ? "" : "more ranks with ", "sharding.level=", to_text(level), " (it is ",
                     to_text(s.parallel.level), ")"));
}

void smaller_batches(Ways& ways, const Settings& s) {
  if (s.batch.micro > 1) ways.push_back(str("batch.micro below ", s.batch.micro));
}

void lower_precision(Ways& ways, const Settings& s) {
  if (s.parallel.compute == DType::kFloat32) ways.emplace_back("precision.compute=bf16 (it is fp32)");
}

Ways ways_for(MemoryUse use, const Settings& s, int ranks) {
  Ways ways;
  const DataParallelOptions& p = s.parallel;
  switch (use) {
    case MemoryUse::kActivations:
      if (s.recompute != Recompute::kBlock)
        ways.push_back(str("recompute=block (it is ", s.recompute == Recompute::kNone ? "none" : "attention", ")"));
      smaller_batches(ways, s);
      lower_precision(ways, s);
      break;
    case MemoryUse::kScratch:
      smaller_batches(ways, s);
      lower_precision(ways, s);
      break;
    case MemoryUse::kBatches: smaller_batches(ways, s); break;
    case MemoryUse::kMoments:
    case MemoryUse::kInHost:
      shard(ways, s, ranks, ShardLevel::kOptimizer);
      if (!p.offload_optimizer) ways.emplace_back("sharding.offload=optimizer (it is none)");
      break;
    case MemoryUse::kGradients: shard(ways, s, ranks, ShardLevel::kGradients); break;
    case MemoryUse::kParameters:
      shard(ways, s, ranks, ShardLevel::kParameters);
      if (!p.offload_optimizer) ways.emplace_back("sharding.offload=optimizer (it is none)");
      break;
    case MemoryUse::kGathered:
      if (p.reshard_after_forward == Reshard::kNo)
        ways.emplace_back("sharding.reshard_after_forward=true (it is false)");
      ways.push_back(str("sharding.gathered_limit (it is ", p.gathered_limit_mb, " MB; 0 is none)"));
      break;
  }
  if (ways.empty()) ways.emplace_back(p.level == ShardLevel::kNone ? "a smaller model" : "more ranks");
  return ways;
}

}  // namespace

std::string memory_advice(const BytesByUse& held, const Settings& settings, int ranks) {
  const auto most = std::max_element(held.begin(), held.end());
  const auto use = static_cast<MemoryUse>(most - held.begin());
  const Ways ways = ways_for(use, settings, ranks);
  std::string out = str(use, " take most of it (", bytes_text(*most), "): try ");
  for (size_t i = 0; i < ways.size(); ++i) out += str(i == 0 ? "" : i + 1 == ways.size() ? " or " : ", ", ways[i]);
  return out + "; `lockstep plan` says what fits";
}

}  // namespace lockstep
