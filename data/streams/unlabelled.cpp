#include "data/streams/unlabelled.h"

#include <algorithm>
#include <cstring>

#include "data/samples/text/labelled_text.h"
#include "data/samples/text/text_windows.h"
#include "data/streams/mixture.h"

namespace lockstep {
namespace {

// What is only for the loss is left out.
bool is_target(std::string_view name) { return name == kLabels || name == kTargets || name == kSampleWeights; }

size_t tensor_bytes(const TensorSpec& t) { return static_cast<size_t>(t.shape.numel() * size_of(t.dtype)); }

// The inputs of a dataset, with targets of 0. `hidden_tokens`: of a model of hidden tokens, whose classes they are and
// each token has a target; else 0.
class Unlabelled final : public Dataset {
 public:
  Unlabelled(std::shared_ptr<const Dataset> inputs, const DataSchema& like, int64_t hidden_tokens = 0);
  int64_t size() const override { return inputs_->size(); }
  const DataSpec& spec() const override { return spec_; }
  int64_t length(int64_t epoch, int64_t index) const override { return inputs_->length(epoch, index); }
  int64_t number(int64_t epoch, int64_t index) const override { return inputs_->number(epoch, index); }
  Hash128 identity() const override { return inputs_->identity(); }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return inputs_->vocabulary(); }

 private:
  std::shared_ptr<const Dataset> inputs_;
  DataSpec spec_;
  std::vector<int> from_;  // of each tensor of inputs_: which of ours it is, -1 for a target
};

Unlabelled::Unlabelled(std::shared_ptr<const Dataset> inputs, const DataSchema& like, int64_t hidden_tokens)
    : inputs_(std::move(inputs)), spec_(inputs_->spec()) {
  const std::vector<TensorSpec> stored = std::move(spec_.tensors);
  spec_.tensors.clear();
  spec_.class_counts.clear();
  for (const TensorSpec& t : stored) {
    const bool kept = !is_target(t.name);
    from_.push_back(kept ? static_cast<int>(spec_.tensors.size()) : -1);
    if (kept) spec_.tensors.push_back(t);
  }
  const bool numbers = like.target == TargetKind::kNumbers;
  Shape shape;
  if (hidden_tokens > 0) shape = spec_.input().shape;
  if (like.target == TargetKind::kMasks) shape = {spec_.input().shape[0], spec_.input().shape[1]};
  if (numbers) spec_.tensors.push_back({std::string(kTargets), DType::kFloat32, {}});
  else spec_.tensors.push_back({std::string(kLabels), DType::kInt32, shape});
  spec_.classes = numbers ? 1 : hidden_tokens > 0 ? hidden_tokens : like.classes;
  if (hidden_tokens > 0) spec_.vocabulary = 0;
  spec_.target_mean = like.target_mean, spec_.target_std = like.target_std;
}

void Unlabelled::read(int64_t epoch, int64_t index, SampleMemory sample) const {
  const std::vector<TensorSpec>& stored = inputs_->spec().tensors;
  std::vector<std::vector<uint8_t>> unused;
  std::vector<void*> memory;
  for (size_t i = 0; i < stored.size(); ++i) {
    if (from_[i] < 0) unused.emplace_back(tensor_bytes(stored[i]));
    memory.push_back(from_[i] < 0 ? unused.back().data() : sample[static_cast<size_t>(from_[i])]);
  }
  inputs_->read(epoch, index, {stored, memory});
  std::memset(sample[spec_.tensors.size() - 1], 0, tensor_bytes(spec_.tensors.back()));  // the target
}

using Parts = std::vector<std::shared_ptr<const Dataset>>;

// Texts without labels. Those of which the next tokens are predicted are all as wide as the longest.
Parts texts_of(const std::vector<std::string>& paths, const DataOptions& o) {
  std::vector<std::shared_ptr<DatasetFile>> files;
  int64_t width = 1;
  for (const std::string& path : paths) {
    files.push_back(open_dataset_file(path, o.memory << 20));
    fit_to(*files.back(), *o.like);
    width = std::max(width, TextWindows::longest(*files.back(), o.context));
  }
  Parts out;
  for (auto& file : files) {
    if (o.mask == 0) {
      out.push_back(std::make_shared<TextWindows>(std::move(file), o.context, width));
      continue;
    }
    const IndexRange all{0, file->header.records.count};
    const int64_t ids = masked_ids(FileTokens(file));
    out.push_back(std::make_shared<Unlabelled>(std::make_shared<LabelledText>(std::move(file), all, o.context),
                                               o.like->schema, ids));
  }
  return out;
}

// Samples of other kinds, each file fitted by itself, which sets `like_this`.
Parts inputs_of(const std::vector<std::string>& paths, DataOptions o, uint64_t seed, Datasets& first_opened) {
  Parts out;
  for (const std::string& path : paths) {
    o.path = path;
    const Datasets one = open_datasets(o, seed);
    if (!first_opened.like_this) first_opened.like_this = one.like_this;
    out.push_back(std::make_shared<Unlabelled>(one.validation, o.like->schema));
    const TensorSpec &first = out[0]->spec().input(), &input = out.back()->spec().input();
    require(input == first, ExitCode::kBadData, path, ": holds samples of shape ", input.shape, ", but ", paths[0],
            " of ", first.shape);
  }
  return out;
}

}  // namespace

Datasets UnlabelledSource::open(const DataOptions& common, uint64_t seed) const {
  auto like = std::make_shared<LikeData>(*like_);
  like->new_classes = true;  // targets are not fitted
  DataOptions o;
  o.context = common.context, o.mask = common.mask, o.packing = common.packing, o.threads = common.threads,
  o.image = common.image;
  o.memory = std::max<int64_t>(1, common.memory / std::ssize(paths_));
  o.measured = DataPart::kAll;
  o.like = std::move(like);
  Datasets out;
  out.measured = DataPart::kAll;
  const bool texts = like_->schema.kind == DataKind::kTokens && like_->schema.classes == 0;
  Parts parts = texts ? texts_of(paths_, o) : inputs_of(paths_, o, seed, out);
  out.train = out.validation =
      parts.size() == 1 ? parts[0] : std::make_shared<Mixture>(std::move(parts), MixtureOptions{});
  return out;
}

}  // namespace lockstep
