// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024): the momentum of a matrix,
// brought near to the closest orthogonal matrix by Newton-Schulz iterations. The scale, 0.2 sqrt(max(rows, columns)),
// is that of Liu et al., "Muon is scalable for LLM training" (2025): a step is then about as large as AdamW's, and both
// take one learning rate. AdamW updates the other parameters.
#include <algorithm>
#include <cmath>

#include "core/base/state_chunk.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"
#include "optim/adam_family.h"

namespace lockstep {
namespace {

constexpr int kIterations = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // of the iteration, from Jordan et al.

// 1 / (norm of x), fp32 [1]. The order of the sum depends on the number of elements alone.
Tensor inverse_norm(const Tensor& x) {
  const int64_t n = x.numel(), chunks = (n + kStateChunk - 1) / kStateChunk;
  const Tensor squares = Tensor::empty({chunks}, DType::kFloat64), range = Tensor::empty({2}, DType::kInt64);
  raw::fill(range.slice(0, 0, 1), 0);
  raw::fill(range.slice(0, 1, 2), static_cast<double>(chunks));
  const Tensor sum = Tensor::empty({1}, DType::kFloat64), inverse = Tensor::empty({1});
  TreeSumsArgs t;
  t.values = static_cast<double*>(squares.write());
  t.ranges = static_cast<const int64_t*>(range.read());
  t.count = 1;
  t.out = static_cast<double*>(sum.write());
  current_stream().enqueue([from = static_cast<const float*>(x.read()), n, t](Parallel& p) {
    kernels(p).chunk_norms(p, from, n, t.values);
    kernels(p).tree_sums(p, t);
  });
  raw::launch(
      [](Parallel& p, const PointwiseArgs& args) {
        kernels(p).update(p, "muon_inverse_norm", {&args, 1});
      },
      raw::pointwise_args({inverse}, {sum}));
  return inverse;
}

// U V^T for g = U S V^T [rows, columns] contiguous, about: the iteration leaves singular values between 0.7 and 1.2.
Tensor orthogonalized(const Tensor& g) {
  const bool tall = g.shape()[0] > g.shape()[1];  // the product of the shorter side with itself is the smaller one
  const Tensor wide = tall ? g.transpose(0, 1) : g;
  Tensor x = Tensor::empty(wide.shape()), next = Tensor::empty(wide.shape());
  raw::pointwise(PointwiseOp::kMul, {x}, {wide, inverse_norm(g).expand(wide.shape())});
  const int64_t side = wide.shape()[0];
  const Tensor a = Tensor::empty({side, side}), b = Tensor::empty({side, side});
  for (int i = 0; i < kIterations; ++i) {
    raw::gemm(a, x, x.transpose(0, 1));
    raw::gemm(b, a, a);
    raw::pointwise(PointwiseOp::kAffine, {b}, {b}, kC);
    raw::pointwise(PointwiseOp::kAddScaled, {b}, {b, a}, kB);
    raw::pointwise(PointwiseOp::kAffine, {next}, {x}, kA);
    raw::gemm(next, b, x, {}, true);
    std::swap(x, next);
  }
  return tall ? raw::contiguous(x.transpose(0, 1)) : x;
}

class Muon final : public AdamFamily {
 public:
  Muon(const MuonOptions& o, const std::vector<Slot>& slots)
      : AdamFamily(o.adamw, slots,
                   [&](const Slot& s) {
                     return is_matrix(o, s) ? std::vector<std::string>{"muon.m"}
                                            : std::vector<std::string>{"adamw.m", "adamw.v"};
                   }),
        o_(o) {
    for (const Slot& s : slots)
      if (is_matrix(o, s)) require_whole_region(s, "muon");
  }

 private:
  static bool is_matrix(const MuonOptions& o, const Slot& s) {
    return s.region.shape.rank() >= 2 && !s.table && !matches_any(o.adamw_for, s.name);
  }

  void update_slot(const Slot& s, const std::vector<Tensor>& moments, const float* control) override {
    update_by("adamw", s, moments, control);
  }

  void update_group(const std::vector<Slot>& slots, size_t first, size_t end, const float* control) override {
    const WithMemoryUse use(MemoryUse::kScratch);
    begin_group(slots, first, end);
    Tensor whole;  // of the group's matrices, the momentum that is orthogonalized
    for (size_t i = first; i < end; ++i) {
      if (!is_matrix(o_, slots[i])) {
        run_pass(slots, i, [&](const Slot& s, const std::vector<Tensor>& m) { update_slot(s, m, control); });
        continue;
      }
      if (!whole) whole = Tensor::empty({group_total(slots[i])});
      run_pass(slots, i, [&](const Slot& s, const std::vector<Tensor>& moments) {
        const int64_t begin = s.place + s.offset;
        PointwiseArgs a = raw::pointwise_args({moments[0], whole.slice(0, begin, begin + s.master.numel())},
                                              {moments[0], s.gradient});
        a.scalars[0] = o_.momentum;
        a.control = control;
        raw::launch(
            [](Parallel& p, const PointwiseArgs& args) {
              kernels(p).update(p, "muon_momentum", {&args, 1});
            },
            a);
      });
    }
    if (whole && slots[first].group) slots[first].group->gather_whole(whole, kStateChunk);
    for (size_t i = first; i < end; ++i)
      if (is_matrix(o_, slots[i]) && slots[i].master.numel() > 0) update_matrix(slots, i, whole, control);
    end_group(slots, first, end);
  }

  // A rank that holds a slice of a matrix computes the whole of it. Dimensions from the second on count as columns.
  void update_matrix(const std::vector<Slot>& slots, size_t i, const Tensor& whole, const float* control) {
    const Shape& shape = slots[i].region.shape;
    const int64_t rows = shape[0], columns = shape.numel() / rows, place = slots[i].place;
    const Tensor step = orthogonalized(whole.slice(0, place, place + shape.numel()).reshape({rows, columns})).flatten();
    run_pass(slots, i, [&](const Slot& s, const std::vector<Tensor>&) {
      PointwiseArgs a = update_args(s, {s.master}, {s.master, step.slice(0, s.offset, s.offset + s.master.numel())});
      a.scalars[0] = s.decay ? o_.adamw.weight_decay : 0;
      a.scalars[1] = s.lr_scale;
      a.scalars[2] = 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
      a.control = control;
      raw::launch([](Parallel& p, const PointwiseArgs& args) { kernels(p).update(p, "muon", {&args, 1}); }, a);
    });
  }

  MuonOptions o_;
};

class MuonKind final : public OptimizerKind {
 public:
  std::vector<Field> options() override {
    std::vector<Field> all = fields(o_.adamw);
    all.push_back(field("momentum", o_.momentum, "decay of a matrix's momentum").with_range(0, kMostBeta));
    all.push_back(field("adamw_for", o_.adamw_for,
                        "matrices that AdamW updates, by name, as vectors and embeddings are: the head"));
    return all;
  }
  std::unique_ptr<Optimizer> build(const OptimOptions& common, const std::vector<Slot>& slots) const override {
    MuonOptions o = o_;
    o.adamw.lr = common.lr;
    o.adamw.weight_decay = common.weight_decay;
    return make_muon(o, slots);
  }

 private:
  MuonOptions o_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const MuonOptions& o, const std::vector<Slot>& slots) {
  return std::make_unique<Muon>(o, slots);
}
Choice<OptimizerKind> muon_choice() { return choice<OptimizerKind, MuonKind>("muon"); }

}  // namespace lockstep
