#include "tests/gpu/gpu.h"

#include <cmath>
#include <cstdlib>

#include "core/autograd/node.h"
#include "core/device/thread_pool.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep::testing {

bool gpu_is_fake() {
  const char* fake = std::getenv("LOCKSTEP_TEST_FAKE_GPU");
  return fake && std::string(fake) == "1";
}

std::string planted_fault() {
  const char* fault = std::getenv("LOCKSTEP_TEST_GPU_FAULT");
  return fault ? fault : "";
}

bool find_gpu(std::string* why) {
  if (!gpu_is_fake()) return find_device_backend(why) != nullptr;
  fake_gpu();
  return true;
}

Device gpu_device() { return {DeviceType::kCuda, 0}; }

Values with_gradients(const Function& f, const std::vector<Tensor>& inputs, DType dtype, Device device) {
  return on_stream(device, device.type == DeviceType::kCuda ? 1 : available_cores(), [&] {
    std::vector<Tensor> leaves;
    for (const Tensor& t : inputs) {
      const bool floating = is_floating(t.dtype());
      Tensor leaf = Tensor::empty(t.shape(), floating ? dtype : t.dtype());
      raw::copy(leaf, t);
      if (floating) require_grad(leaf);
      leaves.push_back(leaf);
    }
    const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    const Tensor y = f(leaves);
    // Weights of quarters, which every type holds exactly: else each type would round other gradients.
    std::vector<double> weights(static_cast<size_t>(y.numel()));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.5 + 0.25 * static_cast<double>(i * 7 % 5);
    Values out{y.to_vector()};
    backward(sum(mul(cast(y, wide), raw::cast(Tensor::of(weights, y.shape()), wide))));
    for (const Tensor& leaf : leaves)
      if (const Tensor g = grad_of(leaf)) out.push_back(g.to_vector());
    return out;
  });
}

void expect_close(const Values& got, const Values& wanted, DType dtype, const Tolerance& tolerance,
                  const std::string& what) {
  const double unit = dtype == DType::kBFloat16 ? 0x1p-8 : dtype == DType::kFloat16 ? 0x1p-11 : 0x1p-24;
  const double relative = tolerance.scale * (unit + 8 * std::sqrt(tolerance.terms) * 0x1p-24);
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t t = 0; t < got.size(); ++t) {
    ASSERT_EQ(got[t].size(), wanted[t].size()) << what << ", tensor " << t;
    double squares = 0;
    for (double b : wanted[t]) squares += b * b;
    const double rms = std::sqrt(squares / std::max<double>(1, static_cast<double>(wanted[t].size())));
    for (size_t i = 0; i < got[t].size(); ++i)
      ASSERT_NEAR(got[t][i], wanted[t][i], relative * (std::abs(wanted[t][i]) + rms))
          << what << ", " << (t == 0 ? std::string("result") : str("gradient ", t - 1)) << ", element " << i << " of "
          << got[t].size();
  }
}

}  // namespace lockstep::testing
