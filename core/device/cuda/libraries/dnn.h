// Convolution and attention by cuDNN, with deterministic algorithms only, except attention's gradient on a queue that
// is_fast(); what cuDNN does not take goes to kernels of our own (patch_conv.h, tiled_attention.h). Graphs are built
// once a shape and kept with a handle, which one queue has at a time: cuDNN's plans must not be shared among threads.
// Attention of 16-bit types that goes to our own kernels is a warning in the log, once a shape. The only door to cuDNN.
//
// What the bits depend on: shape and types, the GPU's model and its number of multiprocessors, and cuDNN's version;
// never on addresses, on the stream or on the run. Other than on a CPU, a convolution's gradient is rounded to the type
// of its inputs before it is added to, or stored in, a wider one.
#pragma once

#include <string>

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep::cuda {

// `queue`: a CudaQueue. Sums in fp32, in fp64 where x is; convolutions of fp32 use TF32 only where the queue
// allows_tf32(). Throw Error(kDevice) where cuDNN fails, or is another version than this file was compiled with.
void conv(Parallel& queue, const ConvArgs& a);
void conv_backward_input(Parallel& queue, const ConvArgs& a);
void conv_backward_weight(Parallel& queue, const ConvArgs& a);
void attention(Parallel& queue, const AttentionArgs& a);
void attention_backward(Parallel& queue, const AttentionArgs& a);

// Which plans cuDNN has on a card that is not in this machine. False where this cuDNN is too old to be told of a card.
bool takes_card_for_plans();
struct CardForPlans {
  std::string properties;  // as JSON: CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
  int architecture = 0;    // 90 is sm_90
};
struct PlanThere {
  bool found = false;  // false: kernels of our own would serve
  int64_t workspace = 0;
  std::string how;  // the engine's name, or why there is none
};
PlanThere attention_plan_on(const CardForPlans& card, const AttentionArgs& a, bool gradient);
enum class ConvPart { kForward, kForwardWithBias, kInputGradient, kWeightGradient };
PlanThere conv_plan_on(const CardForPlans& card, const ConvArgs& a, ConvPart part);
// That a convolution may take. Fixed: a limit that followed the free memory would choose other algorithms.
constexpr int64_t kConvWorkspace = int64_t(256) << 20;

}  // namespace lockstep::cuda
