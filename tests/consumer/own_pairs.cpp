// The lockstep program with a task over the whole global batch: two networks that learn which halves of the data belong
// together (Radford et al., "Learning transferable visual models from natural language supervision", 2021). Each
// sample's loss depends on all samples of the step, on whichever ranks they are. `own_pairs train own_pairs.yaml`
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/nn/module.h"
#include "data/samples/dataset.h"
#include "lockstep/lockstep.h"

using namespace lockstep;
using own::Towers;
using own::TowersOptions;
using own::ViewsSource;

namespace {

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
