// Matrix products by cuBLASLt: plans are chosen once a shape and GPU, and kept for the process. All use of cuBLASLt is
// here.
//
// What the bits of a product depend on: its shape, types and strides, the GPU's model and its number of multiprocessors
// (a MIG slice is another model), and cuBLASLt's version; never on addresses, on the stream or on the run. Other than
// on a CPU, another m or n may bring another tile and so another order of the sum over k: cuBLASLt promises equal bits
// for equal calls, and nothing across shapes.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep::cuda {

// `queue`: a CudaQueue. Throws Error(kDevice) where cuBLASLt has no algorithm for a shape, or is another version than
// this file was compiled with. Products of fp32 use TF32 only where the queue allows_tf32().
//
// A plan is the first algorithm of cuBLASLt's heuristic that does not split the sum over k: the same in every run and
// on every rank. Where the queue is_fast(), it is the fastest of a few, split or not, timed when the shape is first
// met; ranks may then differ. Where there is no memory to time them in, it is the first.
//
// An epilogue or a bias gradient (GemmArgs) is cuBLASLt's where it has an algorithm for it, else a pass of our own
// after the product: each shape is asked about once, and the plan says which; a pass of our own is also a warning in
// the log. Nothing of this depends on addresses either.
void gemm(Parallel& queue, const GemmArgs& g);

// For tests: the process forgets its plans.
void forget_plans();

}  // namespace lockstep::cuda
