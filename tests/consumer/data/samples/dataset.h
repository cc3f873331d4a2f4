// The data of own_pairs. Its path is that of a header of Lockstep, as a program's own folders may have it.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "lockstep/data/streams/open_dataset.h"

namespace own {

using namespace lockstep;

// Two views of the same point.
class Views final : public Dataset {
 public:
  explicit Views(int64_t size, int64_t first) : size_(size), first_(first) {
    spec_.tensors = {{"left", DType::kFloat32, {6}}, {"right", DType::kFloat32, {4}}};
    spec_.unit = "pairs";
  }
  int64_t size() const override { return size_; }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return hash128(str("views ", size_, " from ", first_)); }
  const Vocabulary* vocabulary() const override { return nullptr; }
  void read(int64_t, int64_t index, SampleMemory sample) const override {
    const auto i = static_cast<double>(first_ + index);
    const auto a = static_cast<float>(std::sin(12.9 * i)), b = static_cast<float>(std::sin(78.2 * i));
    const std::vector<float> left{a, b, a * b, a * a, b * b, 1},
        right{b - a, 2 * a + b, std::sin(3 * a), std::cos(2 * b)};
    std::ranges::copy(left, sample.of<float>("left").begin());
    std::ranges::copy(right, sample.of<float>("right").begin());
  }

 private:
  int64_t size_, first_;
  DataSpec spec_;
};

class ViewsSource final : public DataSource {
 public:
  std::vector<Field> options(DataOptions&) override { return {}; }
  Datasets open(const DataOptions&, uint64_t) const override {
    return {.train = std::make_shared<Views>(480, 0), .validation = std::make_shared<Views>(60, 480)};
  }
};

}  // namespace own
