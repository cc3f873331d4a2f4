// The lockstep program with data, model, task and optimizer of its own; the task is a loss and a metric. `own_task
// train own_task.yaml`, with every command, option and number of ranks.
#include <cmath>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

// Points of the plane with a height each, which a model is to learn.
class Hills final : public Dataset {
 public:
  explicit Hills(int64_t size) : size_(size) {
    spec_.tensors = {{"points", DType::kFloat32, {2}}, {"heights", DType::kFloat32, {1}}};
    spec_.unit = "points";
  }
  int64_t size() const override { return size_; }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return hash128(str("hills ", size_)); }
  const Vocabulary* vocabulary() const override { return nullptr; }
  void read(int64_t, int64_t index, SampleMemory sample) const override {
    const auto point = sample.of<float>("points"), height = sample.of<float>("heights");
    point[0] = static_cast<float>(index * 37 % 101) / 50 - 1;
    point[1] = static_cast<float>(index * 53 % 103) / 51 - 1;
    height[0] = std::sin(3 * point[0]) * point[1];
  }

 private:
  int64_t size_;
  DataSpec spec_;
};

class HillsSource final : public DataSource {
 public:
  std::vector<Field> options(DataOptions&) override {
    return {field("points", points_, "how many points").at_least(8)};
  }
  Datasets open(const DataOptions&, uint64_t) const override {
    return {.train = std::make_shared<Hills>(points_), .validation = std::make_shared<Hills>(points_ / 4)};
  }

 private:
  int64_t points_ = 1000;
};

struct NetOptions {
  int64_t width = 32;
};
std::vector<Field> fields(NetOptions& o) {
  return {field("width", o.width, "features of the hidden layers").at_least(1)};
}

class Net : public Model {
 public:
  Net(const NetOptions& o, const TaskSpec& task)
      : in_(child<Linear>("in", task.input.numel(), o.width)),
        middle_(child<Linear>("middle", o.width, o.width)),
        out_(child<Linear>("out", o.width, 1)) {}
  Tensor forward(const Tensor& x) override { return out_(tanh(middle_(tanh(in_(x))))); }

 private:
  Linear &in_, &middle_, &out_;
};

// The largest error of a micro-batch, averaged over micro-batches.
Metric worst_error() {
  return {.name = "worst_error", .sum = [](const Tensor& output, const Batch& batch) {
            const auto found = output.detach().to_vector(), wanted = batch["heights"].to_vector();
            double worst = 0;
            for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - wanted[i]));
            return MetricSum{worst, 1};
          }};
}

// Its loss is the squared error, summed; the step divides by the number of samples.
class Heights final : public ModelTask {
 public:
  Heights(std::unique_ptr<Model> model, const TaskContext&) : ModelTask(std::move(model)) {}
  Tensor loss_of(Tensor output, const Batch& batch) override {
    const Tensor error = cast(output - batch["heights"], DType::kFloat32);
    return sum(error * error);
  }
  std::vector<Metric> metrics() const override { return {worst_error()}; }

 protected:
  TensorNeed target() const override { return {"heights", TensorNeed::Type::kFloating, 1}; }
};

// Adagrad (Duchi et al. 2011): s += g^2; w -= lr g / (sqrt(s) + epsilon).
struct AdagradOptions {
  double epsilon = 1e-8;
};
std::vector<Field> fields(AdagradOptions& o) {
  return {field("epsilon", o.epsilon, "added to the root of the squares' sum").with_range(1e-12, 1)};
}

class Adagrad final : public TensorOptimizer {
 public:
  Adagrad(const AdagradOptions& o, const OptimOptions& common, const std::vector<Slot>& slots)
      : TensorOptimizer(slots, {"adagrad.s"}), epsilon_(o.epsilon), weight_decay_(common.weight_decay) {
    set_lr(common.lr);
  }

 private:
  Tensor updated(TensorUpdate& u) const override {
    Tensor& s = u.moments[0];
    s = s + u.gradient * u.gradient;
    const Tensor decayed = u.decay ? u.parameter * (1 - u.lr * weight_decay_) : u.parameter;
    return decayed - u.lr * u.gradient / (sqrt(s) + epsilon_);
  }
  double epsilon_, weight_decay_;
};

}  // namespace

int main(int argc, char** argv) {
  App app = builtin();
  app.data.push_back(choice<DataSource, HillsSource>("hills"));
  app.models.push_back(model_choice<Net, NetOptions>("net"));
  app.tasks.push_back(task_choice<Heights>("heights"));
  app.optimizers.push_back(optimizer_choice<Adagrad, AdagradOptions>("adagrad"));
  return run_program(argc, argv, app);
}
