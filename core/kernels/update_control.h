// What an optimizer's update reads beside its tensors: numbers that may be known only on the device.
#pragma once

namespace lockstep {

// Indices into the control buffer, fp32: the learning rate, the factor for gradients, whether to change nothing (not
// 0), and two corrections of the optimizer's own.
struct UpdateControl {
  static constexpr int kLr = 0, kGradScale = 1, kSkip = 2, kCorrection1 = 3, kCorrection2 = 4, kCount = 8;
};

}  // namespace lockstep
