#include "optim/weight_average.h"

#include <algorithm>

#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

WeightAverage::WeightAverage(const std::vector<Slot>& slots, double decay) : Optimizer(slots, {"ema"}), decay_(decay) {
  restart(slots);
}

void WeightAverage::restart(const std::vector<Slot>& slots) {
  set_updates(0);
  const auto averages = state(slots);
  for (size_t i = 0; i < slots.size(); ++i) raw::copy(averages[i].data, slots[i].master);
}

void WeightAverage::swap(const std::vector<Slot>& slots) const {
  constexpr int64_t kPiece = 1 << 20;  // elements
  WithMemoryUse use(MemoryUse::kScratch);
  const auto averages = state(slots);
  for (size_t i = 0; i < slots.size(); ++i)
    for (int64_t begin = 0, n = slots[i].master.numel(); begin < n; begin += kPiece) {
      const int64_t end = std::min(begin + kPiece, n);
      const Tensor master = slots[i].master.slice(0, begin, end), average = averages[i].data.slice(0, begin, end);
      const Tensor kept = Tensor::empty({end - begin});
      raw::copy(kept, master);
      raw::copy(master, average);
      raw::copy(average, kept);
    }
}

void WeightAverage::corrections(int64_t update, double& first, double&) const { first = update == 1 ? 1 : 1 - decay_; }

void WeightAverage::update_slot(const Slot& s, const std::vector<Tensor>& moments, const float* control) {
  PointwiseArgs a = raw::pointwise_args({moments[0]}, {moments[0], s.master});
  a.control = control;
  apply("average", a);
}

std::set<std::string> averaged_parameters(const Checkpoint& checkpoint) {
  std::set<std::string> out;
  for (const StoredSlice& s : checkpoint.slices)
    if (s.name.starts_with(kAverages)) out.insert(s.name.substr(kAverages.size()));
  require(!out.empty(), ExitCode::kConfig, checkpoint.dir,
          ": has no averages of its parameters; it was trained without optim.ema");
  return out;
}

std::vector<StateEntry> averages_of(const Checkpoint& checkpoint, const std::vector<StateEntry>& parameters) {
  const std::set<std::string> averaged = averaged_parameters(checkpoint);
  std::vector<StateEntry> out;
  for (StateEntry e : parameters) {
    if (!e.name.starts_with(kParameters)) continue;
    const std::string name = e.name.substr(kParameters.size());
    if (!averaged.contains(name)) continue;
    e.name = str(kAverages, name);
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace lockstep
