// Recurrent layers. All of time goes through one product where it can: gates of the inputs forward, weight and input
// gradients backward. In between, gates and states are [time, features, batch], so that a step multiplies the weight as
// it lies in memory by a narrow matrix.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "core/base/partition.h"
#include "core/device/thread_pool.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

struct Product {
  Tensor c, a, b;  // c += a b
};

// Rows [begin, end) of `units`, of an operation over [units, B].
PointwiseArgs rows_of(PointwiseArgs a, int64_t units, int64_t begin, int64_t end) {
  const int64_t step = a.dims == 1 ? a.numel / units : 1;  // of the first dimension
  for (int j = 0; j < a.ins + a.outs; ++j) {
    Operand& o = j < a.ins ? a.in[j] : a.out[j - a.ins];
    o.data = static_cast<char*>(o.data) + begin * step * o.strides[0] * size_of(o.dtype);
  }
  a.sizes[0] = (end - begin) * step;
  a.numel = a.numel / units * (end - begin);
  return a;
}
GemmArgs rows_of(GemmArgs g, int64_t begin, int64_t end) {
  for (Matrix* m : {&g.a, &g.c}) m->data = static_cast<char*>(m->data) + begin * m->row_stride * size_of(m->dtype);
  g.m = end - begin;
  return g;
}

// Products, then a step of the cells. Row u of the cells' [units, B] needs rows u, u + units, ... of the products
// alone: on a CPU each thread computes both for some units, so that threads wait for one another once.
void run_cell(CellPass pass, std::initializer_list<Tensor> outs, std::initializer_list<Tensor> ins,
              std::span<const Product> products = {}) {
  const PointwiseArgs cells = raw::pointwise_args(outs, ins);
  const int64_t units = outs.begin()->dim(0);
  std::array<GemmArgs, 2> of;
  size_t count = 0;
  TaskCost cost = counts_costs() ? cost_of(cells) : TaskCost{};
  for (const Product& p : products) {
    if (raw::has_product_observer()) {
      raw::gemm(p.c, p.a, p.b, {}, true);
    } else {
      check(count < of.size() && p.c.dim(0) % units == 0, "a step of ", units, " cells after a product ", p.c);
      GemmArgs& g = of[count++] = raw::gemm_args(p.c, p.a, p.b);
      g.accumulate = true;
      if (counts_costs()) cost.bytes += cost_of(g).bytes, cost.flops += cost_of(g).flops;
    }
  }
  current_stream().enqueue(
      [pass, cells, units, count, of](Parallel& p) {
        constexpr int64_t kLeastUnits = 16, kLeastWork = 65536;  // of a thread; multiply-adds
        int64_t work = 1;                                        // of a unit
        for (size_t i = 0; i < count; ++i) work += of[i].m / units * of[i].n * of[i].k;
        const int64_t share = std::max(ceil_div(units, static_cast<int64_t>(p.threads())), ceil_div(kLeastWork, work));
        if (p.device_kernels() || count == 0 || share < kLeastUnits || share >= units) {
          for (size_t i = 0; i < count; ++i) kernels(p).gemm(p, of[i]);
          return kernels(p).cell(p, pass, cells);
        }
        auto body = [&](int64_t begin, int64_t end) {
          ThreadPool here(1);  // this thread alone
          for (size_t i = 0; i < count; ++i)
            for (int64_t row = 0; row < of[i].m; row += units)
              kernels(p).gemm(here, rows_of(of[i], row + begin, row + end));
          kernels(p).cell(here, pass, rows_of(cells, units, begin, end));
        };
        p.run(units, share, body);
      },
      cost);
}

// Rows [begin, end) of step t of [T, rows, B].
Tensor rows_at(const Tensor& all, int64_t t, int64_t begin, int64_t end) {
  return all.slice(0, t, t + 1).reshape({all.dim(1), all.dim(2)}).slice(0, begin, end);
}
Tensor at(const Tensor& all, int64_t t) { return rows_at(all, t, 0, all.dim(1)); }

// [T, rows, B] as a matrix [rows, T B].
Tensor over_time(const Tensor& all) {
  return raw::contiguous(all.permute({1, 0, 2})).reshape({all.dim(1), all.dim(0) * all.dim(2)});
}

struct Steps {
  int64_t count;
  bool reverse;
  int64_t at(int64_t i) const { return reverse ? count - 1 - i : i; }
  // Columns of over_time() that have a step before them, and those of these steps before.
  Tensor later(const Tensor& m, int64_t batch) const {
    return reverse ? m.slice(1, 0, (count - 1) * batch) : m.slice(1, batch, count * batch);
  }
  Tensor earlier(const Tensor& m, int64_t batch) const {
    return reverse ? m.slice(1, batch, count * batch) : m.slice(1, 0, (count - 1) * batch);
  }
};

struct Layer {
  Cell cell;
  Steps steps;
  int64_t batch, hidden;

  bool lstm() const { return cell == Cell::kLstm; }
  int64_t joint() const { return lstm() ? 4 * hidden : 2 * hidden; }  // rows of gates whose two products are summed
};

// Tensors of all steps. `gates` [T, G H, B] hold the products of x, and of h except for n of a GRU, which are in `of_h`
// [T, H, B]; `c` [T, H, B] is an LSTM's.
struct OverTime {
  Tensor gates, of_h, c, h;
};

// The gradients of `gates` and `of_h`, from the last step to the first. `gradient` is that of y [B, T, H].
OverTime backward_steps(const Layer& l, const OverTime& at_forward, const Tensor& weight_hh, const Tensor& gradient) {
  const auto& [gates, of_h, c, h] = at_forward;
  const int64_t T = l.steps.count, B = l.batch, H = l.hidden, joint = l.joint();
  const DType wide = gates.dtype();
  const Tensor dh = Tensor::empty({T, H, B}, wide);  // of y, then also by way of the next step
  raw::copy(dh, gradient.permute({1, 2, 0}));
  const Tensor dgates = Tensor::empty(gates.shape(), wide),
               dof_h = l.lstm() ? Tensor() : Tensor::empty(h.shape(), wide);
  const Tensor dstate = Tensor::zeros({H, B}, wide);               // of c, or the GRU's own part of dh
  const Tensor zeros = Tensor::zeros({H, B}, wide);                // the state before the first step
  const Tensor back = raw::contiguous(weight_hh.transpose(0, 1));  // [H, G H]
  const DType narrow = weight_hh.dtype();
  for (int64_t i = T - 1; i >= 0; --i) {
    const int64_t t = l.steps.at(i);
    const Tensor d = at(dh, t);
    std::vector<Product> products;
    if (i < T - 1) {
      const int64_t after = l.steps.at(i + 1);
      products.push_back({d, back.slice(1, 0, joint), raw::cast(rows_at(dgates, after, 0, joint), narrow)});
      if (!l.lstm()) products.push_back({d, back.slice(1, joint, 3 * H), raw::cast(at(dof_h, after), narrow)});
    }
    const auto gate = [&](const Tensor& all, int64_t k) { return rows_at(all, t, k * H, (k + 1) * H); };
    const int64_t before = i > 0 ? l.steps.at(i - 1) : 0;
    if (l.lstm())
      run_cell(
          CellPass::kLstmBackward, {gate(dgates, 0), gate(dgates, 1), gate(dgates, 2), gate(dgates, 3), dstate},
          {gate(gates, 0), gate(gates, 1), gate(gates, 2), gate(gates, 3), i > 0 ? at(c, before) : zeros, d, dstate},
          products);
    else {  // the cells' own part is added to d in between
      for (const Product& p : products) raw::gemm(p.c, p.a, p.b, {}, true);
      if (!products.empty()) raw::add(d, d, dstate);
      run_cell(CellPass::kGruBackward, {gate(dgates, 0), gate(dgates, 1), gate(dgates, 2), at(dof_h, t), dstate},
               {gate(gates, 0), gate(gates, 1), gate(gates, 2), at(of_h, t), i > 0 ? at(h, before) : zeros, d});
    }
  }
  return {dgates, dof_h, {}, {}};
}

void add_gradients(const Layer& l, const Tensor& x, const Tensor& weight_ih, const Tensor& weight_hh,
                   const OverTime& at_forward, const Tensor& gradient, Gradients& grads) {
  const int64_t T = l.steps.count, B = l.batch, H = l.hidden, joint = l.joint();
  const OverTime d = backward_steps(l, at_forward, weight_hh, gradient);
  const auto factor = [&](const Tensor& t) { return raw::cast(t, weight_hh.dtype()); };  // products take one type
  const Tensor g = over_time(d.gates), g_factor = factor(g);
  if (grads.wanted(1)) {
    bool accumulate = false;
    const Tensor dw = grads.target(1, accumulate);
    raw::gemm(dw, g_factor, raw::contiguous(x.permute({1, 0, 2})).reshape({T * B, x.dim(2)}), {}, accumulate);
  }
  const Tensor g_of_h = l.lstm() ? Tensor() : over_time(d.of_h);
  if (grads.wanted(2)) {
    bool accumulate = false;
    const Tensor dw = grads.target(2, accumulate);
    const auto product = [&](int64_t begin, int64_t end, const Tensor& of) {
      const Tensor part = dw.slice(0, begin, end);
      if (T > 1)
        raw::gemm(part, l.steps.later(of, B), l.steps.earlier(over_time(at_forward.h), B).transpose(0, 1), {},
                  accumulate);
      else if (!accumulate) raw::fill(part, 0);
    };
    product(0, joint, g_factor.slice(0, 0, joint));
    if (!l.lstm()) product(joint, 3 * H, factor(g_of_h));
  }
  if (grads.wanted(3)) {
    bool accumulate = false;
    const Tensor db = grads.target(3, accumulate);
    raw::sum_dims(db, g, {1}, accumulate);
  }
  if (grads.wanted(4)) {
    bool accumulate = false;
    const Tensor db = grads.target(4, accumulate);
    raw::sum_dims(db.slice(0, 0, joint), g.slice(0, 0, joint), {1}, accumulate);
    if (!l.lstm()) raw::sum_dims(db.slice(0, joint, 3 * H), g_of_h, {1}, accumulate);
  }
  if (grads.wanted(0)) {
    const Tensor dx = Tensor::empty({T * B, x.dim(2)}, gradient.dtype());
    raw::gemm(dx, g_factor.transpose(0, 1), weight_ih);
    grads.add(0, raw::contiguous(dx.reshape({T, B, x.dim(2)}).permute({1, 0, 2})));
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
  const int64_t B = x.dim(0), T = x.dim(1), H = weight_hh.dim(1), joint = lstm ? 4 * H : 2 * H;
  const DType wide = raw::statistics_type(x);
  const Layer layer{cell, {T, reverse}, B, H};
  const Tensor input = raw::contiguous(x.detach()), w_ih = raw::contiguous(weight_ih.detach()),
               w_hh = raw::contiguous(weight_hh.detach());

  // Biases first, then the products of x with all of time, then those of h, step by step.
  const Tensor bias = Tensor::empty({gates_of_cell * H}, wide);
  raw::add(bias.slice(0, 0, joint), bias_ih.detach().slice(0, 0, joint), bias_hh.detach().slice(0, 0, joint));
  if (!lstm) raw::copy(bias.slice(0, joint, 3 * H), bias_ih.detach().slice(0, joint, 3 * H));
  const Tensor gates = Tensor::empty({T, gates_of_cell * H, B}, wide);
  raw::copy(gates, bias.reshape({1, gates_of_cell * H, 1}).expand(gates.shape()));
  raw::gemm(gates, w_ih.reshape({1, gates_of_cell * H, x.dim(2)}), input.permute({1, 2, 0}), {}, true);
  Tensor of_h;
  if (!lstm) {
    of_h = Tensor::empty({T, H, B}, wide);
    raw::copy(of_h, bias_hh.detach().slice(0, joint, 3 * H).reshape({1, H, 1}).expand(of_h.shape()));
  }
  const Tensor h = Tensor::empty({T, H, B}, x.dtype()), c = lstm ? Tensor::empty({T, H, B}, wide) : Tensor();
  const Tensor zeros = Tensor::zeros({H, B}, wide);
  for (int64_t i = 0; i < T; ++i) {
    const int64_t t = layer.steps.at(i), before = i > 0 ? layer.steps.at(i - 1) : 0;
    std::vector<Product> products;
    if (i > 0) {
      products.push_back({rows_at(gates, t, 0, joint), w_hh.slice(0, 0, joint), at(h, before)});
      if (!lstm) products.push_back({at(of_h, t), w_hh.slice(0, joint, 3 * H), at(h, before)});
    }
    const auto gate = [&](int64_t k) { return rows_at(gates, t, k * H, (k + 1) * H); };
    if (lstm)
      run_cell(CellPass::kLstm, {at(c, t), at(h, t)},
               {gate(0), gate(1), gate(2), gate(3), i > 0 ? at(c, before) : zeros}, products);
    else
      run_cell(CellPass::kGru, {at(h, t)}, {gate(0), gate(1), gate(2), at(of_h, t), i > 0 ? at(h, before) : zeros},
               products);
  }
  const Tensor y = raw::contiguous(h.permute({2, 0, 1}));
  return result_of(name, place, y, {&x, &weight_ih, &weight_hh, &bias_ih, &bias_hh},
                   [layer, name, x = Saved(input), w_ih = Saved(w_ih), w_hh = Saved(w_hh), gates = Saved(gates),
                    of_h = Saved(of_h), c = Saved(c), h = Saved(h)](const Tensor& gradient, Gradients& grads) {
                     const bool lstm = layer.lstm();
                     const OverTime at_forward{gates.get(name), lstm ? Tensor() : of_h.get(name),
                                               lstm ? c.get(name) : Tensor(), h.get(name)};
                     add_gradients(layer, x.get(name), w_ih.get(name), w_hh.get(name), at_forward, gradient, grads);
                   });
}

}  // namespace lockstep
