#include "data/streams/mixture.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "data/samples/sampler.h"

namespace lockstep {
namespace {

// `total` divided by weight: the largest remainders are rounded up, of equal ones the first.
std::vector<int64_t> shares_of(int64_t total, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> out;
  std::vector<std::pair<double, size_t>> rest;
  int64_t left = total;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double exact = static_cast<double>(total) * (weights[i] / sum);
    out.push_back(static_cast<int64_t>(exact));
    rest.emplace_back(static_cast<double>(out.back()) - exact, i);
    left -= out.back();
  }
  std::sort(rest.begin(), rest.end());
  for (size_t i = 0; left > 0; i = (i + 1) % rest.size(), --left) ++out[rest[i].second];
  return out;
}

void add_counts(const DataSpec& more, DataSpec& spec) {
  std::vector<int64_t>& counts = spec.class_counts;
  if (more.class_counts.size() != counts.size()) counts.clear();
  for (size_t c = 0; c < counts.size(); ++c) counts[c] += more.class_counts[c];
  spec.records += more.records;
  spec.long_records += more.long_records;
  spec.longest_record = std::max(spec.longest_record, more.longest_record);
}

}  // namespace

Mixture::Mixture(std::vector<std::shared_ptr<const Dataset>> parts, MixtureOptions options)
    : parts_(std::move(parts)), options_(std::move(options)) {
  check(!parts_.empty() && (options_.weights.empty() || options_.weights.size() == parts_.size()), "a mixture of ",
        parts_.size(), " datasets with ", options_.weights.size(), " weights");
  spec_ = parts_[0]->spec();
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const auto& part : parts_) {
    if (part != parts_[0]) add_counts(part->spec(), spec_);
    counts.push_back(part->size());
    firsts_.push_back(total);
    total += part->size();
  }
  if (!options_.weights.empty()) counts = shares_of(total, options_.weights);
  int64_t end = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    require(counts[i] > 0, ExitCode::kConfig, "data.sources: the weight of source ", i, " gives it none of the ", total,
            " samples of an epoch");
    ends_.push_back(end += counts[i]);
  }
}

Hash128 Mixture::identity() const {
  if (options_.of_one) return parts_[0]->identity();
  Hasher128 hasher;
  const auto add = [&](const auto& value) { hasher.update(&value, sizeof value); };
  for (const auto& part : parts_) {
    add(part->identity().high);
    add(part->identity().low);
  }
  for (double weight : options_.weights) add(weight);
  return hasher.digest();
}

Mixture::Position Mixture::place_of(int64_t epoch, int64_t index) const {
  check(index >= 0 && index < size(), "sample ", index, " of ", size());
  const auto part = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  const int64_t begin = part > 0 ? ends_[part - 1] : 0, count = ends_[part] - begin;
  const Dataset& data = *parts_[part];
  // epoch * count + index - begin samples of this dataset came before.
  const int64_t size = data.size(), whole = count / size, rest = count % size;
  const int64_t drawn = epoch * rest + index - begin, own_epoch = epoch * whole + drawn / size;
  const Sampler order(size, options_.seed + part, own_epoch, options_.shuffle);
  return {data, firsts_[part], own_epoch, order(drawn % size)};
}

int64_t Mixture::length(int64_t epoch, int64_t index) const {
  const Position at = place_of(epoch, index);
  return at.data.length(at.epoch, at.index);
}

int64_t Mixture::number(int64_t epoch, int64_t index) const {
  const Position at = place_of(epoch, index);
  return at.first + at.data.number(at.epoch, at.index);
}

void Mixture::read(int64_t epoch, int64_t index, SampleMemory sample) const {
  const Position at = place_of(epoch, index);
  at.data.read(at.epoch, at.index, sample);
}

std::optional<double> Mixture::target_number(int64_t epoch, int64_t index) const {
  const Position at = place_of(epoch, index);
  return at.data.target_number(at.epoch, at.index);
}

}  // namespace lockstep
