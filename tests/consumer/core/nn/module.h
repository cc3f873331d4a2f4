// The networks of own_pairs. Its path is that of a header of Lockstep, as a program's own folders may have it.
#pragma once

#include <string>
#include <vector>

#include "lockstep/core/models/model.h"
#include "lockstep/core/nn/layers.h"
#include "lockstep/core/ops/ops.h"

namespace own {

using namespace lockstep;

struct TowersOptions {
  int64_t width = 32, features = 8;
};
inline std::vector<Field> fields(TowersOptions& o) {
  return {field("width", o.width, "of the hidden layers").at_least(1),
          field("features", o.features, "of each tower").at_least(1)};
}

class Tower : public ModuleOf<Tensor> {
 public:
  Tower(int64_t in, const TowersOptions& o)
      : in_(child<Linear>("in", in, o.width)), out_(child<Linear>("out", o.width, o.features)) {}
  Tensor forward(const Tensor& x) override { return out_(tanh(in_(x))); }

 private:
  Linear &in_, &out_;
};

class Towers : public Model {
 public:
  Towers(const TowersOptions& o, const TaskSpec& task)
      : left_(child<Tower>("left", task.shape_of("left").numel(), o)),
        right_(child<Tower>("right", task.shape_of("right").numel(), o)) {}
  std::vector<TensorNeed> reads() const override {
    return {{"left", TensorNeed::Type::kFloating, 1}, {"right", TensorNeed::Type::kFloating, 1}};
  }
  std::string task() const override { return "pairs"; }
  Tensor output_of(const Batch& batch) override {  // [B, 2 features]
    return surrounded([&] { return concat({left_(batch["left"]), right_(batch["right"])}, 1); });
  }

 private:
  Tower &left_, &right_;
};

}  // namespace own
