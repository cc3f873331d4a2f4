// WeightAverage: an exponential moving average of the parameters, kept beside an optimizer's moments: saved, digested,
// and cut into slices as they are. Owned by the trainer or a custom training loop.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/state/checkpoint.h"
#include "optim/optimizer.h"

namespace lockstep {

// After each update of the parameters: average = decay average + (1 - decay) parameter; after the first, the average is
// the parameter (as torch.optim.swa_utils.AveragedModel has it). Steps that are skipped change nothing. prepare(),
// update(), settle() and state() are those of Optimizer; its moments are the averages, "ema/NAME", fp32.
class WeightAverage final : public Optimizer {
 public:
  WeightAverage(const std::vector<Slot>& slots, double decay);
  // The parameters were set otherwise than by an update: the averages begin from them.
  void restart(const std::vector<Slot>& slots);
  // Exchanges parameters and averages: once to use the averages in the parameters' place, once to go back.
  void swap(const std::vector<Slot>& slots) const;

 private:
  void corrections(int64_t update, double& first, double& second) const override;
  void update_slot(const Slot& slot, const std::vector<Tensor>& moments, const float* control) override;
  double decay_;
};

// The parameters of a checkpoint that it holds averages of, by name: those that were trained. Throws ExitCode::kConfig
// where there are none at all.
std::set<std::string> averaged_parameters(const Checkpoint& checkpoint);
inline constexpr std::string_view kAverages = "ema/";  // before a parameter's name, in a checkpoint
// Entries for load_entries() that bring a checkpoint's averages into the memory of `parameters`, entries of these.
// Those of parameters that have none are left out. Throws as averaged_parameters() does.
std::vector<StateEntry> averages_of(const Checkpoint& checkpoint, const std::vector<StateEntry>& parameters);

}  // namespace lockstep
