// What the steps of a recurrent layer consist of: the products and passes over elements, in order, of some samples of a
// batch. CPUs, GPUs and what watches single products run the same, each by kernels of its own. Stateless.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/cell.h"
#include "core/kernels/pointwise.h"

#ifndef LOCKSTEP_ISA
#define LOCKSTEP_ISA host
#endif

namespace lockstep::inline LOCKSTEP_ISA {

// The two factors of products that stay the same over time.
enum class StepWeight { kJoint, kOwn };  // of the gates whose two products are summed; of a GRU's n
inline Matrix step_weight(const RecurrentArgs& a, StepWeight which) {
  const int64_t first = which == StepWeight::kJoint ? 0 : a.joint() * a.hidden;
  char* const data = static_cast<char*>(const_cast<void*>(a.weight)) + first * size_of(a.low);
  if (a.backward()) return {data, a.low, a.hidden, 1, 0};
  return {data, a.low, 1, a.hidden, 0};
}
// Its extents, [rows, cols]: products sum over rows.
inline int64_t step_weight_gates(const RecurrentArgs& a, StepWeight which) {
  return which == StepWeight::kJoint ? a.joint() : a.hidden;
}
inline int64_t step_weight_rows(const RecurrentArgs& a, StepWeight which) {
  return a.backward() ? step_weight_gates(a, which) : a.hidden;
}
inline int64_t step_weight_cols(const RecurrentArgs& a, StepWeight which) {
  return a.backward() ? a.hidden : step_weight_gates(a, which);
}

// Of samples [first, first + samples). `run` has
//   multiply(StepWeight, const GemmArgs&), whose B is step_weight(),
//   pointwise(PointwiseOp, const PointwiseArgs&) and cell(CellPass, const PointwiseArgs&).
template <class Run>
class RecurrentSteps {
 public:
  RecurrentSteps(const RecurrentArgs& args, int64_t first, int64_t samples, Run& run)
      : a_(args), first_(first), samples_(samples), run_(run) {}

  void all() {
    if (a_.backward())
      for (int64_t i = a_.time - 1; i >= 0; --i) backward(i);
    else
      for (int64_t i = 0; i < a_.time; ++i) forward(i);
  }

 private:
  using W = StepWeight;

  // Columns from `col` on of the samples' rows at `time`, of `cols` columns.
  Operand at(const void* data, DType dtype, int64_t time, int64_t cols, int64_t col = 0) const {
    Operand o;
    o.data = static_cast<char*>(const_cast<void*>(data)) + ((time * a_.batch + first_) * cols + col) * size_of(dtype);
    o.dtype = dtype;
    o.strides[0] = cols, o.strides[1] = 1;
    return o;
  }
  Operand state(const void* data, DType dtype, int64_t time) const { return at(data, dtype, time, a_.hidden); }
  Operand gate(const void* data, int64_t time, int64_t which) const {
    return at(data, a_.wide, time, a_.all_gates(), which * a_.hidden);
  }
  // The state of the step before step i.
  Operand before(const void* data, DType dtype, int64_t i) const {
    if (i > 0) return state(data, dtype, a_.at(i - 1));
    Operand none;
    none.data = const_cast<void*>(a_.zero), none.dtype = a_.wide;
    return none;
  }

  PointwiseArgs over(int64_t cols) const {
    PointwiseArgs p;
    p.dims = 2;
    p.sizes[0] = samples_, p.sizes[1] = cols;
    p.numel = samples_ * cols;
    return p;
  }
  static void add_out(PointwiseArgs& p, const Operand& o) { p.out[p.outs++] = o; }
  static void add_in(PointwiseArgs& p, const Operand& o) { p.in[p.ins++] = o; }

  void multiply(StepWeight which, const Operand& factor, const Operand& sum) {
    GemmArgs g;
    g.m = samples_, g.n = step_weight_cols(a_, which), g.k = step_weight_rows(a_, which);
    g.a = {factor.data, factor.dtype, factor.strides[0], 1, 0};
    g.b = step_weight(a_, which);
    g.c = {sum.data, sum.dtype, sum.strides[0], 1, 0};
    g.accumulate = true;
    run_.multiply(which, g);
  }
  void round(const Operand& low, const Operand& wide, int64_t cols) {
    if (a_.low == a_.wide) return;
    PointwiseArgs p = over(cols);
    add_out(p, low), add_in(p, wide);
    run_.pointwise(PointwiseOp::kCopy, p);
  }

  void forward(int64_t i) {
    const int64_t t = a_.at(i);
    PointwiseArgs cells = over(a_.hidden);
    if (i > 0) {
      const Operand h = before(a_.h, a_.low, i);
      multiply(W::kJoint, h, gate(a_.gates, t, 0));
      if (!a_.lstm()) multiply(W::kOwn, h, state(a_.of_h, a_.wide, t));
    }
    for (int64_t k = 0; k * a_.hidden < a_.all_gates(); ++k) add_in(cells, gate(a_.gates, t, k));
    if (a_.lstm()) {
      add_in(cells, before(a_.c, a_.wide, i));
      add_out(cells, state(a_.c, a_.wide, t));
    } else {
      add_in(cells, state(a_.of_h, a_.wide, t));
      add_in(cells, before(a_.h, a_.low, i));
    }
    add_out(cells, state(a_.h, a_.low, t));
    run_.cell(a_.pass, cells);
  }

  void backward(int64_t i) {
    const int64_t t = a_.at(i), H = a_.hidden;
    const Operand dh = state(a_.dh, a_.wide, t), dstate = state(a_.dstate, a_.wide, 0);
    if (i + 1 < a_.time) {
      const int64_t after = a_.at(i + 1);
      multiply(W::kJoint, at(a_.dgates_low, a_.low, after, a_.all_gates()), dh);
      if (!a_.lstm()) {
        multiply(W::kOwn, state(a_.dof_h_low, a_.low, after), dh);
        PointwiseArgs sum = over(H);
        add_out(sum, dh), add_in(sum, dh), add_in(sum, dstate);
        run_.pointwise(PointwiseOp::kAdd, sum);
      }
    }
    PointwiseArgs cells = over(H);
    for (int64_t k = 0; k * H < a_.all_gates(); ++k) {
      add_in(cells, gate(a_.gates, t, k));
      add_out(cells, gate(a_.dgates, t, k));
    }
    if (a_.lstm()) {
      add_in(cells, before(a_.c, a_.wide, i));
      add_in(cells, dh);
      add_in(cells, dstate);
    } else {
      add_in(cells, state(a_.of_h, a_.wide, t));
      add_in(cells, before(a_.h, a_.low, i));
      add_in(cells, dh);
      add_out(cells, state(a_.dof_h, a_.wide, t));
    }
    add_out(cells, dstate);
    run_.cell(a_.pass, cells);
    round(at(a_.dgates_low, a_.low, t, a_.all_gates()), at(a_.dgates, a_.wide, t, a_.all_gates()), a_.all_gates());
    if (!a_.lstm()) round(state(a_.dof_h_low, a_.low, t), state(a_.dof_h, a_.wide, t), H);
  }

  const RecurrentArgs& a_;
  const int64_t first_, samples_;
  Run& run_;
};

}  // namespace lockstep::inline LOCKSTEP_ISA
