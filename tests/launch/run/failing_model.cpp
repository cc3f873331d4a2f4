// The lockstep program with a model that fails on one rank, to see how a job ends. model.name: failing
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "core/base/log.h"
#include "core/models/mlp.h"
#include "launch/app.h"

namespace lockstep {

struct FailingOptions {
  int64_t rank = 1, step = 5;
  std::string how = "throw";
  bool peers_sleep = false;
  std::string mark = "thrown";
};
std::vector<Field> fields(FailingOptions& o) {
  return {field("rank", o.rank, "fails").without_effect_on_math(),
          field("step", o.step, "at its forward pass of this number"),
          field("how", o.how, "throw, or abort").with_choices({"throw", "abort"}),
          field("peers_sleep", o.peers_sleep, "the others are in a long computation then"),
          field("mark", o.mark, "file whose time is that of the failure")};
}

class Failing : public Model {
 public:
  Failing(const FailingOptions& options, const TaskSpec& task)
      : options_(options), mlp_(child<Mlp>("mlp", MlpOptions{{8}}, task)) {}
  Tensor forward(const Tensor& x) override {
    // A model knows no rank; the log's prefix does.
    const bool fails = log_prefix() == str("rank ", options_.rank);
    if (training() && ++calls_ == options_.step) {
      if (fails) {
        std::ofstream(options_.mark) << "now\n";
        if (options_.how == "abort") std::abort();
        throw std::runtime_error("the model of this test gives up");
      }
      if (options_.peers_sleep) std::this_thread::sleep_for(std::chrono::seconds(300));
    }
    return mlp_(x);
  }

 private:
  FailingOptions options_;
  Mlp& mlp_;
  int64_t calls_ = 0;
};

}  // namespace lockstep

int main(int argc, char** argv) {
  auto app = lockstep::builtin();
  app.models.push_back(lockstep::model_choice<lockstep::Failing, lockstep::FailingOptions>("failing"));
  return lockstep::run_program(argc, argv, app);
}
