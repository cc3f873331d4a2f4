// The lockstep program with a task over the whole global batch: two networks that learn which halves of the data belong
// together (Radford et al., "Learning transferable visual models from natural language supervision", 2021). Each
// sample's loss depends on all samples of the step, on whichever ranks they are. `own_pairs train own_pairs.yaml`
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/nn/layers.h"
#include "core/ops/ops.h"
#include "launch/app.h"

using namespace lockstep;

namespace {

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
    std::copy(left.begin(), left.end(), static_cast<float*>(sample[0]));
    std::copy(right.begin(), right.end(), static_cast<float*>(sample[1]));
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

struct TowersOptions {
  int64_t width = 32, features = 8;
};
std::vector<Field> fields(TowersOptions& o) {
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

// Logits of each left half with each right one, [N, N], by the cosine of their features.
Tensor similarities(const Tensor& outputs) {
  const int64_t features = outputs.dim(1) / 2;
  const auto unit = [&](const Tensor& x) {
    return rms_norm(x, Tensor::full({features}, 1)) / std::sqrt(static_cast<double>(features));
  };
  constexpr double kTemperature = 0.1;
  return matmul(unit(slice(outputs, 1, 0, features)),
                transpose(unit(slice(outputs, 1, features, 2 * features)), 0, 1)) /
         kTemperature;
}

// The part of the left halves whose own right half is the nearest of the global batch.
Metric found() {
  return {.name = "found", .sum = [](const Tensor& outputs, const Batch&) {
            const auto nearest = argmax(similarities(outputs)).to_vector();
            MetricSum out{0, static_cast<int64_t>(nearest.size())};
            for (size_t i = 0; i < nearest.size(); ++i) out.sum += nearest[i] == static_cast<double>(i);
            return out;
          }};
}

class Pairs final : public GlobalBatchTask {
 public:
  Pairs(std::unique_ptr<Model> model, const TaskContext&) : model_(std::move(model)) {}
  Module& module() override { return *model_; }
  std::vector<TensorNeed> reads() const override { return model_->reads(); }
  Tensor output(const Batch& batch) override { return model_->output_of(batch); }
  Tensor losses(const Tensor& outputs) override {
    const int64_t samples = outputs.dim(0);
    std::vector<int32_t> own(static_cast<size_t>(samples));
    std::iota(own.begin(), own.end(), 0);
    const Tensor index = Tensor::of(own, {samples, 1}), logits = similarities(outputs);
    const Tensor both = gather(log_softmax(logits), index) + gather(log_softmax(transpose(logits, 0, 1)), index);
    return reshape(both * -0.5, {samples});
  }
  std::vector<Metric> metrics() const override { return {found()}; }

 private:
  std::unique_ptr<Model> model_;
};

}  // namespace

int main(int argc, char** argv) {
  App app = builtin();
  app.data.push_back(choice<DataSource, ViewsSource>("views"));
  app.models.push_back(model_choice<Towers, TowersOptions>("towers"));
  app.tasks.push_back(task_choice<Pairs>("pairs"));
  return run_program(argc, argv, app);
}
