#include "launch/proof/proof.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <sstream>

#include "core/tensor/raw_ops.h"
#include "launch/checkpoints/open_whole.h"
#include "launch/world/fail_together.h"
#include "sharding/cut_chunks.h"

namespace lockstep {
namespace {

constexpr int64_t kStretch = 1 << 20;  // elements that are read at a time

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

std::string bits_line(double v) { return str(std::bit_cast<uint64_t>(v)); }

// Digests of all tensors, each summed over the parts of all ranks.
std::map<std::string, Hash128> tensor_digests(const Trainer& trainer, Communicator& comm) {
  std::vector<StateEntry> part = trainer.entries_to_save();
  const auto boxes = std::stable_partition(part.begin(), part.end(), [](auto& e) { return e.region.is_whole(); });
  const std::vector<StateEntry> in_boxes(boxes, part.end());
  part.erase(boxes, part.end());
  const std::vector<Hash128> digests = digests_of(part);
  std::string mine;
  for (const auto& [name, h] : digest_shares(in_boxes, comm)) mine += str(h.high, " ", h.low, " ", name, "\n");
  for (size_t i = 0; i < part.size(); ++i) mine += str(digests[i].high, " ", digests[i].low, " ", part[i].name, "\n");
  std::map<std::string, Hash128> out;
  for (const std::string& text : all_gather_text(comm, mine, "digests")) {
    std::istringstream lines(text);
    Hash128 h;
    std::string name;
    while (lines >> h.high >> h.low && lines.ignore() && std::getline(lines, name)) out[name] += h;
  }
  return out;
}

// Calls visit(mine, theirs) for consecutive pieces of this rank's part of the tensors that `wanted` selects; `theirs`
// are the checkpoint's values of the same elements.
void visit_both(const Trainer& trainer, const Checkpoint& checkpoint,
                const std::function<bool(const std::string&)>& wanted,
                const std::function<void(const StateEntry& mine, const float* theirs)>& visit) {
  // load_entries() needs an entry for every tensor; the entries of unwanted tensors are empty.
  std::map<std::string, StateEntry> names;
  for (const StoredSlice& s : checkpoint.slices) names[s.name] = {s.name, s.region.shape, 0, Tensor::empty({0})};
  std::vector<StateEntry> query;
  for (auto& [name, nothing] : names) query.push_back(nothing);
  query.emplace_back();
  for (const StateEntry& e : trainer.entries_to_save()) {
    if (!wanted(e.name)) continue;
    for (int64_t at = 0; at < e.data.numel(); at += kStretch) {
      const int64_t n = std::min(kStretch, e.data.numel() - at);
      query.back() = {e.name, e.region, e.offset + at, Tensor::unallocated({n}, DType::kFloat32, Device{})};
      query.back().data.allocate();
      load_entries(checkpoint, query);
      visit({e.name, e.region, e.offset + at, raw::to_host(e.values(at, at + n))}, query.back().data.values<float>());
    }
  }
}

}  // namespace

std::optional<ProofDifference> first_difference(const ProofRecord& a, const ProofRecord& b) {
  const int64_t begin = std::max(a.first, b.first);
  const int64_t end =
      std::min(a.first + static_cast<int64_t>(a.tensors.size()), b.first + static_cast<int64_t>(b.tensors.size()));
  for (int64_t step = begin; step < end; ++step) {
    const auto& in_a = a.tensors[static_cast<size_t>(step - a.first)];
    const auto& in_b = b.tensors[static_cast<size_t>(step - b.first)];
    std::vector<std::string> names;
    for (auto& [name, digest] : in_a) {
      const auto found = in_b.find(name);
      if (found == in_b.end() || !(found->second == digest)) names.push_back(name);
    }
    for (auto& [name, digest] : in_b)
      if (!in_a.count(name)) names.push_back(name);
    std::stable_sort(names.begin(), names.end(), [](const std::string& l, const std::string& r) {
      return l.starts_with(kParameters) > r.starts_with(kParameters);
    });
    const bool both_ran = step > a.first && step > b.first;
    const double loss_a = both_ran ? a.losses[static_cast<size_t>(step - a.first - 1)] : 0;
    const double loss_b = both_ran ? b.losses[static_cast<size_t>(step - b.first - 1)] : 0;
    const bool loss_differs = !same_bits(loss_a, loss_b);
    if (names.empty() && !loss_differs) continue;

    ProofDifference d{step, names.empty() ? "" : names[0], names.empty() ? 0 : names.size() - 1, in_a.size(), ""};
    const std::string when = step == 0 ? "in its initial values" : str("after step ", step);
    const std::string losses = loss_differs ? str("the loss, ", loss_a, " and ", loss_b) : "";
    if (names.empty()) d.text = str("first differs in ", losses, ", of step ", step);
    else
      d.text = str("first differs ", when, " in ", d.tensor,
                   d.others ? str(" (and in ", d.others, " more of ", d.all, " tensors)") : "",
                   loss_differs ? str(", and in ", losses) : "");
    return d;
  }
  if (a.digest == b.digest) return {};
  return ProofDifference{end - 1, "", 0, 0, "differs in counters outside the tensors: data position, skipped steps"};
}

std::optional<ProofElement> first_element(const Trainer& trainer, Communicator& comm, const Checkpoint& checkpoint,
                                          const std::string& tensor) {
  std::optional<ProofElement> found;
  visit_both(
      trainer, checkpoint, [&](const std::string& name) { return name == tensor && !found; },
      [&](const StateEntry& mine, const float* theirs) {
        const float* ours = mine.data.values<float>();
        for (int64_t i = 0; i < mine.data.numel(); ++i) {
          if (std::bit_cast<uint32_t>(ours[i]) == std::bit_cast<uint32_t>(theirs[i])) continue;
          const int64_t index = mine.region.element(mine.offset + i);
          if (!found || index < found->index) found = {index, mine.region.shape, theirs[i], ours[i]};
          break;
        }
      });
  Shape shape;
  for (const StoredSlice& s : checkpoint.slices)
    if (s.name == tensor) shape = s.region.shape;
  const std::string line =
      found ? str(found->index, " ", std::bit_cast<uint32_t>(found->a), " ", std::bit_cast<uint32_t>(found->b)) : "";
  std::optional<ProofElement> first;
  for (const std::string& text : all_gather_text(comm, line, "elements")) {
    std::istringstream in(text);
    int64_t index = 0;
    uint32_t a = 0, b = 0;
    if (in >> index >> a >> b && (!first || index < first->index))
      first = {index, shape, std::bit_cast<float>(a), std::bit_cast<float>(b)};
  }
  return first;
}

std::pair<double, std::string> largest_relative_difference(const Trainer& trainer, Communicator& comm,
                                                           const Checkpoint& checkpoint) {
  std::map<std::string, std::pair<double, double>> mine;  // the largest |a - b|, the largest |a|
  auto raise = [](double& to, double v) {
    if (!std::isnan(to)) to = std::isnan(v) ? v : std::max(to, v);
  };
  visit_both(
      trainer, checkpoint, [](const std::string& name) { return name.starts_with(kParameters); },
      [&](const StateEntry& e, const float* theirs) {
        auto& [difference, size] = mine[e.name];
        const float* ours = e.data.values<float>();
        for (int64_t i = 0; i < e.data.numel(); ++i) {
          raise(difference, std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i])));
          raise(size, std::abs(static_cast<double>(theirs[i])));
        }
      });
  std::string lines;
  for (auto& [name, m] : mine) lines += str(bits_line(m.first), " ", bits_line(m.second), " ", name, "\n");
  std::map<std::string, std::pair<double, double>> all;
  for (const std::string& text : all_gather_text(comm, lines, "differences")) {
    std::istringstream in(text);
    uint64_t difference = 0, size = 0;
    std::string name;
    while (in >> difference >> size && in.ignore() && std::getline(in, name)) {
      raise(all[name].first, std::bit_cast<double>(difference));
      raise(all[name].second, std::bit_cast<double>(size));
    }
  }
  std::pair<double, std::string> worst{0, ""};
  for (auto& [name, m] : all) {
    const double relative = m.first == 0 ? 0 : m.first / m.second;  // NaN is kept; infinite if all of a is zero
    if (worst.second.empty() || relative > worst.first || (std::isnan(relative) && !std::isnan(worst.first)))
      worst = {relative, name};
  }
  return worst;
}

std::string bits_text(float v) {
  char text[64];
  std::snprintf(text, sizeof text, "%.9g (0x%08x)", static_cast<double>(v), std::bit_cast<uint32_t>(v));
  return text;
}

std::string element_text(const ProofElement& e) {
  std::string place;
  int64_t rest = e.index;
  for (int i = e.shape.rank() - 1; i >= 0; --i) {
    place = str(rest % e.shape[i], place.empty() ? "" : ", ", place);
    rest /= e.shape[i];
  }
  return str("element ", e.index, ", [", place, "] of ", e.shape);
}

ProofRecord Proof::train(const Settings& settings, int ranks, const Span& span, const AtEnd& at_end) {
  const auto begun = std::chrono::steady_clock::now();
  ProofRecord record;
  record.first = span.first;
  group_ = world_.split(world_.rank() < ranks ? 0 : -1, 0, "prove");
  {
    std::unique_ptr<Trainer> trainer;
    auto remember = [&] {
      if (trainer) record.tensors.push_back(tensor_digests(*trainer, *group_));
    };
    if (group_) {
      record.backend = group_->backend();
      trainer = std::make_unique<Trainer>(settings, data_, *group_);
      if (!span.from.empty()) {
        const Checkpoint c = open_whole(*group_, span.from);
        fail_together(*group_, [&] { trainer->resume(c); });
      } else if (!settings.init.from.empty()) {
        trainer->load_initial();
      }
    }
    remember();
    world_.barrier("prove, start");
    for (int64_t step = span.first; step < span.last; ++step) {
      if (trainer) record.losses.push_back(trainer->step().result.loss);
      remember();
      if (after_step) after_step();
      world_.barrier("prove, step");
    }
    if (trainer) {
      record.digest = digest_of(trainer->info());
      for (auto& [name, digest] : record.tensors.back()) record.digest += digest;
      record.skipped = trainer->info().skipped;
      record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
      if (at_end) at_end(*trainer, *group_);
    }
  }
  group_.reset();
  world_.barrier("prove, end");
  return record;
}

}  // namespace lockstep
