#include <algorithm>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "data/import/rearrange.h"
#include "data/samples/sample_kind.h"
#include "data/samples/sampler.h"

namespace lockstep {
namespace {

constexpr double kShareTolerance = 0.005;  // of the sum: 0.333 three times is everything
constexpr size_t kMostParts = 255;

void check_parts(std::vector<SplitPart>& parts) {
  require(!parts.empty() && parts.size() <= kMostParts, ExitCode::kUsage, "data split: give 1 to ", kMostParts,
          " parts, not ", parts.size());
  double sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    require(parts[i].share > 0, ExitCode::kUsage, "data split: ", parts[i].path, ": its share is ", parts[i].share,
            "; it must be above 0");
    for (size_t j = 0; j < i; ++j)
      require(parts[i].path != parts[j].path, ExitCode::kUsage, "data split: ", parts[i].path, " is named twice");
    sum += parts[i].share;
  }
  require(sum > 1 - kShareTolerance && sum < 1 + kShareTolerance, ExitCode::kUsage, "data split: the shares add up to ",
          sum, ", not to 1");
  for (SplitPart& p : parts) p.share /= sum;
}

// The samples in the order in which they are dealt to the parts: all in a random order, or label by label.
class DealingOrder {
 public:
  DealingOrder(const DatasetFile& file, const SplitOptions& o)
      : seed_(o.seed), all_(sample_count(file.header), o.seed, 0, true) {
    if (!o.by_label) return;
    ends_.resize(static_cast<size_t>(file.header.classes) + 1);
    for (int32_t label : file.labels) ++ends_[static_cast<size_t>(label) + 1];
    std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
    std::vector<int64_t> next(ends_.begin(), ends_.end() - 1);
    by_label_.resize(file.labels.size());
    for (size_t i = 0; i < file.labels.size(); ++i)
      by_label_[static_cast<size_t>(next[static_cast<size_t>(file.labels[i])]++)] = static_cast<int64_t>(i);
  }
  // To be called for position 0, 1, 2, ...
  int64_t operator()(int64_t position) {
    if (by_label_.empty()) return all_(position);
    while (position >= end_) {
      begin_ = end_;
      end_ = ends_[++label_];
      within_.emplace(end_ - begin_, seed_ + label_, 0, true);
    }
    return by_label_[static_cast<size_t>(begin_ + (*within_)(position - begin_))];
  }

 private:
  uint64_t seed_;
  Sampler all_;
  std::vector<int64_t> by_label_, ends_;  // the samples of each label; ends_[label + 1] is where they end
  int64_t begin_ = 0, end_ = 0;           // of the current label
  size_t label_ = 0;
  std::optional<Sampler> within_;
};

// The part of each sample. Each sample goes to the part that lacks most of its share of the samples dealt so far, so
// that whatever is dealt in a row is divided by share, to the sample.
std::vector<uint8_t> deal(const DatasetFile& file, std::vector<SplitPart>& parts, const SplitOptions& o) {
  const int64_t count = sample_count(file.header);
  std::vector<uint8_t> part_of(static_cast<size_t>(count));
  DealingOrder order(file, o);
  for (int64_t position = 0; position < count; ++position) {
    const auto lack = [&](size_t p) {
      return parts[p].share * static_cast<double>(position + 1) - static_cast<double>(parts[p].samples);
    };
    size_t best = 0;
    for (size_t p = 1; p < parts.size(); ++p)
      if (lack(p) > lack(best)) best = p;
    ++parts[best].samples;
    part_of[static_cast<size_t>(order(position))] = static_cast<uint8_t>(best);
  }
  return part_of;
}

// Consecutive parts of a text.
std::vector<IndexRange> cut(int64_t tokens, std::vector<SplitPart>& parts) {
  std::vector<IndexRange> out;
  double share = 0;
  for (SplitPart& p : parts) {
    share += p.share;
    const int64_t begin = out.empty() ? 0 : out.back().end;
    out.push_back({begin, static_cast<int64_t>(share * static_cast<double>(tokens) + 0.5)});
  }
  out.back().end = tokens;
  for (size_t p = 0; p < parts.size(); ++p) parts[p].samples = out[p].size();
  return out;
}

// Samples that follow each other and are in one part.
struct Run {
  size_t part = 0;
  IndexRange samples;
};
// The runs that make up a file, in order, from its start or from where the one before ended.
class Runs {
 public:
  Runs(const DatasetFile& file, std::vector<SplitPart>& parts, const SplitOptions& o) {
    if (sample_kind(file.header.kind).is_one_sequence(file)) cuts_ = cut(file.header.tokens, parts);
    else part_of_ = deal(file, parts, o);
  }
  template <class Use>
  void visit(Use use) const {
    for (size_t p = 0; p < cuts_.size(); ++p) use(Run{p, cuts_[p]});
    for (size_t begin = 0, end; begin < part_of_.size(); begin = end) {
      for (end = begin + 1; end < part_of_.size() && part_of_[end] == part_of_[begin];) ++end;
      use(Run{part_of_[begin], {static_cast<int64_t>(begin), static_cast<int64_t>(end)}});
    }
  }

 private:
  std::vector<IndexRange> cuts_;  // text without records
  std::vector<uint8_t> part_of_;  // everything else
};

}  // namespace

void split_dataset(const std::string& input, std::vector<SplitPart>& parts, const SplitOptions& options) {
  check_parts(parts);
  const auto file = open_dataset_file(input, kCopyMemory);
  const DatasetHeader& h = file->header;
  const SampleKind& kind = sample_kind(h.kind);
  require(!options.by_label || !file->labels.empty(), ExitCode::kUsage, "data split: --by-label: ", input, " ",
          kind.words().unlabelled);
  const Runs runs(*file, parts, options);
  std::vector<int64_t> rows(parts.size()), target_rows(parts.size());
  runs.visit([&](const Run& r) {
    rows[r.part] += kind.rows_of(h, r.samples).size();
    target_rows[r.part] += h.target_parts.of(r.samples).size();
  });
  std::vector<std::unique_ptr<SampleWriter>> writers;
  for (size_t p = 0; p < parts.size(); ++p) {
    require(parts[p].samples > 0, ExitCode::kBadData, input, ": has ", sample_count(h), " samples, of which ",
            parts[p].path, " would get none");
    writers.push_back(
        make_sample_writer({parts[p].path, options.force, described_as(h), parts[p].samples, rows[p], target_rows[p]}));
  }
  runs.visit([&](const Run& r) {
    copy_samples(file, r.samples, {}, *writers[r.part], [&](int64_t done) {
      if (options.progress) options.progress(done, sample_count(h));
    });
  });
  std::vector<PartialOutput*> outputs;
  for (auto& w : writers) {
    w->close();
    outputs.push_back(&w->output());
  }
  PartialOutput::commit_all(outputs);
}

}  // namespace lockstep
