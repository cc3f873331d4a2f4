#include "core/device/cuda/libraries/recurrent.h"

#include "core/device/cuda/libraries/blas.h"
#include "core/kernels/entries.h"
#include "core/kernels/recurrent_steps.h"

namespace lockstep::cuda {
namespace {

struct OnQueue {
  Parallel& queue;
  void multiply(StepWeight, const GemmArgs& g) { cuda::gemm(queue, g); }
  void pointwise(PointwiseOp op, const PointwiseArgs& p) { lockstep::pointwise(queue, op, p); }
  void cell(CellPass pass, const PointwiseArgs& p) { lockstep::cell(queue, pass, p); }
};

}  // namespace

void recurrent(Parallel& queue, const RecurrentArgs& a) {
  OnQueue run{queue};
  RecurrentSteps(a, 0, a.batch, run).all();
}

}  // namespace lockstep::cuda
