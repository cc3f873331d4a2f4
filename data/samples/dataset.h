// Dataset: the interface from which the loader reads samples, by index; each sample is a few named tensors. Owned by
// the program that opened it (data/streams/open_dataset.h); loaders borrow it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/hash.h"
#include "core/base/ignore_index.h"
#include "core/base/partition.h"
#include "core/tensor/batch.h"

namespace lockstep {

class Vocabulary;

// Describes the samples of a dataset. All samples have the same tensors.
struct DataSpec {
  // The first is the model's input: "tokens" (int32 [context]) or "images" (fp32 [height, width, channels],
  // normalised). "labels" (int32) are the targets; a label of kIgnoreIndex is not counted. Without labels each sample
  // counts as one target, such as the number "targets" (fp32) that a regression predicts. Last may come
  // "sample_weights" (fp32), by which a sample's loss counts.
  std::vector<TensorSpec> tensors;
  int64_t classes = 0;           // labels lie in [0, classes): vocabulary size, or number of labels; else 1
  std::string unit = "samples";  // in which throughput is reported: "tokens", "images"
  int64_t units = 1;             // per sample
  bool next_tokens = false;      // targets are the tokens after those of the input
  int64_t vocabulary = 0;        // of texts that have a label each; else 0
  // A number in the data's unit is target_mean + target_std * "targets".
  double target_mean = 0, target_std = 1;
  // Above 1: samples may end before their tensors do (Dataset::length), and what is left is padding. A micro-batch then
  // has rows of padded(length of its longest sample): tensors with the input's shape are cut to it.
  int64_t length_buckets = 1;
  // Of data whose samples are records, or parts of them: how many there are, those that are longer than a sample, and
  // the tokens of the longest. Of other data 0.
  int64_t records = 0, long_records = 0, longest_record = 0;
  std::vector<int64_t> class_counts =
      {};               // samples of each class; empty where a sample has more than one label, or none
  int64_t longest = 0;  // positions that a document of a sample has at most; 0: as many as the input

  // The shortest of `length_buckets` lengths, evenly spaced up to that of the tensors, that holds so many units.
  int64_t padded(int64_t length) const {
    const int64_t width = ceil_div(units, length_buckets);
    return std::min(units, ceil_div(length, width) * width);
  }
  const TensorSpec& input() const { return tensors.front(); }
  // What a model is built for: a document of its own, where a sample has several and none sees another.
  Shape model_input() const { return longest > 0 ? Shape{longest} : input().shape; }
  const TensorSpec* find(std::string_view name) const {
    for (const TensorSpec& t : tensors)
      if (t.name == name) return &t;
    return nullptr;
  }
  int64_t targets() const {  // per sample, at most
    const TensorSpec* labels = find(kLabels);
    return labels ? labels->shape.numel() : 1;
  }
};

// Where Dataset::read writes a sample: memory for each of DataSpec::tensors. Borrows both arguments.
class SampleMemory {
 public:
  // `memory`: by tensor, each of as many contiguous elements of the tensor's type as its shape has.
  SampleMemory(const std::vector<TensorSpec>& tensors, std::span<void* const> memory)
      : tensors_(tensors.data(), memory.size()), memory_(memory) {
    check(memory.size() <= tensors.size(), "a sample of ", static_cast<int64_t>(memory.size()), " tensors of ",
          static_cast<int64_t>(tensors.size()));
  }

  // The elements of a tensor by its name, of its type: float, int32_t or uint8_t. Throws ExitCode::kInternal where
  // there is none of that name, naming those there are, and for another type.
  template <class T>
  std::span<T> of(std::string_view name) const {
    const size_t i = index_of(name);
    const DType type = tensors_[i].dtype;
    check(type == dtype_of<T>(), "a sample's tensor '", name, "' is ", to_text(type), ", and not ",
          to_text(dtype_of<T>()));
    return {static_cast<T*>(memory_[i]), static_cast<size_t>(tensors_[i].shape.numel())};
  }

  // By position in DataSpec::tensors, of any type.
  void* operator[](size_t i) const { return memory_[i]; }
  void* back() const { return memory_.back(); }
  size_t size() const { return memory_.size(); }
  SampleMemory first(size_t count) const { return {tensors_.first(count), memory_.first(count)}; }

 private:
  SampleMemory(std::span<const TensorSpec> tensors, std::span<void* const> memory)
      : tensors_(tensors), memory_(memory) {}
  size_t index_of(std::string_view name) const {
    std::string names;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].name == name) return i;
      names += str(i == 0 ? "" : ", ", tensors_[i].name);
    }
    throw Error(ExitCode::kInternal, str("a sample has no tensor '", name, "'; it has ", names));
  }

  std::span<const TensorSpec> tensors_;
  std::span<void* const> memory_;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // samples in an epoch; the same in every epoch
  virtual const DataSpec& spec() const = 0;
  // Units of a sample before its padding, at least 1. A pure function of epoch and index, callable from any thread.
  virtual int64_t length(int64_t epoch, int64_t index) const { return spec().units; }
  // Which sample an index is in an epoch: the same number for the same sample in every epoch. What is kept for samples
  // is kept by their numbers; indices of a mixture are others in each epoch. A pure function, callable from any thread.
  virtual int64_t number(int64_t epoch, int64_t index) const { return index; }
  virtual Hash128 identity() const = 0;  // a hash of the content, equal on all ranks and in resumed runs
  // Writes one sample. A pure function of epoch and index, callable from any thread. Throws ExitCode::kBadData naming
  // file and index.
  virtual void read(int64_t epoch, int64_t index, SampleMemory sample) const = 0;
  virtual const Vocabulary* vocabulary() const = 0;  // nullptr if samples are not text
  // The number of which "targets" is the fp32, for metrics; nothing where there is none, or it is not known better.
  virtual std::optional<double> target_number(int64_t epoch, int64_t index) const { return {}; }
};

}  // namespace lockstep
