// Generated data for benchmarks and tests: text and images as pure functions of their index. A model can learn both.
#pragma once

#include "data/samples/data_options.h"
#include "data/samples/dataset.h"
#include "data/samples/text/token_dataset.h"

namespace lockstep {

// Runs of 32 tokens that increase by a random step from a random start, modulo the vocabulary.
class SyntheticTokens final : public TokenSource {
 public:
  explicit SyntheticTokens(const DataOptions::Synthetic& options) : options_(options) {}
  int64_t size() const override { return options_.tokens; }
  int64_t vocabulary_size() const override { return options_.vocabulary; }
  const Vocabulary* vocabulary() const override { return nullptr; }
  Hash128 identity() const override;
  void read(IndexRange tokens, int32_t* out) const override;

 private:
  DataOptions::Synthetic options_;
};

// Images [part) of those that the options describe; sample `index` is image part.begin + index.
class SyntheticImageSet : public Dataset {
 public:
  int64_t size() const final { return part_.size(); }
  const DataSpec& spec() const final { return spec_; }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const final;
  const Vocabulary* vocabulary() const final { return nullptr; }

 protected:
  SyntheticImageSet(int64_t images, IndexRange part, DataSpec spec);
  virtual void draw_image(int64_t image, float* pixels, int32_t* labels) const = 0;

  int64_t images_;
  IndexRange part_;
  DataSpec spec_;
};

// Uniform noise, plus a stripe pattern that depends on the label.
class SyntheticImages final : public SyntheticImageSet {
 public:
  SyntheticImages(const DataOptions::Synthetic& options, IndexRange part);
  Hash128 identity() const override;

 private:
  void draw_image(int64_t image, float* pixels, int32_t* labels) const override;
};

// Images for segmentation, one channel, with a label for each pixel: 1 on two to five overlapping ellipses and
// rectangles, 0 elsewhere. Both sides have stripes and noise, and brightness of one distribution; the direction of the
// stripes alone tells them apart.
class SyntheticShapes final : public SyntheticImageSet {
 public:
  SyntheticShapes(const DataOptions::Synthetic& options, IndexRange part);
  Hash128 identity() const override;

 private:
  void draw_image(int64_t image, float* pixels, int32_t* labels) const override;
};

}  // namespace lockstep
