#include "core/device/cuda/runtime/mask_proof.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/device/cuda/kernels/tiled_attention.h"
#include "core/device/cuda/libraries/dnn.h"
#include "core/kernels/attention/kind_of.h"
#include "core/kernels/stage.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kBatch = 2, kKeyHeads = 2;
constexpr int64_t kTime = 200;  // of a row, or, where that is more,
constexpr int64_t kBehindWindow = 72, kLongestWindow = 1024;
constexpr int kSlot = 3;  // scratch memory that attention does not use
// Where a row's documents begin: of one token, of several tiles, and one that begins and ends within tiles. The last
// one is longer than the window.
constexpr int64_t kBegins[kBatch][3] = {{0, 1, 71}, {0, 137, 137}};
// Units in the last place of the largest element of a head's row: probabilities and their gradients are rounded to 16
// bits in another order. What is wrong of a mask is wrong by hundreds.
constexpr double kUnits = 16;

using Forward = void (*)(Parallel&, const AttentionArgs&);

// A number of [-1, 1) from a counter (SplitMix64).
double number(uint64_t i) {
  uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
}

class Trial {
 public:
  Trial(CudaQueue& queue, const MaskedAttention& kind) : queue_(queue) {
    const int64_t dim = args_.dim = kind.dim, heads = args_.heads = kKeyHeads * kind.group;
    const DType dtype = args_.dtype = kind.dtype;
    args_.batch = kBatch, args_.kv_heads = kKeyHeads, args_.causal = kind.causal;
    args_.window = std::min(kind.window, kLongestWindow);
    const int64_t time = args_.time = std::max(kTime, kBegins[1][1] + args_.window + kBehindWindow);
    args_.scale = 1 / std::sqrt(static_cast<double>(dim));
    const int64_t rows = kBatch * time, width = heads * dim, packed = (heads + 2 * kKeyHeads) * dim;
    const int64_t item = size_of(dtype);
    Part qkv = part(rows * packed * item), dy = part(rows * width * item), documents = part(rows * 4);
    y_ = part(rows * width * item), lse_ = part(rows * heads * 4), dqkv_ = part(rows * packed * item);
    std::vector<char> inputs(static_cast<size_t>(y_.from));
    for (const Part& p : {qkv, dy})
      for (int64_t i = 0; i < p.bytes / item; ++i)
        store_element<double>(inputs.data() + p.from, dtype, i, 2 * number(static_cast<uint64_t>(p.from + i)));
    auto* const document = reinterpret_cast<int32_t*>(inputs.data() + documents.from);
    for (int64_t i = 0; i < rows; ++i)
      for (const int64_t begin : kBegins[i / time]) document[i] += i % time >= begin ? 1 : 0;
    memory_ = static_cast<char*>(queue.scratch_memory(kSlot, bytes_));
    queue.copy(memory_, inputs.data(), y_.from);
    args_.unpack(memory_ + qkv.from, memory_ + dqkv_.from);
    args_.dy = memory_ + dy.from, args_.documents = reinterpret_cast<int32_t*>(memory_ + documents.from);
    args_.y = memory_ + y_.from, args_.lse = memory_ + lse_.from;
  }

  std::string doubt() {
    queue_.trust_masks({kind_of(args_)});
    const std::vector<char> ours = outputs(tiled_attention, tiled_attention_backward);
    const std::vector<char> first = outputs(attention, attention_backward);
    const std::string where = str(args_.dtype, ", heads of ", args_.dim, args_.causal ? ", causal" : "",
                                  args_.window > 0 ? str(", window ", args_.window) : "", ": ");
    if (first != outputs(attention, attention_backward)) return str(where, "other bits when it was repeated");
    const double unit = args_.dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
    for (const auto& [name, p] : {std::pair{"y", y_}, {"gradients", dqkv_}})
      if (const auto wrong = difference(first, ours, p, args_.dtype, kUnits * unit)) return str(where, name, *wrong);
    if (const auto wrong = difference(first, ours, lse_, DType::kFloat32, 0x1p-8)) return str(where, "lse", *wrong);
    return "";
  }

 private:
  struct Part {
    int64_t from = 0, bytes = 0;
  };
  Part part(int64_t bytes) {
    const Part p{bytes_, bytes};
    bytes_ += (bytes + 255) / 256 * 256;
    return p;
  }

  std::vector<char> outputs(Forward forward, Forward backward) {
    forward(queue_, args_);
    backward(queue_, args_);
    std::vector<char> out(static_cast<size_t>(bytes_));
    queue_.copy(out.data(), memory_, bytes_);
    queue_.record()->wait();
    return out;
  }

  // The first element that is further off than `tolerance` of its row's largest and of the root mean square.
  std::optional<std::string> difference(const std::vector<char>& got, const std::vector<char>& wanted, const Part& p,
                                        DType dtype, double tolerance) const {
    const int64_t count = p.bytes / size_of(dtype), row = dtype == DType::kFloat32 ? 1 : args_.dim;
    const auto value = [&](const std::vector<char>& of, int64_t i) {
      return load_element<double>(of.data() + p.from, dtype, i);
    };
    double squares = 0;
    for (int64_t i = 0; i < count; ++i) squares += value(wanted, i) * value(wanted, i);
    const double rms = std::sqrt(squares / static_cast<double>(count));
    for (int64_t i = 0; i < count; i += row) {
      double largest = 0;
      for (int64_t j = i; j < i + row; ++j) largest = std::max(largest, std::abs(value(wanted, j)));
      for (int64_t j = i; j < i + row; ++j)
        if (!(std::abs(value(got, j) - value(wanted, j)) <= tolerance * (largest + rms)))
          return str(", element ", j, " is ", value(got, j), ", and ", value(wanted, j), " by kernels of our own");
    }
    return {};
  }

  CudaQueue& queue_;
  AttentionArgs args_;
  int64_t bytes_ = 0;
  Part y_, lse_, dqkv_;
  char* memory_ = nullptr;
};

}  // namespace

std::string doubt_of_masks(CudaQueue& queue, const MaskedAttention& kind) {
  const MaskedAttentions before = queue.trusted_masks();
  std::string doubt = Trial(queue, kind).doubt();
  queue.trust_masks(before);
  return doubt;
}

}  // namespace lockstep::cuda
