// The lockstep program with a model that is wrong in a way that depends on the rank, to see that it is found.
// model.name: odd
#include <atomic>
#include <bit>

#include "core/base/log.h"
#include "core/models/mlp.h"
#include "core/ops/ops.h"
#include "launch/app.h"

namespace lockstep {

struct OddOptions {
  std::string how = "rank";
  int64_t step = 4;
};
std::vector<Field> fields(OddOptions& o) {
  return {field("how", o.how,
                "rank: rank 1 sees other inputs; counter: inputs depend on how many forward passes this process has "
                "done; flip: a bit of a parameter changes on rank 2")
              .with_choices({"rank", "counter", "flip"}),
          field("step", o.step, "in this step, from 1")};
}

std::atomic<int64_t> passes{0};  // of all thread-ranks

class Odd : public Model {
 public:
  Odd(const OddOptions& options, const TaskSpec& task)
      : options_(options),
        mlp_(child<Mlp>("mlp", MlpOptions{{70}}, task)),
        scale_(parameter("scale", task.input, Init::constant(1))) {}

  Tensor forward(const Tensor& x) override {
    const bool now = training() && context().random.step + 1 == options_.step;
    const int64_t pass = passes++;
    double factor = 1;
    // A model knows no rank; the log's prefix does.
    if (now && options_.how == "rank" && log_prefix() == "rank 1") factor = 1.01;
    if (now && options_.how == "counter") factor = 1 + 0.01 * static_cast<double>(pass);
    if (now && options_.how == "flip" && log_prefix() == "rank 2" && !flipped_) {
      flipped_ = true;
      float& v = scale_.mutable_values<float>()[7];
      v = std::bit_cast<float>(std::bit_cast<uint32_t>(v) ^ (1u << 20));
    }
    return mlp_(x * scale_ * Tensor::full({1}, factor));
  }

 private:
  OddOptions options_;
  Mlp& mlp_;
  Tensor& scale_;  // as a sample
  bool flipped_ = false;
};

}  // namespace lockstep

int main(int argc, char** argv) {
  auto app = lockstep::builtin();
  app.models.push_back(lockstep::model_choice<lockstep::Odd, lockstep::OddOptions>("odd"));
  return lockstep::run_program(argc, argv, app);
}
