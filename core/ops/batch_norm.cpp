#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

void run_pass(BatchNormPass pass, std::initializer_list<Tensor> outs, std::initializer_list<Tensor> ins, double s0 = 0,
              double s1 = 0) {
  PointwiseArgs a = raw::pointwise_args(outs, ins);
  a.scalars[0] = s0, a.scalars[1] = s1;
  current_stream().enqueue([pass, a](Parallel& p) { kernels(p).batch_norm(p, pass, a); },
                           counts_costs() ? cost_of(a) : TaskCost{});
}

void run_sums(const ChannelSumsArgs& a) {
  raw::launch([](Parallel& p, const ChannelSumsArgs& args) { kernels(p).channel_sums(p, args); }, a);
}

ChannelSumsArgs sums_of(const Tensor& x, const Tensor& out0, const Tensor& out1) {
  ChannelSumsArgs a;
  a.channels = x.dim(-1);
  a.rows = x.numel() / a.channels;
  a.x = x.read(), a.x_dtype = x.dtype();
  a.out0 = out0.write(), a.out1 = out1.write();
  return a;
}

// The sums of the gradient and of its products with the normalised x.
void run_gradient_sums(ChannelSumsArgs a, const Tensor& g, const Tensor& mean, const Tensor& rstd) {
  a.g = g.read(), a.g_dtype = g.dtype();
  a.mean = mean.read(), a.rstd = rstd.read();
  run_sums(a);
}

// The gradient before relu, whose result is y.
Tensor before_relu(const Tensor& g, const Tensor& y) {
  const Tensor out = Tensor::empty(g.shape(), g.dtype());
  raw::pointwise(PointwiseOp::kReluBackward, {out}, {g, y.reshape(g.shape())});
  return out;
}

}  // namespace

BatchNormed batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const BatchNormOptions& options,
                       CallSite place) {
  const TraceOp op("batch_norm");
  const Tensor& addend = options.addend;
  const bool fixed = options.fixed_mean.defined(), relu = options.relu;
  check(x.rank() >= 2 && x.numel() > 0 && weight.rank() == 1 && weight.dim(0) == x.dim(-1) && bias.defined() &&
            bias.numel() == weight.numel() && (!addend || (addend.shape() == x.shape() && addend.dtype() == x.dtype())),
        "batch_norm: ", x, " with weight ", weight, ", bias ", bias, addend ? str(", addend ", addend) : "");
  const int64_t channels = x.dim(-1), rows = x.numel() / channels;
  const DType wide = raw::statistics_type(x);
  const auto of_channels = [&] { return Tensor::empty({channels}, wide); };
  const Tensor dense = raw::contiguous(x.detach()).reshape({rows, channels});
  const Tensor mean = fixed ? raw::cast(options.fixed_mean, wide) : of_channels();
  const Tensor m2 = fixed ? raw::cast(options.fixed_variance, wide) : of_channels();
  if (!fixed) run_sums(sums_of(dense, mean, m2));
  const Tensor rstd = of_channels(), scale = of_channels(), shift = of_channels(), variance = of_channels();
  run_pass(BatchNormPass::kCoefficients, {rstd, scale, shift, variance}, {mean, m2, weight.detach(), bias.detach()},
           fixed ? 1 : static_cast<double>(rows), options.eps);
  const Tensor y = Tensor::empty(x.shape(), x.dtype()), flat = y.reshape({rows, channels});
  if (addend)
    run_pass(relu ? BatchNormPass::kForwardAddRelu : BatchNormPass::kForwardAdd, {flat},
             {dense, scale, shift, raw::contiguous(addend.detach()).reshape({rows, channels})});
  else run_pass(relu ? BatchNormPass::kForwardRelu : BatchNormPass::kForward, {flat}, {dense, scale, shift});

  // With an addend, relu's mask is that of the result; else it follows from x.
  const bool masks_result = relu && addend.defined(), masks_x = relu && !addend;
  BatchNormed out;
  if (!fixed) out.mean = mean, out.variance = variance;
  out.y = result_of(
      "batch_norm", place, y, {&x, &weight, &bias, &addend},
      [x = Saved(dense), y = Saved(masks_result ? y : Tensor()), mean = Saved(mean), rstd = Saved(rstd),
       scale = Saved(scale), shift = Saved(shift), masks_result, masks_x, shape = x.shape(),
       share = fixed ? 0.0 : 1 / static_cast<double>(rows)](const Tensor& gradient, Gradients& grads) {
        const Tensor& input = x.get("batch_norm");
        const Tensor &m = mean.get("batch_norm"), &r = rstd.get("batch_norm"), &s = scale.get("batch_norm"),
                     &t = shift.get("batch_norm");
        Tensor g = raw::contiguous(gradient).reshape(input.shape());
        if (masks_result) g = before_relu(g, y.get("batch_norm"));
        const auto of_channels = [&] { return Tensor::empty({s.numel()}, s.dtype()); };
        const Tensor sum = of_channels(), sum_normalised = of_channels();
        ChannelSumsArgs a = sums_of(input, sum, sum_normalised);
        if (masks_x) a.scale = s.read(), a.shift = t.read();
        run_gradient_sums(a, g, m, r);
        if (grads.wanted(0)) {
          const Tensor slope = of_channels(), offset = of_channels(), dx = Tensor::empty(input.shape(), g.dtype());
          run_pass(BatchNormPass::kGradientCoefficients, {slope, offset}, {sum, sum_normalised, s, r}, share);
          if (masks_x) run_pass(BatchNormPass::kBackwardRelu, {dx}, {g, input, s, t, m, slope, offset});
          else run_pass(BatchNormPass::kBackward, {dx}, {g, input, s, m, slope, offset});
          grads.add(0, dx.reshape(shape));
        }
        if (grads.wanted(1)) grads.add(1, sum_normalised);
        if (grads.wanted(2)) grads.add(2, sum);
        if (grads.wanted(3)) grads.pass(3, g.reshape(shape));
      });
  return out;
}

namespace {

constexpr const char* kGroupNorm = "group_norm";

// Of x [batch, rows, channels].
ChannelSumsArgs sums_of_each(const Tensor& x, const Tensor& out0, const Tensor& out1) {
  ChannelSumsArgs a = sums_of(x, out0, out1);
  a.batch = x.dim(0), a.rows = x.dim(1);
  return a;
}

// The sum of each group's channels: [B, G, C / G] to [B, G, 1].
Tensor over_group(const Tensor& of_channels) {
  const Tensor out = Tensor::empty({of_channels.dim(0), of_channels.dim(1), 1}, of_channels.dtype());
  raw::sum_dims(out, of_channels, {2});
  return out;
}

Tensor like_channels(const Tensor& t) { return Tensor::empty(t.shape(), t.dtype()); }

// Of each group, [batch, groups, 1]; m2: the sum of squared distances from the mean.
struct GroupMoments {
  Tensor mean, m2;
};

// Of x [batch, rows, channels].
GroupMoments group_moments(const Tensor& x, int64_t groups) {
  const int64_t rows = x.dim(1), width = x.dim(2) / groups;
  const auto of_channels = [&] { return Tensor::empty({x.dim(0), groups, width}, raw::statistics_type(x)); };
  const Tensor mean_c = of_channels(), m2_c = of_channels();
  run_sums(sums_of_each(x, mean_c, m2_c));
  const Tensor sum = over_group(mean_c), mean = like_channels(sum), squared = of_channels();
  raw::pointwise(PointwiseOp::kAffine, {mean}, {sum}, 1.0 / static_cast<double>(width));
  raw::pointwise(PointwiseOp::kSub, {squared}, {mean_c, mean});
  raw::pointwise(PointwiseOp::kMul, {squared}, {squared, squared});
  raw::pointwise(PointwiseOp::kAddScaled, {squared}, {m2_c, squared}, static_cast<double>(rows));
  return {mean, over_group(squared)};
}

}  // namespace

// Batch norm's passes, with statistics of each channel of a sample that are joined to those of its group.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps,
                  CallSite place) {
  const TraceOp op(kGroupNorm);
  check(x.rank() >= 2 && x.numel() > 0 && groups > 0 && x.dim(-1) % groups == 0 && weight.rank() == 1 &&
            weight.dim(0) == x.dim(-1) && bias.defined() && bias.numel() == weight.numel(),
        kGroupNorm, ": ", x, " in ", groups, " groups with weight ", weight, ", bias ", bias);
  const int64_t batch = x.dim(0), channels = x.dim(-1), rows = x.numel() / (batch * channels),
                width = channels / groups;
  const DType wide = raw::statistics_type(x);
  const Shape grouped{batch, groups, width}, apart{batch, 1, channels};
  const auto of_channels = [&] { return Tensor::empty(grouped, wide); };
  const Tensor dense = raw::contiguous(x.detach()).reshape({batch, rows, channels});
  const auto [mean, m2] = group_moments(dense, groups);
  const Tensor means = of_channels(), rstd = of_channels(), scale = of_channels(), shift = of_channels(),
               variance = of_channels();
  raw::copy(means, mean);
  const Tensor weights = weight.detach().reshape({1, groups, width});
  run_pass(BatchNormPass::kCoefficients, {rstd, scale, shift, variance},
           {means, m2, weights, bias.detach().reshape({1, groups, width})}, static_cast<double>(rows * width), eps);
  const Tensor y = Tensor::empty(x.shape(), x.dtype());
  run_pass(BatchNormPass::kForward, {y.reshape(dense.shape())}, {dense, scale.reshape(apart), shift.reshape(apart)});

  return result_of(
      kGroupNorm, place, y, {&x, &weight, &bias},
      [x = Saved(dense), w = Saved(weights), mean = Saved(means), rstd = Saved(rstd), scale = Saved(scale), apart,
       shape = x.shape(), share = 1 / static_cast<double>(rows * width)](const Tensor& gradient, Gradients& grads) {
        const Tensor &input = x.get(kGroupNorm), &means = mean.get(kGroupNorm), &rstds = rstd.get(kGroupNorm);
        const Tensor g = raw::contiguous(gradient).reshape(input.shape());
        const Tensor of_g = like_channels(means), of_both = like_channels(means);
        run_gradient_sums(sums_of_each(input, of_g, of_both), g, means, rstds);
        if (grads.wanted(0)) {
          const Tensor weighted = like_channels(means), weighted_both = like_channels(means),
                       slope = like_channels(means), offset = like_channels(means);
          raw::pointwise(PointwiseOp::kMul, {weighted}, {of_g, w.get(kGroupNorm)});
          raw::pointwise(PointwiseOp::kMul, {weighted_both}, {of_both, w.get(kGroupNorm)});
          run_pass(BatchNormPass::kGradientCoefficients, {slope, offset},
                   {over_group(weighted), over_group(weighted_both), rstds, rstds}, share);
          const Tensor dx = Tensor::empty(input.shape(), g.dtype());
          run_pass(BatchNormPass::kBackward, {dx},
                   {g, input, scale.get(kGroupNorm).reshape(apart), means.reshape(apart), slope.reshape(apart),
                    offset.reshape(apart)});
          grads.add(0, dx.reshape(shape));
        }
        for (int i : {1, 2}) {
          if (!grads.wanted(i)) continue;
          const Tensor total = Tensor::empty({apart[2]}, means.dtype());
          raw::sum_dims(total, (i == 1 ? of_both : of_g).reshape(apart), {0, 1});
          grads.add(i, total);
        }
      });
}

}  // namespace lockstep
