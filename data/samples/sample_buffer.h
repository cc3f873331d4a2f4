// SampleBuffer: memory for one sample of a dataset, to read it by itself. Owns its bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "data/samples/dataset.h"

namespace lockstep {

class SampleBuffer {
 public:
  // Borrows `tensors`.
  explicit SampleBuffer(const std::vector<TensorSpec>& tensors) : tensors_(tensors) {
    for (const TensorSpec& one : tensors)
      places_.push_back(bytes_.emplace_back(static_cast<size_t>(one.shape.numel() * size_of(one.dtype))).data());
  }
  SampleBuffer(const SampleBuffer&) = delete;
  SampleBuffer& operator=(const SampleBuffer&) = delete;

  SampleMemory memory() const { return {tensors_, places_}; }                // for Dataset::read
  const std::vector<std::vector<uint8_t>>& bytes() const { return bytes_; }  // of each tensor
  const void* operator[](size_t tensor) const { return places_[tensor]; }

 private:
  const std::vector<TensorSpec>& tensors_;
  std::vector<std::vector<uint8_t>> bytes_;
  std::vector<void*> places_;
};

}  // namespace lockstep
