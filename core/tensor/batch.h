// Batch: the tensors of a micro-batch by name, such as "tokens", "images", "labels", "mask". A plain value; the few
// tensors are searched in order.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace lockstep {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;  // of one sample; [rows, shape...] in a batch
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// int32; what a loss is a mean over: the elements that are not kIgnoreIndex.
inline constexpr std::string_view kLabels = "labels";
// fp32; numbers that a regression predicts, in the place of labels: one a sample.
inline constexpr std::string_view kTargets = "targets";
// fp32, one a sample, finite and not negative: by what its loss is multiplied, where samples do not count alike; the
// mean is over their sum.
inline constexpr std::string_view kSampleWeights = "sample_weights";
// int32, one a sample: where samples are mixtures of two (mixup), the label of the other one, and its share in units of
// 1 / kShareUnit.
inline constexpr std::string_view kOtherLabels = "other_labels", kOtherShare = "other_share";
inline constexpr int32_t kShareUnit = 1 << 16;
// Of pairs of answers (data/samples/text/pair_dataset.h): int32 [T], the token behind each, and 1 where that is a token
// of an answer; fp32 [2], the sums of the logarithms of the probabilities that the reference gives the two answers.
inline constexpr std::string_view kNextTokens = "next_tokens", kAnswers = "answers", kReference = "reference";

class Batch {
 public:
  void add(std::string name, Tensor tensor) { tensors_.emplace_back(std::move(name), std::move(tensor)); }
  const Tensor* find(std::string_view name) const {  // null where there is none
    for (auto& [own, tensor] : tensors_)
      if (own == name) return &tensor;
    return nullptr;
  }
  // Throws ExitCode::kInternal, naming those there are.
  const Tensor& operator[](std::string_view name) const {
    if (const Tensor* found = find(name)) return *found;
    std::string names;
    for (auto& [own, _] : tensors_) names += str(names.empty() ? "" : ", ", own);
    throw Error(ExitCode::kInternal, str("a batch has no tensor '", name, "'; it has ", names));
  }
  // In the order of the dataset's specification.
  std::vector<std::pair<std::string, Tensor>>& tensors() { return tensors_; }
  const std::vector<std::pair<std::string, Tensor>>& tensors() const { return tensors_; }

 private:
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

}  // namespace lockstep
