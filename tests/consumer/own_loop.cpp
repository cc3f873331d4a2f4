// A training loop of one's own, without YAML or Trainer: fits sin(3x), saves, and goes on from its last checkpoint when
// started again.
//   own_loop DIRECTORY STEPS [RANKS]        or        mpirun -n 2 own_loop DIRECTORY STEPS
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

class Net : public ModuleOf<Tensor> {
 public:
  Net() : in_(child<Linear>("in", 1, 64)), out_(child<Linear>("out", 64, 1)) {}
  Tensor forward(const Tensor& x) override { return out_(tanh(in_(x))); }

 private:
  Linear &in_, &out_;
};

constexpr int64_t kMicro = 8, kMicroBatches = 4;  // samples of a micro-batch; micro-batches of a step, over all ranks

// Inputs [kMicro, 1] of one micro-batch: a function of step and index alone, so that no result depends on the number of
// ranks.
std::vector<float> inputs(int64_t step, int64_t index) {
  std::vector<float> x;
  for (int64_t i = 0; i < kMicro; ++i)
    x.push_back(static_cast<float>((step * 131 + index * 37 + i * 17) % 200) / 100 - 1);
  return x;
}

void train(Communicator& comm, const std::string& directory, int64_t steps) {
  Net net;
  DataParallel parallel(net, comm, {.seed = 7});
  auto optimizer = make_adamw({.lr = 0.01}, parallel.slots());
  auto state = [&] {  // what a checkpoint holds: parameters and moments, by name
    std::vector<StateEntry> all = parallel.state();
    for (StateEntry& moment : optimizer->state(parallel.slots())) all.push_back(std::move(moment));
    return all;
  };

  const SavedState saved(parallel, directory);
  CheckpointInfo info = saved.resume(state());
  optimizer->set_updates(info.updates);

  while (info.step < steps) {
    parallel.begin_step(kMicroBatches, kMicroBatches * kMicro);
    for (int64_t index : parallel.my_micro_batches()) {
      std::vector<float> x = inputs(info.step, index), y;
      for (float v : x) y.push_back(std::sin(3 * v));
      Tensor error = net(Tensor::of(x, {kMicro, 1})) - Tensor::of(y, {kMicro, 1});
      parallel.backward(index, sum(error * error), kMicro);
    }
    const StepResult r = parallel.finish_step(/*clip_norm=*/1);
    optimizer->step(parallel.slots(), r);
    ++info.step;
    if (comm.rank() == 0 && info.step % 100 == 0)
      std::printf("step %d  loss %.6f\n", static_cast<int>(info.step), r.loss);
  }

  info.updates = optimizer->updates();
  saved.save(info, state());
  if (comm.rank() == 0) std::printf("%s\n", to_hex(digest_of(open_newest(directory))).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::printf("usage: own_loop DIRECTORY STEPS [RANKS]\n"), static_cast<int>(ExitCode::kUsage);
  WorldOptions world;
  world.ranks = argc > 3 ? std::atoi(argv[3]) : 0;
  return run_world(world, [&](Communicator& comm) { train(comm, argv[1], std::atoll(argv[2])); });
}
