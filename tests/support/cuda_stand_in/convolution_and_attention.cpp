// What cuDNN does on a GPU, done by the CPU's kernels. A test that links core/device/cuda/dnn_*.cpp themselves has a
// stand-in for cuDNN in its place (fake_dnn.h).
#include "core/device/cuda/libraries/dnn.h"

#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"

namespace lockstep::cuda {
namespace {

template <class Args>
void on_cpu(void (*kernel)(Parallel&, const Args&), const Args& args) {
  ThreadPool pool(1);
  kernel(pool, args);
}

}  // namespace

void conv(Parallel&, const ConvArgs& a) { on_cpu(kernels().conv, a); }
void conv_backward_input(Parallel&, const ConvArgs& a) { on_cpu(kernels().conv_backward_input, a); }
void conv_backward_weight(Parallel&, const ConvArgs& a) { on_cpu(kernels().conv_backward_weight, a); }
void attention(Parallel&, const AttentionArgs& a) { on_cpu(kernels().attention, a); }
void attention_backward(Parallel&, const AttentionArgs& a) { on_cpu(kernels().attention_backward, a); }

}  // namespace lockstep::cuda
