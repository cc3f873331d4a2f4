#include "data/samples/sample_parts.h"

#include "core/base/error.h"
#include "data/samples/sample_target.h"
#include "data/samples/text/labelled_text.h"
#include "data/samples/text/packed_dataset.h"
#include "data/samples/text/pair_dataset.h"
#include "data/samples/text/token_dataset.h"

namespace lockstep {
namespace {

// Records as samples.
SampleParts record_parts(const std::shared_ptr<const TokenSource>& source, const DataOptions& o) {
  require(
      source->records() > 0, ExitCode::kConfig,
      "data.packing is set, but the data has no records: import it as records (lockstep data import json), or leave "
      "data.packing out");
  require(o.mask == 0 || o.packing == Packing::kPad, ExitCode::kConfig,
          "data.mask is set: it takes data.packing: windows or pad");
  return {source->records(), "records", [source, o](IndexRange r, PartUse use) {
            return std::make_shared<PackedDataset>(
                source, r,
                PackingOptions{o.context, o.ignore_tokens, o.packing == Packing::kPad, o.buckets,
                               use.training && o.shuffle, use.seed, o.mask});
          }};
}

SampleParts pair_parts(const std::shared_ptr<const TokenSource>& source, const DataOptions& o) {
  require(
      source->paired(), ExitCode::kConfig,
      "data.packing is pairs, but the data holds none: import it with --chosen and --rejected (lockstep data import "
      "json)");
  require(o.mask == 0, ExitCode::kConfig, "data.mask is set: it takes data.packing: windows or pad");
  return {source->records(), "pairs", [source, o](IndexRange pairs, PartUse) {
            return std::make_shared<PairDataset>(source, pairs, PairOptions{o.context, o.ignore_tokens, o.buckets});
          }};
}

}  // namespace

SampleParts text_parts(const std::shared_ptr<const TokenSource>& source, const DataOptions& o) {
  require(o.context > 0, ExitCode::kConfig,
          "data.context is not set, but the data is text: give the length of a sample");
  for (int64_t id : o.ignore_tokens)
    require(id >= 0 && id < source->vocabulary_size(), ExitCode::kConfig, "data.ignore_tokens has ", id,
            ", but the vocabulary has ", source->vocabulary_size(), " tokens");
  require(!source->paired() || o.packing != Packing::kWindows, ExitCode::kConfig,
          "the data holds pairs, of an answer that was chosen and one that was rejected: set data.packing to pairs, "
          "for a task that learns from both, or to pack or pad, so that the chosen ones are trained on");
  require(o.buckets == 1 || o.packing == Packing::kPad || o.packing == Packing::kPairs, ExitCode::kConfig,
          "data.buckets is ", o.buckets,
          ", but samples are of one length: set data.packing to pad, or leave data.buckets out");
  if (o.packing == Packing::kPairs) return pair_parts(source, o);
  if (o.packing != Packing::kWindows) return record_parts(source, o);
  return {source->size(), "tokens", [source, o](IndexRange r, PartUse use) {
            return std::make_shared<TokenDataset>(
                source, r, WindowOptions{o.context, o.ignore_tokens, use.training, use.seed, o.mask});
          }};
}

SampleParts labelled_text_parts(const std::shared_ptr<const DatasetFile>& file, const DataOptions& o) {
  require(o.context > 0, ExitCode::kConfig,
          "data.context is not set, but the data is text: give the length of a sample");
  require(o.packing != Packing::kPack, ExitCode::kConfig, "data.packing: pack joins records, but ", file->path,
          " has a label for each: leave it out");
  require(o.packing != Packing::kPairs, ExitCode::kConfig, "data.packing is pairs, but ", file->path,
          " holds none: its records have a label each");
  require(o.ignore_tokens.empty(), ExitCode::kConfig,
          "data.ignore_tokens is set, but the targets are labels, not tokens: leave it out");
  return {file->header.records.count, "records",
          [file, o](IndexRange r, PartUse) { return std::make_shared<LabelledText>(file, r, o.context, o.buckets); }};
}

SampleParts plain_parts(int64_t count, const DataOptions& o,
                        std::function<std::shared_ptr<const Dataset>(IndexRange rows, PartUse use)> make) {
  require(o.context == 0, ExitCode::kConfig, "data.context is ", o.context, ", but the data is no text: leave it out");
  require(o.ignore_tokens.empty(), ExitCode::kConfig,
          "data.ignore_tokens is set, but the data is no text: leave it out");
  require(o.mask == 0, ExitCode::kConfig, "data.mask is set, but the data is no text: leave it out");
  require(o.packing == Packing::kWindows, ExitCode::kConfig,
          "data.packing is set, but the data is no text: leave it out");
  require(o.buckets == 1, ExitCode::kConfig, "data.buckets is set, but the data is no text: leave it out");
  return {count, "samples", std::move(make)};
}

std::vector<int64_t> class_counts(const DatasetFile& file, IndexRange rows) {
  if (std::ssize(file.labels) < rows.end) return {};
  std::vector<int64_t> out(static_cast<size_t>(file.header.classes));
  for (int64_t row = rows.begin; row < rows.end; ++row)
    if (const int32_t label = file.labels[static_cast<size_t>(row)]; label >= 0 && label < std::ssize(out))
      ++out[static_cast<size_t>(label)];
  return out;
}

void write_weight(const DatasetFile& file, int64_t row, SampleMemory sample) {
  if (!file.weights.empty()) *static_cast<float*>(sample.back()) = file.weight_of(row);
}

DataSpec spec_of(const DatasetFile& file, IndexRange rows, TensorSpec input, const std::string& unit) {
  const DatasetHeader& h = file.header;
  const SampleTarget& target = sample_target(h.target);
  DataSpec spec;
  spec.tensors = {input};
  target.add_to(spec, input);
  if (!file.weights.empty()) spec.tensors.push_back({std::string(kSampleWeights), DType::kFloat32, {}});
  spec.classes = target.has_classes() ? h.classes : 1;
  spec.unit = unit;
  spec.class_counts = class_counts(file, rows);
  spec.target_mean = h.target_mean, spec.target_std = h.target_std;
  return spec;
}

}  // namespace lockstep
