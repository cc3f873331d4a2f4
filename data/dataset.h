// A dataset: samples by index, each an input and its targets, as the loader asks for them.
// Owned by the program that opened it (data/open_dataset.h); loaders borrow it.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/base/ignore_index.h"
#include "core/base/shape.h"

namespace lockstep {

class Vocabulary;

enum class DataKind : uint8_t { kTokens, kImages };

// What a model must fit. Targets are int32; kIgnoreIndex among them counts for nothing.
struct DataSpec {
  DataKind kind = DataKind::kTokens;
  DType input_type = DType::kInt32;  // tokens: int32; images: fp32, normalised
  Shape input_shape;                 // of one sample; tokens: [context]; images: [height, width, channels]
  Shape target_shape;                // tokens: [context]; images: []
  int64_t classes = 0;               // targets lie in [0, classes): vocabulary size, or number of labels
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // samples in an epoch; the same in every epoch
  virtual const DataSpec& spec() const = 0;
  virtual Hash128 identity() const = 0;  // of the content: what ranks and resumed runs must agree on
  // Writes one sample: input_shape elements of input_type, target_shape elements of int32. A pure function of its
  // arguments, callable from any thread. Throws ExitCode::kBadData naming file and index.
  virtual void get(int64_t epoch, int64_t index, void* input, int32_t* target) const = 0;
  virtual const Vocabulary* vocabulary() const = 0;  // nullptr where samples are no text
};

}  // namespace lockstep
