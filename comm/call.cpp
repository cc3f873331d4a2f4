#include "comm/call.h"

#include <numeric>

#include "core/base/hash.h"

namespace lockstep {

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce: return "all_reduce";
    case CallKind::kReduceScatter: return "reduce_scatter";
    case CallKind::kAllGather: return "all_gather";
    case CallKind::kAllToAll: return "all_to_all";
    case CallKind::kBroadcast: return "broadcast";
    case CallKind::kSend: return "send";
    case CallKind::kReceive: return "receive";
    case CallKind::kBarrier: return "barrier";
    case CallKind::kSplit: return "split";
    case CallKind::kShare: return "share";
  }
  return "?";
}

namespace {

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
  }
  return "?";
}

bool reduces(CallKind kind) { return kind == CallKind::kAllReduce || kind == CallKind::kReduceScatter; }

std::string list_text(const std::vector<int64_t>& values) {
  constexpr size_t kShown = 8;
  std::string out = "[";
  for (size_t i = 0; i < values.size() && i < kShown; ++i) out += str(i ? ", " : "", values[i]);
  return out + (values.size() > kShown ? ", ...]" : "]");
}

}  // namespace

std::string to_text(const Call& c) {
  std::string out = str(name_of(c.kind), " #", c.number);
  if (!c.label.empty()) out += str(" of ", c.label);
  if (c.kind == CallKind::kSend) out += str(" to rank ", c.peer);
  if (c.kind == CallKind::kReceive) out += str(" from rank ", c.peer);
  return out;
}

std::string details_of(const Call& c) {
  std::string out = to_text(c);
  if (c.kind == CallKind::kBarrier || c.kind == CallKind::kSplit) return out;
  out += " (";
  if (reduces(c.kind)) out += str(name_of(c.op), ", ");
  if (c.kind == CallKind::kBroadcast) out += str("root ", c.peer, ", ");
  out += str(c.dtype, ", ");
  if (c.kind == CallKind::kShare) out += str(list_text(c.send_counts), " for each rank");
  else if (c.kind == CallKind::kAllToAll)
    out += str("sends ", list_text(c.send_counts), ", receives ", list_text(c.counts));
  else if (!c.counts.empty()) out += str("counts ", list_text(c.counts));
  else out += str(c.numel, c.numel == 1 ? " element" : " elements");
  return out + ")";
}

int64_t wire_bytes(const Call& c, int rank, int size) {
  auto all_but_mine = [&](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t(0)) - counts[static_cast<size_t>(rank)];
  };
  int64_t elements = 0;
  switch (c.kind) {
    case CallKind::kAllReduce: elements = 2 * (size - 1) * c.numel / size; break;
    case CallKind::kReduceScatter: elements = all_but_mine(c.counts); break;
    case CallKind::kAllGather: elements = c.counts[static_cast<size_t>(rank)] * (size - 1); break;
    case CallKind::kAllToAll:
    case CallKind::kShare: elements = all_but_mine(c.send_counts); break;
    case CallKind::kBroadcast: elements = c.peer == rank ? c.numel * (size - 1) : 0; break;
    case CallKind::kSend: elements = c.peer == rank ? 0 : c.numel; break;
    case CallKind::kReceive:
    case CallKind::kBarrier:
    case CallKind::kSplit: break;
  }
  return elements * size_of(c.dtype);
}

bool is_small(const Call& gather) {
  constexpr int64_t kBytes = 64 << 10;
  return std::accumulate(gather.counts.begin(), gather.counts.end(), int64_t(0)) * size_of(gather.dtype) <= kBytes;
}

uint64_t fingerprint(const Call& c) {
  const int64_t fixed[] = {static_cast<int64_t>(c.kind),
                           c.number,
                           static_cast<int64_t>(c.dtype),
                           reduces(c.kind) ? static_cast<int64_t>(c.op) : 0,
                           c.peer,
                           c.numel};
  uint64_t hash = hash64(fixed, sizeof fixed, hash64(c.label));
  if (c.kind != CallKind::kAllToAll && !c.counts.empty())
    hash = hash64(c.counts.data(), c.counts.size() * sizeof(int64_t), hash);
  return hash;
}

bool calls_match(const Call& a, const Call& b) {
  return a.kind == b.kind && a.number == b.number && a.dtype == b.dtype && a.peer == b.peer && a.numel == b.numel &&
         a.label == b.label && (a.op == b.op || !reduces(a.kind)) &&
         (a.counts == b.counts || a.kind == CallKind::kAllToAll);
}

uint64_t exchange_balance(const Call& c, int rank) {
  uint64_t balance = 0;
  auto weight = [](int64_t from, int64_t to, int64_t count) {
    const int64_t triple[] = {from, to, count};
    return hash64(triple, sizeof triple);
  };
  for (size_t r = 0; r < c.counts.size(); ++r) {
    const int64_t other = static_cast<int64_t>(r);
    balance += weight(rank, other, c.send_counts[r]) - weight(other, rank, c.counts[r]);
  }
  return balance;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) out += str(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return out;
}

std::string disagreement_text(const std::vector<std::string>& details) {
  std::string out = "the ranks of a communicator disagree: ";
  std::vector<bool> told(details.size(), false);
  bool first = true;
  for (size_t r = 0; r < details.size(); ++r) {
    if (told[r] || details[r].empty()) continue;
    std::vector<int> same;
    for (size_t q = r; q < details.size(); ++q)
      if (details[q] == details[r]) {
        told[q] = true;
        same.push_back(static_cast<int>(q));
      }
    out += str(first ? "" : "; ", ranks_text(same), same.size() == 1 ? " calls " : " call ", details[r]);
    first = false;
  }
  return out;
}

}  // namespace lockstep
