// The part of Trainer that begins from what init.from names.
#include "launch/artifacts/open_whole.h"
#include "launch/training/trainer.h"
#include "launch/weights/load_weights.h"
#include "launch/world/fail_together.h"

namespace lockstep {

void Trainer::load_initial() {
  if (!settings_.pretrained) {
    const Checkpoint from = open_whole(comm_, settings_.init.from);
    return fail_together(comm_, [&] { load_parameters(from); });
  }
  fail_together(comm_, [&] {
    check_at_rest("parameters are loaded");
    load_weights(*settings_.pretrained, parallel_->state());
    parameters_were_loaded();
  });
}

void Trainer::require_weights_of_folder() const {
  require_weights_for(*settings_.pretrained, WeightFiles::open(settings_.pretrained->folder), parallel_->state());
}

}  // namespace lockstep
