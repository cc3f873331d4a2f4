#include "launch/training/profiling/breakdown.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/text_table.h"
#include "core/device/context.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kProduct = 1024;             // rows and columns of the matrices
constexpr int64_t kCopied = int64_t(1) << 24;  // fp32 elements
constexpr const char* kWait = "wait";          // what events name their waits (core/device/stream.cpp)

double least_seconds(const std::function<void()>& work) {
  double least = 0;
  for (int round = 0; round < 6; ++round) {  // the first touches memory
    const auto begun = std::chrono::steady_clock::now();
    work();
    current_stream().synchronize();
    const double s = Seconds(std::chrono::steady_clock::now() - begun).count();
    if (round == 1 || (round > 1 && s < least)) least = s;
  }
  return least;
}

// Per nanosecond, which is 10^9 a second; nothing where nothing was counted.
std::string rate(double amount, int64_t ns) {
  return amount > 0 && ns > 0 ? fixed(amount / static_cast<double>(ns), 1) : "-";
}

}  // namespace

MachineLimits measure_limits() {
  WithMemoryUse use(MemoryUse::kScratch);
  MachineLimits limits;
  {
    const Tensor a = Tensor::full({kProduct, kProduct}, 0.5), b = Tensor::full({kProduct, kProduct}, 0.25);
    const Tensor c = Tensor::empty({kProduct, kProduct});
    limits.gflops =
        2e-9 * static_cast<double>(kProduct * kProduct * kProduct) / least_seconds([&] { raw::gemm(c, a, b); });
  }
  const Tensor from = Tensor::zeros({kCopied}), to = Tensor::zeros({kCopied});
  limits.gbps = 2e-9 * static_cast<double>(from.bytes()) / least_seconds([&] { raw::copy(to, from); });
  return limits;
}

Breakdown::Breakdown() { start_trace(); }
Breakdown::~Breakdown() { stop_trace(); }

void Breakdown::take_step() {
  const Trace trace = take_trace();
  for (const Span& span : trace.spans) {
    if (span.rank != trace_owner.rank || span.file || span.range) continue;
    const bool own = span.thread == trace_thread();
    if (!own && std::string_view(span.name) == kWait) continue;  // a stream without work
    Sum& sum = (own ? own_ : others_)[{span.name, span.backward}];
    ++sum.calls;
    sum.ns += span.self_ns;
    sum.bytes += span.bytes;
    sum.flops += span.flops;
  }
  lost_ += trace.lost;
  ++steps_;
}

std::vector<std::vector<std::string>> Breakdown::rows(const Sums& sums, double step_ms) const {
  std::vector<std::pair<std::string, Sum>> sorted;
  for (auto& [key, sum] : sums) sorted.emplace_back(key.first + (key.second ? " backward" : ""), sum);
  std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.second.ns > b.second.ns; });
  const auto steps = static_cast<double>(steps_);
  const bool rates = current_device().type == DeviceType::kCpu;
  std::vector<std::vector<std::string>> out{{"op", "calls/step", "ms/step", "% of step", "GF/s", "GB/s"}};
  for (auto& [name, sum] : sorted) {
    const double ms = static_cast<double>(sum.ns) / steps / 1e6;
    out.push_back({name, fixed(static_cast<double>(sum.calls) / steps, 1), fixed(ms, 3), fixed(100 * ms / step_ms, 1),
                   rates ? rate(sum.flops, sum.ns) : "-", rates ? rate(static_cast<double>(sum.bytes), sum.ns) : "-"});
  }
  return out;
}

std::string Breakdown::text(double step_ms, const MachineLimits& limits) const {
  auto own = rows(own_, step_ms);
  double other = step_ms;
  for (auto& [_, sum] : own_) other -= static_cast<double>(sum.ns) / static_cast<double>(steps_) / 1e6;
  own.push_back({"other", "", fixed(other, 3), fixed(100 * other / step_ms, 1), "-", "-"});
  own.push_back({"step", "1.0", fixed(step_ms, 3), "100.0", "-", "-"});
  const bool gpu = current_device().type == DeviceType::kCuda;
  std::string out = str("rank ", trace_owner.rank, ", mean of ", steps_, steps_ == 1 ? " step" : " steps",
                        gpu ? "; the host's time, not the GPU's" : "", "\n\n", text_table(own));
  if (!others_.empty()) out += str("\nother threads of the rank, meanwhile\n\n", text_table(rows(others_, step_ms)));
  if (limits.gflops > 0)
    out += str("\nlimits of ", current_stream().threads(),
               current_stream().threads() == 1 ? " thread: " : " threads: ", fixed(limits.gflops, 1),
               " GF/s (fp32 product of ", kProduct, " x ", kProduct, " matrices), ", fixed(limits.gbps, 1),
               " GB/s (copy of ", kCopied * size_of(DType::kFloat32) >> 20, " MiB)\n");
  if (lost_ > 0) out += str("\n", lost_, " spans are missing: a step has more than a trace keeps\n");
  return out + "\n";
}

}  // namespace lockstep
