// Ways of the CUDA part that may be faster by reasoning, and that no card has decided yet: off unless the environment's
// LOCKSTEP_CUDA_TRY names them, separated by spaces. All but no_gelu_epilogue and no_bias_gradient_epilogue, which move
// a rounding, change how sums are formed. What is on is part of DeviceBackend::versions(), as bits depend on it. One
// set per process, read at the first use of a GPU.
#pragma once

#include <string>

namespace lockstep::cuda {

struct Switches {
  // Gradients of weights (fp32 sums of 16-bit products) may split the sum, where its parts are added by a kernel of
  // their own in a fixed order.
  bool split_k = false;
  bool no_gelu_epilogue = false, no_bias_gradient_epilogue = false;  // passes of our own after the product instead
  bool fast_attention = false;  // attention's gradient by atomics: bits differ from run to run
  // Communicators of parts of the ranks share the resources of the one that they are split from; no bit depends on it.
  bool nccl_split = false;
};

// The process's. Not const for tests.
Switches& switches();
// From words such as "split_k fast_attention". Throws Error(kConfig) for an unknown one.
Switches switches_of(const std::string& words);
std::string to_text(const Switches& s);  // such words
bool is_on(const Switches& s, const std::string& word);

}  // namespace lockstep::cuda
