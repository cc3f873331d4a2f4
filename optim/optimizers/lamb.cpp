// LAMB (You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", 2019): the direction of
// AdamW, scaled for each parameter by the ratio of the parameter's norm to the direction's. As in the authors' code,
// the ratio counts where weight decay applies; norms and biases step by the direction alone.
#include "core/base/partition.h"
#include "core/base/state_chunk.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"
#include "optim/adam_family.h"

namespace lockstep {
namespace {

// fp64 sums of squares of x [n], one for each kStateChunk elements, to out.
void chunk_squares(const Tensor& x, const Tensor& out) {
  const float* from = static_cast<const float*>(x.read());
  double* to = static_cast<double*>(out.write());
  if (x.numel() > 0)
    current_stream().enqueue([from, to, n = x.numel()](Parallel& p) { kernels(p).chunk_norms(p, from, n, to); });
}

class Lamb final : public AdamFamily {
 public:
  Lamb(const AdamWOptions& o, const std::vector<Slot>& slots) : AdamFamily(o, slots, "lamb") {
    for (size_t first = 0, end = 0; first < slots.size(); first = end) {
      end = end_of_group(slots, first);
      const int64_t chunks = group_total(slots[first]) / kStateChunk;
      std::vector<int64_t> ranges;
      for (int64_t half : {int64_t(0), chunks})
        for (size_t i = first; i < end; ++i) {
          require_whole_region(slots[i], "lamb");
          const int64_t begin = half + slots[i].place / kStateChunk;
          ranges.push_back(begin);
          ranges.push_back(begin + ceil_div(slots[i].region.numel(), kStateChunk));
        }
      ranges_.resize(slots.size());
      ranges_[first] = Tensor::of(ranges, {static_cast<int64_t>(ranges.size())});
    }
  }

 private:
  void update_group(const std::vector<Slot>& slots, size_t first, size_t end, const float* control) override {
    const WithMemoryUse use(MemoryUse::kScratch);
    begin_group(slots, first, end);
    const int64_t chunks = group_total(slots[first]) / kStateChunk;
    const Tensor squares = Tensor::empty({2 * chunks}, DType::kFloat64);  // of masters' chunks, then of directions'
    std::vector<Tensor> directions;
    for (size_t i = first; i < end; ++i) {
      directions.push_back(Tensor::empty({slots[i].master.numel()}));
      run_pass(slots, i, [&](const Slot& s, const std::vector<Tensor>& moments) {
        const int64_t begin = s.offset - slots[i].offset, n = s.master.numel();
        const Tensor direction = directions.back().slice(0, begin, begin + n);
        PointwiseArgs a =
            raw::pointwise_args({moments[0], moments[1], direction}, {s.master, moments[0], moments[1], s.gradient});
        set_scalars(a, s, control);
        raw::launch(
            [](Parallel& p, const PointwiseArgs& args) {
              kernels(p).update(p, "lamb_direction", {&args, 1});
            },
            a);
        const int64_t at = (s.place + s.offset) / kStateChunk, count = ceil_div(n, kStateChunk);
        chunk_squares(s.master, squares.slice(0, at, at + count));
        chunk_squares(direction, squares.slice(0, chunks + at, chunks + at + count));
      });
    }
    const Tensor ratios = trust_ratios(slots[first], squares, ranges_[first]);
    for (size_t i = first; i < end; ++i)
      run_pass(slots, i, [&](const Slot& s, const std::vector<Tensor>&) {
        const int64_t begin = s.offset - slots[i].offset, n = s.master.numel();
        const auto k = static_cast<int64_t>(i - first);
        PointwiseArgs a = update_args(
            s, {s.master},
            {s.master, directions[i - first].slice(0, begin, begin + n), ratios.slice(0, k, k + 1).expand({n})});
        a.scalars[0] = s.lr_scale;
        a.scalars[1] = s.decay ? 1 : 0;
        a.control = control;
        raw::launch([](Parallel& p, const PointwiseArgs& args) { kernels(p).update(p, "lamb", {&args, 1}); }, a);
      });
    end_group(slots, first, end);
  }

  // Of the group's parameters [slots], fp32: the sums are those of the tree that the gradients' norm is formed by, over
  // all chunks of a parameter, so that no rank's share shows.
  static Tensor trust_ratios(const Slot& first, const Tensor& squares, const Tensor& ranges) {
    const int64_t chunks = squares.numel() / 2, slots = ranges.numel() / 4;
    if (first.group)
      for (int64_t half : {int64_t(0), chunks}) first.group->gather_whole(squares.slice(0, half, half + chunks), 1);
    const Tensor sums = Tensor::empty({2 * slots}, DType::kFloat64), ratios = Tensor::empty({slots});
    TreeSumsArgs t;
    t.values = static_cast<double*>(squares.write());
    t.ranges = static_cast<const int64_t*>(ranges.read());
    t.count = 2 * slots;
    t.out = static_cast<double*>(sums.write());
    current_stream().enqueue([t](Parallel& p) { kernels(p).tree_sums(p, t); });
    raw::launch(
        [](Parallel& p, const PointwiseArgs& args) {
          kernels(p).update(p, "lamb_ratio", {&args, 1});
        },
        raw::pointwise_args({ratios}, {sums.slice(0, 0, slots), sums.slice(0, slots, 2 * slots)}));
    return ratios;
  }

  std::vector<Tensor> ranges_;  // by a group's first slot: pairs, the chunks of each parameter in `squares`
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(const AdamWOptions& o, const std::vector<Slot>& slots) {
  return std::make_unique<Lamb>(o, slots);
}
Choice<OptimizerKind> lamb_choice() { return choice<OptimizerKind, AdamFamilyKind<make_lamb>>("lamb"); }

}  // namespace lockstep
