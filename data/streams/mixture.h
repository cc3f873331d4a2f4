// Mixture: the samples of several datasets as one. Shares the datasets. A sample is a pure function of seed, epoch and
// index, as of every dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/samples/dataset.h"

namespace lockstep {

struct MixtureOptions {
  // The share of each dataset in the samples of an epoch, of their sum; empty: each sample is once in every epoch.
  std::vector<double> weights = {};
  bool shuffle = false;  // each dataset's samples come in a new order in each of its own epochs
  uint64_t seed = 0;
  bool of_one = false;  // the datasets are parts of one, whose identity they all have: it is the mixture's, too
};

// An epoch has as many samples as the datasets together. Every dataset counts its own epochs, in each of which its
// samples are all once; an epoch of the mixture takes the next ones of this sequence, in the order of its indices. So
// after any number of whole epochs two samples of a dataset came equally often, but for one time. The loader's order
// mixes the indices of an epoch: where it takes from two of a dataset's epochs, a sample may come again before another
// came at all. Which indices an epoch takes from which dataset is the same in every epoch.
class Mixture final : public Dataset {
 public:
  // Throws ExitCode::kConfig where a weight gives a dataset no sample at all. The datasets have samples of one kind.
  Mixture(std::vector<std::shared_ptr<const Dataset>> parts, MixtureOptions options);
  int64_t size() const override { return ends_.back(); }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override;
  int64_t length(int64_t epoch, int64_t index) const override;
  // Below the datasets' sizes together, which is size(). With weights an epoch lacks some and repeats others.
  int64_t number(int64_t epoch, int64_t index) const override;
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return parts_[0]->vocabulary(); }
  std::optional<double> target_number(int64_t epoch, int64_t index) const override;

 private:
  // Where a sample of an epoch is: the dataset, the number of its first sample, its own epoch, and the index there.
  struct Position {
    const Dataset& data;
    int64_t first, epoch, index;
  };
  Position place_of(int64_t epoch, int64_t index) const;

  std::vector<std::shared_ptr<const Dataset>> parts_;
  MixtureOptions options_;
  DataSpec spec_;
  std::vector<int64_t> ends_;    // of each dataset's indices
  std::vector<int64_t> firsts_;  // of each dataset's numbers
};

}  // namespace lockstep
