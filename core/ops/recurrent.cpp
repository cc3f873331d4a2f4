// Recurrent layers. All of time goes through one product where it can: gates of the inputs forward, weight and input
// gradients backward; the steps in between are one kernel (core/kernels/cell.h). Rows are of a point in time and a
// sample, in this order, which is also that of sums over them.
#include <vector>

#include "core/kernels/recurrent_steps.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

struct Layer {
  Cell cell;
  bool reverse;
  int64_t time, batch, hidden;

  bool lstm() const { return cell == Cell::kLstm; }
  int64_t joint() const { return lstm() ? 4 * hidden : 2 * hidden; }  // gates whose two products are summed
  // Of rows of all steps, those of steps that have one before them, and those of these steps before.
  Tensor later(const Tensor& rows) const {
    return reverse ? rows.slice(0, 0, (time - 1) * batch) : rows.slice(0, batch, time * batch);
  }
  Tensor earlier(const Tensor& rows) const {
    return reverse ? rows.slice(0, batch, time * batch) : rows.slice(0, 0, (time - 1) * batch);
  }
};

// Rows [T B, features] of all steps. `gates` are the sums of both products, but for n of a GRU, whose product of h is
// in `of_h`; `c` is an LSTM's.
struct OverTime {
  Tensor gates, of_h, c, h;
};
// Their gradients, also in the type of products.
struct GateGradients {
  Tensor gates, of_h, gates_low, of_h_low;
};

// [B, T, features] as rows [T B, features], and back.
Tensor rows_by_time(const Tensor& x) {
  return raw::contiguous(x.permute({1, 0, 2})).reshape({x.dim(0) * x.dim(1), x.dim(2)});
}
Tensor rows_by_sample(const Tensor& rows, const Layer& l) {
  return raw::contiguous(rows.reshape({l.time, l.batch, rows.dim(1)}).permute({1, 0, 2}));
}

// `writes`: else it may be one that was saved, which nobody writes.
void* address(const Tensor& t, bool writes = true) {
  if (!t.defined()) return nullptr;
  return writes ? t.write() : const_cast<void*>(t.read());
}

RecurrentArgs arguments(CellPass pass, const Layer& l, const Tensor& weight_hh, const OverTime& steps,
                        const Tensor& zero) {
  RecurrentArgs a;
  a.pass = pass, a.reverse = l.reverse, a.time = l.time, a.batch = l.batch, a.hidden = l.hidden;
  a.wide = steps.gates.dtype(), a.low = weight_hh.dtype();
  a.weight = weight_hh.read(), a.zero = zero.read();
  const bool forward = !a.backward();
  a.gates = address(steps.gates, forward), a.of_h = address(steps.of_h, forward);
  a.c = address(steps.c, forward), a.h = address(steps.h, forward);
  return a;
}

// Runs the parts of steps as kernels of their own, where somebody watches products: they are added to rows of `sums`.
struct Watched {
  std::vector<Tensor> sums;

  void multiply(StepWeight, const GemmArgs& g) {
    raw::launch([](Parallel& p, const GemmArgs& args) { kernels(p).gemm(p, args); }, g);
    for (const Tensor& t : sums) {
      const auto first = reinterpret_cast<uintptr_t>(t.read()), at = reinterpret_cast<uintptr_t>(g.c.data);
      const auto size = static_cast<uintptr_t>(size_of(t.dtype()));
      if (at < first || at >= first + static_cast<uintptr_t>(t.numel()) * size) continue;
      const int64_t row = static_cast<int64_t>((at - first) / size) / t.dim(1);
      return raw::observe_product(t.slice(0, row, row + g.m).slice(1, 0, g.n));
    }
  }
  void pointwise(PointwiseOp op, const PointwiseArgs& a) {
    raw::launch([op](Parallel& p, const PointwiseArgs& args) { kernels(p).pointwise(p, op, args); }, a);
  }
  void cell(CellPass pass, const PointwiseArgs& a) {
    raw::launch([pass](Parallel& p, const PointwiseArgs& args) { kernels(p).cell(p, pass, args); }, a);
  }
};

void run_steps(const RecurrentArgs& a, const std::vector<Tensor>& sums) {
  if (!raw::has_product_observer())
    return raw::launch([](Parallel& p, const RecurrentArgs& args) { kernels(p).recurrent(p, args); }, a);
  Watched watched{sums};
  RecurrentSteps(a, 0, a.batch, watched).all();
}

// From the last step to the first. `gradient` is that of y [B, T, H].
GateGradients backward_steps(const Layer& l, const OverTime& steps, const Tensor& weight_hh, const Tensor& gradient) {
  const DType wide = steps.gates.dtype(), low = weight_hh.dtype();
  const auto of_type = [&](const Tensor& t, DType dtype) {
    return t.defined() ? Tensor::empty(t.shape(), dtype) : Tensor();
  };
  GateGradients d{of_type(steps.gates, wide), of_type(steps.of_h, wide), {}, {}};
  d.gates_low = low == wide ? d.gates : of_type(d.gates, low), d.of_h_low = low == wide ? d.of_h : of_type(d.of_h, low);
  const Tensor dh = Tensor::empty({l.time, l.batch, l.hidden}, wide);
  raw::copy(dh, gradient.permute({1, 0, 2}));
  const Tensor dstate = Tensor::zeros({l.batch, l.hidden}, wide), zero = Tensor::zeros({1}, wide);
  RecurrentArgs a = arguments(l.lstm() ? CellPass::kLstmBackward : CellPass::kGruBackward, l, weight_hh, steps, zero);
  a.dh = address(dh), a.dstate = address(dstate);
  a.dgates = address(d.gates), a.dof_h = address(d.of_h);
  a.dgates_low = address(d.gates_low), a.dof_h_low = address(d.of_h_low);
  run_steps(a, {dh.reshape({l.time * l.batch, l.hidden})});
  return d;
}

void add_gradients(const Layer& l, const Tensor& x, const Tensor& weight_ih, const Tensor& weight_hh,
                   const OverTime& steps, const Tensor& gradient, Gradients& grads) {
  const int64_t H = l.hidden, joint = l.joint();
  const GateGradients d = backward_steps(l, steps, weight_hh, gradient);
  if (grads.wanted(1)) {
    bool accumulate = false;
    const Tensor dw = grads.target(1, accumulate);
    raw::gemm(dw, d.gates_low.transpose(0, 1), x, {}, accumulate);
  }
  if (grads.wanted(2)) {
    bool accumulate = false;
    const Tensor dw = grads.target(2, accumulate);
    const auto product = [&](int64_t begin, int64_t end, const Tensor& of) {
      const Tensor part = dw.slice(0, begin, end);
      if (l.time > 1) raw::gemm(part, l.later(of).transpose(0, 1), l.earlier(steps.h), {}, accumulate);
      else if (!accumulate) raw::fill(part, 0);
    };
    product(0, joint, d.gates_low.slice(1, 0, joint));
    if (!l.lstm()) product(joint, 3 * H, d.of_h_low);
  }
  // Sums over rows, of which those of the joint gates go to both biases; the order of a first gradient is that of a
  // row.
  const auto sums_of = [](const Tensor& rows, bool accumulate) {
    const Tensor sums = Tensor::empty({rows.dim(1)}, rows.dtype());
    accumulate ? raw::sum_dims(sums, rows, {0}) : raw::sum_columns_as_rows(sums, rows);
    return sums;
  };
  const auto add_sums = [](const Tensor& out, const Tensor& sums, bool accumulate) {
    accumulate ? raw::add(out, out, sums) : raw::copy(out, sums);
  };
  Tensor sums;  // of the gates
  bool of_first = false;
  if (grads.wanted(3)) {
    bool accumulate = false;
    const Tensor db = grads.target(3, accumulate);
    sums = sums_of(d.gates, accumulate), of_first = !accumulate;
    add_sums(db, sums, accumulate);
  }
  if (grads.wanted(4)) {
    bool accumulate = false;
    const Tensor db = grads.target(4, accumulate);
    if (!sums.defined() || of_first == accumulate) sums = sums_of(d.gates, accumulate);
    add_sums(db.slice(0, 0, joint), sums.slice(0, 0, joint), accumulate);
    if (!l.lstm()) add_sums(db.slice(0, joint, 3 * H), sums_of(d.of_h, accumulate), accumulate);
  }
  if (grads.wanted(0)) {
    const Tensor dx = Tensor::empty(x.shape(), gradient.dtype());
    raw::gemm(dx, d.gates_low, weight_ih);
    grads.add(0, rows_by_sample(dx, l));
  }
}

}  // namespace

Tensor recurrent(Cell cell, const Tensor& x, const Tensor& weight_ih, const Tensor& weight_hh, const Tensor& bias_ih,
                 const Tensor& bias_hh, bool reverse, CallSite place) {
  const bool lstm = cell == Cell::kLstm;
  const char* const name = lstm ? "lstm" : "gru";
  const TraceOp op(name);
  const int64_t gates_of_cell = lstm ? 4 : 3;
  check(x.rank() == 3 && x.numel() > 0 && weight_ih.rank() == 2 && weight_hh.rank() == 2 &&
            weight_ih.dim(1) == x.dim(2) && weight_ih.dim(0) == gates_of_cell * weight_hh.dim(1) &&
            weight_hh.dim(0) == weight_ih.dim(0) && bias_ih.defined() && bias_hh.defined() &&
            bias_ih.numel() == weight_ih.dim(0) && bias_hh.numel() == weight_ih.dim(0),
        name, ": ", x, " (B, T, I) with weights ", weight_ih, " and ", weight_hh, ", biases ", bias_ih, " and ",
        bias_hh);
  check(is_floating(x.dtype()) && weight_ih.dtype() == x.dtype() && weight_hh.dtype() == x.dtype(), name, ": ", x,
        " with weights ", weight_ih, " and ", weight_hh, " of another type");
  const Layer layer{cell, reverse, x.dim(1), x.dim(0), weight_hh.dim(1)};
  const int64_t rows = layer.time * layer.batch, H = layer.hidden, joint = layer.joint();
  const DType wide = raw::statistics_type(x);
  const Tensor input = rows_by_time(x.detach()), w_ih = raw::contiguous(weight_ih.detach()),
               w_hh = raw::contiguous(weight_hh.detach());

  // Biases first, then the products of x with all of time, then those of h, step by step.
  const Tensor bias = Tensor::empty({gates_of_cell * H}, wide);
  raw::add(bias.slice(0, 0, joint), bias_ih.detach().slice(0, 0, joint), bias_hh.detach().slice(0, 0, joint));
  OverTime steps{Tensor::empty({rows, gates_of_cell * H}, wide), {}, {}, Tensor::empty({rows, H}, x.dtype())};
  if (lstm) {
    steps.c = Tensor::empty({rows, H}, wide);
  } else {
    raw::copy(bias.slice(0, joint, 3 * H), bias_ih.detach().slice(0, joint, 3 * H));
    steps.of_h = Tensor::empty({rows, H}, wide);
    raw::copy(steps.of_h, bias_hh.detach().slice(0, joint, 3 * H).reshape({1, H}).expand(steps.of_h.shape()));
  }
  raw::gemm(steps.gates, input, w_ih.transpose(0, 1), bias);
  std::vector<Tensor> sums{steps.gates};
  if (!lstm) sums.push_back(steps.of_h);
  run_steps(arguments(lstm ? CellPass::kLstm : CellPass::kGru, layer, w_hh, steps, Tensor::zeros({1}, wide)), sums);
  const Tensor y = rows_by_sample(steps.h, layer);
  return result_of(
      name, place, y, {&x, &weight_ih, &weight_hh, &bias_ih, &bias_hh},
      [layer, name, x = Saved(input), w_ih = Saved(w_ih), w_hh = Saved(w_hh), gates = Saved(steps.gates),
       of_h = Saved(steps.of_h), c = Saved(steps.c), h = Saved(steps.h)](const Tensor& gradient, Gradients& grads) {
        const bool lstm = layer.lstm();
        const OverTime steps{gates.get(name), lstm ? Tensor() : of_h.get(name), lstm ? c.get(name) : Tensor(),
                             h.get(name)};
        add_gradients(layer, x.get(name), w_ih.get(name), w_hh.get(name), steps, gradient, grads);
      });
}

}  // namespace lockstep
