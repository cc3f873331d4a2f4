#include "core/device/memory_ledger.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

#include "core/base/error.h"
#include "core/base/trace.h"

namespace lockstep {
namespace {

constexpr MemoryLedger::Owner kNone = UINT32_MAX;
constexpr size_t kMostSamples = 20'000;  // between two calls of take_samples()
constexpr int64_t kSampledPart = 100;    // of the peak: smaller changes are not sampled

// "blocks.7.mlp.up" is in group "blocks." as number 7; "head.weight" in group "head", which has no number.
struct Group {
  std::string_view name;
  int64_t number = -1;
};

Group group_of(std::string_view whom) {
  if (whom.find(' ') != std::string_view::npos) return {whom};  // "blocks.0.ln1.weight .. ln.bias", a bucket
  const size_t dot = whom.find('.');
  if (dot == std::string_view::npos) return {whom};
  const std::string_view rest = whom.substr(dot + 1);
  int64_t number = 0;
  const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const bool numbered = end.ec == std::errc() && (end.ptr == rest.data() + rest.size() || *end.ptr == '.');
  return numbered ? Group{whom.substr(0, dot + 1), number} : Group{whom.substr(0, dot)};
}

struct Folded {
  int64_t bytes = 0, first = INT64_MAX, last = -1;
};

std::string percent_of(int64_t part, int64_t whole) {
  return str((200 * part / std::max<int64_t>(whole, 1) + 1) / 2, "%");
}

}  // namespace

MemoryLedger::Owner MemoryLedger::owner_of(MemoryUse use, std::string_view whom) {
  if (!last_ || last_->first != whom) {
    auto [it, fresh] = by_name_.try_emplace(std::string(whom));
    if (fresh) it->second.fill(kNone);
    last_ = &*it;
  }
  Owner& owner = last_->second[static_cast<size_t>(use)];
  if (owner == kNone) {
    // Memory is freed where nothing may throw: what is copied then has room already.
    for (Mark* mark : {&peak_, &taken_}) mark->held.reserve(owners_.capacity() + 1);
    owner = static_cast<Owner>(owners_.size());
    owners_.push_back({use, &last_->first});
    bytes_.push_back(0);
  }
  return owner;
}

void MemoryLedger::count_in(int64_t bytes, Owner owner) {
  const auto i = static_cast<size_t>(owners_[owner].use);
  if (pauses_ > 0) leave(peak_), leave(taken_);
  bytes_[owner] += bytes;
  stats_.by_use[i] += bytes;
  stats_.bytes_in_use += bytes;
  if (pauses_ == 0) {
    stats_.peak_by_use[i] = std::max(stats_.peak_by_use[i], stats_.by_use[i]);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.bytes_in_use);
    rise(peak_, owner);
    rise(taken_, owner);
  }
  if (sampling_) add_sample();
}

void MemoryLedger::count_out(int64_t bytes, Owner owner) {
  leave(peak_);
  leave(taken_);
  bytes_[owner] -= bytes;
  stats_.by_use[static_cast<size_t>(owners_[owner].use)] -= bytes;
  stats_.bytes_in_use -= bytes;
  if (sampling_) add_sample();
}

void MemoryLedger::rise(Mark& mark, Owner owner) const {
  if (stats_.bytes_in_use <= mark.bytes) return;
  mark.bytes = stats_.bytes_in_use;
  mark.now = true;
  mark.owner = owner;
  mark.op = trace_owner.op;
  mark.backward = trace_owner.backward;
}

void MemoryLedger::leave(Mark& mark) const {
  if (!mark.now) return;
  mark.held = bytes_;
  mark.now = false;
}

void MemoryLedger::restart_peak() {
  stats_.peak_bytes = stats_.bytes_in_use;
  stats_.peak_by_use = stats_.by_use;
  restart(peak_);
}

void MemoryLedger::restart(Mark& mark) const {
  std::vector<int64_t> room = std::move(mark.held);
  mark = Mark();
  mark.held = std::move(room);
  mark.bytes = stats_.bytes_in_use;
  mark.now = true;
}

MemoryPeak MemoryLedger::take_peak() {
  MemoryPeak peak = told(taken_);
  restart(taken_);
  return peak;
}

MemoryPeak MemoryLedger::told(const Mark& mark) const {
  MemoryPeak out;
  out.bytes = mark.bytes;
  if (mark.owner < owners_.size()) out.whom = *owners_[mark.owner].whom;
  if (mark.op) out.op = mark.op;
  out.backward = mark.backward;
  out.shares = shares_of(mark.now ? bytes_ : mark.held);
  return out;
}

std::vector<MemoryShare> MemoryLedger::shares_of(const std::vector<int64_t>& bytes) const {
  std::vector<MemoryShare> out;
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > 0) out.push_back({owners_[i].use, *owners_[i].whom, bytes[i]});
  std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  return out;
}

void MemoryLedger::sample(bool on) {
  sampling_ = on;
  samples_ = {};
  if (on) samples_.reserve(kMostSamples);
}

std::vector<MemorySample> MemoryLedger::take_samples() {
  std::vector<MemorySample> out = samples_;
  samples_.clear();
  return out;
}

void MemoryLedger::add_sample() {
  if (std::abs(stats_.bytes_in_use - sampled_bytes_) * kSampledPart < stats_.peak_bytes) return;
  if (samples_.size() == kMostSamples) return;
  samples_.push_back({trace_now_ns(), stats_.by_use});
  sampled_bytes_ = stats_.bytes_in_use;
}

std::string shares_text(const std::vector<MemoryShare>& shares) {
  constexpr size_t kNamed = 4;        // groups of a use
  constexpr int64_t kLeastPart = 50;  // a fiftieth of all: what is smaller is not named
  int64_t all = 0;
  std::map<MemoryUse, int64_t> uses;
  std::map<MemoryUse, std::map<std::string_view, Folded>> groups;
  for (const MemoryShare& s : shares) {
    all += s.bytes;
    uses[s.use] += s.bytes;
    if (s.whom.empty()) continue;
    const Group group = group_of(s.whom);
    Folded& f = groups[s.use][group.name];
    f.bytes += s.bytes;
    f.first = std::min(f.first, group.number);
    f.last = std::max(f.last, group.number);
  }
  const auto larger = [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; };
  std::vector<std::pair<MemoryUse, int64_t>> order(uses.begin(), uses.end());
  std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.second > b.second; });
  std::string out;
  for (const auto& [use, bytes] : order) {
    if (bytes * kLeastPart < all && !out.empty()) continue;
    out += str(out.empty() ? "" : ", ", use, " ", percent_of(bytes, all));
    std::vector<std::pair<std::string_view, Folded>> named(groups[use].begin(), groups[use].end());
    std::stable_sort(named.begin(), named.end(), larger);
    std::string inner;
    for (size_t i = 0; i < std::min(named.size(), kNamed) && named[i].second.bytes * kLeastPart >= all; ++i) {
      const auto& [name, f] = named[i];
      inner += str(inner.empty() ? "" : ", ", name);
      if (f.last >= 0) inner += f.first == f.last ? str(f.first) : str(f.first, "-", f.last);
      inner += " " + percent_of(f.bytes, all);
    }
    if (!inner.empty()) out += " (" + inner + ")";
  }
  return out;
}

std::string peak_text(const MemoryPeak& peak) {
  const char* const pass = peak.backward ? "backward pass" : "forward pass";
  std::string where;
  if (!peak.op.empty() && !peak.whom.empty()) where = str("in the ", pass, " of ", peak.whom, " (", peak.op, "): ");
  else if (!peak.op.empty()) where = str("in the ", pass, " (", peak.op, "): ");
  else if (!peak.whom.empty()) where = str("for ", peak.whom, ": ");
  return where + shares_text(peak.shares);
}

}  // namespace lockstep
