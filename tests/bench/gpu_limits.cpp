// What a device can do at most through our own doors: square matrix products of bf16 with fp32 sums by the kernel
// table's gemm, and copies within its memory by its queue; one JSON line. The benchmark's yardstick on a GPU.
//   gpu_limits [cuda|cpu] [EXTENT] [MIB]     default: cuda, products of 8192^3, copies of 4096 MiB
// Random factors: with zeros a card draws less power and runs faster.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// Best of five of the seconds that one of `count` goes takes: the queue is empty before, and done after.
double seconds(Stream& stream, int count, const std::function<void()>& go) {
  double best = 1e30;
  for (int round = 0; round < 6; ++round) {  // the first one warms up
    stream.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) go();
    stream.synchronize();
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
    if (round > 0 && s < best) best = s;
  }
  return best;
}

Tensor random_matrix(int64_t extent, uint64_t seed) {
  const Tensor wide = Tensor::empty({extent, extent});
  InitialArgs a;
  a.normal = true, a.scale = 1, a.seed = seed, a.end = wide.numel(), a.out = static_cast<float*>(wide.write());
  current_stream().enqueue([a](Parallel& p) { kernels(p).initial(p, a); });
  return raw::cast(wide, DType::kBFloat16);
}

int limits(Device device, int64_t extent, int64_t mib) {
  Stream stream(device, Stream::Mode::kInline, available_cores());
  WithStream with(stream);
  const int count = device.type == DeviceType::kCuda ? 10 : 1;

  double gemm_s;
  {
    const Tensor a = random_matrix(extent, 1), b = random_matrix(extent, 2),
                 c = Tensor::empty({extent, extent}, DType::kBFloat16);
    gemm_s = seconds(stream, count, [&] { raw::gemm(c, a, b); });
  }
  const int64_t bytes = mib << 20;
  const Tensor from = Tensor::zeros({bytes}, DType::kUInt8), to = Tensor::zeros({bytes}, DType::kUInt8);
  const double copy_s = seconds(stream, count, [&] {
    if (DeviceQueue* queue = stream.device_queue().get()) queue->copy(to.write(), from.read(), bytes);
    else std::memcpy(to.write(), from.read(), static_cast<size_t>(bytes));
  });

  const bool gpu = device.type == DeviceType::kCuda;
  const double n = static_cast<double>(extent);
  std::printf("{\"device\":\"%s\",\"libraries\":\"%s\",\"gemm_extent\":%lld,\"gemm_tflops\":%.4g,\"copy_gbps\":%.4g}\n",
              gpu ? device_backend().properties(device.index).name.c_str() : "cpu",
              gpu ? device_backend().versions().c_str() : "", static_cast<long long>(extent),
              2 * n * n * n / gemm_s / 1e12,
              2 * static_cast<double>(bytes) / copy_s / 1e9);  // read and written
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::string device = argc > 1 ? argv[1] : "cuda";
  const int64_t extent = argc > 2 ? std::atoll(argv[2]) : 8192, mib = argc > 3 ? std::atoll(argv[3]) : 4096;
  if (argc > 4 || extent < 1 || mib < 1 || (device != "cuda" && device != "cpu")) {
    std::fprintf(stderr, "usage: gpu_limits [cuda|cpu] [EXTENT] [MIB]\n");
    return static_cast<int>(ExitCode::kUsage);
  }
  try {
    return limits(device == "cuda" ? Device{DeviceType::kCuda, 0} : Device{}, extent, mib);
  } catch (const Error& e) {
    std::fprintf(stderr, "gpu_limits: %s\n", e.what());
    return static_cast<int>(e.code());
  }
}
