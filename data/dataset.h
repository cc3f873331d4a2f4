// A dataset: samples by index, each a few named tensors, as the loader asks for them.
// Owned by the program that opened it (data/open_dataset.h); loaders borrow it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/hash.h"
#include "core/base/ignore_index.h"
#include "core/tensor/batch.h"

namespace lockstep {

class Vocabulary;

// What samples are. Every one has the same tensors.
struct DataSpec {
  // The first is what a model sees first: "tokens" (int32 [context]) or "images" (fp32 [height, width, channels],
  // normalised). "labels" (int32) are the targets; kIgnoreIndex among them counts for nothing. Without labels each
  // sample counts as one target.
  std::vector<TensorSpec> tensors;
  int64_t classes = 0;           // labels lie in [0, classes): vocabulary size, or number of labels
  std::string unit = "samples";  // what speed is told in: "tokens", "images"
  int64_t units = 1;             // of a sample

  const TensorSpec& input() const { return tensors.front(); }
  const TensorSpec* find(std::string_view name) const {
    for (const TensorSpec& t : tensors)
      if (t.name == name) return &t;
    return nullptr;
  }
  int64_t targets() const {  // of a sample at most
    const TensorSpec* labels = find(kLabels);
    return labels ? labels->shape.numel() : 1;
  }
};

// Where a sample is written: for each of DataSpec::tensors its elements in their type, contiguous.
using SampleMemory = std::span<void* const>;

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // samples in an epoch; the same in every epoch
  virtual const DataSpec& spec() const = 0;
  virtual Hash128 identity() const = 0;  // of the content: what ranks and resumed runs must agree on
  // Writes one sample. A pure function of epoch and index, callable from any thread. Throws ExitCode::kBadData naming
  // file and index.
  virtual void read(int64_t epoch, int64_t index, SampleMemory sample) const = 0;
  virtual const Vocabulary* vocabulary() const = 0;  // nullptr where samples are no text
};

}  // namespace lockstep
